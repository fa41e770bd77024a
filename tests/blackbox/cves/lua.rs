//! Scripts that run while the data under them are replaced.

use super::{SHAPES, is_well};
use crate::replicated::{await_link, follow};
use crate::support::{Options, Server, check, eventually, free_port, info_number};

const LIBRARY: &str = "#!lua name=lib\nredis.register_function('endless', function(keys) \
     redis.call('get', keys[1]) while true do end end)";

const SCRIPT: &str = "redis.call('get', KEYS[1]) while true do end";

/// A replica that clients may write to ran a script, let others in meanwhile, and received a whole snapshot with other
/// functions: the interpreter was freed under the script.
#[test]
fn cve_2026_23631_a_snapshot_may_arrive_while_a_script_runs() {
    for (shards, threads) in SHAPES {
        let options = Options::shards(shards).threads(threads);
        let options = options.with("repl-diskless-sync-delay", "0");
        for endless in [
            &["FCALL", "endless", "1", "old"][..],
            &["EVAL", SCRIPT, "1", "old"],
        ] {
            let port = free_port();
            let primary = Server::start(&options.clone().port(port));
            let busy = options
                .clone()
                .with("replica-read-only", "no")
                .with("busy-reply-threshold", "20");
            let replica = Server::start(&busy);
            let loaded = primary.raw().command(&["FUNCTION", "LOAD", LIBRARY]);
            assert_eq!(loaded.text(), "lib");
            check(&mut primary.raw(), "SET old 1", "OK");
            follow(&replica, &primary);
            let (mut asker, mut other) = (replica.raw(), replica.raw());
            eventually("the function is there", || {
                other.call("FUNCTION LIST").show().contains("endless")
            });
            asker.send(&crate::wire::encode(endless));
            eventually("others hear BUSY", || {
                other.call("GET old").show().contains("BUSY")
            });
            // Another primary with another history: nothing can be continued.
            drop(primary);
            let primary = Server::start(&options.clone().port(port));
            let mut raw = primary.raw();
            check(&mut raw, "SET new 1", "OK");
            let library = LIBRARY
                .replace("lib", "other")
                .replace("endless", "another");
            assert!(!raw.command(&["FUNCTION", "LOAD", &library]).is_error());
            eventually("the replica asks for all data", || {
                info_number(&mut raw, "stats", "sync_full") >= 1.0
            });
            let mut killer = replica.raw();
            eventually("the script ends", || {
                killer.pipeline(&["FUNCTION KILL", "SCRIPT KILL"]);
                let reply = killer.call("GET old").show();
                !reply.contains("BUSY") && !reply.contains("LOADING")
            });
            let answer = asker.try_read();
            assert!(answer.is_err() || answer.is_ok_and(|reply| reply.is_error()));
            await_link(&replica);
            let mut client = replica.raw();
            eventually("the new data are there", || {
                client.call("EXISTS new").show() == "(integer) 1"
            });
            check(&mut client, "EXISTS old", "(integer) 0");
            let functions = client.call("FUNCTION LIST").show();
            assert!(
                functions.contains("another") && !functions.contains("endless"),
                "{functions}"
            );
            check(&mut client, "EVAL \"return 1\" 0", "(integer) 1");
            is_well(&replica);
        }
    }
}
