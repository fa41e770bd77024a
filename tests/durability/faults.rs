//! Disk faults under the real program: system calls that a tracer makes fail, a full file system, directories
//! that are in the way or gone. Writes are refused with Redis's texts, reads go on, and the server recovers
//! by itself.
//!
//! Needs `strace` with the right to trace, and the right to mount; a test that lacks its right prints that
//! and passes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::{Options, Server, check, eventually, info_field, start_loaded};
use crate::wire::{Raw, Value, encode, split};

const INCR: &str = "appendonly.aof.1.incr.aof";

/// Makes system calls of a server fail until it is dropped.
struct Tracer(Child);

impl Tracer {
    /// `what` is strace's injection expression; it applies to these paths alone, if there are any.
    fn attach(server: &Server, what: &str, paths: &[&Path]) -> Option<Tracer> {
        let pid = server.pid().to_string();
        let mut command = Command::new("strace");
        command.args(["-f", "-qq", "-o", "/dev/null", "-p", &pid]);
        let (names, _) = what
            .split_once(':')
            .expect("calls and what becomes of them");
        command.args([
            "-e",
            &format!("trace={names}"),
            "-e",
            &format!("inject={what}"),
        ]);
        for path in paths {
            command.arg("-P").arg(path);
        }
        let child = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn();
        let Ok(child) = child else {
            crate::support::skipped("no strace");
            return None;
        };
        let mut tracer = Tracer(child);
        let mut is_there = true;
        eventually("all threads are traced", || {
            is_there = tracer.0.try_wait().expect("its state").is_none();
            !is_there || are_traced(server.pid())
        });
        if !is_there {
            crate::support::skipped("strace may not trace");
            return None;
        }
        Some(tracer)
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        let pid = self.0.id().to_string();
        let _ = Command::new("kill").args(["-INT", &pid]).status();
        let _ = self.0.wait();
    }
}

fn are_traced(pid: u32) -> bool {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return false;
    };
    let is_traced = |status: String| !status.contains("TracerPid:\t0\n");
    let mut tasks =
        tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("status")).ok());
    tasks.all(is_traced)
}

fn options(dir: &Path) -> Options {
    Options::shards(8)
        .threads(2)
        .with("dir", &dir.display().to_string())
        .with("auto-aof-rewrite-percentage", "0")
}

fn kill(mut server: Server) {
    server.signal("KILL");
    server.wait_for_exit();
}

fn figure(client: &mut Raw, name: &str) -> String {
    info_field(client, "persistence", name)
}

fn is_refused(reply: &Value) -> bool {
    reply.is_error() && reply.text().starts_with("MISCONF")
}

/// Sets numbered keys until a write is refused; returns the error. All earlier ones were acknowledged.
fn write_until_refused(client: &mut Raw, count: &mut usize) -> String {
    let mut said = String::new();
    let value = "x".repeat(300);
    eventually("a write is refused", || {
        for _ in 0..50 {
            let reply = client.call(&format!("SET key:{count} {value}"));
            if is_refused(&reply) {
                said = reply.text();
                return true;
            }
            assert_eq!(reply.text(), "OK");
            *count += 1;
        }
        false
    });
    said
}

/// Checks that writes are accepted again without help.
fn recovers(client: &mut Raw, count: &mut usize) {
    eventually("writes are taken again", || {
        let reply = client.call(&format!("SET key:{count} again"));
        assert!(
            is_refused(&reply) || reply.text() == "OK",
            "{}",
            reply.show()
        );
        !reply.is_error()
    });
    *count += 1;
    assert_eq!(figure(client, "aof_last_write_status"), "ok");
    check(client, "PING", "PONG");
}

/// Checks that after a kill all acknowledged writes are there, this client's last ones included.
fn survives(server: Server, mut client: Raw, options: &Options, count: usize) {
    check(
        &mut client,
        "WAITAOF 1 0 0",
        "1) (integer) 1\n2) (integer) 0",
    );
    kill(server);
    let server = start_loaded(options);
    let there = server.raw().call("DBSIZE").integer();
    assert_eq!(there, count as i64);
}

