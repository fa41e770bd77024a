//! Tools and client libraries over TLS, with client certificates: redis-cli, redis-benchmark, redis-rs, and
//! the combinations that OpenSSL can offer, as the table in `docs/compatibility.md`. `.ci/clients` has other
//! libraries.

use std::process::{Command, Stdio};
use std::time::Duration;

use redis::{Commands, TlsCertificates};

use crate::support::{self, Options, Server, check, eventually, free_port, info_number};
use crate::tls::{Authority, connect, ping};

/// Runs a tool to its end; `None` if it is not installed.
fn output(tool: &str, args: &[String]) -> Option<(bool, String)> {
    let done = Command::new(tool)
        .args(args)
        .stdin(Stdio::null())
        .output()
        .ok();
    if done.is_none() {
        let required = std::env::var("BASALT_REQUIRE_ORACLE").is_ok_and(|value| value == "1");
        assert!(!required, "BASALT_REQUIRE_ORACLE=1, but there is no {tool}");
        support::skipped(&format!("no {tool}"));
    }
    let done = done?;
    let text = [done.stdout, done.stderr].concat();
    Some((
        done.status.success(),
        String::from_utf8_lossy(&text).into_owned(),
    ))
}

fn redis_args(authority: &Authority, port: u16, more: &[&str]) -> Vec<String> {
    let mut args = vec!["-p".to_owned(), port.to_string(), "--tls".to_owned()];
    for (flag, file) in [
        ("--cert", "client.crt"),
        ("--key", "client.key"),
        ("--cacert", "ca.crt"),
    ] {
        args.extend([flag.to_owned(), authority.text(file)]);
    }
    args.extend(more.iter().map(|more| (*more).to_owned()));
    args
}

#[test]
fn redis_cli_and_redis_benchmark_work_over_tls() {
    let authority = Authority::new();
    let port = free_port();
    let server = Server::start(&authority.options(port));
    let cli = |more: &[&str]| output("redis-cli", &redis_args(&authority, port, more));
    let Some((_, pong)) = cli(&["PING"]) else {
        return;
    };
    assert_eq!(pong, "PONG\n");
    for (more, expected) in [
        (&["SET", "k", "v"][..], "OK\n"),
        (&["-3", "HGETALL", "none"], "\n"),
        (
            &["EVAL", "return redis.call('GET', KEYS[1])", "1", "k"],
            "v\n",
        ),
        (&["--scan"], "k\n"),
        (
            &[
                "--user",
                "default",
                "--pass",
                "x",
                "--no-auth-warning",
                "PING",
            ],
            "PONG\n",
        ),
    ] {
        let (_, text) = cli(more).expect("it is there");
        let text = text.lines().filter(|line| !line.starts_with("AUTH failed"));
        let text: String = text.map(|line| format!("{line}\n")).collect();
        assert_eq!(text, expected, "{more:?}");
    }
    let mut bare = vec!["-p".to_owned(), port.to_string(), "--tls".to_owned()];
    bare.extend([
        "--cacert".to_owned(),
        authority.text("ca.crt"),
        "PING".to_owned(),
    ]);
    let (_, refused) = output("redis-cli", &bare).expect("it is there");
    assert!(
        !refused.contains("PONG"),
        "without a certificate: {refused}"
    );
    let mut raw = server.raw();
    let before = info_number(&mut raw, "stats", "total_commands_processed");
    for more in [
        &[
            "-n",
            "2000",
            "-c",
            "20",
            "-P",
            "16",
            "-t",
            "set,get,lrange_100",
            "-q",
        ][..],
        &[
            "-n",
            "500",
            "-c",
            "10",
            "--threads",
            "2",
            "-t",
            "ping,incr",
            "-q",
        ],
    ] {
        let args = redis_args(&authority, port, more);
        let (is_good, text) = output("redis-benchmark", &args).expect("it is there");
        assert!(is_good && text.contains("requests per second"), "{text}");
        assert!(!text.to_lowercase().contains("error"), "{text}");
    }
    let ran = info_number(&mut raw, "stats", "total_commands_processed") - before;
    assert!(ran >= 7_000.0, "{ran}");
}

