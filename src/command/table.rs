//! All commands, and the look-up by name.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::declaration::Command;

/// The families, in the order of the documentation.
static FAMILIES: &[&[&Command]] = &[
    super::connection::TABLE,
    super::client::TABLE,
    super::database::TABLE,
    super::generic::TABLE,
    super::server::TABLE,
    super::introspect::TABLE,
    super::debug::TABLE,
    super::string::TABLE,
    super::bitmap::TABLE,
];

/// Every command and subcommand; a command's id is its position in `all`.
pub struct Registry {
    all: Vec<&'static Command>,
    by_name: HashMap<&'static [u8], &'static Command>,
    by_full_name: HashMap<&'static str, &'static Command>,
}

static REGISTRY: LazyLock<Registry> = LazyLock::new(Registry::build);

/// The registry; built at the first call.
pub fn registry() -> &'static Registry {
    &REGISTRY
}

/// Longest name of a command, so that folding needs a small buffer only.
pub const NAME_BYTES_MAX: usize = 32;

impl Registry {
    fn build() -> Registry {
        let mut all = Vec::new();
        let mut by_name = HashMap::new();
        let mut by_full_name = HashMap::new();
        for &command in FAMILIES.iter().flat_map(|family| family.iter()) {
            by_name.insert(command.name.as_bytes(), command);
            for command in std::iter::once(command).chain(command.children().iter().copied()) {
                command.set_id(u16::try_from(all.len()).expect("fewer than 65,535 commands"));
                by_full_name.insert(command.full_name, command);
                all.push(command);
            }
        }
        Registry {
            all,
            by_name,
            by_full_name,
        }
    }

    /// Every command and subcommand.
    pub fn all(&self) -> &[&'static Command] {
        &self.all
    }

    /// Commands without subcommands of containers.
    pub fn top_level(&self) -> impl Iterator<Item = &'static Command> {
        self.all
            .iter()
            .copied()
            .filter(|command| command.name == command.full_name)
    }

    /// A command by `name` or `container|sub`, lower case.
    pub fn by_full_name(&self, name: &str) -> Option<&'static Command> {
        self.by_full_name.get(name).copied()
    }

    /// A top-level command by name, in any case.
    pub fn find(&self, name: &[u8]) -> Option<&'static Command> {
        let mut folded = [0u8; NAME_BYTES_MAX];
        let folded = folded.get_mut(..name.len())?;
        for (to, from) in folded.iter_mut().zip(name) {
            *to = from.to_ascii_lowercase();
        }
        self.by_name.get(&*folded).copied()
    }
}

/// The subcommand that a request names, or the container itself when there is none.
pub fn resolve(command: &'static Command, subcommand: Option<&[u8]>) -> &'static Command {
    if let Some(name) = subcommand
        && let Some(child) = command
            .children()
            .iter()
            .find(|child| name.eq_ignore_ascii_case(child.name.as_bytes()))
    {
        return child;
    }
    command
}
