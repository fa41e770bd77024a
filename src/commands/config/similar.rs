//! Suggests the directive, tool or option that is closest to a misspelt word.

use crate::config::table::PARAMETERS;

/// Directives other than parameters.
const ONLY_IN_FILES: [&str; 4] = ["include", "rename-command", "role", "user"];

/// Minimum similarity of a suggestion; 1 means the same word.
const ALIKE: f64 = 0.85;

/// Returns a question to append to an error about an unknown directive, if a known directive has a similar name;
/// otherwise an empty text.
pub(super) fn question(name: &str) -> String {
    let parameters = PARAMETERS.iter().filter(|known| !known.traits.hidden);
    let names = parameters.map(|known| known.name).chain(ONLY_IN_FILES);
    ask(name, names)
}

/// Like [`question`], for the first word of a command line.
pub(super) fn question_about_tool(word: &str) -> String {
    ask(
        word,
        ["check-rdb", "check-aof", "top", "report", "help"].into_iter(),
    )
}

fn ask<'n>(word: &str, names: impl Iterator<Item = &'n str>) -> String {
    let likeness = |name: &str| {
        // Words may be swapped, as in `size-max`, which edit distances do not detect: compare sorted words too.
        let edits = strsim::normalized_damerau_levenshtein(word, name);
        edits.max(strsim::jaro_winkler(word, name) - 0.05)
    };
    let closest = names
        .map(|name| (likeness(name), name))
        .max_by(|one, other| one.0.total_cmp(&other.0));
    match closest {
        // If the name is known (similarity 1), the error is elsewhere: suggest nothing.
        Some((likeness, name)) if (ALIKE..1.0).contains(&likeness) => {
            format!("; did you mean '{name}'?")
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_word_is_answered_with_the_one_that_was_meant() {
        for (word, meant) in [
            ("max-memory", "maxmemory"),
            ("maxmemory-polcy", "maxmemory-policy"),
            ("apendonly", "appendonly"),
            ("append-only", "appendonly"),
            ("require-pass", "requirepass"),
            ("renamecommand", "rename-command"),
            ("prot", "port"),
            ("metric-port", "metrics-port"),
        ] {
            assert_eq!(
                question(word),
                format!("; did you mean '{meant}'?"),
                "{word}"
            );
        }
        for word in ["nosuchdirective", "x", ""] {
            assert_eq!(question(word), "", "{word}");
        }
        assert_eq!(
            question_about_tool("check-rbd"),
            "; did you mean 'check-rdb'?"
        );
        assert_eq!(question_about_tool("/etc/basalt.conf"), "");
    }
}