#[test]
fn redis_rs_works_over_tls_with_a_certificate() {
    // One for the process; another test may have been first.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let authority = Authority::new();
    let port = free_port();
    let server = Server::start(&authority.options(port));
    let file = |name: &str| std::fs::read(authority.path(name)).expect("a file");
    let certificates = TlsCertificates {
        client_tls: Some(redis::ClientTlsConfig {
            client_cert: file("client.crt"),
            client_key: file("client.key"),
        }),
        root_cert: Some(file("ca.crt")),
    };
    let url = format!("rediss://localhost:{port}");
    let client = redis::Client::build_with_tls(url, certificates).expect("a client");
    let mut connection = client.get_connection().expect("it is served");
    let () = connection
        .set("key", vec![b'v'; 300_000])
        .expect("it is set");
    let value: Vec<u8> = connection.get("key").expect("it is there");
    assert_eq!(value.len(), 300_000);
    let mut pipeline = redis::pipe();
    for number in 0..1_000 {
        pipeline.set(format!("key:{number}"), number).ignore();
        pipeline.get(format!("key:{number}"));
    }
    let numbers: Vec<u32> = pipeline.query(&mut connection).expect("replies");
    assert!(numbers.into_iter().eq(0..1_000));
    let mut subscriber = client.get_connection().expect("it is served");
    let mut messages = subscriber.as_pubsub();
    messages.subscribe("news").expect("it subscribes");
    let heard: u32 = connection.publish("news", "hello").expect("it is sent");
    assert_eq!(heard, 1);
    messages
        .set_read_timeout(Some(Duration::from_secs(60)))
        .expect("a time-out");
    let message = messages.get_message().expect("it comes");
    assert_eq!(message.get_payload::<String>().expect("a text"), "hello");
    check(
        &mut server.raw(),
        "CLIENT KILL TYPE normal SKIPME yes",
        "(integer) 1",
    );
    assert!(
        connection.get::<_, String>("key:1").is_err(),
        "it was killed"
    );
    let mut again = client.get_connection().expect("it is served again");
    assert_eq!(again.get::<_, u32>("key:7").expect("it is there"), 7);
}

/// Returns the version and the suite that a client with only this offer gets, or `None`.
fn probe(port: u16, authority: &Authority, offer: &[&str]) -> Option<String> {
    let mut args: Vec<String> = ["s_client", "-brief", "-no_ign_eof", "-connect"]
        .map(str::to_owned)
        .into();
    args.push(format!("127.0.0.1:{port}"));
    args.extend(["-CAfile".to_owned(), authority.text("ca.crt")]);
    args.extend(offer.iter().map(|one| (*one).to_owned()));
    let (_, text) = output("openssl", &args)?;
    let fact = |name: &str| {
        let mut lines = text.lines();
        lines.find_map(|line| line.strip_prefix(name).map(str::trim).map(str::to_owned))
    };
    let version = fact("Protocol version:")?;
    Some(format!("{version} {}", fact("Ciphersuite:")?))
}

/// Suites that OpenSSL knows, by the option for a version.
fn suites(version: &str) -> Vec<String> {
    let args = ["ciphers", "-s", version, "ALL:COMPLEMENTOFALL:@SECLEVEL=0"].map(str::to_owned);
    let (_, text) = output("openssl", &args).expect("it is there");
    text.trim().split(':').map(str::to_owned).collect()
}

/// Key exchanges that OpenSSL knows.
const GROUPS: [&str; 7] = [
    "X25519",
    "P-256",
    "P-384",
    "P-521",
    "X448",
    "ffdhe2048",
    "ffdhe4096",
];

