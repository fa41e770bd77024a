//! Checks the rules of the source in ARCHITECTURE.md: imports between modules, what the lower half must not
//! use, where `unsafe` may stand, how files begin and how long they are. The rules are data; a new import
//! edge is a visible line in `MAY_IMPORT`. Each rule is first run on a text that it must flag, so that a rule
//! that finds nothing cannot pass.
//!
//! ```text
//! comments    item comments stand alone, and comment lines fit
//! documents   ARCHITECTURE.md, docs/ and comments name what exists
//! circles     import cycles between the files of a module, within a budget that only falls
//! functions   long functions, within a budget that only falls
//! imports     which module may import which
//! ```

mod circles;
mod comments;
mod documents;
mod functions;
mod imports;

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use imports::MAY_IMPORT;

/// Modules that use no runtime, thread, lock, socket, file or clock.
const PURE: &[&str] = &[
    "base",
    "alloc",
    "structures",
    "resp",
    "json_path",
    "engine",
    "cluster",
    "command",
];

const IMPURE_WORDS: &[&str] = &[
    "std::thread",
    "std::net",
    "std::fs",
    "std::time::Instant",
    "std::time::SystemTime",
    "SystemTime::now",
    "Instant::now",
    "tokio",
    "parking_lot",
    "Mutex",
    "RwLock",
    "Condvar",
];

/// Folders and files where `unsafe` may stand.
const UNSAFE_HOMES: &[&str] = &[
    "src/core/alloc/",
    "src/core/structures/",
    "src/server/sys/",
    "src/server/shard/ownership",
    "tests/loom/",
];

const LEFTOVERS: &[&str] = &[
    "todo!",
    "unimplemented!",
    "FIXME",
    "XXX",
    "dbg!",
    "#[ignore",
];

const LINES_MAX: usize = 800;

/// One source file: its path from the crate's root, and its text.
struct File {
    path: String,
    text: String,
}

impl File {
    fn of(path: &str, text: &str) -> File {
        File {
            path: path.to_owned(),
            text: text.to_owned(),
        }
    }

    /// Returns the top module: `src/engine/value/string.rs` belongs to `engine`, `src/server/net/mod.rs` to
    /// `net`.
    fn top_module(&self) -> Option<&str> {
        self.module()?.into_iter().next()
    }

    /// Returns the crate that the file is part of: `core` for `src/core/base/mod.rs`.
    fn crate_name(&self) -> Option<&str> {
        let inside = self.path.strip_prefix("src/")?;
        Some(inside.split_once('/')?.0)
    }

    /// Returns the lines of code, numbered from 1, without comments and without inline test modules, which
    /// may use what the code beside them may not.
    fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        let lines: Vec<&str> = self.text.lines().collect();
        let mut code = Vec::new();
        let mut at = if self.is_test() { lines.len() } else { 0 };
        while at < lines.len() {
            if is_test_module(&lines[at..]) {
                let end = format!("{}}}", indent_of(lines[at]));
                at += 2;
                while at < lines.len() && lines[at] != end {
                    at += 1;
                }
            } else {
                code.push((at + 1, lines[at].split("//").next().unwrap_or("")));
            }
            at += 1;
        }
        code.into_iter()
    }

    /// Returns the path of the file's module: `src/server/net/connection/mod.rs` is `net`, `connection`. The
    /// engine is a crate and a module at once.
    fn module(&self) -> Option<Vec<&str>> {
        let inside = self.path.strip_prefix("src/")?.strip_suffix(".rs")?;
        let inside = match inside.split_once('/') {
            Some(("engine", _)) | None => inside,
            Some((_, below)) => below,
        };
        let ends = ["/mod", "/lib"];
        let inside = ends
            .iter()
            .find_map(|end| inside.strip_suffix(end))
            .unwrap_or(inside);
        Some(inside.split('/').collect())
    }

    fn is_test(&self) -> bool {
        self.path.ends_with("/tests.rs")
            || self.path.contains("/tests/")
            || self.path.contains("/testing/")
    }
}

/// True if an inline test module begins here.
fn is_test_module(lines: &[&str]) -> bool {
    let [first, second, ..] = lines else {
        return false;
    };
    let is_for_tests = ["#[cfg(test)]", "#[cfg(all(test"];
    is_for_tests
        .iter()
        .any(|form| first.trim_start().starts_with(form))
        && second.contains("mod ")
        && second.trim_end().ends_with('{')
}

