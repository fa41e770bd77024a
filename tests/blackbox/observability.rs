//! Analysis of the server's own traffic: hot keys, large values, and the hit rates that other memory sizes
//! would give.

use std::time::Duration;

use crate::support::{self, Options, Server, check, eventually, is_stand_in};
use crate::wire::Raw;

/// Sends lines in batches and reads their replies.
fn send(raw: &mut Raw, lines: &[String]) {
    for batch in lines.chunks(500) {
        raw.pipeline(&batch.iter().map(String::as_str).collect::<Vec<_>>());
    }
}

/// Returns the number in one field of INFO, if there is one.
fn field(raw: &mut Raw, section: &str, name: &str) -> Option<f64> {
    support::info_text(raw, section, name)?.parse().ok()
}

/// Returns requests with two planted keys among 300: one is read most often, the other has the most bytes.
fn traffic(round: usize) -> Vec<String> {
    (0..3_000)
        .map(|index| match index % 10 {
            0..3 => "GET hot".to_owned(),
            3 => "GET large".to_owned(),
            _ => format!("GET key:{}", (index * 7 + round) % 300),
        })
        .collect()
}

#[test]
fn hotkeys_finds_the_keys_that_were_planted() {
    support::at_each_shard_count(|server| {
        let mut raw = server.raw();
        let set: Vec<String> = (0..300).map(|index| format!("SET key:{index} v")).collect();
        send(&mut raw, &set);
        check(&mut raw, "SET hot v", "OK");
        check(&mut raw, &format!("SET large {}", "x".repeat(3_000)), "OK");
        check(&mut raw, "HOTKEYS GET", "(nil array)");
        check(&mut raw, "HOTKEYS START METRICS 2 CPU NET COUNT 5", "OK");
        check(
            &mut raw,
            "HOTKEYS START METRICS 1 NET",
            "(error) ERR hotkey tracking session already in progress",
        );
        // Another key may have been in use when the machine was busy otherwise, and thus seem slow.
        const ROUNDS: usize = 9;
        let found = (0..ROUNDS).filter(|_| {
            for round in 0..5 {
                send(&mut raw, &traffic(round));
            }
            let report = raw.call("HOTKEYS GET").show();
            let (_, by_us) = report.split_once("by-cpu-time-us").expect("a field");
            by_us
                .split("by-net-bytes")
                .next()
                .is_some_and(|part| part.contains("\"hot\""))
        });
        let found = found.count();
        assert!(
            found > ROUNDS / 2,
            "the hot key is among the slowest in {found} of {ROUNDS} reports"
        );
        check(&mut raw, "HOTKEYS STOP", "OK");
        let report = raw.call("HOTKEYS GET");
        let [report] = report.items() else {
            panic!("one node's report: {report:?}")
        };
        let items = report.items();
        let at = |name: &str| {
            let mut pairs = items.chunks_exact(2);
            let pair = pairs.find(|pair| pair[0].text() == name);
            &pair.unwrap_or_else(|| panic!("{name} is not there"))[1]
        };
        assert_eq!(at("tracking-active").integer(), 0);
        assert_eq!(at("sample-ratio").integer(), 1);
        assert!(at("all-commands-all-slots-us").integer() > 0);
        let by_bytes = at("by-net-bytes").items();
        assert_eq!(by_bytes.len(), 10);
        assert_eq!(by_bytes[0].text(), "large");
        assert!(
            by_bytes[1].integer() >= 1_500 * 3_000,
            "every use was counted"
        );
        assert_eq!(by_bytes[2].text(), "hot");
        let by_us = at("by-cpu-time-us").items();
        assert!((2..=10).contains(&by_us.len()), "{by_us:?}");
        check(&mut raw, "HOTKEYS RESET", "OK");
        check(&mut raw, "HOTKEYS GET", "(nil array)");
    });
}

#[test]
fn account_of_hot_keys_is_kept_though_nobody_asked() {
    let server = Server::start(&Options::shards(4).with("hot-keys-sample", "8"));
    let mut raw = server.raw();
    for round in 0..10 {
        send(&mut raw, &traffic(round));
    }
    let top = raw.call("HOTKEYS TOP COUNT 1");
    let by_commands = top.items()[7].items();
    assert_eq!(by_commands[0].text(), "hot");
    let uses = by_commands[1].integer();
    assert!((6_000..12_000).contains(&uses), "{uses} of 9,000");
    let doctor = raw.call("LATENCY DOCTOR").body();
    assert!(doctor.contains("One key, \"hot\", takes "), "{doctor}");
    check(&mut raw, "CONFIG SET hot-keys-sample 0", "OK");
}

