//! ARCHITECTURE.md, CONTRIBUTING.md and the pages under docs/ name files, folders and items that exist, comments name
//! files that exist, and every alert has a line that says what to do.

use std::collections::BTreeSet;
use std::path::Path;

use crate::root;

/// Returns the documents about the source, as paths and texts.
fn documents() -> Vec<(String, String)> {
    let names = ["ARCHITECTURE.md", "CONTRIBUTING.md", "README.md"];
    let mut paths: Vec<_> = names.iter().map(|name| root().join(name)).collect();
    for folder in ["docs", "docs/internals"] {
        let entries = std::fs::read_dir(root().join(folder)).expect("a folder of documents");
        let files = entries.flatten().map(|entry| entry.path());
        paths.extend(files.filter(|path| path.extension().is_some_and(|end| end == "md")));
    }
    let read = |path: &std::path::PathBuf| {
        let name = path.strip_prefix(root()).expect("inside");
        let text = std::fs::read_to_string(path).expect("a document");
        (name.to_string_lossy().into_owned(), text)
    };
    paths.iter().map(read).collect()
}

/// Returns the texts between backticks, outside of code blocks, with their line numbers.
fn quoted(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut is_code = false;
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        } else if !is_code {
            let parts = line.split('`').skip(1).step_by(2);
            found.extend(parts.map(|part| (index + 1, part.to_owned())));
        }
    }
    found
}

/// Returns the targets of the links, outside of code blocks.
fn links(text: &str) -> Vec<String> {
    let targets = text.match_indices("](").map(|(at, _)| &text[at + 2..]);
    let targets = targets.filter_map(|rest| rest.split(')').next());
    let inside = targets.filter(|target| !target.contains("://") && !target.starts_with('#'));
    inside.map(str::to_owned).collect()
}

/// True for a path of the source: it has a slash or ends in `.rs`, and has only characters of paths.
fn is_path(text: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/_.-".contains(c);
    let first = text.chars().next().is_some_and(|c| c.is_ascii_lowercase());
    let looks_so = text.ends_with(".rs") || text.ends_with('/') || text.contains('/');
    first && looks_so && text.chars().all(is_plain)
}

/// True if the path exists. Some folders are named by their last parts: `unit/plan.rs` is
/// `src/server/shard/unit/plan.rs`.
fn exists(path: &str, all: &BTreeSet<String>) -> bool {
    let path = path.trim_end_matches('/');
    let ends = [format!("/{path}"), format!("/{path}.rs")];
    root().join(path).exists()
        || all
            .iter()
            .any(|file| ends.iter().any(|end| file.ends_with(end.as_str())))
}

/// Collects the paths of all files and folders, with a slash in front of each.
fn tree(folder: &Path, all: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let inside = path
            .strip_prefix(root())
            .expect("inside")
            .to_string_lossy()
            .into_owned();
        if inside == "target" || inside.starts_with(".git") || inside.ends_with("/target") {
            continue;
        }
        if path.is_dir() {
            tree(&path, all);
        }
        all.insert(format!("/{inside}"));
    }
}