/// Returns the table in the documentation: the offers that a server with an RSA certificate and one with an
/// ECDSA certificate accept.
fn table(ports: [u16; 2], authority: &Authority) -> String {
    let mut lines = String::from(
        "| a client offers only | RSA certificate | ECDSA certificate |\n|---|---|---|\n",
    );
    let mut refused = Vec::new();
    let mut row = |name: &str, offer: &[&str], mark: &str| {
        let taken = ports.map(|port| match probe(port, authority, offer) {
            Some(came) if came.contains(mark) => "taken",
            Some(came) => panic!("{name} came to {came}"),
            None => "refused",
        });
        match taken {
            ["refused", "refused"] => refused.push(name.to_owned()),
            [rsa, ecdsa] => lines.push_str(&format!("| {name} | {rsa} | {ecdsa} |\n")),
        }
    };
    let weak = "ALL:COMPLEMENTOFALL:@SECLEVEL=0";
    for (name, option, mark) in [
        ("TLS 1.0", "-tls1", "TLSv1 "),
        ("TLS 1.1", "-tls1_1", "TLSv1.1 "),
        ("TLS 1.2", "-tls1_2", "TLSv1.2 "),
        ("TLS 1.3", "-tls1_3", "TLSv1.3 "),
    ] {
        row(name, &[option, "-cipher", weak], mark);
    }
    let newest = ["TLS_AES_128_CCM_SHA256", "TLS_AES_128_CCM_8_SHA256"].map(str::to_owned);
    for suite in suites("-tls1_3")
        .into_iter()
        .filter(|suite| suite.starts_with("TLS_"))
        .chain(newest)
    {
        row(&suite, &["-tls1_3", "-ciphersuites", &suite], &suite);
    }
    for suite in suites("-tls1_2")
        .into_iter()
        .filter(|suite| !suite.starts_with("TLS_"))
    {
        let only = format!("{suite}:@SECLEVEL=0");
        row(&suite, &["-tls1_2", "-cipher", &only], &suite);
    }
    for group in GROUPS {
        row(
            &format!("key exchange {group}"),
            &["-tls1_3", "-groups", group],
            "TLSv1.3",
        );
    }
    let is_suite = |name: &&String| !name.contains(' ');
    let others: Vec<String> = refused
        .iter()
        .filter(|name| !is_suite(name))
        .cloned()
        .collect();
    let count = refused.iter().filter(is_suite).count();
    lines.push_str(&format!(
        "\nRefused with both: {},\nand {count} suites",
        others.join(", ")
    ));
    let examples = [
        "AES256-SHA",
        "ECDHE-RSA-AES128-SHA",
        "DHE-RSA-AES256-GCM-SHA384",
        "TLS_AES_128_CCM_SHA256",
    ];
    for example in examples {
        assert!(
            refused.iter().any(|name| name == example),
            "{example} is refused"
        );
    }
    lines.push_str(" of OpenSSL 3.0, such as ");
    lines.push_str(&examples.map(|name| format!("`{name}`")).join(", "));
    lines.push_str(".\n");
    lines
}

#[test]
fn the_documentation_has_the_versions_and_suites_that_openssl_finds() {
    let authority = Authority::new();
    let version = ["version".to_owned()];
    let Some((_, version)) = output("openssl", &version) else {
        return;
    };
    if !version.starts_with("OpenSSL 3.0.") {
        return support::skipped("the table is made with OpenSSL 3.0, which knows as many suites");
    }
    // Rustls's test tool makes ECDSA keys only; OpenSSL makes an RSA key, which the authority need not sign.
    let (key, certificate) = (authority.text("rsa.key"), authority.text("rsa.crt"));
    let made = [
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-subj",
        "/CN=localhost",
        "-days",
        "2",
        "-keyout",
        &key,
        "-out",
        &certificate,
    ];
    let (is_made, text) = output("openssl", &made.map(str::to_owned)).expect("it is there");
    assert!(is_made, "{text}");
    let ports = [free_port(), free_port()];
    let start = |port: u16, kind: &str| {
        let options = Options::default()
            .with("tls-port", &port.to_string())
            .with("tls-cert-file", &authority.text(&format!("{kind}.crt")))
            .with("tls-key-file", &authority.text(&format!("{kind}.key")))
            .with("tls-ca-cert-file", &authority.text("ca.crt"))
            .with("tls-auth-clients", "no");
        Server::start(&options)
    };
    let servers = [start(ports[0], "rsa"), start(ports[1], "server")];
    let table = table(ports, &authority);
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/compatibility.md");
    let text = std::fs::read_to_string(path).expect("the documentation");
    const BEGIN: &str = "<!-- made by tests/blackbox/tls_tools.rs -->\n";
    const END: &str = "<!-- end of it -->\n";
    let (before, rest) = text.split_once(BEGIN).expect("the mark of the table");
    let (shown, after) = rest.split_once(END).expect("the mark of its end");
    if std::env::var("BLESS").is_ok() {
        let text = format!("{before}{BEGIN}{table}{END}{after}");
        std::fs::write(path, text).expect("it is written");
    } else {
        assert_eq!(shown, table, "BLESS=1 writes it");
    }
    for server in &servers {
        eventually("they go on", || server.raw().call("PING").show() == "PONG");
    }
}