#[test]
fn the_miss_ratio_curve_says_what_more_or_less_memory_would_do() {
    let server = Server::start(&Options::shards(8));
    let mut raw = server.raw();
    assert_eq!(field(&mut raw, "missratio", "miss_ratio_curve"), Some(1.0));
    assert_eq!(field(&mut raw, "missratio", "curve_hit_ratio_at_100"), None);
    let keys = 8_000;
    let set: Vec<String> = (0..keys)
        .map(|index| format!("SET key:{index} 0123456789"))
        .collect();
    send(&mut raw, &set);
    // One after the other, over and over: LRU with less memory than all of them finds none.
    for _ in 0..3 {
        let get: Vec<String> = (0..keys).map(|index| format!("GET key:{index}")).collect();
        send(&mut raw, &get);
    }
    let mut at = |percent: u32| {
        let name = format!("curve_lru_hit_ratio_at_{percent}");
        field(&mut raw, "missratio", &name).expect("much was looked up")
    };
    // Five hundred keys are followed, so a few points are chance.
    assert!(at(25) < 15.0 && at(50) < 15.0, "{} {}", at(25), at(50));
    assert!(at(200) > 85.0 && at(400) > 85.0, "{} {}", at(200), at(400));
    let measured = field(&mut raw, "missratio", "curve_hit_ratio_measured");
    assert_eq!(measured, Some(100.0));
    check(&mut raw, "CONFIG SET miss-ratio-curve no", "OK");
    support::eventually("the curve is no longer kept", || {
        field(&mut raw, "missratio", "miss_ratio_curve") == Some(0.0)
    });
    check(&mut raw, "GET key:1", "\"0123456789\"");
    check(&mut raw, "CONFIG SET miss-ratio-curve yes", "OK");
    support::eventually("it is kept again", || {
        field(&mut raw, "missratio", "miss_ratio_curve") == Some(1.0)
    });
}

#[test]
fn large_values_are_named_and_the_doctor_speaks_of_them() {
    support::at_each_shard_count(|server| {
        let mut raw = server.raw();
        // Far enough apart that the allocator gives each more than the one before.
        for index in 30..50 {
            raw.call(&format!(
                "SETRANGE text:{index} {} x",
                1.3_f64.powi(index + 8) as u64
            ));
        }
        raw.call("SETRANGE giant 20000000 x");
        let rows = raw.call("MEMORY BIGKEYS COUNT 2");
        let rows = rows.items();
        assert_eq!(rows.len(), 2);
        let keys: Vec<String> = rows.iter().map(|row| row.items()[1].text()).collect();
        assert_eq!(keys, ["giant", "text:49"]);
        let doctor = raw.call("MEMORY DOCTOR").body();
        assert!(doctor.contains("One string alone takes "), "{doctor}");
        raw.call("DEL giant");
        let doctor = raw.call("MEMORY DOCTOR").body();
        assert!(!doctor.contains("alone takes"), "{doctor}");
    });
}

/// Returns the fields of a prefix's line in INFO.
fn prefix(raw: &mut Raw, name: &str) -> Option<std::collections::HashMap<String, String>> {
    let text = raw.call("INFO prefixes").body();
    let wanted = format!(":name={name},");
    let line = text.lines().find(|line| line.contains(&wanted))?;
    let (_, fields) = line.split_once(':')?;
    let fields = fields.split(',').filter_map(|field| field.split_once('='));
    Some(
        fields
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect(),
    )
}

#[test]
fn info_prefixes_of_a_transaction_that_waits_for_its_shard_is_drawn_behind_it() {
    let server = Server::start(&Options::shards(1).threads(2));
    let mut busy = server.raw();
    let script = "EVAL \"for i = 1, 3000000 do end return redis.call('GET', KEYS[1])\" 1 k";
    busy.send(&crate::wire::encode(&crate::wire::split(script)));
    std::thread::sleep(Duration::from_millis(5));
    let mut raw = server.raw();
    check(&mut raw, "MULTI", "OK");
    check(&mut raw, "SET user:1 x", "QUEUED");
    check(&mut raw, "INFO prefixes", "QUEUED");
    let replies = raw.call("EXEC");
    let report = replies.items()[1].body();
    // A shard that is locked again at each attempt is not sampled.
    assert!(report.contains("prefix_keys_drawn:"), "{report}");
    eventually("the key is drawn", || {
        raw.call("INFO prefixes")
            .body()
            .contains("prefix0:name=user:,keys=1,")
    });
    busy.read();
    let refused = raw
        .call("EVAL \"return redis.call('INFO', 'prefixes')\" 0")
        .show();
    assert!(
        refused.contains("INFO prefixes is not allowed in a script"),
        "{refused}"
    );
}

