//! Cases that the transcript cannot show: keys of many shards, events, unordered sets, long lists against a model.

use crate::command::testing::{Terminal, check_transcript, on_every_setup};
use basalt_core::base::random::Random;
use basalt_core::resp::reply::Protocol;

#[test]
fn the_transcript_of_redis_holds() {
    let text = include_str!("../../../../../tests/transcripts/families/sort.txt");
    check_transcript(text, |_| {});
}

/// Returns the texts of a flat reply.
fn texts(reply: &str) -> Vec<String> {
    if reply == "(empty array)" {
        return Vec::new();
    }
    let text = |line: &str| match line.split_once(") ") {
        Some((_, text)) => text.trim_matches('"').to_owned(),
        None => panic!("no array: {reply}"),
    };
    reply.lines().map(text).collect()
}

#[test]
fn weights_and_values_may_lie_on_any_of_many_shards() {
    for shard_count in [1, 4, 64] {
        let mut cli = Terminal::with(shard_count, Protocol::Resp2);
        let mut random = Random::new(shard_count as u64);
        let mut numbers: Vec<usize> = (0..200).collect();
        random.shuffle(&mut numbers);
        for (weight, number) in numbers.iter().enumerate() {
            cli.run(&format!("RPUSH l e{number}"));
            cli.run(&format!("SET w_e{number} {weight}"));
            cli.run(&format!("SET name_e{number} n{number}"));
        }
        let names: Vec<String> = numbers.iter().map(|number| format!("n{number}")).collect();
        assert_eq!(texts(&cli.run("SORT l BY w_* GET name_*")), names);
        assert_eq!(texts(&cli.run("SORT_RO l BY w_* GET name_*")), names);
        let backwards = texts(&cli.run("SORT l BY w_* DESC LIMIT 10 20 GET name_* GET #"));
        for (index, pair) in backwards.chunks(2).enumerate() {
            let number = numbers[199 - 10 - index];
            assert_eq!(pair, [format!("n{number}"), format!("e{number}")]);
        }
        cli.check("SORT l BY w_* GET name_* STORE d", "(integer) 200");
        assert_eq!(texts(&cli.run("LRANGE d 0 -1")), names);
    }
}

#[test]
fn without_patterns_only_the_named_keys_need_be_in_hand() {
    let mut cli = Terminal::with(64, Protocol::Resp2);
    cli.run("RPUSH source 3 1 2");
    for (line, reply) in [
        ("SORT source STORE target", "(integer) 3"),
        ("SORT source GET # STORE target", "(integer) 3"),
        ("SORT source GET constant STORE target", "(integer) 3"),
        ("SORT source BY constant STORE target", "(integer) 3"),
        // An argument that only looks like the keyword of a pattern.
        (
            "SORT source STORE get STORE by GET # STORE *",
            "(integer) 3",
        ),
        ("SORT source ALPHA BY STORE STORE target", "(integer) 3"),
    ] {
        cli.check(line, reply);
    }
    cli.check("LRANGE target 0 -1", "1) \"3\"\n2) \"1\"\n3) \"2\"");
    cli.check("LLEN *", "(integer) 3");
    cli.check("EXISTS get by STORE", "(integer) 0");
}

#[test]
fn long_lists_are_sorted_as_std_sorts_them() {
    let mut cli = Terminal::new();
    let mut random = Random::new(5);
    let mut numbers = Vec::new();
    for _ in 0..2_000 {
        let number = random.below(500) as i64 - 250;
        numbers.push(number);
        cli.run(&format!("RPUSH l {number}"));
    }
    let as_texts =
        |numbers: &[i64]| -> Vec<String> { numbers.iter().map(i64::to_string).collect() };
    let mut sorted = numbers.clone();
    sorted.sort_unstable();
    assert_eq!(texts(&cli.run("SORT l")), as_texts(&sorted));
    assert_eq!(
        texts(&cli.run("SORT l LIMIT 30 40")),
        as_texts(&sorted[30..70])
    );
    assert_eq!(
        texts(&cli.run("SORT l LIMIT 1990 40")),
        as_texts(&sorted[1990..])
    );
    let mut by_text = as_texts(&numbers);
    by_text.sort_unstable_by(|one, two| two.cmp(one));
    assert_eq!(texts(&cli.run("SORT l ALPHA DESC LIMIT 0 9")), by_text[..9]);
    assert_eq!(texts(&cli.run("SORT l ALPHA DESC")), by_text);
    let mut backwards = numbers.clone();
    backwards.reverse();
    assert_eq!(
        texts(&cli.run("SORT l BY nosort DESC LIMIT 100 50")),
        as_texts(&backwards[100..150])
    );
}

