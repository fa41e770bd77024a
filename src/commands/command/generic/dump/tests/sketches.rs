//! Sketches can be moved between servers of this kind only; those of Redis modules are refused.

use super::{dump, restore};
use crate::command::testing::on_every_setup;
use basalt_engine::serial::frame;

/// One sketch of each type, with some content.
pub(super) const MAKERS: &[(&str, &[&str])] = &[
    (
        "bloom",
        &[
            "BF.RESERVE bloom 0.01 20",
            "BF.MADD bloom a b c d e f g h i j",
        ],
    ),
    (
        "cuckoo",
        &["CF.RESERVE cuckoo 64", "CF.ADD cuckoo a", "CF.ADD cuckoo b"],
    ),
    (
        "counts",
        &["CMS.INITBYDIM counts 20 3", "CMS.INCRBY counts a 3 b 4"],
    ),
    (
        "top",
        &["TOPK.RESERVE top 3 8 3 0.9", "TOPK.ADD top a b c a d a b"],
    ),
    (
        "digest",
        &["TDIGEST.CREATE digest", "TDIGEST.ADD digest 1 2 3 4 5 100"],
    ),
];

const QUESTIONS: &[&str] = &[
    "BF.MEXISTS bloom a b z",
    "BF.INFO bloom",
    "CF.MEXISTS cuckoo a b z",
    "CF.INFO cuckoo",
    "CMS.QUERY counts a b z",
    "CMS.INFO counts",
    "TOPK.LIST top WITHCOUNT",
    "TOPK.INFO top",
    "TDIGEST.QUANTILE digest 0 0.5 0.9 1",
    "TDIGEST.INFO digest",
];

#[test]
fn sketches_come_back_as_they_were() {
    on_every_setup(|cli| {
        let lines = MAKERS.iter().flat_map(|(_, lines)| lines.iter());
        lines.for_each(|line| drop(cli.run(line)));
        let answers: Vec<String> = QUESTIONS.iter().map(|line| cli.run(line)).collect();
        assert!(
            answers.iter().all(|answer| !answer.contains("error")),
            "{answers:?}"
        );
        for (key, _) in MAKERS {
            let digest = cli.run(&format!("DEBUG DIGEST-VALUE {key}"));
            let payload = dump(cli, key);
            assert_eq!(restore(cli, key, &payload, "replace"), "OK", "{key}");
            assert_eq!(
                cli.run(&format!("DEBUG DIGEST-VALUE {key}")),
                digest,
                "{key}"
            );
        }
        cli.check("DEBUG REENCODE", "OK");
        for (line, answer) in QUESTIONS.iter().zip(answers) {
            cli.check(line, &answer);
        }
    });
}

#[test]
fn sketches_that_counted_nothing_come_back_too() {
    on_every_setup(|cli| {
        for line in [
            "BF.RESERVE bloom 0.01 20",
            "CF.RESERVE cuckoo 64",
            "CMS.INITBYDIM counts 20 3",
            "TOPK.RESERVE top 3",
            "TDIGEST.CREATE digest",
        ] {
            cli.check(line, "OK");
        }
        let before = cli.run("DEBUG DIGEST");
        cli.check("DEBUG REENCODE", "OK");
        cli.check("DEBUG DIGEST", &before);
    });
}

/// A value with the module name MBbloom-- in the version of Redis's module, and one with a name that no filter has.
#[test]
fn values_of_foreign_modules_are_refused() {
    on_every_setup(|cli| {
        for (line, key) in [("BF.ADD bloom a", "bloom"), ("CMS.INITBYDIM c 2 2", "c")] {
            cli.run(line);
            let payload = dump(cli, key);
            let (value, _) = frame::open(&payload).expect("whole");
            assert_eq!(value[..2], [7, 0x81]);
            assert_eq!(u16::from_be_bytes([value[8], value[9]]) & 0x3ff, 1023);
            for (at, byte) in [(9, 4), (8, value[8] & !3), (2, value[2] ^ 1)] {
                let mut foreign = value.to_vec();
                foreign[at] = byte;
                assert_eq!(
                    restore(cli, "k", &frame::seal(foreign, 10), ""),
                    "(error) ERR Bad data format"
                );
            }
        }
    });
}
