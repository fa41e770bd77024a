//! Helpers shared by replication tests: seeded writes of all types, and checks that servers' data converge.

use crate::support::{Draw, Server, eventually, info_text};
use crate::wire::Raw;

/// Returns a field of INFO; empty if it is missing.
pub fn info(client: &mut Raw, name: &str) -> String {
    info_text(client, "everything", name).unwrap_or_default()
}

/// Makes a server follow another one, and waits for the stream.
pub fn follow(replica: &Server, primary: &Server) {
    let mut client = replica.raw();
    let reply = client.call(&format!("REPLICAOF 127.0.0.1 {}", primary.port));
    assert!(!reply.is_error(), "{}", reply.show());
    await_link(replica);
}

/// Waits until a replica receives its primary's stream.
pub fn await_link(replica: &Server) {
    let mut client = replica.raw();
    eventually("the link is up", || {
        info(&mut client, "master_link_status") == "up"
    });
}

/// Waits until all servers have the same data and offsets.
pub fn settle(servers: &[&Server]) {
    let mut clients: Vec<Raw> = servers.iter().map(|server| server.raw()).collect();
    eventually("offsets and data agree", || {
        let mut states = clients.iter_mut().map(|client| {
            let offset = match info(client, "slave_repl_offset") {
                own if own.is_empty() => info(client, "master_repl_offset"),
                applied => applied,
            };
            (offset, client.call("DEBUG DIGEST").show())
        });
        let first = states.next();
        states.all(|state| Some(&state) == first.as_ref())
    });
}

/// Random writes, by many commands and to all types of redis-server 7.0.
pub struct Writer {
    client: Raw,
    draw: Draw,
}

impl Writer {
    pub fn new(server: &Server, seed: u64) -> Writer {
        Writer {
            client: server.raw(),
            draw: Draw::new(seed),
        }
    }

    /// Writes over an existing connection.
    pub fn over(client: Raw, seed: u64) -> Writer {
        Writer {
            client,
            draw: Draw::new(seed),
        }
    }

    /// Sends at least `count` requests, in pipelines.
    pub fn write(&mut self, count: usize) {
        const PIPELINED: usize = 50;
        let mut left = count;
        while left > 0 {
            let mut lines = Vec::new();
            for _ in 0..left.min(PIPELINED) {
                lines.extend(self.lines());
            }
            left -= left.min(PIPELINED);
            let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
            self.client.pipeline(&lines);
        }
    }

    /// Sends a pipeline, which fails once the server is gone or refuses writes.
    pub fn try_write(&mut self) -> std::io::Result<()> {
        let lines: Vec<String> = (0..20).flat_map(|_| self.lines()).collect();
        let text = lines
            .iter()
            .fold(String::new(), |all, line| all + line + "\r\n");
        self.client.send_unchecked(text.as_bytes());
        for _ in lines {
            let reply = self.client.try_read()?;
            if reply.is_error() && reply.show().contains("READONLY") {
                return Err(std::io::ErrorKind::ReadOnlyFilesystem.into());
            }
        }
        Ok(())
    }

    fn key(&mut self, kind: &str) -> String {
        format!("{kind}{}", self.draw.below(20))
    }

    fn lines(&mut self) -> Vec<String> {
        let number = self.draw.below(1000);
        let one = |line: String| vec![line];
        match self.draw.below(34) {
            0 => one(format!("SELECT {}", self.draw.below(3))),
            1 => one(format!("SET {} {}", self.key("s"), "v".repeat(number))),
            2 => one(format!(
                "SET {} {} PX {}",
                self.key("s"),
                number,
                1 + number * 4
            )),
            3 => one(format!("INCR {}", self.key("n"))),
            4 => one(format!("APPEND {} x{number}", self.key("s"))),
            5 => one(format!("LPUSH {} {number} a b", self.key("l"))),
            6 => one(format!("RPOP {} 2", self.key("l"))),
            7 => one(format!("SADD {} {number} {}", self.key("u"), number / 2)),
            8 => one(format!("SPOP {} 2", self.key("u"))),
            9 => one(format!("ZADD {} {number} m{}", self.key("z"), number % 50)),
            10 => one(format!("ZPOPMIN {}", self.key("z"))),
            11 => one(format!("HSET {} f{} {number}", self.key("h"), number % 300)),
            12 => one(format!("HINCRBYFLOAT {} f 0.{number}", self.key("h"))),
            13 => one(format!("INCRBYFLOAT {} 1.{number}", self.key("f"))),
            14 => one(format!("XADD {} * a {number}", self.key("x"))),
            15 => one(format!("XTRIM {} MAXLEN ~ 20", self.key("x"))),
            16 => one(format!("PEXPIRE {} {}", self.key("n"), number)),
            17 => one(format!(
                "DEL {} {} {}",
                self.key("s"),
                self.key("l"),
                self.key("z")
            )),
            18 => one(format!(
                "EVAL \"redis.call('SET',KEYS[1],ARGV[1]) redis.call('RPUSH',KEYS[2],ARGV[1])\" 2 {} {} {number}",
                self.key("s"),
                self.key("l")
            )),
            19 => one(format!("SETRANGE {} {number} abc", self.key("s"))),
            20 => one(format!("PFADD {} {number}", self.key("p"))),
            21 => one(format!("SETBIT {} {number} 1", self.key("b"))),
            22 => one(format!("RENAME {} {}", self.key("s"), self.key("s"))),
            23 => one(format!("COPY {} {} REPLACE", self.key("z"), self.key("z"))),
            24 => one(format!(
                "ZUNIONSTORE {} 2 {} {}",
                self.key("z"),
                self.key("z"),
                self.key("u")
            )),
            25 => one(format!("SET {} {}", self.key("s"), "L".repeat(number * 40))),
            26 => one(format!(
                "LMOVE {} {} LEFT RIGHT",
                self.key("l"),
                self.key("l")
            )),
            27 => vec![
                "MULTI".to_owned(),
                format!("INCR {}", self.key("n")),
                format!("SADD {} {number}", self.key("u")),
                format!("LPUSH {} {number}", self.key("l")),
                "EXEC".to_owned(),
            ],
            28 => one(format!("GETEX {} PX {}", self.key("s"), 1 + number)),
            29 => one(format!("XGROUP CREATE {} g $ MKSTREAM", self.key("x"))),
            30 => one(format!(
                "XREADGROUP GROUP g c COUNT 3 STREAMS {} >",
                self.key("x")
            )),
            31 => one(format!("GEOADD g {}.5 40.1 m{number}", number % 90)),
            32 => one(format!(
                "MSET {} 1 {} 2 {} 3",
                self.key("s"),
                self.key("n"),
                self.key("s")
            )),
            _ => match number {
                0..100 => one("FLUSHDB".to_owned()),
                100..200 => one("SWAPDB 0 1".to_owned()),
                _ => one(format!("LINSERT {} BEFORE a {number}", self.key("l"))),
            },
        }
    }
}
