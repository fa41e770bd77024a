//! Starting and watching the server as an operator: service managers, daemon mode, errors that stop a start,
//! messages at the start, and the findings of `--check-config`.

use std::fs::{self, Permissions};
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use crate::support::{
    self, Options, Server, check, eventually, free_port, is_listening, is_stand_in,
};
use crate::wire::Raw;

/// A child process that is killed on drop.
pub(crate) struct Killed(pub(crate) Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns this server's command with a port, a folder and nothing that other tests share.
pub(crate) fn prepared(port: u16, dir: &Path) -> Command {
    let mut command = support::command();
    command
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
        .args(["--metrics-port", "0", "--dir"])
        .arg(dir)
        .stdin(Stdio::null());
    for name in [
        "NOTIFY_SOCKET",
        "WATCHDOG_USEC",
        "WATCHDOG_PID",
        "UPSTART_JOB",
    ] {
        command.env_remove(name);
    }
    command
}

pub(crate) fn output(command: &mut Command) -> (bool, String, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().expect("the server");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (status.success(), text(stdout), text(stderr))
}

/// Messages that a service manager receives, each with its lines.
struct Heard(UnixDatagram);

impl Heard {
    fn next(&self) -> Vec<String> {
        let mut buffer = [0; 4096];
        self.0
            .set_read_timeout(Some(Duration::from_secs(90)))
            .expect("a time-out");
        let count = self.0.recv(&mut buffer).expect("a message");
        let text = String::from_utf8_lossy(&buffer[..count]).into_owned();
        text.lines().map(str::to_owned).collect()
    }

    /// Reads until a line begins with `start`, and returns that line.
    fn until(&self, start: &str) -> String {
        let mut found = None;
        eventually(start, || {
            let lines = self.next();
            found = lines.into_iter().find(|line| line.starts_with(start));
            found.is_some()
        });
        found.expect("it came")
    }
}

#[test]
fn systemd_hears_when_the_server_serves_what_it_is_about_and_when_it_ends() {
    if is_stand_in() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("notify");
    let name = format!("basalt-notify-{}", std::process::id());
    let in_folder = UnixDatagram::bind(&path).expect("a socket");
    let address = SocketAddr::from_abstract_name(&name).expect("a name");
    let abstracted = UnixDatagram::bind_addr(&address).expect("a socket");
    for (socket, variable, supervised) in [
        (in_folder, path.display().to_string(), "systemd"),
        (abstracted, format!("@{name}"), "auto"),
    ] {
        let heard = Heard(socket);
        let port = free_port();
        // A process that is looked after stays in the foreground.
        let mut child = Killed(
            prepared(port, folder.path())
                .args([
                    "--save",
                    "",
                    "--supervised",
                    supervised,
                    "--daemonize",
                    "yes",
                ])
                .env("NOTIFY_SOCKET", &variable)
                .env("WATCHDOG_USEC", "400000")
                .stdout(Stdio::null())
                .spawn()
                .expect("the server"),
        );
        let mut ready = Vec::new();
        eventually("it is ready", || {
            ready = heard.next();
            let is_ready = ready.iter().any(|line| line == "READY=1");
            assert!(is_ready || !ready.iter().any(|line| line.contains("Serving")));
            is_ready
        });
        assert!(
            ready.contains(&format!("MAINPID={}", child.0.id())),
            "{ready:?}"
        );
        assert!(is_listening(port));
        let status = heard.until("STATUS=Serving as primary");
        assert!(status.contains(" 0 replicas"), "{status}");
        for _ in 0..3 {
            heard.until("WATCHDOG=1");
        }
        let mut raw = Raw::connect(port);
        check(&mut raw, "REPLICAOF 127.0.0.1 1", "OK");
        let status = heard.until("STATUS=Replica of");
        assert_eq!(status, "STATUS=Replica of 127.0.0.1:1: the link is down");
        check(&mut raw, "REPLICAOF NO ONE", "OK");
        heard.until("STATUS=Serving as primary");
        raw.send(b"SHUTDOWN NOSAVE\r\n");
        heard.until("STOPPING=1");
        assert!(child.0.wait().expect("it ends").success());
    }
}

#[test]
fn systemd_hears_how_far_loading_is_and_is_asked_for_time() {
    if is_stand_in() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let server = Server::start(&Options::shards(2));
    let mut raw = server.raw();
    check(&mut raw, "DEBUG POPULATE 50000", "OK");
    check(&mut raw, "SAVE", "OK");
    fs::copy(
        server.dir().join("dump.rdb"),
        folder.path().join("dump.rdb"),
    )
    .expect("a copy");
    let path = folder.path().join("notify");
    let heard = Heard(UnixDatagram::bind(&path).expect("a socket"));
    let port = free_port();
    let _child = Killed(
        prepared(port, folder.path())
            .args(["--supervised", "systemd", "--key-load-delay", "100"])
            .env("NOTIFY_SOCKET", &path)
            .stdout(Stdio::null())
            .spawn()
            .expect("the server"),
    );
    assert!(heard.until("EXTEND_TIMEOUT_USEC=").ends_with("=30000000"));
    eventually("it says how far it is", || {
        let status = heard.until("STATUS=Loading: ");
        status.contains(" MiB (") && status.ends_with(" left")
    });
    check(&mut Raw::connect(port), "CONFIG SET key-load-delay 0", "OK");
    heard.until("READY=1");
}

#[test]
fn upstart_sees_the_process_stop_itself_once_it_serves() {
    if is_stand_in() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let port = free_port();
    let mut child = Killed(
        prepared(port, folder.path())
            .args(["--supervised", "upstart"])
            .env("UPSTART_JOB", "basalt")
            .stdout(Stdio::null())
            .spawn()
            .expect("the server"),
    );
    let pid = child.0.id();
    let state = || {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let (_, rest) = stat.rsplit_once(") ").unwrap_or_default();
        rest.chars().next()
    };
    eventually("it stops itself", || state() == Some('T'));
    let sent = Command::new("kill")
        .args(["-CONT", &pid.to_string()])
        .status();
    assert!(sent.expect("kill").success());
    check(&mut Raw::connect(port), "PING", "PONG");
    child.0.kill().expect("it runs");
}

#[test]
fn a_server_in_the_background_can_be_reached_when_its_start_returns() {
    if is_stand_in() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let (pidfile, log) = (folder.path().join("pid"), folder.path().join("log"));
    let port = free_port();
    let start = |port: u16, pidfile: &Path| {
        let mut command = prepared(port, folder.path());
        command
            .args(["--daemonize", "yes", "--logfile"])
            .arg(&log)
            .arg("--pidfile")
            .arg(pidfile);
        output(&mut command)
    };
    let (is_good, stdout, stderr) = start(port, &pidfile);
    assert!(is_good, "{stderr}");
    assert_eq!((stdout.as_str(), stderr.as_str()), ("", ""));
    let mut raw = Raw::connect(port);
    check(&mut raw, "SET k v", "OK");
    let pid = fs::read_to_string(&pidfile).expect("its number");
    let pid = pid.trim_end();
    assert_eq!(support::info_field(&mut raw, "server", "process_id"), pid);
    for descriptor in 0..3 {
        let open = fs::read_link(format!("/proc/{pid}/fd/{descriptor}"));
        assert_eq!(open.expect("it is open"), Path::new("/dev/null"));
    }
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("it runs");
    let (_, fields) = stat.rsplit_once(") ").expect("fields");
    let session = fields.split(' ').nth(3);
    assert_eq!(session, Some(pid), "it has a session of its own");
    // The allocator has its threads again.
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("threads");
    let names = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("comm")).ok());
    assert!(
        names
            .into_iter()
            .any(|name| name.starts_with("jemalloc_bg"))
    );
    // A second server with this port reports that on the terminal, and does not touch the file.
    let (is_good, _, stderr) = start(port, &pidfile);
    assert!(!is_good);
    assert!(stderr.contains("Address already in use"), "{stderr}");
    assert!(
        stderr.contains(&format!("Failed listening on port {port} (tcp)")),
        "{stderr}"
    );
    assert_eq!(
        fs::read_to_string(&pidfile).expect("its number").trim_end(),
        pid
    );
    raw.send(b"SHUTDOWN NOSAVE\r\n");
    eventually("it ends", || !Path::new(&format!("/proc/{pid}")).exists());
    assert!(!pidfile.exists(), "its file goes with it");
}

