//! A server under a Valgrind tool, and clients that send it batches.

use std::process::Command;

use crate::support::{Options, Server, basalt, check, info_number};
use crate::wire::{Raw, encode_into};
use crate::workloads::{NEW_KEYS, NEW_VALUE_BYTES, Workload};

/// A memory limit; those below 16 MiB are kept to the byte, at a cost that larger ones do not have.
const LIMIT_BYTES: usize = 40 << 20;

/// Directives of a server that is full after [`Driven::fill_to_limit`].
pub(crate) const AT_LIMIT: &[(&str, &str)] =
    &[("maxmemory", "40mb"), ("maxmemory-policy", "allkeys-lru")];

/// Returns a program that is needed and not installed.
pub(crate) fn missing_tool() -> Option<&'static str> {
    let tools = ["valgrind", "vgdb"];
    let is_missing = |tool: &&&str| Command::new(tool).arg("--version").output().is_err();
    tools.iter().find(is_missing).copied()
}

/// See the module.
pub(crate) struct Driven {
    pub(crate) server: Server,
    pub(crate) clients: Vec<Raw>,
    /// Folder of the script that replaces the binary.
    _folder: tempfile::TempDir,
}

impl Driven {
    /// Starts this server with `threads` threads and as many connections, under Valgrind with these options.
    pub(crate) fn start(valgrind: &str, threads: usize, directives: &[(&str, &str)]) -> Driven {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let script = folder.path().join("basalt");
        // Fair: a thread that waits for the one lock of Valgrind gets it before the thread that has just released it.
        let text = format!(
            "#!/bin/sh\nexec valgrind --fair-sched=yes {valgrind} {} \"$@\"\n",
            basalt().display()
        );
        std::fs::write(&script, text).expect("a script");
        let chmod = Command::new("chmod").arg("+x").arg(&script).status();
        assert!(chmod.is_ok_and(|status| status.success()));
        let mut options = Options::default()
            .threads(threads)
            .binary(Some(script.into_os_string()));
        for (directive, value) in directives {
            options = options.with(directive, value);
        }
        let server = Server::start(&options);
        Driven {
            clients: (0..threads).map(|_| server.raw()).collect(),
            server,
            _folder: folder,
        }
    }

    /// Fills a server that was started with [`AT_LIMIT`].
    pub(crate) fn fill_to_limit(&mut self) {
        let mut raw = self.server.raw();
        // In few commands, as each one under Valgrind takes long.
        let keys = LIMIT_BYTES * 9 / 10 / NEW_VALUE_BYTES;
        for part in 0..10 {
            let count = keys / 10;
            let request = format!("DEBUG POPULATE {count} filler{part} {NEW_VALUE_BYTES}");
            check(&mut raw, &request, "OK");
        }
        while info_number(&mut raw, "stats", "evicted_keys") == 0.0 {
            self.drive(&NEW_KEYS, 16, 10);
        }
    }

    /// Sends batches over all connections at once, each after the reply to the one before.
    pub(crate) fn drive(&mut self, workload: &Workload, pipeline: usize, batches: usize) {
        let one = |connection: usize, raw: &mut Raw| {
            for batch in 0..batches {
                let mut bytes = Vec::new();
                let mut replies = 0;
                for number in 0..pipeline {
                    for words in (workload.requests)(connection, batch * pipeline + number) {
                        encode_into(&mut bytes, &words);
                        replies += 1;
                    }
                }
                raw.send(&bytes);
                for _ in 0..replies {
                    let reply = raw.read();
                    assert!(!reply.is_error(), "{}: {}", workload.name, reply.show());
                }
            }
        };
        std::thread::scope(|scope| {
            for (connection, raw) in self.clients.iter_mut().enumerate() {
                scope.spawn(move || one(connection, raw));
            }
        });
    }
}
