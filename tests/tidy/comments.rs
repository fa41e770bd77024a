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
                text.strip_prefix(opening)
                    .is_some_and(|rest| !rest.starts_with(char::is_alphanumeric))
            })
        };
        if first.is_some_and(leans) {
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

/// Comment lines fit beside each other on a screen.
pub(crate) fn fit(file: &File) -> Vec<String> {
    let lines = file.text.lines().enumerate();
    let long = lines.filter(|(_, line)| {
        line.trim_start().starts_with("//") && line.chars().count() > COLUMNS_MAX
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
