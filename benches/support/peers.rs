//! The servers that basalt is compared with, and comparison tables.
//!
//! Valkey is one of them where it is installed: `--valkey PATH`, the environment's `BASALT_VALKEY_SERVER`, or
//! `valkey-server` in the path, in this order. `--no-redis` and `--no-valkey` leave one out.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::arguments::Arguments;
use super::process::{self, Process};

/// A server to start.
#[derive(Debug, Clone)]
pub(crate) struct Peer {
    /// The server's name in tables.
    pub(crate) name: &'static str,
    pub(crate) binary: PathBuf,
    /// Additional directives.
    pub(crate) arguments: Vec<String>,
}

impl Peer {
    fn new(name: &'static str, binary: PathBuf) -> Peer {
        Peer {
            name,
            binary,
            arguments: Vec::new(),
        }
    }

    pub(crate) fn start(&self, cores: &str, more: &[String]) -> Process {
        let arguments = [self.arguments.as_slice(), more].concat();
        Process::start(self.name, &self.binary, cores, &arguments)
    }

    /// Returns name, version and allocator, as reported by the binary.
    fn describe(&self) -> String {
        let output = Command::new(&self.binary).arg("--version").output();
        let said = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
        let said = said.unwrap_or_default();
        let word = |mark: &str| {
            said.split_whitespace()
                .find_map(|word| word.strip_prefix(mark))
        };
        match (word("v="), word("malloc=")) {
            (Some(version), Some(allocator)) => {
                format!("{} {version} ({allocator})", self.name)
            }
            _ => said.trim().to_owned(),
        }
    }
}

/// Returns the available peers, then basalt with these directives.
pub(crate) fn all(arguments: &Arguments, own: &[String]) -> Vec<Peer> {
    let mut peers = others(arguments);
    let mut basalt = Peer::new("basalt", arguments.basalt());
    basalt.arguments = own.to_vec();
    peers.push(basalt);
    peers
}

/// Returns the available peers without basalt.
pub(crate) fn others(arguments: &Arguments) -> Vec<Peer> {
    let mut others = Vec::new();
    if !arguments.has("--no-redis") {
        others.push(Peer::new("redis", arguments.redis()));
    }
    if !arguments.has("--no-valkey") {
        match valkey(arguments) {
            Some(binary) => others.push(Peer::new("valkey", binary)),
            None => eprintln!("no valkey-server here: see benches/support/peers.rs"),
        }
    }
    others
}

fn valkey(arguments: &Arguments) -> Option<PathBuf> {
    let told = arguments.value("--valkey", "");
    if !told.is_empty() {
        return Some(PathBuf::from(told));
    }
    if let Some(binary) = std::env::var_os("BASALT_VALKEY_SERVER") {
        return Some(PathBuf::from(binary));
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join("valkey-server"))
        .find(|binary| binary.is_file())
}

/// Returns the head of a report: the machine, the time, and the compared servers.
pub(crate) fn heading(peers: &[Peer]) -> String {
    let described: Vec<String> = peers.iter().map(Peer::describe).collect();
    format!(
        "{}; {}; {}.\n",
        process::machine(),
        process::date(),
        described.join(", ")
    )
}

/// Returns a note needed to interpret bytes next to Valkey's.
pub(crate) fn allocator_note(peers: &[Peer]) -> &'static str {
    let is_there = peers.iter().any(|peer| peer.describe().ends_with("(libc)"));
    match is_there {
        true => {
            "\nWho is marked (libc) allocates with the C library, whose used_memory has other overheads than jemalloc's: \
             compare its bytes with care.\n"
        }
        false => "",
    }
}

/// Returns the first lines of a table: a column per server, and basalt, the last one, relative to each other one.
pub(crate) fn table_head(peers: &[Peer], what: &str, unit: &str) -> String {
    let mut head = format!("| {what} |");
    for peer in peers {
        let _ = write!(head, " {} {unit} |", peer.name);
    }
    let others = &peers[..peers.len() - 1];
    for other in others {
        let _ = write!(head, " of {} |", other.name);
    }
    let columns = 1 + peers.len() + others.len();
    format!("{head}\n|{}\n", "---|".repeat(columns))
}

/// Returns one line of the table.
pub(crate) fn table_row(what: &str, figures: &[f64], digits: usize) -> String {
    let mut row = format!("| {what} |");
    for figure in figures {
        let _ = write!(row, " {figure:.digits$} |");
    }
    if let Some((own, others)) = figures.split_last() {
        for other in others {
            let _ = write!(row, " {:.2} |", own / other);
        }
    }
    eprintln!("{row}");
    row + "\n"
}

/// Returns the order in which servers take their turns: reversed every second round.
pub(crate) fn order(count: usize, round: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    if round % 2 == 1 {
        order.reverse();
    }
    order
}

pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Prints a report, and writes it to the folder named by `--out`.
pub(crate) fn publish(arguments: &Arguments, file: &str, report: &str) {
    #[expect(clippy::print_stdout, reason = "the report")]
    {
        println!("{report}");
    }
    keep(arguments, file, report);
}

/// Writes a file to the folder named by `--out`.
pub(crate) fn keep(arguments: &Arguments, file: &str, text: &str) {
    let dir = arguments.value(
        "--out",
        concat!(env!("CARGO_MANIFEST_DIR"), "/target/bench"),
    );
    std::fs::create_dir_all(&dir).expect("the output folder");
    let path = Path::new(&dir).join(file);
    std::fs::write(&path, text).expect("write the report");
    eprintln!("written: {}", path.display());
}