fn indent_of(line: &str) -> &str {
    &line[..line.len() - line.trim_start().len()]
}

type Rule = fn(&File) -> Vec<String>;

fn imports_follow_the_map(file: &File) -> Vec<String> {
    let Some(module) = file.top_module() else {
        return Vec::new();
    };
    let Some((_, allowed)) = MAY_IMPORT.iter().find(|(name, _)| *name == module) else {
        return vec![format!(
            "{}: module {module} is not on the map in tests/tidy/",
            file.path
        )];
    };
    let mut wrong = Vec::new();
    // In a crate whose root is the module itself, `super` reaches only the root and does not leave the
    // module.
    let is_root = file.crate_name() == Some(module);
    let depth = file.module().map_or(0, |names| names.len());
    for (number, line) in file.code() {
        if !is_root && line.matches("super::").count() >= depth && is_chain(line, depth) {
            wrong.push(format!(
                "{}:{number}: leaves its top module by super; say crate::",
                file.path
            ));
        }
        if line.trim_start().starts_with("use ") && line.matches('{').count() > 1 {
            wrong.push(format!("{}:{number}: one group in another", file.path));
        }
        for named in named_modules(line) {
            if is_root {
                continue;
            }
            let is_known = MAY_IMPORT.iter().any(|(name, _)| *name == named);
            if is_known && named != module && !allowed.contains(&named) {
                wrong.push(format!(
                    "{}:{number}: {module} may not import {named}",
                    file.path
                ));
            }
        }
    }
    wrong
}

/// True if the line has `depth` consecutive `super::`.
fn is_chain(line: &str, depth: usize) -> bool {
    depth > 0 && line.contains(&"super::".repeat(depth))
}

/// Returns the modules that a line names: `crate::session::batch` names `session`. Names of other crates are
/// checked by the manifests.
fn named_modules(line: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for prefix in ["crate::"] {
        for (at, _) in line.match_indices(prefix) {
            let rest = &line[at + prefix.len()..];
            if let Some(group) = rest.strip_prefix('{') {
                let group = group.split('}').next().unwrap_or("");
                found.extend(
                    group
                        .split(',')
                        .map(|item| item.trim().split("::").next().unwrap_or("")),
                );
            } else {
                let end = rest
                    .find(|c: char| !c.is_alphanumeric() && c != '_')
                    .unwrap_or(rest.len());
                found.push(&rest[..end]);
            }
        }
    }
    found
}

fn the_lower_half_is_pure(file: &File) -> Vec<String> {
    if !file
        .top_module()
        .is_some_and(|module| PURE.contains(&module))
    {
        return Vec::new();
    }
    let mut wrong = Vec::new();
    for (number, line) in file.code() {
        for word in IMPURE_WORDS.iter().filter(|word| has_word(line, word)) {
            wrong.push(format!("{}:{number}: {word} below shard", file.path));
        }
    }
    wrong
}

fn nothing_is_left_over(file: &File) -> Vec<String> {
    // This file must name the forbidden words.
    if file.path.starts_with("tests/tidy/") {
        return Vec::new();
    }
    let mut wrong = Vec::new();
    for (index, line) in file.text.lines().enumerate() {
        for word in LEFTOVERS.iter().filter(|word| has_word(line, word)) {
            wrong.push(format!("{}:{}: {word}", file.path, index + 1));
        }
    }
    wrong
}

/// True if the line contains the word as a whole: `tokio` but not `tokiox`, `todo!` but not `mytodo!`.
fn has_word(line: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back().is_some_and(is_part);
        let after =
            word.ends_with(is_part) && line[at + word.len()..].chars().next().is_some_and(is_part);
        !before && !after
    })
}

fn files_begin_with_what_they_are(file: &File) -> Vec<String> {
    if file.text.starts_with("//! ") {
        return Vec::new();
    }
    vec![format!("{}: does not begin with //!", file.path)]
}