#[test]
fn debians_configuration_goes_to_the_background() {
    let file = Path::new("/etc/redis/redis.conf");
    if is_stand_in() || fs::read(file).is_err() {
        support::skipped("no /etc/redis/redis.conf that can be read");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let (pidfile, log) = (folder.path().join("pid"), folder.path().join("log"));
    let port = free_port();
    let mut command = support::command();
    command
        .arg(file)
        .args(["--port", &port.to_string(), "--metrics-port", "0", "--dir"])
        .arg(folder.path())
        .arg("--pidfile")
        .arg(&pidfile)
        .arg("--logfile")
        .arg(&log);
    let (is_good, _, stderr) = output(&mut command);
    assert!(is_good, "{stderr}");
    check(&mut Raw::connect(port), "PING", "PONG");
    let mut raw = Raw::connect(port);
    raw.send(b"SHUTDOWN NOSAVE\r\n");
    eventually("it ends", || !pidfile.exists());
}

#[test]
fn what_can_not_work_stops_the_start_with_a_sentence_on_the_terminal() {
    if is_stand_in() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("log");
    let taken = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let taken = taken.local_addr().expect("its address").port().to_string();
    let here = folder.path().display().to_string();
    let nowhere = format!("{here}/nowhere/file");
    // Root may write everywhere but where no file can be made.
    let unwritable = "/proc";
    let cases: [(&[&str], &str); 6] = [
        (
            &["--dir", unwritable, "--save", "60 1"],
            "Can't write to the directory /proc: ",
        ),
        (
            &["--dir", unwritable, "--save", "", "--appendonly", "yes"],
            "Can't write to the directory /proc: ",
        ),
        (
            &["--metrics-port", &taken],
            "Can't serve metrics on 127.0.0.1:",
        ),
        (&["--port", &taken], "Failed listening on port "),
        (&["--logfile", &nowhere], "Can't open the log file: "),
        (
            &["--unixsocket", &nowhere],
            "Failed opening Unix socket: bind: ",
        ),
    ];
    for (arguments, sentence) in cases {
        for with_log in [false, true] {
            if with_log && arguments[0] == "--logfile" {
                continue;
            }
            let mut command = prepared(free_port(), folder.path());
            command.args(arguments);
            if with_log {
                command.arg("--logfile").arg(&log);
            }
            let (is_good, stdout, stderr) = output(&mut command);
            assert!(!is_good, "{arguments:?} starts");
            let seen = if with_log { stderr } else { stdout + &stderr };
            assert!(seen.contains(sentence), "{arguments:?}: {seen}");
        }
    }
    // Data that are not to be saved may be in any folder.
    let port = free_port();
    let _child = Killed(
        prepared(port, folder.path())
            .args(["--dir", unwritable, "--save", ""])
            // As redis-server: nothing depends on this file.
            .args(["--pidfile", &nowhere])
            .stdout(Stdio::null())
            .spawn()
            .expect("the server"),
    );
    eventually("it serves", || is_listening(port));
}

#[test]
fn the_start_says_what_runs() {
    if is_stand_in() {
        return;
    }
    let metrics = free_port();
    let options = Options::shards(4)
        .threads(2)
        .with("maxmemory", "64mb")
        .with("maxmemory-policy", "allkeys-lfu")
        .with("appendonly", "yes")
        .with("metrics-port", &metrics.to_string());
    let server = Server::start(&options);
    // The thread that serves may be faster than the one that writes these lines.
    eventually("the start is over", || {
        server.log().contains("Server initialized")
    });
    let log = server.log();
    for part in [
        format!("* basalt version={}", env!("CARGO_PKG_VERSION")),
        "* Threads: 2, CPU cores: ".to_owned(),
        "shards of the keyspace: 4".to_owned(),
        "* Memory: maxmemory 64 MiB; ".to_owned(),
        "maxmemory-policy allkeys-lfu".to_owned(),
        "append-only file in appendonlydir, appendfsync everysec".to_owned(),
        format!("* Addresses: TCP 127.0.0.1:{}", server.port),
        format!("metrics http://127.0.0.1:{metrics}/metrics"),
    ] {
        assert!(log.contains(&part), "{part}: {log}");
    }
    let socket = server.dir().join("socket");
    let plain = Server::start(
        &Options::shards(1)
            .with("save", "60 5")
            .with("unixsocket", &socket.display().to_string()),
    );
    eventually("the start is over", || {
        plain.log().contains("Server initialized")
    });
    let log = plain.log();
    for part in [
        "* Memory: no maxmemory, so data may grow".to_owned(),
        "snapshots in dump.rdb after 60 s and 5 changes; no append-only file".to_owned(),
        format!("unix socket {}", socket.display()),
    ] {
        assert!(log.contains(&part), "{part}: {log}");
    }
}

#[test]
fn the_help_names_the_tools_and_misspelt_words_are_answered() {
    if is_stand_in() {
        return;
    }
    let said = |arguments: &[&str]| output(support::command().args(arguments));
    for word in ["help", "--help", "-h"] {
        let (is_good, help, _) = said(&[word]);
        assert!(is_good);
        for part in [
            "check-rdb FILE",
            "check-aof FILE",
            "--check-config",
            "--maxmemory* (",
        ] {
            assert!(help.contains(part), "{word}: {part}");
        }
    }
    for (arguments, question) in [
        (["--max-memory", "1gb"], "did you mean 'maxmemory'?"),
        (["--apendonly", "yes"], "did you mean 'appendonly'?"),
        (["chek-aof", "x"], "did you mean 'check-aof'?"),
    ] {
        let (is_good, _, stderr) = said(&arguments);
        assert!(
            !is_good && stderr.contains(question),
            "{arguments:?}: {stderr}"
        );
    }
    let (_, _, stderr) = said(&["--nosuchdirective", "1"]);
    assert!(!stderr.contains("did you mean"), "{stderr}");
}

/// Returns the verdict of `--check-config` about these directives: whether all are good, and both outputs.
fn checked(dir: &Path, arguments: &[&str]) -> (bool, String) {
    let mut command = support::command();
    command
        .args([
            "--check-config",
            "--metrics-port",
            "0",
            "--bind",
            "127.0.0.1",
        ])
        .args(["--dir"])
        .arg(dir)
        .args(arguments);
    let (is_good, stdout, stderr) = output(&mut command);
    (is_good, stdout + &stderr)
}

#[test]
fn the_check_of_a_configuration_says_what_is_unsafe() {
    if is_stand_in() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let readable = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).expect("a file");
        fs::set_permissions(&path, Permissions::from_mode(0o644)).expect("its mode");
        path.display().to_string()
    };
    let aclfile = readable("users.acl", "user default on nopass ~* &* +@all\n");
    let (is_good, text) = checked(folder.path(), &[]);
    assert!(is_good);
    assert_eq!(text, "The configuration is valid\n");
    let cases: [(&[&str], &str); 10] = [
        (
            &["--bind", "0.0.0.0", "--protected-mode", "no"],
            "that can reach 0.0.0.0 have access without a password, as user default",
        ),
        (
            &[
                "--bind",
                "*",
                "--requirepass",
                "x",
                "--user",
                "open",
                "on",
                "nopass",
                "+@all",
            ],
            "without a password, as user open",
        ),
        (
            &[
                "--bind",
                "0.0.0.0",
                "--requirepass",
                "x",
                "--metrics-port",
                "9121",
            ],
            "can read the metrics: set metrics-auth",
        ),
        (
            &[
                "--bind",
                "0.0.0.0",
                "--requirepass",
                "x",
                "--cluster-enabled",
                "yes",
            ],
            "that can reach the cluster bus at 0.0.0.0 can join the cluster",
        ),
        (
            &["--aclfile", &aclfile],
            "every user of this machine can read ",
        ),
        (
            &["--enable-debug-command", "yes"],
            "enable-debug-command yes lets every client",
        ),
        (
            &["--enable-protected-configs", "yes"],
            "enable-protected-configs yes lets every client",
        ),
        (
            &[
                "--maxmemory",
                "102400gb",
                "--maxmemory-policy",
                "allkeys-lru",
            ],
            "maxmemory is 109951162777600 bytes, but the ",
        ),
        (
            &["--maxmemory", "100mb", "--save", ""],
            "maxmemory-policy is noeviction",
        ),
        (&["--daemonize", "yes"], "the log is discarded"),
    ];
    for (arguments, warning) in cases {
        let (is_good, text) = checked(folder.path(), arguments);
        assert!(is_good, "{arguments:?}: {text}");
        assert!(
            text.contains("Warning: ") && text.contains(warning),
            "{arguments:?}: {text}"
        );
        assert_eq!(text.lines().count(), 2, "nothing else is unsafe: {text}");
    }
    // Settings that count as safe: no user without a password, loopback, a password for the metrics.
    let safe: [&[&str]; 4] = [
        &[
            "--bind",
            "0.0.0.0",
            "--protected-mode",
            "no",
            "--requirepass",
            "x",
        ],
        &["--protected-mode", "no"],
        &[
            "--bind",
            "0.0.0.0",
            "--metrics-port",
            "9121",
            "--metrics-auth",
            "a:b",
        ],
        &["--maxmemory", "100mb"],
    ];
    for arguments in safe {
        let (is_good, text) = checked(folder.path(), arguments);
        assert!(
            is_good && !text.contains("Warning"),
            "{arguments:?}: {text}"
        );
    }
}

