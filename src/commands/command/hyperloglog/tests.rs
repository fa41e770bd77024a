//! Cases that the transcript cannot show: events, long sketches, limits.

use crate::command::testing::{Terminal, check_transcript, on_every_setup};
use basalt_engine::value::BLOCK_BYTES_MIN;
use std::sync::Arc;

#[test]
fn the_transcript_of_redis_holds() {
    let text = include_str!("../../../../tests/transcripts/families/hyperloglog.txt");
    check_transcript(text, |_| {});
}

#[test]
fn only_what_changes_a_sketch_is_recorded() {
    on_every_setup(|cli| {
        for (line, events) in [
            ("PFADD h", "$:pfadd h"),
            ("PFADD h", ""),
            ("PFADD h a b", "$:pfadd h"),
            ("PFADD h b a", ""),
            ("PFCOUNT h", "\0:pfcount h"),
            ("PFCOUNT h", ""),
            ("PFMERGE h", "$:pfadd h"),
            ("PFMERGE other h", "$:pfadd other"),
            ("PFADD other a", ""),
        ] {
            cli.run(line);
            assert_eq!(cli.events(), events, "{line}");
        }
    });
}

fn pfadd(cli: &mut Terminal, key: &str, numbers: std::ops::Range<u32>) {
    let numbers: Vec<u32> = numbers.collect();
    for some in numbers.chunks(1000) {
        let mut words = vec![String::from("PFADD"), key.into()];
        words.extend(some.iter().map(u32::to_string));
        cli.run_args(&words);
    }
}

#[test]
fn the_limit_of_the_sparse_form_is_the_configured_one() {
    on_every_setup(|cli| {
        let sparse_max = |cli: &mut Terminal, bytes: u64| {
            cli.configure(|config| config.hll_sparse_max_bytes = bytes);
        };
        sparse_max(cli, 100);
        pfadd(cli, "h", 0..20);
        cli.check("PFDEBUG ENCODING h", "sparse");
        pfadd(cli, "h", 20..60);
        cli.check("PFDEBUG ENCODING h", "dense");
        sparse_max(cli, 3000);
        pfadd(cli, "i", 0..60);
        cli.check("PFDEBUG ENCODING i", "sparse");
        assert_eq!(cli.run("PFCOUNT h"), cli.run("PFCOUNT i"));
        sparse_max(cli, 30);
        cli.check("PFADD i 1 2 3", "(integer) 0");
        cli.check("PFDEBUG ENCODING i", "sparse");
        cli.check("PFADD i new", "(integer) 1");
        cli.check("PFDEBUG ENCODING i", "dense");
    });
}

#[test]
fn a_sketch_beyond_the_size_of_an_entry_works_in_its_block() {
    on_every_setup(|cli| {
        cli.configure(|config| config.hll_sparse_max_bytes = 1 << 20);
        // No elements lead to this many runs; a client may still store such a string.
        let mut bytes = b"HYLL\x01\0\0\0\0\0\0\0\0\0\0\x80".to_vec();
        bytes.resize(16 + 16_384, 0x80);
        assert!(bytes.len() >= BLOCK_BYTES_MIN);
        cli.run_args(&[&b"SET"[..], b"h", &bytes]);
        cli.check("PFDEBUG ENCODING h", "sparse");
        let count = cli.run("PFCOUNT h");
        cli.check("COPY h copy", "(integer) 1");
        pfadd(cli, "h", 0..1000);
        cli.check("PFCOUNT copy", &count);
        assert_ne!(cli.run("PFCOUNT h"), count);
        cli.check("PFDEBUG TODENSE copy", "(integer) 1");
        cli.check("PFCOUNT copy", &count);
        cli.check("STRLEN copy", "(integer) 12304");
        cli.check("PFMERGE h copy", "OK");
        cli.check("PFDEBUG ENCODING h", "dense");
    });
}

#[test]
fn getreg_shows_every_register() {
    let mut cli = Terminal::new();
    cli.run("PFADD h a");
    let reply = cli.run("PFDEBUG GETREG h");
    assert_eq!(reply.lines().count(), 16_384);
    assert_eq!(
        reply.lines().filter(|line| !line.ends_with(") 0")).count(),
        1
    );
    cli.check("PFDEBUG ENCODING h", "dense");
}

#[test]
fn the_self_test_passes() {
    let mut cli = Terminal::new();
    cli.check("PFSELFTEST", "OK");
    Arc::make_mut(&mut cli.config).hll_sparse_max_bytes = 0;
    cli.check("PFSELFTEST", "OK");
}

#[test]
fn an_element_that_meets_corruption_leaves_the_sketch_as_it_was() {
    on_every_setup(|cli| {
        let cut = "\"HYLL\\x01\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x80`\\x00\"";
        cli.check(&format!("SET h {cut}"), "OK");
        // Adds an element in the part of the registers that exists, then one outside of it.
        cli.check(
            "PFADD h c a b",
            "(error) INVALIDOBJ Corrupted HLL object detected",
        );
        cli.check("GET h", cut);
    });
}