fn files_are_short(file: &File) -> Vec<String> {
    let lines = file.text.lines().count();
    if lines <= LINES_MAX {
        return Vec::new();
    }
    vec![format!(
        "{}: {lines} lines; {LINES_MAX} at most, then a folder",
        file.path
    )]
}

fn unsafe_stays_at_home(file: &File) -> Vec<String> {
    let homes = UNSAFE_HOMES.iter().chain(&["tests/tidy/"]);
    if homes.into_iter().any(|home| file.path.starts_with(home)) {
        return Vec::new();
    }
    let mut wrong = Vec::new();
    for (index, line) in file.text.lines().enumerate() {
        let line = line.split("//").next().unwrap_or("");
        if [
            "unsafe {",
            "unsafe fn",
            "unsafe impl",
            "unsafe trait",
            "expect(unsafe_code",
            "allow(unsafe_code",
        ]
        .iter()
        .any(|form| has_word(line, form))
        {
            wrong.push(format!(
                "{}:{}: unsafe away from home",
                file.path,
                index + 1
            ));
        }
    }
    wrong
}

/// Calls that take or release shards, or that lead to such calls. The thread that releases a shard runs what
/// was queued for it, which may want any lock; and a thread that waits for a lock may have shards locked.
const SHARD_CALLS: &[&str] = &[
    "try_take(",
    "try_take_all(",
    "take_spinning(",
    "try_grip(",
    ".submit(",
    "send_unit(",
    ".poll_worker(",
    ".resume(",
    ".settle()",
    "settle_debts(",
    "pay_debts(",
    "limit_tracked(",
    "follow_config(",
];

/// Ends of lines that bind the guard of a lock.
const LOCK_ENDS: &[&str] = &[".lock();", ".write();", ".read();"];

/// Reports shards that are taken or released between the line that binds a lock's guard and the end of its
/// block, or the line that drops it by name.
fn no_shard_is_taken_under_a_lock(file: &File) -> Vec<String> {
    if !file.path.starts_with("src/") {
        return Vec::new();
    }
    let indent = |line: &str| line.len() - line.trim_start().len();
    let lines: Vec<_> = file
        .code()
        .filter(|(_, line)| !line.trim().is_empty())
        .collect();
    let mut wrong = Vec::new();
    for (at, (_, line)) in lines.iter().enumerate() {
        let binding = line.trim_start().strip_prefix("let ");
        let Some(binding) =
            binding.filter(|_| LOCK_ENDS.iter().any(|end| line.trim_end().ends_with(end)))
        else {
            continue;
        };
        let name = binding.trim_start_matches("mut ");
        let name = name.split([' ', ':']).next().unwrap_or("");
        let dropped = format!("drop({name})");
        let block = lines[at + 1..]
            .iter()
            .take_while(|(_, below)| indent(below) >= indent(line) && !below.contains(&dropped));
        for (number, below) in block {
            for call in SHARD_CALLS.iter().filter(|call| below.contains(*call)) {
                wrong.push(format!(
                    "{}:{number}: {call}) under the lock {name}",
                    file.path
                ));
            }
        }
    }
    wrong
}

/// Comparisons that tell one command from another by its name.
const COMPARISONS: &[&str] = &[
    "==",
    "!=",
    "match ",
    "matches!",
    "contains(",
    "starts_with(",
    "ends_with(",
    "eq_ignore",
];

/// Reports comparisons of command names: flags and functions of a command's row describe it, so no code needs
/// to know which command it is.
fn commands_are_known_by_their_rows(file: &File) -> Vec<String> {
    let is_meant = file.path.starts_with("src/") && !file.path.starts_with("src/commands/command/");
    if !is_meant {
        return Vec::new();
    }
    let mut wrong = Vec::new();
    for (number, statement) in statements(file) {
        let names = ["full_name", "command.name"];
        let asks = names.iter().any(|name| has_word(&statement, name))
            && COMPARISONS.iter().any(|word| statement.contains(word));
        let looks_up = statement.contains("registry()") && statement.contains("(b\"");
        if asks || looks_up {
            wrong.push(format!(
                "{}:{number}: asks which command it is; flags of its row say what it is like",
                file.path
            ));
        }
    }
    wrong
}

