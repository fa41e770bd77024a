//! DEBUG RELOAD and DEBUG LOADAOF beside other clients: writes admitted before the reload are in the reloaded
//! data, and no request runs in between.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use crate::support::{Draw, Options, Server, check, eventually, start_loaded};
use crate::wire::{Raw, encode};

fn options(dir: &Path) -> Options {
    Options::shards(8)
        .threads(4)
        .with("dir", &dir.display().to_string())
        .with("appendonly", "yes")
        .with("auto-aof-rewrite-percentage", "0")
}

/// Returns a script that runs for `ms` milliseconds before it writes.
fn slow_set(ms: u32) -> String {
    format!(
        "local began = os.clock() \
         while os.clock() - began < {ms} / 1000 do redis.call('GET', KEYS[1]) end \
         return redis.call('SET', KEYS[1], ARGV[1])"
    )
}

fn restarted(mut server: Server, dir: &Path) -> Server {
    server.signal("KILL");
    server.wait_for_exit();
    drop(server);
    start_loaded(&options(dir))
}

#[test]
fn a_script_that_runs_when_the_file_is_to_be_loaded_is_in_it() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let server = start_loaded(&options(dir.path()));
    let (mut writer, mut loading) = (server.raw(), server.raw());
    check(&mut writer, "SET k 0", "OK");
    check(&mut loading, "DEBUG AOF-FLUSH-SLEEP 500000", "OK");
    writer.send(&encode(&["EVAL", &slow_set(400), "1", "k", "1"]));
    std::thread::sleep(Duration::from_millis(100));
    check(&mut loading, "DEBUG LOADAOF", "OK");
    assert_eq!(writer.read().text(), "OK");
    check(&mut loading, "GET k", "\"1\"");
    let server = restarted(server, dir.path());
    check(&mut server.raw(), "GET k", "\"1\"");
}

/// Writes to keys that others write too, and counts in one of its own, until it is over; how far it came.
fn write(number: usize, mut client: Raw, is_over: &AtomicBool) -> u64 {
    let mut draw = Draw::new(number as u64);
    let mut count = 0;
    while !is_over.load(Relaxed) {
        let mut key = || format!("k{}", draw.below(300));
        let own = format!("own:{number}");
        let next = (count + 1).to_string();
        let reply = match number % 4 {
            0 => client.command(&["MSET", &own, &next, &key(), "1", &key(), "2"]),
            1 => client.command(&["EVAL", &slow_set(5), "1", &own, &next]),
            2 => {
                if client.call("MULTI").is_error() {
                    continue;
                }
                client.call(&format!("SET {own} {next}"));
                client.call(&format!("SET {} 1", key()));
                client.call("EXEC")
            }
            _ => client.command(&["SET", &own, &next]),
        };
        if !reply.is_error() {
            count += 1;
        }
    }
    count
}

#[test]
fn what_is_acknowledged_beside_reloads_is_there_behind_them_and_after_a_kill() {
    const WRITERS: usize = 8;
    const RELOADS: usize = 40;
    let dir = tempfile::tempdir().expect("a temporary folder");
    let server = start_loaded(&options(dir.path()));
    let mut client = server.raw();
    for number in 0..300 {
        client.call(&format!("SET k{number} 0"));
    }
    check(
        &mut client,
        "BGREWRITEAOF",
        "Background append only file rewriting started",
    );
    let is_over = AtomicBool::new(false);
    let counts: Vec<u64> = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|number| {
                let (client, is_over) = (server.raw(), &is_over);
                scope.spawn(move || write(number, client, is_over))
            })
            .collect();
        for round in 0..RELOADS {
            let verb = ["LOADAOF", "LOADAOF", "RELOAD"][round % 3];
            check(&mut client, &format!("DEBUG {verb}"), "OK");
            std::thread::sleep(Duration::from_millis(20));
        }
        is_over.store(true, Relaxed);
        writers
            .into_iter()
            .map(|writer| writer.join().expect("it ends"))
            .collect()
    });
    // A write behind those of all others, as WAITAOF waits for what its own client wrote.
    check(&mut client, "SET last 1", "OK");
    check(
        &mut client,
        "WAITAOF 1 0 0",
        "1) (integer) 1\n2) (integer) 0",
    );
    let judge = |client: &mut Raw| {
        for (number, count) in counts.iter().enumerate() {
            assert!(*count > 0, "writer {number} came nowhere");
            check(
                client,
                &format!("GET own:{number}"),
                &format!("\"{count}\""),
            );
        }
    };
    judge(&mut client);
    let server = restarted(server, dir.path());
    judge(&mut server.raw());
}

#[test]
fn a_transaction_has_nothing_loaded_again() {
    const REFUSED: &str = "(error) ERR Command not allowed inside a transaction";
    let dir = tempfile::tempdir().expect("a temporary folder");
    let server = start_loaded(&options(dir.path()));
    let mut client = server.raw();
    for verb in ["LOADAOF", "RELOAD"] {
        check(&mut client, "MULTI", "OK");
        check(&mut client, &format!("DEBUG {verb}"), REFUSED);
        assert!(client.call("EXEC").is_error());
    }
}

/// The last snapshot must not contain the empty shards of a reload.
#[test]
fn a_server_that_is_told_to_end_while_it_reloads_keeps_its_data() {
    const KEYS: i64 = 20_000;
    for delay_ms in [0, 20, 60, 120, 250] {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let options = Options::shards(8)
            .with("dir", &dir.path().display().to_string())
            .with("save", "3600 1")
            .with("rdb-key-save-delay", "5")
            .with("key-load-delay", "5");
        let mut server = start_loaded(&options);
        let mut client = server.raw();
        check(&mut client, &format!("DEBUG POPULATE {KEYS}"), "OK");
        client.send(b"DEBUG RELOAD\r\n");
        std::thread::sleep(Duration::from_millis(delay_ms));
        server.signal("TERM");
        server.wait_for_exit();
        drop(server);
        let server = start_loaded(&options);
        let mut client = server.raw();
        eventually("all keys are there", || {
            client.call("DBSIZE").integer() == KEYS
        });
    }
}