#[test]
fn a_set_without_an_order_is_answered_as_it_lies() {
    on_every_setup(|cli| {
        cli.run("SADD s a b c d");
        let mut all = texts(&cli.run("SORT s BY nosort"));
        all.sort_unstable();
        assert_eq!(all, ["a", "b", "c", "d"]);
        assert_eq!(texts(&cli.run("SORT s BY nosort LIMIT 1 2")).len(), 2);
        cli.check("SORT s BY nosort STORE d", "(integer) 4");
        cli.check("LRANGE d 0 -1", "1) \"a\"\n2) \"b\"\n3) \"c\"\n4) \"d\"");
    });
}

#[test]
fn what_is_stored_is_recorded() {
    on_every_setup(|cli| {
        for (line, events) in [
            ("RPUSH l 2 1", "l:rpush l"),
            ("SORT l", ""),
            ("SORT l STORE d", "l:sortstore d"),
            ("SORT l STORE l", "l:sortstore l"),
            ("SORT none STORE d", "g:del d"),
            ("SORT none STORE d", ""),
            ("RPUSH l x", "l:rpush l"),
            ("SORT l STORE d", ""),
        ] {
            cli.run(line);
            assert_eq!(cli.events(), events, "{line}");
        }
    });
}

#[test]
fn long_results_become_quicklists_and_short_ones_listpacks() {
    let mut cli = Terminal::new();
    for number in 0..3_000 {
        cli.run(&format!("SADD s member:{number}"));
    }
    cli.check("SORT s ALPHA STORE d", "(integer) 3000");
    assert_eq!(cli.encoding("d"), "quicklist");
    cli.check("SORT s ALPHA LIMIT 0 3 STORE d", "(integer) 3");
    assert_eq!(cli.encoding("d"), "listpack");
}

#[test]
fn the_target_counts_among_the_keys() {
    let mut cli = Terminal::new();
    cli.check_all(&[
        ("COMMAND GETKEYS SORT a STORE b", "1) \"a\"\n2) \"b\""),
        (
            "COMMAND GETKEYS SORT a BY STORE STORE b LIMIT STORE 1 store c",
            "1) \"a\"\n2) \"c\"",
        ),
        ("COMMAND GETKEYS SORT a GET STORE", "1) \"a\""),
        ("COMMAND GETKEYS SORT_RO a STORE b", "1) \"a\""),
    ]);
}

#[test]
fn a_short_request_does_not_ask_for_gibibytes() {
    let mut cli = Terminal::new();
    for number in 0..100 {
        cli.run(&format!("RPUSH l {number}"));
    }
    let gets = |count: usize| " GET #".repeat(count);
    assert_eq!(texts(&cli.run(&format!("SORT l{}", gets(40)))).len(), 4_000);
    for end in ["", " STORE d"] {
        cli.check(
            &format!("SORT l{}{end}", gets(41)),
            "(error) ERR SORT would answer too many elements",
        );
    }
    cli.check("EXISTS d", "(integer) 0");
}

#[test]
fn numbers_too_small_for_all_digits_are_no_scores_to_c() {
    let mut cli = Terminal::new();
    cli.run("RPUSH l 2 2.2250738585072014e-308 -0");
    assert_eq!(
        texts(&cli.run("SORT l")),
        ["-0", "2.2250738585072014e-308", "2"]
    );
    for small in ["1e-310", "-4.9e-324", "1e-400"] {
        cli.run("DEL l");
        cli.run(&format!("RPUSH l {small} 1"));
        cli.check(
            "SORT l",
            "(error) ERR One or more scores can't be converted into double",
        );
    }
}