/// Splits the name of an item with its module or type: `Budget::ask`, `engine::Leaving`.
fn names(text: &str) -> Option<Vec<&str>> {
    let text = text.trim_end_matches("()");
    let names: Vec<&str> = text.split("::").collect();
    let is_name = |name: &&str| {
        !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    // A single word counts as a name of this source only if it looks like one.
    let is_meant = names.len() > 1 || text.contains('_') && text.starts_with(char::is_lowercase);
    (is_meant && names.iter().all(is_name)).then_some(names)
}

/// Returns every word of the source.
fn words() -> BTreeSet<String> {
    let mut words = BTreeSet::new();
    let files = crate::source().into_iter();
    for file in files.filter(|file| !file.path.ends_with("documents.rs")) {
        let parts = file
            .text
            .split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        words.extend(parts.map(str::to_owned));
        words.extend(file.module().into_iter().flatten().map(str::to_owned));
    }
    words
}

/// Expands alternatives: `a/{b,c}.rs` names `a/b.rs` and `a/c.rs`.
fn alternatives(path: &str) -> Vec<String> {
    let parts = path
        .split_once('{')
        .and_then(|(before, rest)| Some((before, rest.split_once('}')?)));
    match parts {
        Some((before, (inside, behind))) => inside
            .split(',')
            .map(|part| format!("{before}{}{behind}", part.trim()))
            .collect(),
        None => vec![path.to_owned()],
    }
}

/// Returns the paths in a text that do not exist.
fn missing_paths(text: &str, all: &BTreeSet<String>) -> Vec<String> {
    let mut wrong = Vec::new();
    for (number, quote) in quoted(text) {
        let path = match quote.split_once(".rs::") {
            Some((path, _)) => format!("{path}.rs"),
            None => quote,
        };
        for path in alternatives(&path) {
            if is_path(&path) && !exists(&path, all) {
                wrong.push(format!("{number}: there is no {path}"));
            }
        }
    }
    wrong
}

/// Returns the paths and names in a document that do not exist in the source.
fn missing(text: &str, all: &BTreeSet<String>, words: &BTreeSet<String>) -> Vec<String> {
    let mut wrong = missing_paths(text, all);
    for (number, quote) in quoted(text) {
        let item = quote.split_once(".rs::").map(|(_, item)| item);
        let is_item_unknown = item.is_some_and(|item| !words.contains(item));
        let is_unknown = |names: &Vec<&str>| names.iter().any(|name| !words.contains(*name));
        if is_item_unknown || names(&quote).is_some_and(|names| is_unknown(&names)) {
            wrong.push(format!("{number}: there is no {quote}"));
        }
    }
    wrong
}

/// Returns the comment lines of a source file; other lines are empty, so that lines keep their numbers.
fn comments(text: &str) -> String {
    let comment = |line: &str| match line.trim_start() {
        line if line.starts_with("//") => format!("{}\n", line.trim_start_matches(['/', '!'])),
        _ => "\n".to_owned(),
    };
    text.lines().map(comment).collect()
}

#[test]
fn comments_name_files_that_exist() {
    let mut all = BTreeSet::new();
    tree(root(), &mut all);
    let canary =
        "//! `engine/db/mod.rs`\nlet a = \"`engine/nosuch1.rs`\";\n    /// `engine/nosuch2.rs`\n";
    assert_eq!(
        missing_paths(&comments(canary), &all),
        ["3: there is no engine/nosuch2.rs"]
    );
    let files = crate::source().into_iter();
    let files = files.filter(|file| !file.path.starts_with("tests/tidy/"));
    let found = files.flat_map(|file| {
        let found = missing_paths(&comments(&file.text), &all).into_iter();
        found.map(move |finding| format!("{}:{finding}", file.path))
    });
    let wrong: Vec<String> = found.collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn documents_name_what_exists() {
    let mut all = BTreeSet::new();
    tree(root(), &mut all);
    let words = words();
    let canary = "`engine/nosuch.rs`, `engine/db/mod.rs::Nosuch1`, `Budget::nosuch2`, `engine/db/mod.rs`, `Budget::ask`, \
                  `nosuch_three()`, `engine/{published,nosuch4}.rs`";
    assert_eq!(
        missing(canary, &all, &words).len(),
        5,
        "{:?}",
        missing(canary, &all, &words)
    );
    let mut wrong = Vec::new();
    for (name, text) in documents() {
        let found = missing(&text, &all, &words);
        wrong.extend(found.iter().map(|finding| format!("{name}:{finding}")));
        let folder = root().join(&name);
        let folder = folder.parent().expect("a folder");
        for link in links(&text) {
            let file = link.split('#').next().unwrap_or("");
            if !folder.join(file).exists() {
                wrong.push(format!("{name}: a link to {link}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Returns the names of the alerts, in order.
fn alerts(rules: &str) -> Vec<&str> {
    let lines = rules.lines().map(str::trim_start);
    lines
        .filter_map(|line| line.strip_prefix("- alert: "))
        .collect()
}

/// Returns the names in a table's first column, in order.
fn first_column(page: &str) -> Vec<&str> {
    let rows = page.lines().filter_map(|line| line.strip_prefix("| "));
    let cells = rows.filter_map(|row| row.split(" | ").next());
    cells.skip(1).collect()
}

#[test]
fn every_alert_has_a_line_that_says_what_to_do() {
    let read = |path: &str| std::fs::read_to_string(root().join(path)).expect("a file");
    let (rules, page) = (read("grafana/prometheus/rules.yml"), read("docs/alerts.md"));
    let alerts = alerts(&rules);
    assert!(alerts.len() > 20, "only {} alerts found", alerts.len());
    assert_eq!(alerts, first_column(&page), "in the order of the rules");
}

/// The list of flaky tests stays short: the next one is fixed, not listed.
#[test]
fn the_list_of_flaky_tests_is_short() {
    const LISTED_MAX: usize = 10;
    let list = std::fs::read_to_string(root().join("tests/flaky.txt")).expect("a file");
    let entries: Vec<&str> = list.lines().filter(|line| !line.starts_with('#')).collect();
    assert!(entries.len() <= LISTED_MAX, "{} are listed", entries.len());
    for entry in entries {
        let day = entry.split(' ').next().unwrap_or("");
        let is_day = day.len() == 10 && day.starts_with("20") && day.matches('-').count() == 2;
        assert!(is_day && entry.contains("::"), "a day and a test: {entry}");
    }
}

/// Most words of a paragraph, so that it fits on a screen; a longer one is split.
const WORDS_MAX: usize = 170;

#[test]
fn paragraphs_of_the_map_are_short() {
    for (name, text) in documents() {
        if name == "README.md" {
            continue;
        }
        for paragraph in text
            .split("\n\n")
            .filter(|text| !text.contains("```") && !text.starts_with('|'))
        {
            let items = paragraph
                .split("\n")
                .fold(Vec::new(), |mut items: Vec<String>, line| {
                    let begins =
                        line.starts_with("- ") || line.starts_with(|c: char| c.is_ascii_digit());
                    match items.last_mut().filter(|_| !begins) {
                        Some(last) => *last += &format!("\n{line}"),
                        None => items.push(line.to_owned()),
                    }
                    items
                });
            for part in items {
                let words = part.split_whitespace().count();
                assert!(words <= WORDS_MAX, "{name}: {words} words: {part}");
            }
        }
    }
}
