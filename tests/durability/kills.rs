//! Servers that are killed at random while clients send writes of all kinds and remember the acknowledged
//! ones.
//!
//! ```text
//! STORM_ROUNDS   number of kills; by default a few
//! STORM_SEED     seed of the random choices; by default 1
//! STORM_BINARY   another build of this server
//! ```
//!
//! After a kill, a client must find its state after one of its steps, with no promised step missing: with
//! `always` all acknowledged steps are promised, with `everysec` all but those of the last two seconds.

use std::time::{Duration, Instant};

use crate::history::Promise;
use crate::load::{Load, load_library};
use crate::support::{Server, eventually, variable};

/// Keys that no client changes, so that snapshots take time.
const BALLAST: usize = 20_000;
const BALLAST_DB: usize = 13;

/// With `everysec`, older writes are on the disk.
const EVERYSEC: Duration = Duration::from_secs(2);

struct Run {
    policy: &'static str,
    dir: tempfile::TempDir,
    load: Load,
}

#[test]
fn what_was_acknowledged_under_always_survives_kills_as_a_whole() {
    Run::new("always").go(variable("STORM_ROUNDS", 4));
}

#[test]
fn under_everysec_a_kill_takes_the_last_two_seconds_at_most_and_no_step_by_halves() {
    Run::new("everysec").go(variable("STORM_ROUNDS", 3));
}

impl Run {
    fn new(policy: &'static str) -> Run {
        Run {
            policy,
            dir: tempfile::tempdir().expect("a temporary folder"),
            load: Load::new(0).with_readers(),
        }
    }

    fn start(&mut self) -> Server {
        let options = self.load.options();
        let options = options
            .threads(2)
            .with("dir", &self.dir.path().display().to_string())
            .with("appendonly", "yes")
            .with("appendfsync", self.policy)
            .with("auto-aof-rewrite-min-size", "3mb");
        Server::start(&options)
    }

    fn go(mut self, rounds: u64) {
        let server = self.start();
        let mut raw = server.raw();
        load_library(&server);
        raw.call(&format!("SELECT {BALLAST_DB}"));
        let fill = format!(
            "for i = 1, {BALLAST} do redis.call('SET', 'ballast:' .. i, string.rep('x', i % 90)) end"
        );
        raw.command(&["EVAL", &fill, "0"]);
        raw.call("WAITAOF 1 0 0");
        let mut server = server;
        for round in 0..rounds {
            let ended = self.storm(&mut server);
            drop(server);
            self.kill_while_it_loads();
            server = self.start();
            self.judge(&server, ended, round);
        }
        eprintln!(
            "{}: {rounds} kills, {} steps acknowledged, {} of them lost",
            self.policy, self.load.acknowledged, self.load.lost
        );
    }

    /// Puts load on a server until it is killed or, sometimes, told to shut down; returns when, and whether
    /// it was told.
    fn storm(&mut self, server: &mut Server) -> (Instant, bool) {
        let least = if self.policy == "everysec" { 1_500 } else { 50 };
        let more = [500, 500, 500, 500, 2_500][self.load.draw.below(5)];
        let ms = least + self.load.draw.below(more);
        let is_told = self.load.draw.below(12) == 0;
        let is_stopped = self.load.draw.below(6) == 0;
        self.load.storm(server.port, ms, || {
            if is_stopped {
                server.signal("STOP");
                std::thread::sleep(Duration::from_millis(20));
            }
            let ended = Instant::now();
            if is_told && !is_stopped {
                server.signal("TERM");
            } else {
                server.signal("KILL");
            }
            assert!(server.wait_for_exit().is_some(), "it ends");
            (ended, is_told && !is_stopped)
        })
    }

    /// Kills a server while it loads, which changes nothing.
    fn kill_while_it_loads(&mut self) {
        if self.load.draw.below(5) > 0 {
            return;
        }
        let mut server = self.start();
        std::thread::sleep(Duration::from_millis(self.load.draw.below(80) as u64));
        server.signal("KILL");
        server.wait_for_exit();
    }

    fn judge(&mut self, server: &Server, (ended, is_told): (Instant, bool), round: u64) {
        let mut raw = server.raw();
        eventually("the data are there", || !raw.call("PING").is_error());
        let promise = match self.policy {
            "everysec" if !is_told => Promise::Before(ended.checked_sub(EVERYSEC).expect("a time")),
            _ => Promise::Acknowledged,
        };
        let mut faults = self.load.faults(server, promise, promise);
        raw.call(&format!("SELECT {BALLAST_DB}"));
        let there = raw.call("DBSIZE").integer();
        if there != BALLAST as i64 {
            faults.push(format!("{there} of {BALLAST} keys that nobody touched"));
        }
        if !faults.is_empty() {
            let policy = self.policy;
            let kept =
                std::mem::replace(&mut self.dir, tempfile::tempdir().expect("another")).keep();
            panic!(
                "{policy}, round {round}, files kept in {}:\n{}",
                kept.display(),
                faults.join("\n")
            );
        }
    }
}
