//! `basalt report FILE.html`: fetches a report from a running server's metrics port, and writes it to a file.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Arg, Command};

use crate::top::wire::{RespConnection, ServerEndpoint};
use basalt_core::base::base64;
use basalt_core::base::text::visible;
use basalt_server::tls::asking::{self, ToolTls};

/// Timeout for connecting to the server, and for each read.
const PATIENCE: Duration = Duration::from_secs(10);

/// Maximum bytes of a response.
const ANSWER_BYTES_MAX: u64 = 64 << 20;

/// Runs the program; the error is a message for the user.
pub fn run(arguments: &[OsString]) -> Result<String, String> {
    let name = [OsString::from("basalt report")];
    let given = match command().try_get_matches_from(name.iter().chain(arguments)) {
        Ok(given) => given,
        Err(error) if !error.use_stderr() => return Ok(error.to_string()),
        Err(error) => return Err(error.to_string()),
    };
    let text = |name: &str| given.get_one::<String>(name).cloned();
    let host = text("host").unwrap_or_default();
    let port: u16 = given.get_one("port").copied().unwrap_or_default();
    let password = text("pass").or_else(|| std::env::var("REDISCLI_AUTH").ok());
    let user = password.as_ref().map(|password| {
        let user = text("user").unwrap_or_else(|| "default".to_owned());
        format!("{user}:{password}")
    });
    let range = text("range").unwrap_or_default();
    let file: PathBuf = given.get_one("FILE").cloned().unwrap_or_default();
    let tls = ToolTls::of(&given)?;
    let path = format!("/report?range={range}");
    let fetch_at = |port| fetch((&host, port), &path, user.as_deref(), tls.as_ref());
    let page = fetch_at(port).or_else(|why| {
        // Users usually give the port for clients; the server there reports its metrics port.
        let place = ServerEndpoint {
            host: host.clone(),
            port,
            socket: None,
            user: text("user"),
            password: password.clone(),
            tls: tls.clone(),
        };
        match metrics_port(&place) {
            Some(0) => Err(format!(
                "{} is the client port, and this server has no metrics port: set metrics-port",
                place.shown()
            )),
            Some(told) if told != port => fetch_at(told),
            _ => Err(why),
        }
    })?;
    write(&file, &page).map_err(|error| format!("{}: {error}", file.display()))?;
    Ok(format!("{}: {} bytes", file.display(), page.len()))
}

/// Returns a server's metrics port, given its port for clients; `None` if no server there speaks the Redis
/// protocol, or the server does not report the port.
fn metrics_port(place: &ServerEndpoint) -> Option<u16> {
    // The given user may be that of `metrics-auth`, which only the metrics port knows, so try without one, too.
    let anonymous = ServerEndpoint {
        user: None,
        password: None,
        ..place.clone()
    };
    let mut opened = [place, &anonymous].into_iter().map(RespConnection::open);
    let mut connection = opened.find_map(Result::ok)?;
    let told = connection.ask(&["CONFIG", "GET", "metrics-port"]).ok()?;
    let port = told.elements().get(1)?.text();
    std::str::from_utf8(port).ok()?.parse().ok()
}

fn command() -> Command {
    let option = |name: &'static str, short: char, value: &'static str, help: &'static str| {
        Arg::new(name)
            .long(name)
            .short(short)
            .value_name(value)
            .help(help)
    };
    Command::new("basalt report")
        .about(
            "Writes an HTML report of the state and history of a server, to attach to an incident",
        )
        .disable_help_flag(true)
        .arg(
            Arg::new("FILE")
                .required(true)
                .value_parser(clap::value_parser!(PathBuf))
                .help("HTML file to write"),
        )
        .arg(
            option("host", 'h', "HOST", "Host name or address of the server")
                .default_value("127.0.0.1"),
        )
        .arg(
            option(
                "port",
                'p',
                "PORT",
                "Metrics port, or the client port, where the metrics port is looked up",
            )
            .default_value("9121")
            .value_parser(clap::value_parser!(u16)),
        )
        .arg(option(
            "pass",
            'a',
            "PASSWORD",
            "Password; default: the environment variable REDISCLI_AUTH",
        ))
        .arg(
            Arg::new("user")
                .long("user")
                .value_name("USER")
                .help("User name to sign in with"),
        )
        .args(asking::arguments())
        .arg(
            Arg::new("range")
                .long("range")
                .value_parser(["5m", "1h", "1d"])
                .default_value("1h")
                .help("Time range of the charts"),
        )
        .arg(
            Arg::new("help")
                .long("help")
                .action(clap::ArgAction::Help)
                .help("Print this help"),
        )
}

/// Returns the body of the response for a path, or an error if the response is not a page.
fn fetch(
    (host, port): (&str, u16),
    path: &str,
    user: Option<&str>,
    tls: Option<&ToolTls>,
) -> Result<Vec<u8>, String> {
    let place = format!("{host}:{port}");
    let failed = |error: io::Error| format!("{place}: {error}");
    let socket = connect(host, port).map_err(failed)?;
    let mut stream: Box<dyn ReportStream> = match tls {
        None => Box::new(socket),
        Some(tls) => Box::new(tls.open(host, socket).map_err(failed)?),
    };
    let authorization = user.map_or(String::new(), |user| {
        format!(
            "Authorization: Basic {}\r\n",
            base64::encode(user.as_bytes())
        )
    });
    // HTTP 1.0, because its responses are not chunked and end with the connection.
    let request = format!(
        "GET {path} HTTP/1.0\r\nHost: {}\r\n{authorization}\r\n",
        host_header(host)
    );
    stream.write_all(request.as_bytes()).map_err(failed)?;
    let mut answer = Vec::new();
    stream
        .take(ANSWER_BYTES_MAX)
        .read_to_end(&mut answer)
        .map_err(failed)?;
    body(&answer).map_err(|why| format!("{place}: {why}"))
}

