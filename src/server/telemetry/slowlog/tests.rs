//! Tests of `slowlog`.

use super::*;

fn add(log: &Slowlog, config: &Config, arguments: &[&[u8]]) {
    let entry = SlowlogEntry {
        id: 0,
        at_s: 7,
        cost: 12_000,
        arguments: shorten(arguments.iter().copied()),
        address: "127.0.0.1:5".into(),
        name: "me".into(),
    };
    log.add(config.slowlog_max_len, log.moment(), entry);
}

#[test]
fn the_newest_entry_comes_first_and_numbers_never_repeat() {
    let (log, config) = (Slowlog::default(), Config::default());
    add(&log, &config, &[b"get", b"a"]);
    add(&log, &config, &[b"get", b"b"]);
    let entries = log.get(10);
    assert_eq!(
        entries.iter().map(|entry| entry.id).collect::<Vec<_>>(),
        [1, 0]
    );
    assert_eq!(entries[0].arguments, [b"get".to_vec(), b"b".to_vec()]);
    assert_eq!((entries[0].at_s, entries[0].cost), (7, 12_000));
    assert_eq!(
        (entries[0].address.as_str(), entries[0].name.as_str()),
        ("127.0.0.1:5", "me")
    );
    log.reset();
    assert!(log.is_empty());
    add(&log, &config, &[b"get", b"c"]);
    assert_eq!(log.get(1)[0].id, 2);
    assert_eq!(log.totals(), (3, 36_000));
}

#[test]
fn entries_come_in_the_order_in_which_commands_ran() {
    let (log, config) = (Slowlog::default(), Config::default());
    let (pushed, served) = (log.moment(), log.moment());
    let entry = |argument: &str| SlowlogEntry {
        id: 0,
        at_s: 7,
        cost: 12_000,
        arguments: vec![argument.into()],
        address: String::new(),
        name: String::new(),
    };
    log.add(config.slowlog_max_len, served, entry("blpop"));
    log.add(config.slowlog_max_len, pushed, entry("lpush"));
    log.add(config.slowlog_max_len, log.moment(), entry("get"));
    let entries = log.get(3);
    let seen = entries
        .iter()
        .map(|entry| (entry.id, &entry.arguments[0][..]));
    let expected: [(u64, &[u8]); 3] = [(2, b"get"), (1, b"blpop"), (0, b"lpush")];
    assert_eq!(seen.collect::<Vec<_>>(), expected);
}

#[test]
fn what_ran_before_a_reset_does_not_come_after_it() {
    let (log, config) = (Slowlog::default(), Config::default());
    let before = log.moment();
    log.reset();
    let entry = SlowlogEntry {
        id: 0,
        at_s: 7,
        cost: 12_000,
        arguments: vec![b"ping".to_vec()],
        address: String::new(),
        name: String::new(),
    };
    log.add(config.slowlog_max_len, before, entry.clone());
    assert!(log.is_empty());
    log.skip(3);
    log.add(config.slowlog_max_len, log.moment(), entry);
    assert_eq!(log.get(1)[0].id, 3);
}

#[test]
fn no_bytes_are_many_where_the_limit_is_none() {
    let config = |limit| Config {
        commandlog_reply_larger_than: limit,
        ..Config::default()
    };
    for bytes in [0, 1, 1 << 40] {
        assert!(!is_large_reply(&config(-1), bytes));
        assert!(is_large_reply(&config(0), bytes));
    }
    assert!(is_large_reply(&config(100), 100) && !is_large_reply(&config(100), 99));
}

#[test]
fn a_log_without_room_wants_no_command() {
    let mut config = Config {
        slowlog_log_slower_than: 0,
        ..Config::default()
    };
    assert!(is_slow(&config, 1));
    config.slowlog_max_len = 0;
    assert!(!is_slow(&config, 1));
}

#[test]
fn the_configured_length_bounds_the_log_and_shrinks_it() {
    let log = Slowlog::default();
    let mut config = Config {
        slowlog_max_len: 5,
        ..Config::default()
    };
    for _ in 0..20 {
        add(&log, &config, &[b"x"]);
    }
    assert_eq!(log.len(), 5);
    config.slowlog_max_len = 2;
    add(&log, &config, &[b"x"]);
    assert_eq!(log.len(), 2);
    assert_eq!(log.get(1).len(), 1);
    config.slowlog_max_len = 0;
    add(&log, &config, &[b"x"]);
    assert_eq!(log.len(), 0);
}

#[test]
fn many_arguments_end_in_a_note_on_how_many_are_left_out() {
    let arguments: Vec<Vec<u8>> = (0..40).map(|i| i.to_string().into_bytes()).collect();
    let kept = shorten(arguments.iter().map(Vec::as_slice));
    assert_eq!(kept.len(), 32);
    assert_eq!(kept[30], b"30");
    assert_eq!(kept[31], b"... (9 more arguments)");
    assert_eq!(
        shorten(arguments[..32].iter().map(Vec::as_slice))[31],
        b"31"
    );
}

#[test]
fn a_long_argument_ends_in_a_note_on_how_much_is_left_out() {
    assert_eq!(shorten_one(&[b'A'; 128]), [b'A'; 128]);
    let kept = shorten_one(&[b'A'; 129]);
    assert_eq!(kept[..128], [b'A'; 128]);
    assert_eq!(&kept[128..], b"... (1 more bytes)");
}
