//! Command-line arguments of a bench: flags, and options with a value after them.

use std::path::PathBuf;
use std::str::FromStr;

use super::process;

/// The arguments; see the module.
pub(crate) struct Arguments(Vec<String>);

impl Arguments {
    /// Reads the arguments of this process; returns `None`, with a message, if there are none, as under cargo test.
    pub(crate) fn read() -> Option<Arguments> {
        let words: Vec<String> = std::env::args().skip(1).collect();
        if words.is_empty() {
            eprintln!("started without --bench, as cargo test does: nothing is measured");
            return None;
        }
        Some(Arguments(words))
    }

    /// Returns whether a flag is present.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|word| word == name)
    }

    /// Returns the value of an option.
    pub(crate) fn value(&self, name: &str, default: &str) -> String {
        let at = self.0.iter().position(|word| word == name);
        at.and_then(|at| self.0.get(at + 1))
            .map_or(default, String::as_str)
            .to_owned()
    }

    /// Returns the number of an option.
    pub(crate) fn number(&self, name: &str, default: &str) -> usize {
        self.value(name, default).parse().expect("a number")
    }

    /// Returns the number of an option; by default `full`, or with `--quick` `quick`.
    pub(crate) fn sized(&self, name: &str, full: usize, quick: usize) -> usize {
        let default = if self.has("--quick") { quick } else { full };
        self.number(name, &default.to_string())
    }

    /// Returns the comma-separated numbers of an option.
    pub(crate) fn numbers<T: FromStr>(&self, name: &str, default: &str) -> Vec<T> {
        let all = self.value(name, default);
        let read = |word: &str| word.parse().ok().expect("numbers parted by commas");
        all.split(',').map(read).collect()
    }

    /// Returns the basalt to measure: `--basalt`, or the one that was built.
    pub(crate) fn basalt(&self) -> PathBuf {
        let told = self.value("--basalt", "");
        process::basalt_binary(Some(told.as_str()).filter(|path| !path.is_empty()))
    }

    /// Returns the server to compare it with: `--redis`, or the one that `BASALT_REDIS_SERVER` names, or the one in the
    /// path.
    pub(crate) fn redis(&self) -> PathBuf {
        let named = std::env::var("BASALT_REDIS_SERVER");
        PathBuf::from(self.value("--redis", named.as_deref().unwrap_or("redis-server")))
    }
}