#[test]
fn info_prefixes_says_what_keys_with_one_prefix_take_and_how_they_are_used() {
    let server = Server::start(&Options::shards(8).with("hot-keys-sample", "1"));
    let mut raw = server.raw();
    let lines: Vec<String> = (0..600)
        .map(|index| match index % 3 {
            0 => format!("SET user:{index} {}", "u".repeat(100)),
            1 => format!("SET page:{}:{index} v", index % 7),
            _ => format!("SET plain{index} v"),
        })
        .collect();
    send(&mut raw, &lines);
    // Three of four are there.
    let lines: Vec<String> = (0..400)
        .map(|index| match index % 4 {
            0 => format!("GET user:none{index}"),
            _ => format!("GET user:{}", index / 4 * 3),
        })
        .collect();
    send(&mut raw, &lines);
    raw.call("MGET user:0 user:none page:1:1");
    let number = |raw: &mut Raw, name: &str, field: &str| -> f64 {
        let fields = prefix(raw, name).unwrap_or_else(|| panic!("{name} is not there"));
        fields[field].parse().expect("a number")
    };
    for (name, keys) in [("user:", 200.0), ("page:", 200.0), ("", 200.0)] {
        let (found, error) = (
            number(&mut raw, name, "keys"),
            number(&mut raw, name, "keys_error"),
        );
        assert!(
            (found - keys).abs() <= error && error < 40.0,
            "{name} {found} ± {error}"
        );
    }
    let (small, large) = (
        number(&mut raw, "", "bytes"),
        number(&mut raw, "user:", "bytes"),
    );
    assert!(large > 2.0 * small, "{small} {large}");
    // All commands are sampled; whether one over several shards found its keys is not known.
    let ratio = number(&mut raw, "user:", "hit_ratio");
    assert!((74.0..76.0).contains(&ratio), "{ratio}");
    let fields = prefix(&mut raw, "user:").expect("as before");
    let rate = |name: &str| fields[name].parse::<f64>().expect("a number");
    let (reads, writes) = (rate("reads_per_sec"), rate("writes_per_sec"));
    assert!((1.9..2.1).contains(&(reads / writes)), "{reads} {writes}");
    assert_eq!(number(&mut raw, "user:", "writes_per_sec_error"), 0.0);
    // A transaction's commands count one by one, a script for nothing.
    let before = number(&mut raw, "page:", "reads_per_sec");
    raw.call("MULTI");
    for _ in 0..20 {
        raw.call("GET page:1:1");
    }
    raw.call("EXEC");
    raw.call("EVAL \"return redis.call('get', KEYS[1])\" 1 page:1:1");
    assert!(number(&mut raw, "page:", "reads_per_sec") > before);
    // Another rule.
    check(&mut raw, "CONFIG SET prefix-depth 2", "OK");
    assert!(prefix(&mut raw, "page:").is_none());
    assert!(prefix(&mut raw, "page:4:").is_some());
    assert_eq!(number(&mut raw, "user:", "reads_per_sec"), 0.0);
    check(
        &mut raw,
        "CONFIG SET prefix-delimiter , prefix-depth 1",
        "OK",
    );
    raw.call("SET a,b=c v");
    for _ in 0..50 {
        raw.call("GET a,b=c");
    }
    assert!(number(&mut raw, "a\\x2c", "reads_per_sec") > 0.0);
    for (line, expected) in [
        ("CONFIG SET prefix-depth 0", "(error)"),
        ("CONFIG SET prefix-depth 65", "(error)"),
        ("CONFIG SET prefix-delimiter \"\"", "OK"),
    ] {
        assert!(raw.call(line).show().starts_with(expected), "{line}");
    }
    assert!(!raw.call("INFO prefixes").body().contains("prefix0"));
    for sections in ["", "all", "everything"] {
        assert!(
            !raw.call(&format!("INFO {sections}"))
                .body()
                .contains("# Prefixes")
        );
    }
}

