//! Faults of Redis and Valkey of 2022 to 2026, each as a test that carries its number: what crashed, hung, leaked or
//! gave rights away there must be harmless here. Faults without a CVE carry the number of the pull request that mended
//! them. `docs/security.md` has the table; faults of Lua's libraries are in `src/server/script/tests/known.rs`.

mod acl;
mod arguments;
mod cluster;
mod lua;
mod patterns;
mod protocol;
mod restore;
mod sketches;
mod streams;
mod tls;
mod waiting;

use crate::support::{Options, Server, check};

/// Shards and threads that each of these tests runs with.
const SHAPES: [(usize, usize); 2] = [(1, 1), (8, 3)];

/// Runs a test body against a server of each shape, which must be alive and without a crash report afterwards.
fn at_each_shape(body: impl Fn(&Server)) {
    for (shards, threads) in SHAPES {
        let options = Options::shards(shards).threads(threads);
        let server = Server::start(&options.with("enable-debug-command", "yes"));
        body(&server);
        is_well(&server);
    }
}

/// Checks that a server serves new clients, and has not reported a crash or a panic.
#[track_caller]
fn is_well(server: &Server) {
    check(&mut server.raw(), "PING", "PONG");
    let log = server.log();
    assert!(!log.contains("BUG REPORT"), "{log}");
}
