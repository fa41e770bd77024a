//! Tests of copies of strings over all families of commands: a copy that is still current is equal to its value.

use std::collections::BTreeSet;

use super::undone::{draw, script, server};
use crate::command::testing::Terminal;
use basalt_core::base::random::Random;
use basalt_engine::db::TextCopy;
use basalt_engine::value::Text;
use basalt_engine::{Engine, Key, Now};

/// A copy of the string under a key.
struct Copied {
    engine: usize,
    db: usize,
    name: String,
    copy: TextCopy,
}

impl Copied {
    fn key<'k>(&'k self, engine: &Engine) -> Key<'k> {
        Key::new(self.name.as_bytes(), engine.seed())
    }

    /// True if a read of the key would be answered as from the copy, without a look at whether the copy is current.
    fn is_equal(&self, cli: &Terminal, now: Now) -> bool {
        let engine = &cli.engines[self.engine];
        engine
            .peek(self.db, &self.key(engine))
            .is_some_and(|entry| {
                let text = Text::of(entry).map(|text| text.to_vec());
                let until_ms = entry.deadline().map_or(u64::MAX, |at_ms| at_ms + 1);
                text.as_deref() == Some(&*self.copy.bytes)
                    && !entry.has_words()
                    && (until_ms == self.copy.until_ms || now.unix_ms >= self.copy.until_ms)
            })
    }
}

/// Copies all strings.
fn copy_all(cli: &mut Terminal, now: Now) -> Vec<Copied> {
    let mut copied = Vec::new();
    for (index, engine) in cli.engines.iter_mut().enumerate() {
        for db in 0..3 {
            for number in 0..24 {
                let name = format!("key{number}");
                let key = Key::new(name.as_bytes(), engine.seed());
                if let Some(copy) = engine.copy_text(db, &key, 16 * 1024, now) {
                    copied.push(Copied {
                        engine: index,
                        db,
                        name,
                        copy,
                    });
                }
            }
        }
    }
    copied
}

/// The fates of copies.
#[derive(Default)]
struct Outcomes {
    /// Copies that stayed current through a command.
    kept: usize,
    /// Names of the commands after which a copy that had ended was not equal to its value.
    changing: BTreeSet<String>,
}

impl Outcomes {
    fn check(&mut self, cli: &Terminal, copied: &[Copied], now: Now, what: &str) {
        for one in copied {
            let is_over = now.unix_ms >= one.copy.until_ms;
            let is_equal = one.is_equal(cli, now);
            if one.copy.validity.is_current() {
                assert!(
                    is_equal || is_over,
                    "{} in {} after {what}",
                    one.name,
                    one.db
                );
                self.kept += 1;
            } else if !is_equal {
                let name = what.split(' ').next().unwrap_or_default();
                self.changing.insert(name.to_owned());
            }
        }
    }
}

#[test]
fn a_copy_that_is_current_is_equal_to_its_value_whatever_ran() {
    let mut outcomes = Outcomes::default();
    for seed in 0..if cfg!(debug_assertions) { 60 } else { 300 } {
        let mut random = Random::new(seed);
        let mut cli = server(if seed.is_multiple_of(2) { 1 } else { 4 });
        for _ in 0..40 {
            let then = Now {
                unix_ms: cli.now_ms,
            };
            let copied = copy_all(&mut cli, then);
            cli.advance_ms(draw(&mut random, 300));
            let now = Now {
                unix_ms: cli.now_ms,
            };
            for engine in &mut cli.engines {
                while engine.expire_slice(now) {}
            }
            outcomes.check(&cli, &copied, now, "expiry");
            let is_unit = draw(&mut random, 3) == 0;
            if is_unit {
                cli.engines.iter_mut().for_each(Engine::begin_attempt);
            }
            for line in script(&mut random) {
                let copied = copy_all(&mut cli, now);
                cli.run(&line);
                outcomes.check(&cli, &copied, now, &line);
            }
            if is_unit {
                let copied = copy_all(&mut cli, now);
                match draw(&mut random, 2) {
                    0 => cli.engines.iter_mut().for_each(Engine::undo_attempt),
                    _ => cli.engines.iter_mut().for_each(Engine::commit_attempt),
                }
                outcomes.check(&cli, &copied, now, "rollback");
            }
        }
    }
    assert!(outcomes.kept > 10_000, "{}", outcomes.kept);
    // Had their copies not ended, the comparison would have found it.
    for name in [
        "SET",
        "APPEND",
        "INCR",
        "SETRANGE",
        "GETDEL",
        "DEL",
        "UNLINK",
        "RENAME",
        "COPY",
        "MOVE",
        "PEXPIRE",
        "PERSIST",
        "MSET",
        "SORT",
        "BITOP",
        "FLUSHDB",
        "FLUSHALL",
        "SWAPDB",
        "SUNIONSTORE",
        "expiry",
        "rollback",
    ] {
        assert!(
            outcomes.changing.contains(name),
            "{name}: {:?}",
            outcomes.changing
        );
    }
}