/// A PKCS #8 key under a password is served; a key in OpenSSL's older encryption is refused, and the log says
/// how to convert it.
#[test]
fn keys_are_read_with_their_password() {
    let authority = Authority::new();
    let key = authority.text("server.key");
    let (sealed, traditional) = (authority.text("sealed.key"), authority.text("old.key"));
    let made = |line: &str, to: &str| {
        let line = format!("{line} -in {key} -passout pass:secret -out {to}");
        let args: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let (is_made, text) = output("openssl", &args)?;
        assert!(is_made, "{text}");
        Some(())
    };
    if made("pkcs8 -topk8 -v2 aes-256-cbc", &sealed).is_none() {
        return;
    }
    made("ec -aes256", &traditional).expect("it ran before");
    let tls_port = free_port();
    let options = authority.options(tls_port);
    let options = options
        .with("tls-key-file", &sealed)
        .with("tls-key-file-pass", "secret");
    let server = Server::start(&options);
    let config = || authority.client(Some("client"), rustls::ALL_VERSIONS);
    ping(&mut connect(tls_port, config())).expect("it is served");
    let mut admin = server.raw();
    for (change, why) in [
        (
            "tls-key-file-pass wrong".to_owned(),
            "sealed.key: the password is wrong",
        ),
        (
            format!("tls-key-file {traditional}"),
            "old.key: the key uses the weak legacy OpenSSL encryption",
        ),
    ] {
        let reply = admin.call(&format!("CONFIG SET {change}")).show();
        let expected = "Unable to update TLS configuration";
        assert!(reply.contains(expected), "{change}: {reply}");
        assert!(server.log().contains(why), "{}", server.log());
        ping(&mut connect(tls_port, config())).expect("it is served as before");
    }
}

/// Runs one of this project's tools to its end; returns its success and its output.
fn own(tool: &str, args: &[String]) -> (bool, String) {
    let done = Command::new(support::basalt())
        .arg(tool)
        .args(args)
        .env_remove("REDISCLI_AUTH")
        .env_remove("SSL_CERT_FILE")
        .stdin(Stdio::null())
        .output()
        .expect("it runs");
    let text = [done.stdout, done.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    (done.status.success(), text)
}

#[test]
fn top_and_report_ask_by_tls() {
    if support::is_stand_in() {
        return;
    }
    let authority = Authority::new();
    let (port, metrics_port) = (free_port(), free_port());
    let options = authority.options(port).with("metrics-tls", "yes");
    let server = Server::start(&options.with("metrics-port", &metrics_port.to_string()));
    check(&mut server.raw(), "SET k v", "OK");
    let once = ["--once", "-i", "0.1"];
    let (is_good, screen) = own("top", &redis_args(&authority, port, &once));
    assert!(is_good && screen.contains("Keys            1"), "{screen}");
    let report = server.dir().join("report.html");
    let report = report.to_string_lossy().into_owned();
    let args = redis_args(&authority, metrics_port, &[&report]);
    let (is_good, said) = own("report", &args);
    assert!(is_good, "{said}");
    let page = std::fs::read_to_string(&report).expect("it was written");
    assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>"));
    let with = |port: u16, more: &[&str]| -> Vec<String> {
        let port = port.to_string();
        let all = ["-p", &port].into_iter().chain(more.iter().copied());
        all.map(str::to_owned).collect()
    };
    // The server wants certificates of clients, the metrics do not.
    let ca = authority.text("ca.crt");
    let (is_good, said) = own("top", &with(port, &["--once", "--tls", "--cacert", &ca]));
    assert!(!is_good, "without a certificate: {said}");
    let bare = with(metrics_port, &["--tls", "--cacert", &ca, &report]);
    assert!(own("report", &bare).0);
    // A server of another authority is refused, unless any is taken.
    let other = Authority::new();
    let strange = with(
        metrics_port,
        &["--tls", "--cacert", &other.text("ca.crt"), &report],
    );
    let (is_good, said) = own("report", &strange);
    assert!(
        !is_good && said.contains("invalid peer certificate"),
        "{said}"
    );
    let insecure = with(metrics_port, &["--tls", "--insecure", &report]);
    assert!(own("report", &insecure).0);
    // A client that does not use TLS gets a hint that it may have to.
    let (is_good, said) = own("report", &with(metrics_port, &[&report]));
    assert!(
        !is_good && said.contains(&metrics_port.to_string()),
        "{said}"
    );
    let (is_good, said) = own("top", &with(port, &["--once", "--cacert", &ca]));
    assert!(!is_good && said.contains("--tls"), "{said}");
}