#[test]
fn no_name_of_a_key_or_a_client_stands_on_the_metrics_port_unless_that_is_asked_for() {
    if is_stand_in() {
        return;
    }
    let port = support::free_port();
    let options = Options::shards(4)
        .with("metrics-port", &port.to_string())
        .with("hot-keys-sample", "1")
        .with("latency-monitor-threshold", "1")
        .with("slowlog-log-slower-than", "0");
    let server = Server::start(&options);
    let mut raw = server.raw();
    for request in [
        "CLIENT SETNAME secret-client",
        "CLIENT SETINFO LIB-NAME secret-library",
        "ACL SETUSER secret-user on nopass ~secret-pattern:* &secret-channel* +get",
        "ACL DRYRUN secret-user GET secret-key",
        "AUTH secret-user secret-password",
        "SET secret-key v",
        "GET secret-key",
        "GET secret-key",
        "LPUSH secret-key v",
        "SETRANGE secret-giant 200000 x",
        "SET secret-ttl v EX 1000",
        "PUBLISH secret-channel secret-message",
        "WATCH secret-key",
        "EVAL \"return redis.call('get', KEYS[1])\" 1 secret-key",
        "EVAL \"return redis.call('lpush', 'secret-key', 1)\" 0",
        "FUNCTION LOAD \"#!lua name=secret_functions\\nredis.register_function('secret_function', function() end)\"",
        "FCALL secret_function 0",
        "secret-command secret-argument",
        "SUBSCRIBE secret-channel",
    ] {
        raw.call(request);
    }
    // Signed in as another user, it may not do all of this; a second client may.
    let mut raw = server.raw();
    for request in [
        "CLIENT SETNAME secret-client",
        "DEBUG SLEEP 0.01",
        "SETRANGE secret-giant 200000 x",
        "SUBSCRIBE secret-channel",
    ] {
        raw.call(request);
    }
    let mut raw = server.raw();
    for number in 0..50 {
        raw.call(&format!(
            "SETRANGE secret-big:{number} {} x",
            20_000 + 5_000 * number
        ));
    }
    for _ in 0..100 {
        raw.call("GET secret-giant");
    }
    let page = || support::http(port, "/metrics");
    support::eventually("hot keys by rank", || {
        page().contains("basalt_hot_key_commands_ratio{rank=\"1\"}")
    });
    for path in [
        "/",
        "/metrics",
        "/health",
        "/ready",
        "/secret",
        "/keys",
        "/clients",
        "/report",
        "/api/v1/slow-log",
    ] {
        let page = support::http(port, path);
        let line = page.lines().find(|line| line.contains("secret"));
        assert_eq!(line, None, "{path}");
    }
    check(&mut raw, "CONFIG SET metrics-key-names yes", "OK");
    let named = page();
    let series = |name: &str| -> Vec<&str> {
        let lines = named.lines().filter(|line| line.starts_with(name));
        lines.collect()
    };
    let hot = series("basalt_hot_key_by_name_commands_ratio{key=\"secret-giant\"} ");
    assert_eq!(hot.len(), 1, "{named}");
    let big = series("basalt_big_key_bytes{");
    assert_eq!(big.len(), 10, "{big:?}");
    let largest = "basalt_big_key_bytes{db=\"db0\",type=\"string\",key=\"secret-big:49\"} ";
    let found = big.iter().find_map(|line| line.strip_prefix(largest));
    let bytes: f64 = found.expect(largest).parse().expect("a number");
    assert!((265_000.0..400_000.0).contains(&bytes), "{bytes}");
    for name in ["by_name_commands", "by_name_bytes"] {
        let hot = series(&format!("basalt_hot_key_{name}_ratio{{"));
        assert!((1..=10).contains(&hot.len()), "{hot:?}");
    }
    let prefixes = series("basalt_prefix_keys{prefix=\"secret-big:\"} ");
    assert_eq!(prefixes.len(), 1, "{named}");
    let prefixes = series("basalt_prefix_hit_ratio{prefix=\"\"} ");
    assert_eq!(prefixes.len(), 1, "{named}");
    for other in [
        "client", "user", "channel", "function", "command", "library", "pattern", "message",
    ] {
        assert!(!named.contains(&format!("secret-{other}")), "{other}");
        assert!(!named.contains(&format!("secret_{other}")), "{other}");
    }
    check(&mut raw, "CONFIG SET metrics-key-names no", "OK");
    assert!(!page().contains("secret"));
}