fn refuses_writes_and_not_reads(client: &mut Raw, why: &str) {
    let text = format!("(error) MISCONF Errors writing to the AOF file: {why}");
    check(client, "SET a 1", &text);
    check(client, "PING", &text);
    check(
        client,
        "EVAL \"return redis.call('GET', KEYS[1])\" 1 a",
        "(nil)",
    );
    let script = client.call("EVAL \"return redis.call('SET', KEYS[1], 1)\" 1 a");
    assert!(
        script.is_error() && script.text().contains("MISCONF"),
        "{}",
        script.show()
    );
    check(client, "MULTI", "OK");
    check(client, "SET a 1", &text);
    check(
        client,
        "EXEC",
        "(error) EXECABORT Transaction discarded because of previous errors.",
    );
    assert_eq!(client.call("STRLEN key:0").integer(), 300);
    assert_eq!(figure(client, "aof_last_write_status"), "err");
}

#[test]
fn a_sync_that_failed_refuses_writes_until_a_rewrite_is_on_the_disk() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let options = options(dir.path()).with("appendonly", "yes");
    let server = start_loaded(&options);
    let (mut client, mut count) = (server.raw(), 0);
    let Some(tracer) = Tracer::attach(&server, "fsync,fdatasync:error=EIO", &[]) else {
        return;
    };
    write_until_refused(&mut client, &mut count);
    refuses_writes_and_not_reads(&mut client, "Input/output error");
    // Rewrites that are tried meanwhile fail, again and again.
    eventually("rewrites fail", || {
        server.log().contains("will retry in 4 seconds")
    });
    assert_eq!(figure(&mut client, "aof_last_bgrewrite_status"), "err");
    refuses_writes_and_not_reads(&mut client, "Input/output error");
    drop(tracer);
    recovers(&mut client, &mut count);
    survives(server, client, &options, count);
}

#[test]
fn a_write_that_failed_is_tried_again_until_the_disk_is_back() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let options = options(dir.path()).with("appendonly", "yes");
    let server = start_loaded(&options);
    let (mut client, mut count) = (server.raw(), 0);
    let incr = dir.path().join("appendonlydir").join(INCR);
    for (error, text) in [
        ("ENOSPC", "No space left on device"),
        ("EIO", "Input/output error"),
    ] {
        let what = format!("write,writev,pwritev:error={error}");
        let Some(tracer) = Tracer::attach(&server, &what, &[&incr]) else {
            return;
        };
        let said = write_until_refused(&mut client, &mut count);
        assert_eq!(
            said,
            format!("MISCONF Errors writing to the AOF file: {text}")
        );
        refuses_writes_and_not_reads(&mut client, text);
        drop(tracer);
        recovers(&mut client, &mut count);
    }
    assert_eq!(figure(&mut client, "aof_rewrites"), "0", "none was needed");
    survives(server, client, &options, count);
}

#[test]
fn with_always_a_server_ends_rather_than_acknowledge_what_is_not_on_the_disk() {
    let sync = "Can't persist AOF for fsync error when the AOF fsync policy is 'always'";
    let write =
        "Can't recover from AOF write error when the AOF fsync policy is 'always'. Exiting...";
    for (what, line) in [
        ("fsync,fdatasync:error=EIO", sync),
        ("write,writev,pwritev:error=ENOSPC", write),
    ] {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let options = options(dir.path())
            .with("appendonly", "yes")
            .with("appendfsync", "always");
        let mut server = start_loaded(&options);
        let mut client = server.raw();
        for number in 0..10 {
            check(&mut client, &format!("SET key:{number} 1"), "OK");
        }
        let incr = dir.path().join("appendonlydir").join(INCR);
        let Some(tracer) = Tracer::attach(&server, what, &[&incr]) else {
            return;
        };
        client.send(b"SET key:10 1\r\n");
        assert!(client.try_read().is_err(), "{what}: it was acknowledged");
        assert_eq!(server.wait_for_exit(), Some(1));
        assert!(server.log().contains(line), "{}", server.log());
        drop(tracer);
        drop(server);
        let server = start_loaded(&options);
        let there = server.raw().call("DBSIZE").integer();
        assert!((10..12).contains(&there), "{what}: {there}");
    }
}

