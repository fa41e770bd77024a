//! Directives of other versions, and of Valkey, that have no effect here: the server starts with files that contain
//! them, and reports them. They are not parameters: CONFIG GET does not show them.

const ONE_ADDRESS: &str = "all clients are told one address of a node";
const OWN_HANDOVER: &str = "the end of a slot's migration has limits of its own";
const NO_RDMA: &str = "connections come over TCP and unix sockets";
const NO_MODULE: &str = "the module that reads it is not here";
const OTHER_DESIGN: &str = "it tunes something that this server does not have";
const FOR_TESTS: &str = "it is there for the tests of another server";

/// Names in alphabetical order, and the reasons why they have no effect.
static DIRECTIVES: &[(&str, &str)] = &[
    ("active-defrag-cycle-us", OTHER_DESIGN),
    (
        "aof-load-corrupt-tail-max-size",
        "an append-only file is loaded if its end is missing, and refused if it is corrupt",
    ),
    ("availability-zone", "no client is told of zones"),
    ("client-default-resp", FOR_TESTS),
    ("cluster-announce-client-ipv4", ONE_ADDRESS),
    ("cluster-announce-client-ipv6", ONE_ADDRESS),
    ("cluster-announce-client-port", ONE_ADDRESS),
    ("cluster-announce-client-tls-port", ONE_ADDRESS),
    (
        "cluster-compatibility-sample-ratio",
        "what a cluster would refuse is not counted",
    ),
    (
        "cluster-config-save-behavior",
        "the file is safe on disk before other nodes hear of what is in it",
    ),
    ("cluster-slot-migration-handoff-max-lag-bytes", OWN_HANDOVER),
    (
        "cluster-slot-migration-sync-buffer-drain-timeout",
        OWN_HANDOVER,
    ),
    ("cluster-slot-migration-write-pause-timeout", OWN_HANDOVER),
    ("debug-context", FOR_TESTS),
    ("enable-debug-assert", FOR_TESTS),
    ("events-per-io-thread", OTHER_DESIGN),
    (
        "extended-redis-compatibility",
        "INFO and HELLO speak of a Redis in any case",
    ),
    ("gopher-enabled", "the Gopher protocol is gone"),
    ("hash-seed", "keys are hashed with a random seed"),
    ("import-mode", "keys expire in any case"),
    ("io-threads-always-active", OTHER_DESIGN),
    (
        "io-threads-do-commands-offloading-with-modules",
        OTHER_DESIGN,
    ),
    ("key-memory-histograms", OTHER_DESIGN),
    ("lookahead", "whole batches are looked ahead in any case"),
    (
        "lua-enable-deprecated-api",
        "scripts find what Redis 7.4 has",
    ),
    ("lua-enable-insecure-api", "scripts find what Redis 7.4 has"),
    (
        "memory-tracking-per-slot",
        "the memory of a slot is not counted",
    ),
    ("min-io-threads-avoid-copy-reply", OTHER_DESIGN),
    ("min-string-size-avoid-copy-reply", OTHER_DESIGN),
    ("min-string-size-avoid-copy-reply-threaded", OTHER_DESIGN),
    ("mptcp", "connections are of TCP alone"),
    ("prefetch-batch-max-size", OTHER_DESIGN),
    (
        "rdb-version-check",
        "versions of snapshots that are not known are refused in any case",
    ),
    ("rdma-bind", NO_RDMA),
    ("rdma-completion-vector", NO_RDMA),
    ("rdma-port", NO_RDMA),
    ("rdma-rx-size", NO_RDMA),
    ("repl-mptcp", "connections are of TCP alone"),
    ("req-res-logfile", FOR_TESTS),
    (
        "unixsocketgroup",
        "the group of the socket is that of the process",
    ),
];

/// Prefixes of parameters of Redis 8 modules.
const OF_MODULES: [&str; 3] = ["search-", "ts-", "vset-"];

/// Returns the reason why a directive has no effect here, if it is one of these; the name in lower case.
pub(super) fn reason(name: &str) -> Option<&'static str> {
    if OF_MODULES.iter().any(|start| name.starts_with(start)) {
        return Some(NO_MODULE);
    }
    let found = DIRECTIVES.binary_search_by(|(known, _)| (*known).cmp(name));
    Some(DIRECTIVES[found.ok()?].1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::find;

    #[test]
    fn names_are_in_order_and_those_of_no_parameter() {
        assert!(DIRECTIVES.is_sorted_by(|one, next| one.0 < next.0));
        for (name, why) in DIRECTIVES {
            assert!(find(name).is_none(), "{name} is a parameter");
            assert_eq!(reason(name), Some(*why));
        }
        assert!(reason("search-threads").is_some());
        assert!(reason("searching").is_none() && reason("tls-port").is_none());
    }
}
