//! Long functions, counted against budgets that may only fall: a change that shortens one lowers the number.

use crate::{File, indent_of, source};

/// A length in lines, and how many functions of the source may be longer.
const BUDGETS: [(usize, usize); 1] = [(80, 0)];

/// Returns the functions outside of tests: their lines, from `fn` to the closing brace, and their locations.
fn functions(file: &File) -> Vec<(usize, String)> {
    let lines: Vec<_> = file.code().collect();
    let mut found = Vec::new();
    for (at, (number, line)) in lines.iter().enumerate() {
        let Some(name) = name_of(line) else {
            continue;
        };
        let end = format!("{}}}", indent_of(line));
        let rest = &lines[at..];
        let is_declared_only = rest
            .iter()
            .map(|(_, line)| line.trim_end())
            .find(|line| line.ends_with([';', '{']))
            .is_some_and(|line| line.ends_with(';'));
        let last = rest.iter().find(|(_, line)| line.trim_end() == end);
        if let Some((last, _)) = last.filter(|_| !is_declared_only) {
            found.push((last - number + 1, format!("{}:{number}: {name}", file.path)));
        }
    }
    found
}

/// Returns the name of the function that begins on this line.
fn name_of(line: &str) -> Option<&str> {
    let mut words = line.trim_start().split(' ');
    let is_before = |word: &str| {
        word.starts_with("pub")
            || ["const", "async", "unsafe", "extern", "\"C\"", "in"].contains(&word)
            || word.ends_with(')')
    };
    let word = words.by_ref().find(|word| !is_before(word))?;
    let name = words.next().filter(|_| word == "fn")?;
    name.split(['(', '<']).next()
}

/// True if the rule applies to the file: tests, and code that only tests use, may be of any length.
fn counts(file: &File) -> bool {
    let of_tests = ["/tests", "/testing", "/simulation"];
    file.path.starts_with("src/") && !of_tests.iter().any(|part| file.path.contains(part))
}

#[test]
fn a_function_is_measured_from_its_first_line_to_its_last() {
    let text =
        "//! x\npub(crate) fn f(\n    a: u8,\n) {\n    g();\n}\n\ntrait A {\n    fn g();\n}\n";
    let found = functions(&File::of("src/server/net/mod.rs", text));
    assert_eq!(found, [(5, "src/server/net/mod.rs:2: f".to_owned())]);
}

#[test]
fn long_functions_become_fewer() {
    let mut all: Vec<_> = source()
        .iter()
        .filter(|file| counts(file))
        .flat_map(functions)
        .collect();
    assert!(all.len() > 4_000, "only {} functions found", all.len());
    all.sort_by(|one, other| other.cmp(one));
    for (lines_max, budget) in BUDGETS {
        let long = all.iter().take_while(|(lines, _)| *lines > lines_max);
        let long: Vec<String> = long
            .map(|(lines, place)| format!("{lines} {place}"))
            .collect();
        assert!(
            long.len() <= budget,
            "{} functions are longer than {lines_max} lines; {budget} may be:\n{}",
            long.len(),
            long.join("\n")
        );
        if long.len() < budget {
            eprintln!(
                "{} functions are longer than {lines_max} lines: lower the budget of {budget}",
                long.len()
            );
        }
    }
}