#[test]
fn with_always_nobody_hears_of_what_is_not_on_the_disk() {
    const DELAY: Duration = Duration::from_millis(300);
    let dir = tempfile::tempdir().expect("a temporary folder");
    let options = options(dir.path())
        .with("appendonly", "yes")
        .with("appendfsync", "always")
        .with("notify-keyspace-events", "KA");
    let server = start_loaded(&options);
    let (mut writer, mut caching) = (server.raw(), server.raw());
    caching.call("HELLO 3");
    check(&mut caching, "CLIENT TRACKING ON", "OK");
    let mut listening = ["__keyspace@0__:key:1", "news"].map(|channel| {
        let mut listening = server.raw();
        listening.call(&format!("SUBSCRIBE {channel}"));
        listening
    });
    let what = format!("fsync,fdatasync:delay_enter={}", DELAY.as_micros());
    let incr = dir.path().join("appendonlydir").join(INCR);
    let Some(_tracer) = Tracer::attach(&server, &what, &[&incr]) else {
        return;
    };
    // Earlier writes are synced, so that the next sync is the write's own.
    check(&mut writer, "SET key:0 1", "OK");
    caching.call("GET key:1");
    let after_the_sync = |begun: Instant, value: &Value, expected: &str| {
        let waited = begun.elapsed();
        assert!(
            waited >= DELAY,
            "it came after {waited:?}: {}",
            value.show()
        );
        assert!(value.show().contains(expected), "{}", value.show());
    };
    let begun = Instant::now();
    writer.send(&encode(&["SET", "key:1", "1"]));
    let [events, news] = &mut listening;
    after_the_sync(begun, &events.read(), "set");
    after_the_sync(begun, &caching.read(), "key:1");
    after_the_sync(begun, &writer.read(), "OK");
    for lines in [
        &["SET key:2 1", "PUBLISH news said"][..],
        &["MULTI", "PUBLISH news said", "SET key:3 1", "EXEC"],
        &[
            "EVAL \"redis.call('SET', KEYS[1], 1) return redis.call('PUBLISH', 'news', 'said')\" 1 key:4",
        ],
    ] {
        let begun = Instant::now();
        for line in lines {
            writer.send(&encode(&split(line)));
        }
        after_the_sync(begun, &news.read(), "said");
        lines.iter().for_each(|_| drop(writer.read()));
    }
}

#[test]
fn a_snapshot_that_fails_anywhere_leaves_the_old_file_and_the_next_one_makes_it_good() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let options = options(dir.path());
    let server = start_loaded(&options);
    let mut client = server.raw();
    check(&mut client, "SET old 1", "OK");
    check(&mut client, "SAVE", "OK");
    check(&mut client, "SET new 1", "OK");
    check(&mut client, "CONFIG SET save \"1000000 1\"", "OK");
    let file = dir.path().join("dump.rdb");
    let temporary = dir.path().join(format!("temp-{}.rdb", server.pid()));
    let before = fs::read(&file).expect("it is there");
    for (what, path) in [
        ("openat:error=EROFS", &temporary),
        ("write,writev:error=ENOSPC", &temporary),
        ("fsync,fdatasync:error=EIO", &temporary),
        ("rename,renameat,renameat2:error=EACCES", &temporary),
    ] {
        let Some(tracer) = Tracer::attach(&server, what, &[path]) else {
            return;
        };
        check(&mut client, "BGSAVE", "Background saving started");
        eventually("it fails", || {
            figure(&mut client, "rdb_last_bgsave_status") == "err"
        });
        assert!(is_refused(&client.call("SET new 2")), "{what}");
        assert!(is_refused(&client.call("PING")), "{what}");
        check(&mut client, "GET new", "\"1\"");
        assert_eq!(fs::read(&file).expect("it is there"), before, "{what}");
        drop(tracer);
        assert!(!temporary.exists(), "{what}: what was begun is removed");
        check(&mut client, "BGSAVE", "Background saving started");
        eventually("it goes well", || {
            figure(&mut client, "rdb_last_bgsave_status") == "ok"
        });
        check(&mut client, "SET new 1", "OK");
        fs::write(&file, &before).expect("as it was");
    }
    // By itself, once a save point is due.
    let tracer = Tracer::attach(&server, "fsync,fdatasync:error=EIO", &[]);
    check(&mut client, "CONFIG SET save \"1 1\"", "OK");
    eventually("it fails", || {
        figure(&mut client, "rdb_last_bgsave_status") == "err"
    });
    drop(tracer);
    eventually("it goes well", || {
        figure(&mut client, "rdb_last_bgsave_status") == "ok"
    });
    eventually("writes are taken", || !client.call("SET new 1").is_error());
}