#[test]
fn the_check_of_a_configuration_fails_where_a_start_would() {
    if is_stand_in() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let bad = folder.path().join("bad.acl");
    fs::write(&bad, "user x +nosuchcommand\n").expect("a file");
    let bad = bad.display().to_string();
    let cases: [(&[&str], &str); 6] = [
        (&["--tls-port", "1"], "No tls-cert-file configured!"),
        (
            &[
                "--tls-port",
                "1",
                "--tls-cert-file",
                "nowhere",
                "--tls-key-file",
                "nowhere",
                "--tls-auth-clients",
                "no",
            ],
            "Failed to configure TLS: ",
        ),
        (
            &["--aclfile", &bad],
            "Aborting the start because of ACL errors",
        ),
        (
            &["--aclfile", "nowhere"],
            "Error loading ACLs, opening file",
        ),
        (
            &["--dir", "/proc", "--save", "60 1"],
            "Can't write to the directory /proc",
        ),
        (
            &["--rename-command", "nosuch", "x"],
            "No such command in rename-command: nosuch",
        ),
    ];
    for (arguments, sentence) in cases {
        let (is_good, text) = checked(folder.path(), arguments);
        assert!(!is_good, "{arguments:?}: {text}");
        assert!(text.contains(sentence), "{arguments:?}: {text}");
        assert!(!text.contains("The configuration is valid"), "{text}");
    }
}