trait ReportStream: Read + Write {}
impl ReportStream for TcpStream {}
impl ReportStream for asking::TlsClientStream {}

/// Formats a Host header; IPv6 addresses need brackets.
fn host_header(host: &str) -> String {
    match host.contains(':') {
        true => format!("[{host}]"),
        false => host.to_owned(),
    }
}

fn connect(host: &str, port: u16) -> io::Result<TcpStream> {
    let mut failure = io::Error::new(io::ErrorKind::NotFound, "host not found");
    for address in (host, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, PATIENCE) {
            Ok(stream) => {
                stream.set_read_timeout(Some(PATIENCE))?;
                stream.set_write_timeout(Some(PATIENCE))?;
                return Ok(stream);
            }
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

/// Returns a response's body, or the server's message if it is not a page.
fn body(answer: &[u8]) -> Result<Vec<u8>, String> {
    let split = answer.windows(4).position(|four| four == b"\r\n\r\n");
    let Some(split) = split.filter(|_| answer.starts_with(b"HTTP/1.")) else {
        return Err(
            "the reply is not HTTP: check that this is the metrics port, and that --tls matches metrics-tls"
                .to_owned(),
        );
    };
    let (head, body) = (&answer[..split], &answer[split + 4..]);
    let status = head.split(|byte| *byte == b' ').nth(1).unwrap_or_default();
    match status {
        b"200" if body.trim_ascii_end().ends_with(b"</html>") => Ok(body.to_vec()),
        b"200" => Err("the page is incomplete: the connection was closed early".to_owned()),
        _ => Err(format!(
            "{} {}",
            visible(status),
            visible(body.trim_ascii())
        )),
    }
}

/// Writes the page to a temporary file and renames it, so that the file is either a complete report or unchanged. A
/// link is followed; anything but a plain file, such as a pipe, is written directly. A new file is readable by its
/// owner only, because it may name keys.
fn write(file: &Path, page: &[u8]) -> io::Result<()> {
    let file = fs::canonicalize(file).unwrap_or_else(|_| file.to_owned());
    let before = match fs::metadata(&file) {
        Ok(before) => Some(before),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    if before.as_ref().is_some_and(|before| !before.is_file()) {
        return File::options().write(true).open(&file)?.write_all(page);
    }
    let mut aside = file.as_os_str().to_owned();
    aside.push(format!(".{}.part", std::process::id()));
    let aside = PathBuf::from(aside);
    let mut made = File::options()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&aside)?;
    let kept = before.map_or(Ok(()), |before| made.set_permissions(before.permissions()));
    kept.and_then(|()| made.write_all(page))
        .and_then(|()| fs::rename(&aside, &file))
        .inspect_err(|_| {
            // An unfinished temporary file is useless.
            let _ = fs::remove_file(&aside);
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_taken_and_anything_else_is_said() {
        assert_eq!(
            body(b"HTTP/1.0 200 OK\r\na: b\r\n\r\n<html></html>\n"),
            Ok(b"<html></html>\n".to_vec())
        );
        assert!(body(b"HTTP/1.0 200 OK\r\n\r\n<html><p>").is_err());
        let refused =
            body(b"HTTP/1.1 401 Unauthorized\r\n\r\nA user name and a password are required.\n");
        assert_eq!(
            refused,
            Err("401 A user name and a password are required.".to_owned())
        );
        for strange in [
            &b""[..],
            b"-ERR wrong number of arguments\r\n\r\n",
            b"HTTP/1.1 200 OK\r\n",
        ] {
            assert!(body(strange).is_err(), "{strange:?}");
        }
    }

    #[test]
    fn a_file_keeps_its_mode_and_links_and_pipes_stay_what_they_are() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let folder = tempfile::tempdir().expect("a folder");
        let [file, link] = ["page.html", "link.html"].map(|name| folder.path().join(name));
        let mode = |path: &Path| {
            let found = fs::metadata(path).expect("it is there");
            found.permissions().mode() & 0o777
        };
        write(&file, b"one").expect("it can be written");
        assert_eq!(mode(&file), 0o600);
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).expect("a mode");
        symlink(&file, &link).expect("a link");
        write(&link, b"two").expect("it can be written");
        assert_eq!(fs::read(&file).expect("it is there"), b"two");
        assert_eq!(mode(&file), 0o640);
        let kind = fs::symlink_metadata(&link)
            .expect("it is there")
            .file_type();
        assert!(kind.is_symlink());
        write(Path::new("/dev/null"), b"three").expect("it takes everything");
        let kind = fs::metadata("/dev/null").expect("it is there").file_type();
        assert!(!kind.is_file(), "a device stays one");
        let entries = fs::read_dir(folder.path()).expect("a folder");
        assert_eq!(entries.count(), 2, "nothing is left aside");
    }

    #[test]
    fn addresses_of_ipv6_stand_in_brackets() {
        assert_eq!(
            (host_header("::1"), host_header("cache")),
            ("[::1]".to_owned(), "cache".to_owned())
        );
    }
}
