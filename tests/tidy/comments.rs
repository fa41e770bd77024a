//! Rules for comments: an item's comment makes sense on hover, without the sentence above it.

use crate::File;

/// First words of an item's comment that refer to another sentence.
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

/// Pronouns without a referent: a comment names the thread, client, caller or reader that it means.
const NAMELESS: &[&str] = &["whoever", "nobody"];

/// Greatest width of a comment line, in columns.
const COLUMNS_MAX: usize = 120;

/// Reports item comments that do not begin with what the item is.
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
        // Comments between `/**` and `*/` are not used here, and this rule would miss them.
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

/// Returns the comment of a line, at its start or behind code; `//` within a string literal is none.
fn comment_of(line: &str) -> Option<&str> {
    let is_outside = |at: usize| {
        let before = line[..at].replace("\\\"", "");
        before.matches('"').count().is_multiple_of(2)
    };
    let mut starts = line.match_indices("//").map(|(at, _)| at);
    starts.find(|&at| is_outside(at)).map(|at| &line[at..])
}

/// Reports comments that do not name their subject.
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

/// Reports comment lines that are too wide.
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