#[test]
fn a_rewrite_that_fails_at_any_call_loses_nothing() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let options = options(dir.path()).with("appendonly", "yes");
    let mut server = start_loaded(&options);
    let mut count = 0;
    for (calls, error, most) in [
        ("openat", "EACCES", 5),
        ("rename,renameat,renameat2", "EIO", 4),
        ("fsync,fdatasync", "EIO", 8),
        ("unlink,unlinkat", "EIO", 3),
        ("ftruncate", "EIO", 2),
    ] {
        for at in 1..=most {
            let what = format!("{calls}:error={error}:when={at}");
            let mut client = server.raw();
            for _ in 0..20 {
                check(&mut client, &format!("SET key:{count} {at}"), "OK");
                count += 1;
            }
            let Some(tracer) = Tracer::attach(&server, &what, &[]) else {
                return;
            };
            // It may fail at once, or run.
            let _ = client.call("BGREWRITEAOF");
            eventually("it is over", || {
                figure(&mut client, "aof_rewrite_in_progress") == "0"
                    && figure(&mut client, "aof_rewrite_scheduled") == "0"
            });
            drop(tracer);
            recovers(&mut client, &mut count);
            check(
                &mut client,
                "WAITAOF 1 0 0",
                "1) (integer) 1\n2) (integer) 0",
            );
            kill(server);
            server = start_loaded(&options);
            let there = server.raw().call("DBSIZE").integer();
            assert_eq!(there, count as i64, "{what}");
        }
    }
    // And whole: nothing is left over.
    let mut client = server.raw();
    let _ = client.call("BGREWRITEAOF");
    eventually("it is over", || figure(&mut client, "aof_rewrites") == "1");
    eventually("history is gone", || {
        names(&dir.path().join("appendonlydir")).len() == 3
    });
}

fn names(dir: &Path) -> Vec<PathBuf> {
    let all = fs::read_dir(dir).expect("a folder");
    all.map(|entry| entry.expect("an entry").path()).collect()
}

/// A small file system in memory.
struct Mounted(tempfile::TempDir);

impl Mounted {
    fn new(bytes: usize) -> Option<Mounted> {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let size = format!("size={bytes}");
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &size, "none"])
            .arg(dir.path())
            .stderr(Stdio::null())
            .status();
        if !mount.is_ok_and(|status| status.success()) {
            crate::support::skipped("nothing may be mounted");
            return None;
        }
        Some(Mounted(dir))
    }

    fn remount(&self, how: &str) {
        let mount = Command::new("mount")
            .args(["-o", &format!("remount,{how}")])
            .arg(self.0.path())
            .status();
        assert!(mount.is_ok_and(|status| status.success()));
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

#[test]
fn a_full_disk_refuses_writes_and_room_takes_them_again() {
    let Some(disk) = Mounted::new(2 << 20) else {
        return;
    };
    let options = options(disk.0.path()).with("appendonly", "yes");
    let filler = disk.0.path().join("filler");
    fs::write(&filler, vec![1; 1 << 20]).expect("there is room");
    let server = start_loaded(&options);
    let (mut client, mut count) = (server.raw(), 0);
    for _ in 0..2 {
        write_until_refused(&mut client, &mut count);
        refuses_writes_and_not_reads(&mut client, "No space left on device");
        // There is no space for a rewrite or a snapshot either.
        let _ = client.call("BGREWRITEAOF");
        let _ = client.call("BGSAVE");
        eventually("both are over", || {
            figure(&mut client, "aof_rewrite_in_progress") == "0"
                && figure(&mut client, "rdb_bgsave_in_progress") == "0"
        });
        fs::OpenOptions::new()
            .write(true)
            .open(&filler)
            .and_then(|file| file.set_len(fs::metadata(&filler)?.len() - (400 << 10)))
            .expect("it is cut");
        recovers(&mut client, &mut count);
    }
    fs::remove_file(&filler).expect("it was there");
    survives(server, client, &options, count);
}

#[test]
fn a_file_system_that_is_read_only_for_a_while_is_no_end() {
    let Some(disk) = Mounted::new(8 << 20) else {
        return;
    };
    let options = options(disk.0.path())
        .with("appendonly", "yes")
        .with("save", "1000000 1");
    let server = start_loaded(&options);
    let mut client = server.raw();
    check(&mut client, "SET a 1", "OK");
    // Files open for writing keep a file system from being remounted: the append-only file is turned off.
    check(&mut client, "CONFIG SET appendonly no", "OK");
    disk.remount("ro");
    let reply = client.call("CONFIG SET appendonly yes");
    assert!(reply.is_error(), "{}", reply.show());
    check(
        &mut client,
        "CONFIG GET appendonly",
        "1) \"appendonly\"\n2) \"no\"",
    );
    check(&mut client, "BGSAVE", "Background saving started");
    eventually("it fails", || {
        figure(&mut client, "rdb_last_bgsave_status") == "err"
    });
    assert!(is_refused(&client.call("SET a 2")));
    check(&mut client, "GET a", "\"1\"");
    disk.remount("rw");
    check(&mut client, "BGSAVE", "Background saving started");
    eventually("it goes well", || {
        figure(&mut client, "rdb_last_bgsave_status") == "ok"
    });
    check(&mut client, "SET a 2", "OK");
    check(&mut client, "CONFIG SET appendonly yes", "OK");
    eventually("it is on", || figure(&mut client, "aof_rewrites") == "1");
    check(&mut client, "SET b 2", "OK");
    survives(server, client, &options, 2);
}

#[test]
fn a_directory_that_vanishes_is_made_anew_by_a_rewrite() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let options = options(dir.path()).with("appendonly", "yes");
    let server = start_loaded(&options);
    let mut client = server.raw();
    check(&mut client, "SET a 1", "OK");
    fs::remove_dir_all(dir.path().join("appendonlydir")).expect("it was there");
    check(&mut client, "SET b 1", "OK");
    check(
        &mut client,
        "BGREWRITEAOF",
        "Background append only file rewriting started",
    );
    eventually("it is over", || figure(&mut client, "aof_rewrites") == "1");
    check(&mut client, "SET c 1", "OK");
    survives(server, client, &options, 3);
}

