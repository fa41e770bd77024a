//! Locations in the source to which counts are assigned, by function and file.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

use addr2line::Loader;

use crate::code::{self, Frame};
use crate::profile::{At, Function};

/// Files whose functions only wrap an atomic operation: counts are assigned to their callers.
const WRAPPERS: &[&str] = &[
    "/rustc/",
    "/library/",
    "parking_lot",
    "lock_api",
    "arc-swap",
    "atomic-waker",
    "src/core/base/counter.rs",
    "/src/loom",
];

/// Origin of a count: the shards' tokens, other source of this server, or its dependencies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Origin {
    Token,
    Own,
    Foreign,
}

/// A location to which counts are assigned.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Place {
    pub(crate) origin: Origin,
    pub(crate) text: String,
}

/// Counts by place.
pub(crate) type Counts = BTreeMap<Place, f64>;

/// Returns the sum of the counts of an origin.
pub(crate) fn of(counts: &Counts, origin: Origin) -> f64 {
    let counts = counts.iter().filter(|(place, _)| place.origin == origin);
    counts.map(|(_, count)| count).sum()
}

/// The frames of instructions, each looked up once.
#[derive(Default)]
pub(crate) struct Names {
    loaders: HashMap<String, Option<Loader>>,
    known: HashMap<At, Vec<Frame>>,
}

impl Names {
    /// Returns the location of an instruction in a function: the innermost inlined function that is no
    /// wrapper, if any.
    pub(crate) fn place(&mut self, at: &At, function: &Function) -> Option<Place> {
        let frames = self.frames(at);
        let found = frames.iter().position(|frame| !is_wrapper(&frame.file))?;
        let frame = &frames[found];
        // The whole name is known only of the outermost one, if at all.
        let name = match found + 1 == frames.len() && !function.1.is_empty() {
            true => unmangled(function),
            false => frame.function.clone(),
        };
        Some(place_of(frame, &name))
    }

    fn frames(&mut self, at: &At) -> &[Frame] {
        let loader = self.loaders.entry(at.object.clone());
        let loader = loader.or_insert_with(|| Loader::new(&at.object).ok());
        let known = self.known.entry(at.clone());
        known.or_insert_with(|| {
            let of = |loader: &Loader| code::frames(loader, at.address);
            loader.as_ref().map(of).unwrap_or_default()
        })
    }
}

fn unmangled(function: &Function) -> String {
    code::short_name(&addr2line::demangle_auto(Cow::from(&function.1), None))
}

/// The place of a function without debug information.
pub(crate) fn unnamed(function: &Function) -> Place {
    let object = function.0.rsplit('/').next().unwrap_or_default();
    Place {
        origin: Origin::Foreign,
        text: format!("{} ({object})", unmangled(function)),
    }
}

/// Returns the function of a frame and its file. Code of dependencies is named by its file alone, as its
/// functions are of no interest here.
fn place_of(frame: &Frame, name: &str) -> Place {
    let line = match std::env::var_os("SHARING_LINES") {
        Some(_) => format!(":{}", frame.line),
        None => String::new(),
    };
    if let Some(file) = frame.file.strip_prefix("src/") {
        // As the map names them; the engine is a crate and a folder at once.
        let crates = ["core/", "commands/", "server/", "tools/"];
        let below = crates.iter().find_map(|name| file.strip_prefix(name));
        let file = below.unwrap_or(file);
        let is_token = file.starts_with("shard/ownership/gate") && name.contains("try_");
        return Place {
            origin: if is_token { Origin::Token } else { Origin::Own },
            text: format!("{file}{line}: {name}"),
        };
    }
    let parts: Vec<&str> = frame.file.split('/').collect();
    let package = match frame.file.contains("jemalloc") {
        true => "jemalloc",
        false => parts[0].split("-0.").next().unwrap_or_default(),
    };
    let package = package.split("-1.").next().unwrap_or(package);
    let file = parts[parts.len().saturating_sub(2)..].join("/");
    let function = match line.is_empty() {
        true => String::new(),
        false => format!("{line}: {name}"),
    };
    Place {
        origin: Origin::Foreign,
        text: format!("{package}, {file}{function}"),
    }
}

fn is_wrapper(file: &str) -> bool {
    WRAPPERS.iter().any(|part| file.contains(part))
}