#[test]
fn a_file_with_passwords_that_all_can_read_is_warned_of() {
    if is_stand_in() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("basalt.conf");
    fs::write(
        &file,
        "requirepass secret\nbind 127.0.0.1\nmetrics-port 0\n",
    )
    .expect("a file");
    for (mode, is_warned) in [(0o644, true), (0o640, false)] {
        fs::set_permissions(&file, Permissions::from_mode(mode)).expect("its mode");
        let mut command = support::command();
        command.arg(&file).args(["--check-config", "--dir"]);
        let (is_good, stdout, _) = output(command.arg(folder.path()));
        assert!(is_good);
        assert_eq!(
            stdout.contains("and the passwords in it"),
            is_warned,
            "{stdout}"
        );
    }
}

/// Returns how often each of `keys` keys occurs among `draws` samples by Zipf's law, from the most frequent
/// on.
fn zipf(keys: usize, draws: usize) -> Vec<usize> {
    let parts: f64 = (1..=keys).map(|rank| 1.0 / rank as f64).sum();
    let count = |rank: usize| draws as f64 / parts / rank as f64;
    (1..=keys)
        .map(|rank| count(rank).round() as usize)
        .collect()
}

#[test]
fn object_freq_tells_hot_keys_from_others_and_redis_cli_names_them() {
    if is_stand_in() {
        return;
    }
    const KEYS: usize = 2_000;
    let options = Options::shards(8)
        .threads(2)
        .with("maxmemory-policy", "allkeys-lfu")
        .with("hot-keys-sample", "16");
    let server = Server::start(&options);
    let mut raw = server.raw();
    let key = |rank: usize| format!("key:{rank}");
    let sets: Vec<String> = (1..=KEYS)
        .map(|rank| format!("SET {} v", key(rank)))
        .collect();
    raw.pipeline(&sets.iter().map(String::as_str).collect::<Vec<_>>());
    // In an order that has the uses of each key spread over all of the time.
    let mut draws: Vec<(usize, usize)> = Vec::new();
    for (index, count) in zipf(KEYS, 60_000).into_iter().enumerate() {
        draws.extend((0..count).map(|use_| (use_ * 1_000_003 / count, index + 1)));
    }
    draws.sort_unstable();
    for some in draws.chunks(1_000) {
        let gets: Vec<String> = some
            .iter()
            .map(|(_, rank)| format!("GET {}", key(*rank)))
            .collect();
        raw.pipeline(&gets.iter().map(String::as_str).collect::<Vec<_>>());
    }
    let mut frequency = |rank: usize| raw.call(&format!("OBJECT FREQ {}", key(rank))).integer();
    // 7,300 uses are 43 on the scale; samples find about as many.
    eventually("the first key is known", || {
        (30..60).contains(&frequency(1))
    });
    let (first, second, fourth, last) = (frequency(1), frequency(2), frequency(4), frequency(KEYS));
    assert!(
        first > second && second > fourth && fourth > 8,
        "{first} {second} {fourth}"
    );
    assert!((5..=8).contains(&last), "{last}");
    check(&mut raw, "CONFIG SET lfu-log-factor 0", "OK");
    assert_eq!(raw.call("OBJECT FREQ key:1").integer(), 255);
    check(&mut raw, "CONFIG SET lfu-log-factor 10", "OK");
    let told = Command::new("redis-cli")
        .args(["-p", &server.port.to_string(), "--hotkeys"])
        .output();
    let Ok(told) = told else {
        return support::skipped("no redis-cli");
    };
    let text = String::from_utf8_lossy(&told.stdout).into_owned();
    // hot key found with counter: 43	keyname: "key:1"
    let named = text
        .lines()
        .filter(|line| line.starts_with("hot key found with counter: "));
    let ranks = named.filter_map(|line| {
        line.rsplit_once("key:")?
            .1
            .trim_end_matches('"')
            .parse()
            .ok()
    });
    let ranks: Vec<usize> = ranks.collect();
    assert_eq!(ranks.get(..2), Some(&[1, 2][..]), "{text}");
    assert!(
        ranks.len() >= 8 && ranks[..8].iter().all(|rank| *rank <= 24),
        "{text}"
    );
}