/// Returns the entries of the slow log, oldest first, each with its number and its command as one line.
fn slow_commands(raw: &mut Raw) -> Vec<(i64, String)> {
    let entries = raw.call("SLOWLOG GET -1");
    let mut commands: Vec<_> = entries
        .items()
        .iter()
        .map(|entry| {
            let words = entry.items()[3].items().iter();
            let words: Vec<String> = words.map(|word| word.body()).collect();
            (entry.items()[0].integer(), words.join(" "))
        })
        .collect();
    commands.reverse();
    commands
}

#[test]
fn what_scripts_and_transactions_run_reaches_the_slow_log_one_by_one() {
    let server = Server::start(&Options::shards(2));
    let mut raw = server.raw();
    let texts = |raw: &mut Raw| -> Vec<String> {
        let commands = slow_commands(raw).into_iter();
        commands.map(|(_, command)| command).collect()
    };
    check(&mut raw, "CONFIG SET slowlog-log-slower-than 0", "OK");
    check(&mut raw, "SLOWLOG RESET", "OK");
    raw.call(
        "EVAL \"redis.call('SET','a','1') redis.pcall('NOSUCH') redis.pcall('LPUSH','a','b')\" 0",
    );
    let script = "redis.call('SET','a','1') redis.pcall('NOSUCH') redis.pcall('LPUSH','a','b')";
    assert_eq!(
        texts(&mut raw),
        [
            "SLOWLOG RESET",
            "SET a 1",
            "LPUSH a b",
            &format!("EVAL {script} 0")
        ]
    );
    for line in [
        "SLOWLOG RESET",
        "MULTI",
        "PING",
        "EVAL \"return redis.call('GET','a')\" 0",
        "SET a 2",
        "EXEC",
    ] {
        raw.call(line);
    }
    assert_eq!(
        texts(&mut raw),
        [
            "SLOWLOG RESET",
            "MULTI",
            "PING",
            "GET a",
            "EVAL return redis.call('GET','a') 0",
            "SET a 2",
        ]
    );
    // Commands that ran before the log was emptied stay out of it.
    for line in ["MULTI", "PING", "SLOWLOG RESET", "ECHO x", "EXEC"] {
        raw.call(line);
    }
    assert_eq!(texts(&mut raw), ["SLOWLOG RESET", "ECHO x"]);
    raw.call("EVAL \"redis.call('PING') redis.call('SLOWLOG','RESET') redis.call('ECHO','z')\" 0");
    let left = texts(&mut raw);
    assert_eq!(left.len(), 3, "{left:?}");
    assert_eq!(left[..2], ["SLOWLOG RESET", "ECHO z"]);
    // More calls than the log keeps: the last ones stay, with their original numbers.
    check(&mut raw, "CONFIG SET slowlog-max-len 20", "OK");
    check(&mut raw, "SLOWLOG RESET", "OK");
    let first = slow_commands(&mut raw)[0].0;
    raw.call("EVAL \"for i = 1, 1000 do redis.call('ECHO', i) end\" 0");
    let left = slow_commands(&mut raw);
    let echoes: Vec<_> = (982..=1000)
        .map(|number| (first + 1 + number, format!("ECHO {number}")))
        .collect();
    assert_eq!(left[..19], echoes);
}

#[test]
fn a_slow_log_without_room_uses_up_no_numbers() {
    let server = Server::start(&Options::shards(1));
    let mut raw = server.raw();
    check(&mut raw, "CONFIG SET slowlog-log-slower-than 0", "OK");
    check(&mut raw, "SLOWLOG RESET", "OK");
    let before = slow_commands(&mut raw)[0].0;
    check(&mut raw, "CONFIG SET slowlog-max-len 0", "OK");
    for _ in 0..50 {
        check(&mut raw, "PING", "PONG");
    }
    check(&mut raw, "CONFIG SET slowlog-max-len 10", "OK");
    let after = slow_commands(&mut raw);
    let (last, command) = after.last().expect("the command that made room");
    assert_eq!(command, "CONFIG SET slowlog-max-len 10");
    // The log was read once in between.
    assert_eq!(*last, before + 2);
}