/// Returns the statements: lines of code, each joined with the method calls that continue it.
fn statements(file: &File) -> Vec<(usize, String)> {
    let mut all: Vec<(usize, String)> = Vec::new();
    for (number, line) in file.code() {
        match all.last_mut() {
            Some((_, last)) if line.trim_start().starts_with('.') => last.push_str(line.trim()),
            _ => all.push((number, line.to_owned())),
        }
    }
    all
}

/// All rules, each with a file that it must flag.
fn rules() -> Vec<(&'static str, Rule, Vec<File>)> {
    vec![
        (
            "imports",
            imports_follow_the_map,
            vec![
                File::of(
                    "src/core/resp/request.rs",
                    "//! x\nuse crate::alloc::account;\n",
                ),
                File::of(
                    "src/core/structures/table/mod.rs",
                    "//! x\nfn f() { crate::resp::reply(); }\n",
                ),
                File::of(
                    "src/server/net/mod.rs",
                    "//! x\nuse crate::{session::batch, persist::load};\n",
                ),
                File::of(
                    "src/server/net/mod.rs",
                    "//! x\nuse super::super::persist;\n",
                ),
                File::of(
                    "src/server/net/mod.rs",
                    "//! x\nuse crate::{session::{batch}};\n",
                ),
                File::of(
                    "src/commands/config/mod.rs",
                    "//! x\n#[cfg(test)]\nmod tests {\n}\nuse crate::command;\n",
                ),
                File::of(
                    "src/commands/config/mod.rs",
                    "//! x\nstruct A {\n    #[cfg(test)]\n    b: u8,\n}\nuse crate::command;\n",
                ),
                File::of("src/surprise.rs", "//! x\n"),
            ],
        ),
        (
            "purity",
            the_lower_half_is_pure,
            vec![
                File::of("src/engine/db.rs", "//! x\nuse std::time::Instant;\n"),
                File::of(
                    "src/commands/command/string.rs",
                    "//! x\nuse std::sync::Mutex;\n",
                ),
                File::of("src/core/base/clock.rs", "//! x\nuse tokio::time;\n"),
                File::of(
                    "src/core/resp/reply.rs",
                    "//! x\nfn f() { std::thread::yield_now() }\n",
                ),
            ],
        ),
        (
            "leftovers",
            nothing_is_left_over,
            LEFTOVERS
                .iter()
                .map(|word| File::of("src/server/net/mod.rs", &format!("//! x\n{word}(x)]\n")))
                .collect(),
        ),
        (
            "header",
            files_begin_with_what_they_are,
            vec![File::of("src/server/net/mod.rs", "use std::io;\n")],
        ),
        (
            "length",
            files_are_short,
            vec![File::of(
                "src/server/net/mod.rs",
                &"//! x\n".repeat(LINES_MAX + 1),
            )],
        ),
        (
            "locks",
            no_shard_is_taken_under_a_lock,
            vec![
                File::of(
                    "src/server/start/host.rs",
                    "//! x\nfn f() {\n    let _one = self.changing.lock();\n    if x {\n        service.limit_tracked();\n    }\n}\n",
                ),
                File::of(
                    "src/commands/pubsub/mod.rs",
                    "//! x\nfn f() {\n    {\n        let mut all = self.all.write();\n        deferred.settle();\n    }\n}\n",
                ),
            ],
        ),
        (
            "names",
            commands_are_known_by_their_rows,
            vec![
                File::of(
                    "src/server/session/mod.rs",
                    "//! x\nfn f() { if command.full_name == \"get\" {} }\n",
                ),
                File::of(
                    "src/server/session/mod.rs",
                    "//! x\nfn f() { !command\n    .full_name\n    .starts_with(\"client|\") }\n",
                ),
                File::of(
                    "src/server/shard/mod.rs",
                    "//! x\nfn f() { NAMES.contains(&command.name) }\n",
                ),
                File::of(
                    "src/server/script/mod.rs",
                    "//! x\nfn f() { match call.command.full_name {} }\n",
                ),
                File::of(
                    "src/server/net/mod.rs",
                    "//! x\nfn f() { registry().find(b\"get\") }\n",
                ),
            ],
        ),
        (
            "comments",
            comments::stand_alone,
            comments::OPENINGS
                .iter()
                .map(|opening| format!("//! x\n/// {opening} x.\n"))
                .chain([
                    "//! x\n    /// it is.\n".to_owned(),
                    "//! x\n/** X. */\n".to_owned(),
                ])
                .map(|text| File::of("src/core/base/mod.rs", &text))
                .collect(),
        ),
        (
            "subjects",
            comments::name_the_subject,
            comments::nameless_examples(),
        ),
        (
            "columns",
            comments::fit,
            ["// ", "let a = \"b\"; // ", "/* ", "    /// "]
                .iter()
                .map(|start| {
                    let text = format!("//! x\n{start}{}\n", "x".repeat(120));
                    File::of("src/core/base/mod.rs", &text)
                })
                .collect(),
        ),
        (
            "unsafe",
            unsafe_stays_at_home,
            vec![
                File::of("src/engine/db.rs", "//! x\nfn f() { unsafe { g() } }\n"),
                File::of(
                    "src/server/shard/route.rs",
                    "//! x\nunsafe impl Send for X {}\n",
                ),
            ],
        ),
    ]
}

