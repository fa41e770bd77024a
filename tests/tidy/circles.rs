//! Import cycles between the files of one module, counted against a budget that may only fall.
//!
//! A room is a top-level module. An edge leads from a file to another file of its room whose module it names.
//! A module and its own submodules know each other anyway; that is no edge.

use std::collections::{BTreeMap, BTreeSet};

use crate::{File, source};

/// Permitted number of files in import cycles, by room; a room that is absent permits none.
///
/// In `command`, a row names its handler, whose context names the row that runs (`declaration` and `context`).
const BUDGETS: &[(&str, usize)] = &[("command", 2)];

/// How many folders and files directly in a room may stand in circles of these: what a folder's own `mod.rs` passes on
/// counts here, which [`BUDGETS`] does not see.
///
/// In `engine`, a database keeps its eviction order and its undo log, which work on databases. In `script`, the
/// interpreter compiles what libraries keep, and functions are registered through it.
const FOLDER_BUDGETS: &[(&str, usize)] = &[("command", 2), ("engine", 3), ("script", 7)];

type Module = Vec<String>;
type Graph = BTreeMap<Module, BTreeSet<Module>>;

fn owned(module: &[&str]) -> Module {
    module.iter().map(|name| (*name).to_owned()).collect()
}

/// Returns every path that the code names, with its groups expanded.
fn paths(code: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = code;
    while let Some(at) = rest.find("use ") {
        let is_word = !rest[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
        rest = &rest[at + 4..];
        if is_word && let Some(end) = rest.find(';') {
            expand("", &rest[..end], &mut found);
        }
    }
    let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    for word in code.split(|c: char| !is_part(c)) {
        if ["crate::", "super::", "self::"]
            .iter()
            .any(|start| word.starts_with(start))
        {
            found.push(word.to_owned());
        }
    }
    found
}

/// Expands a group: `a::{b, c::{d}}` names `a::b` and `a::c::d`.
fn expand(before: &str, group: &str, found: &mut Vec<String>) {
    let group = group.trim();
    let Some((start, inner)) = group
        .strip_suffix('}')
        .and_then(|text| text.split_once('{'))
    else {
        let name = group.split(" as ").next().unwrap_or("").trim();
        found.push(format!("{before}{name}"));
        return;
    };
    let before = format!("{before}{}", start.trim());
    let (mut depth, mut from) = (0, 0);
    for (at, c) in inner.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                expand(&before, &inner[from..at], found);
                from = at + 1;
            }
            _ => {}
        }
    }
    if !inner[from..].trim().is_empty() {
        expand(&before, &inner[from..], found);
    }
}

/// Returns the module that a path leads to from another module, if it is a file of this source.
fn target(from: &Module, path: &str, modules: &BTreeSet<Module>) -> Option<Module> {
    let mut names: Vec<&str> = path.split("::").map(str::trim).collect();
    let mut whole: Vec<&str> = from.iter().map(String::as_str).collect();
    match names.first()? {
        &"crate" => {
            whole.clear();
            names.remove(0);
        }
        &"super" | &"self" => {
            while let Some(step @ (&"super" | &"self")) = names.first() {
                if *step == "super" {
                    whole.pop();
                }
                names.remove(0);
            }
        }
        _ => {}
    }
    whole.extend(names);
    (1..=whole.len())
        .rev()
        .map(|len| owned(&whole[..len]))
        .find(|module| modules.contains(module))
}

/// Returns the import edges between the files of a room.
fn graph(files: &[File]) -> Graph {
    let of_tests = ["/tests", "/testing", "/simulation"];
    let is_meant = |file: &&File| !of_tests.iter().any(|part| file.path.contains(part));
    let modules: BTreeMap<Module, &File> = files
        .iter()
        .filter(is_meant)
        .filter_map(|file| Some((owned(&file.module()?), file)))
        .collect();
    let names: BTreeSet<Module> = modules.keys().cloned().collect();
    let edges = |(module, file): (&Module, &&File)| {
        let code: String = file.code().map(|(_, line)| format!("{line}\n")).collect();
        let targets = paths(&code)
            .into_iter()
            .filter_map(|path| target(module, &path, &names));
        let targets = targets.filter(|other| {
            other[0] == module[0] && !module.starts_with(other) && !other.starts_with(module)
        });
        (module.clone(), targets.collect())
    };
    modules.iter().map(edges).collect()
}

