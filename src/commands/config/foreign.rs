//! Directives of other versions, and of Valkey, that have no effect here: the server starts with files that contain
//! them, and reports them. They are not parameters: CONFIG GET does not show them.

const ONE_ADDRESS: &str = "all clients get the same address of a node";
const OWN_HANDOVER: &str = "the end of a slot migration has its own limits";
const NO_RDMA: &str = "only TCP and unix sockets are supported";
const NO_MODULE: &str = "the module that reads it does not exist";
const OTHER_DESIGN: &str = "it tunes something that this server does not have";
const FOR_TESTS: &str = "it is only for tests of another server";

/// Names in alphabetical order, and the reasons why they have no effect.
static DIRECTIVES: &[(&str, &str)] = &[
    ("active-defrag-cycle-us", OTHER_DESIGN),
    (
        "aof-load-corrupt-tail-max-size",
        "a truncated append-only file is loaded, and a corrupt one is refused",
    ),
    ("client-default-resp", FOR_TESTS),
    ("cluster-announce-client-ipv4", ONE_ADDRESS),
    ("cluster-announce-client-ipv6", ONE_ADDRESS),
    ("cluster-announce-client-port", ONE_ADDRESS),
    ("cluster-announce-client-tls-port", ONE_ADDRESS),
    (
        "cluster-compatibility-sample-ratio",
        "commands that a cluster would refuse are not counted",
    ),
    (
        "cluster-config-save-behavior",
        "the file is always synced to disk before other nodes learn its contents",
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
        "INFO and HELLO always report the server as redis",
    ),
    ("gopher-enabled", "the Gopher protocol is not supported"),
    ("hash-seed", "keys are always hashed with a random seed"),
    ("import-mode", "keys always expire"),
    ("io-threads-always-active", OTHER_DESIGN),
    (
        "io-threads-do-commands-offloading-with-modules",
        OTHER_DESIGN,
    ),
    ("key-memory-histograms", OTHER_DESIGN),
    ("lookahead", "whole batches are always prefetched"),
    (
        "lua-enable-deprecated-api",
        "scripts have the API of Redis 7.4",
    ),
    (
        "lua-enable-insecure-api",
        "scripts have the API of Redis 7.4",
    ),
    ("memory-tracking-per-slot", "memory per slot is not counted"),
    ("min-io-threads-avoid-copy-reply", OTHER_DESIGN),
    ("min-string-size-avoid-copy-reply", OTHER_DESIGN),
    ("min-string-size-avoid-copy-reply-threaded", OTHER_DESIGN),
    ("mptcp", "only TCP is supported"),
    ("prefetch-batch-max-size", OTHER_DESIGN),
    (
        "rdb-version-check",
        "unknown snapshot versions are always refused",
    ),
    ("rdma-bind", NO_RDMA),
    ("rdma-completion-vector", NO_RDMA),
    ("rdma-port", NO_RDMA),
    ("rdma-rx-size", NO_RDMA),
    ("repl-mptcp", "only TCP is supported"),
    ("req-res-logfile", FOR_TESTS),
    (
        "unixsocketgroup",
        "the socket belongs to the group of the process",
    ),
];

/// Prefixes of parameters of Redis 8 modules.
const OF_MODULES: [&str; 3] = ["search-", "ts-", "vset-"];

/// Returns the reason why a directive has no effect here, if it is one of these directives; the name must be in lower
/// case.
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
