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

/// Whether a comment begins in a line, at its start or behind code, and not in a text between quotes.
fn begins_comment(line: &str) -> bool {
    let is_outside = |at: usize| {
        let before = line[..at].replace("\\\"", "");
        before.matches('"').count().is_multiple_of(2)
    };
    line.match_indices("//").any(|(at, _)| is_outside(at))
}

/// Comment lines fit beside each other on a screen.
pub(crate) fn fit(file: &File) -> Vec<String> {
    let lines = file.text.lines().enumerate();
    let long = lines.filter(|(_, line)| {
        let is_comment = line.trim_start().starts_with("/*") || begins_comment(line);
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