#[test]
fn every_rule_flags_what_it_must() {
    for (name, rule, canaries) in rules() {
        for canary in canaries {
            assert!(
                !rule(&canary).is_empty(),
                "rule {name} passes {:?} in {}",
                canary.text,
                canary.path
            );
        }
        let clean = File::of(
            "src/server/shard/route.rs",
            "//! Fine.\n\nuse crate::telemetry::counters;\n// unsafe { todo }\nfn f() {\n    {\n        let a = b.lock();\n    }\n    \
             let c = d.lock();\n    drop(c);\n    deferred.settle();\n}\n",
        );
        assert_eq!(
            rule(&clean),
            Vec::<String>::new(),
            "rule {name} flags a clean file"
        );
    }
}

/// Reports modules beside their folders: a module with parts is `x/mod.rs`, never `x.rs` beside a folder `x`.
fn modules_beside_their_folders(paths: &[String]) -> Vec<String> {
    let is_beside = |path: &&String| {
        let folder = path.strip_suffix(".rs").map(|stem| format!("{stem}/"));
        folder.is_some_and(|folder| paths.iter().any(|other| other.starts_with(&folder)))
    };
    let wrong = paths.iter().filter(is_beside);
    wrong
        .map(|path| format!("{path}: has a folder beside it; move it there as mod.rs"))
        .collect()
}

#[test]
fn modules_with_parts_have_one_style() {
    let of = |paths: &[&str]| {
        let paths: Vec<String> = paths.iter().map(|path| path.to_string()).collect();
        modules_beside_their_folders(&paths).len()
    };
    assert_eq!(of(&["src/server/net/mod.rs", "src/server/net/x.rs"]), 0);
    assert_eq!(of(&["src/server/net.rs", "src/server/net/x.rs"]), 1);
}

#[test]
fn the_source_is_tidy() {
    let files = source();
    let paths: Vec<String> = files.iter().map(|file| file.path.clone()).collect();
    let mut wrong = modules_beside_their_folders(&paths);
    for file in &files {
        for (_, rule, _) in rules() {
            wrong.extend(rule(file));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} findings:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

fn root() -> &'static Path {
    // The checkout that cargo runs this in, which may differ from the one that this was built in.
    static ROOT: LazyLock<PathBuf> = LazyLock::new(|| {
        let told = std::env::var_os("CARGO_MANIFEST_DIR");
        told.map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from)
    });
    &ROOT
}

/// Returns every Rust file of the source, the tests and the benches.
fn source() -> Vec<File> {
    let mut paths = Vec::new();
    for folder in ["src", "tests", "benches"] {
        collect(&root().join(folder), &mut paths);
    }
    assert!(paths.len() > 20, "only {} files found", paths.len());
    let file = |path: &PathBuf| {
        let inside = path.strip_prefix(root()).expect("inside");
        File {
            path: inside.to_string_lossy().replace('\\', "/"),
            text: std::fs::read_to_string(path).expect("a source file"),
        }
    };
    paths.iter().map(file).collect()
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return;
    };
    for entry in entries.flatten() {
        let path = entry.path();
        if path.is_dir() {
            if path.file_name().is_some_and(|name| name != "target") {
                collect(&path, files);
            }
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            files.push(path);
        }
    }
}
