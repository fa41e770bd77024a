//! Item comments that say something on hover, wherever the item stands: no sentence that leans on the one above.

use crate::File;

/// First words of an item's comment that point at something else.
pub(crate) const OPENINGS: &[&str] = &[
    "The same",
    "Same",
    "It",
    "Its",
    "They",
    "Them",
    "Their",
    "This",
    "That",
    "These",
    "Those",
    "Such",
    "Of these",
    "Of those",
    "And",
    "But",
    "So",
    "Else",
    "Otherwise",
    "Also",
    "Likewise",
    "Ditto",
    "See above",
    "As above",
    "The former",
    "The latter",
    "The other way round",
    "Vice versa",
    "Whoever",
    "Nobody",
    "How long that",
];

/// Words for somebody who is not named: a comment says which thread, client, caller or reader it means.
const NAMELESS: &[&str] = &["whoever", "nobody"];

/// Columns of a line that is a comment.
const COLUMNS_MAX: usize = 120;

/// The comment of an item begins with what the item is.
pub(crate) fn stand_alone(file: &File) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut is_inside = false;
    for (index, line) in file.text.lines().enumerate() {
        let comment = line.trim_start().strip_prefix("///");
        let first = comment.filter(|_| !is_inside).map(str::trim_start);
        is_inside = comment.is_some();
        let leans = |text: &str| {
            OPENINGS.iter().any(|opening| {
                let (start, rest) = text.split_at_checked(opening.len()).unwrap_or_default();
                start.eq_ignore_ascii_case(opening) && !rest.starts_with(char::is_alphanumeric)
            })
        };
        // Comments between `/**` and `*/` are no style of ours, and would not be seen.
        if first.is_some_and(leans) || line.trim_start().starts_with("/**") {
            wrong.push(format!(
                "{}:{}: say what the item is by itself: {}",
                file.path,
                index + 1,
                line.trim_start()
            ));
        }
    }
    wrong
}

/// Texts that the rule must flag.
pub(crate) fn nameless_examples() -> Vec<File> {
    let examples = NAMELESS.iter().flat_map(|word| {
        [
            format!("//! x\n/// Kept, as {word}'s.\n"),
            format!("//! x\n    // {} waits.\n", word.to_uppercase()),
            format!("//! x\nlet a = \"b\"; // so {word} waits\n"),
        ]
    });
    examples
        .map(|text| File::of("src/core/base/mod.rs", &text))
        .collect()
}

/// The comment in a line, at its start or behind code, and not what a text between quotes holds.
fn comment_of(line: &str) -> Option<&str> {
    let is_outside = |at: usize| {
        let before = line[..at].replace("\\\"", "");
        before.matches('"').count().is_multiple_of(2)
    };
    let mut starts = line.match_indices("//").map(|(at, _)| at);
    starts.find(|&at| is_outside(at)).map(|at| &line[at..])
}

/// Comments of the source name who does something.
pub(crate) fn name_the_subject(file: &File) -> Vec<String> {
    let mut wrong = Vec::new();
    if !file.path.starts_with("src/") {
        return wrong;
    }
    for (index, line) in file.text.lines().enumerate() {
        let words = comment_of(line).unwrap_or_default();
        let mut words = words.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
        let is_nameless = |word: &str| NAMELESS.iter().any(|no| no.eq_ignore_ascii_case(word));
        if words.any(is_nameless) {
            wrong.push(format!(
                "{}:{}: name who does it: {}",
                file.path,
                index + 1,
                line.trim_start()
            ));
        }
    }
    wrong
}

/// Comment lines fit beside each other on a screen.
pub(crate) fn fit(file: &File) -> Vec<String> {
    let lines = file.text.lines().enumerate();
    let long = lines.filter(|(_, line)| {
        let is_comment = line.trim_start().starts_with("/*") || comment_of(line).is_some();
        is_comment && line.chars().count() > COLUMNS_MAX
    });
    long.map(|(index, line)| {
        let columns = line.chars().count();
        format!(
            "{}:{}: a comment of {columns} columns",
            file.path,
            index + 1
        )
    })
    .collect()
}