/// Returns the edges between the folders of each room, and the files that lie directly in it.
fn folders(graph: &Graph) -> Graph {
    let folder = |module: &Module| (module.len() > 1).then(|| module[..2].to_vec());
    let mut folders = Graph::new();
    for (module, targets) in graph {
        let Some(from) = folder(module) else {
            continue;
        };
        let others = targets.iter().filter_map(folder);
        let others: Vec<Module> = others.filter(|other| *other != from).collect();
        folders.entry(from).or_default().extend(others);
    }
    folders
}

/// Returns the modules that can be reached from a module.
fn reached(graph: &Graph, from: &Module) -> BTreeSet<Module> {
    let mut reached = BTreeSet::new();
    let mut left = vec![from];
    while let Some(module) = left.pop() {
        for next in graph.get(module).into_iter().flatten() {
            if reached.insert(next.clone()) {
                left.push(next);
            }
        }
    }
    reached
}

/// Returns the modules that can be reached from themselves, by room.
fn in_circles(graph: &Graph) -> BTreeMap<String, Vec<String>> {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for module in graph
        .keys()
        .filter(|module| reached(graph, module).contains(*module))
    {
        let room = found.entry(module[0].clone()).or_default();
        room.push(module[1..].join("/"));
    }
    found
}

#[test]
fn a_circle_is_seen_whichever_way_it_is_written() {
    for (one, other) in [
        ("use super::b;", "use crate::net::a::x;"),
        ("use super::{b, d};", "fn f() { super::a::g() }"),
        (
            "use crate::{base, net::{b::{x}}};",
            "use crate::net::a as z;",
        ),
    ] {
        let files = [
            File::of("src/server/net/a.rs", one),
            File::of("src/server/net/b.rs", other),
            File::of("src/server/net/c.rs", "use super::a;"),
        ];
        let found = in_circles(&graph(&files));
        assert_eq!(found["net"], ["a", "b"], "{one} {other}");
    }
}

#[test]
fn a_circle_of_folders_is_seen_where_no_file_stands_in_one() {
    let files = [
        File::of("src/server/net/a/one.rs", "use crate::net::b::two;"),
        File::of("src/server/net/b/two.rs", ""),
        File::of("src/server/net/b/three.rs", "use crate::net::a::four;"),
        File::of("src/server/net/a/four.rs", ""),
    ];
    let graph = graph(&files);
    assert!(in_circles(&graph).is_empty());
    assert_eq!(in_circles(&folders(&graph))["net"], ["a", "b"]);
}

#[test]
fn circles_become_fewer() {
    let files = source();
    let graph = graph(&files);
    assert!(graph.len() > 300, "only {} modules", graph.len());
    compare("files", &in_circles(&graph), BUDGETS);
    compare("folders", &in_circles(&folders(&graph)), FOLDER_BUDGETS);
}

fn compare(kind: &str, found: &BTreeMap<String, Vec<String>>, budgets: &[(&str, usize)]) {
    for (room, circle) in found {
        let budget = budgets.iter().find(|(name, _)| name == room);
        let budget = budget.map_or(0, |(_, budget)| *budget);
        let (count, names) = (circle.len(), circle.join(", "));
        assert!(
            count <= budget,
            "{count} {kind} of {room} stand in circles; {budget} may: {names}"
        );
        if count < budget {
            eprintln!(
                "{count} {kind} of {room} stand in circles: lower its budget of {budget} ({names})"
            );
        }
    }
}
