//! Replays the log in redis-server 7.0, which must arrive at the same data.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::{arguments, cases, commands, is_newer, seeded, shown};
use crate::command::testing::Terminal;

/// A running redis-server, which is stopped when this value is dropped.
struct Oracle {
    child: Child,
    link: BufReader<TcpStream>,
}

impl Oracle {
    /// Starts redis-server; None if it is not installed, which is a failure with `BASALT_REQUIRE_ORACLE=1`.
    fn start() -> Option<Oracle> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let port = listener.local_addr().expect("its address").port();
        drop(listener);
        let port_text = port.to_string();
        let arguments = ["--port", &port_text, "--save", "", "--daemonize", "no"];
        let child = Command::new("redis-server")
            .args(arguments)
            .args(["--enable-debug-command", "local", "--dir", "/tmp"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let Ok(child) = child else {
            let required = std::env::var("BASALT_REQUIRE_ORACLE").is_ok_and(|value| value == "1");
            assert!(
                !required,
                "BASALT_REQUIRE_ORACLE=1, but there is no redis-server in PATH"
            );
            eprintln!("skipped: no redis-server");
            return None;
        };
        for _ in 0..1_000 {
            if let Ok(link) = TcpStream::connect(("127.0.0.1", port)) {
                let link = BufReader::new(link);
                return Some(Oracle { child, link });
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("redis-server does not listen")
    }

    fn send(&mut self, request: &[impl AsRef<[u8]>]) -> Vec<u8> {
        let mut text = format!("*{}\r\n", request.len()).into_bytes();
        for argument in request {
            let argument = argument.as_ref();
            text.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
            text.extend_from_slice(argument);
            text.extend_from_slice(b"\r\n");
        }
        self.link.get_mut().write_all(&text).expect("sent");
        let mut reply = Vec::new();
        self.read(&mut reply);
        reply
    }

    /// Reads one raw reply.
    fn read(&mut self, reply: &mut Vec<u8>) {
        let start = reply.len();
        self.link.read_until(b'\n', reply).expect("a line");
        let line = String::from_utf8_lossy(&reply[start..]).trim().to_owned();
        let number = line[1..].parse::<i64>();
        match (line.as_bytes()[0], number) {
            (b'$', Ok(len @ 0..)) => {
                let at = reply.len();
                reply.resize(at + len as usize + 2, 0);
                self.link.read_exact(&mut reply[at..]).expect("a bulk");
            }
            (b'*', Ok(count)) => (0..count).for_each(|_| self.read(reply)),
            _ => {}
        }
    }
}

impl Drop for Oracle {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The requests sent to both servers: the signature of all data, and the state of the stream's groups.
const QUESTIONS: [&[&str]; 3] = [
    &["DEBUG", "DIGEST"],
    &["XINFO", "GROUPS", "x"],
    &["XPENDING", "x", "g"],
];

fn ask(cli: &mut Terminal, question: &[&str]) -> Vec<u8> {
    cli.connection.db = 0;
    cli.reply_bytes(question)
}

#[test]
fn redis_server_comes_to_the_same_data() {
    let Some(mut oracle) = Oracle::start() else {
        return;
    };
    let mut compared = 0;
    for (name, requests) in cases::all() {
        if is_newer(requests) || name.starts_with("function") {
            continue;
        }
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let now_ms = since.expect("after 1970").as_millis() as u64;
        let mut cli = seeded(4, false, now_ms);
        for (line, _) in *requests {
            let request = arguments(&mut cli, line);
            cli.run_args(&request);
            // Deadlines of a tenth of a second would pass while redis-server is running.
            if line.contains("PX 100")
                || line.contains("PSETEX s 100")
                || line.ends_with("PEXPIRE s 100")
            {
                cli.run("PERSIST s");
            }
        }
        oracle.send(&["FLUSHALL"]);
        for (db, request) in commands(&cli.logged()) {
            oracle.send(&["SELECT", &db.to_string()]);
            let reply = oracle.send(&request);
            let reply = String::from_utf8_lossy(&reply);
            let request = shown(&[request]);
            assert!(!reply.starts_with('-'), "{name}: {request}: {reply}");
        }
        oracle.send(&["SELECT", "0"]);
        for question in QUESTIONS {
            let (theirs, ours) = (oracle.send(question), ask(&mut cli, question));
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            assert_eq!(text(&theirs), text(&ours), "{name}: {question:?}");
        }
        compared += 1;
    }
    assert!(compared > 100, "{compared}");
}