#[test]
fn rewrites_that_begin_by_themselves_wait_after_failures_and_a_request_does_not() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let options = options(dir.path())
        .with("appendonly", "yes")
        .with("auto-aof-rewrite-min-size", "1024")
        .with("auto-aof-rewrite-percentage", "10");
    let server = start_loaded(&options);
    let (mut client, mut count) = (server.raw(), 0);
    // A folder is where the base is to be written.
    let base = dir
        .path()
        .join("appendonlydir/temp-rewrite-appendonly.aof.base");
    fs::create_dir(&base).expect("a folder");
    eventually("they are limited", || {
        check(
            &mut client,
            &format!("SET key:{count} {}", "x".repeat(300)),
            "OK",
        );
        count += 1;
        server
            .log()
            .contains("triggered the limit, will retry in 1 minutes")
    });
    assert_eq!(figure(&mut client, "aof_last_bgrewrite_status"), "err");
    let failed = |server: &Server| {
        server
            .log()
            .matches("rewrite terminated with error")
            .count()
    };
    assert_eq!(failed(&server), 3);
    // Asked for, it is tried at once.
    check(
        &mut client,
        "BGREWRITEAOF",
        "Background append only file rewriting started",
    );
    eventually("it fails", || failed(&server) == 4);
    fs::remove_dir(&base).expect("nothing is in it");
    eventually("it is over", || {
        figure(&mut client, "aof_rewrite_in_progress") == "0"
    });
    check(
        &mut client,
        "BGREWRITEAOF",
        "Background append only file rewriting started",
    );
    eventually("it goes well", || {
        figure(&mut client, "aof_last_bgrewrite_status") == "ok"
    });
    let rewrites = |client: &mut Raw| {
        figure(client, "aof_rewrites")
            .parse::<u64>()
            .expect("a number")
    };
    // Writes are not held back any more.
    let before = rewrites(&mut client);
    eventually("one begins by itself", || {
        check(
            &mut client,
            &format!("SET key:{count} {}", "x".repeat(300)),
            "OK",
        );
        count += 1;
        rewrites(&mut client) > before
    });
    survives(server, client, &options, count);
}

#[test]
fn a_change_of_the_cluster_that_waits_for_the_disk_holds_up_no_other_client() {
    let dir = tempfile::tempdir().expect("a directory");
    let options = options(dir.path())
        .threads(1)
        .with("cluster-enabled", "yes")
        .with("cluster-port", &crate::support::free_port().to_string());
    let server = Server::start(&options);
    let (mut changes, mut other) = (server.raw(), server.raw());
    check(&mut changes, "CLUSTER ADDSLOTSRANGE 0 16383", "OK");
    // A sync takes five seconds, in which the thread that serves both clients has other work.
    let Some(_tracer) = Tracer::attach(&server, "fsync:delay_enter=5000000", &[]) else {
        return;
    };
    changes.send(b"CLUSTER SAVECONFIG\r\n");
    check(&mut other, "PING", "PONG");
    changes.stream().set_nonblocking(true).expect("a socket");
    let early = changes
        .stream()
        .peek(&mut [0])
        .map_err(|error| error.kind());
    changes.stream().set_nonblocking(false).expect("a socket");
    assert_eq!(
        early,
        Err(std::io::ErrorKind::WouldBlock),
        "nothing is on the disk yet"
    );
    assert_eq!(changes.read().show(), "OK");
}
