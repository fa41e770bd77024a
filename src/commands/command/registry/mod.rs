//! Lookup of commands by name, and their IDs. The rows come from [`families`].

use std::collections::HashMap;
use std::sync::OnceLock;

use super::declaration::{Command, Flags, Run};
use super::{families, notes};

/// All commands and subcommands; a command's ID is its index in `all`.
pub struct CommandRegistry {
    /// Commands that clients can send, followed by those that only occur in the log.
    all: Vec<&'static Command>,
    /// Number of commands that clients can send.
    of_clients: usize,
    /// Hash table by name; each entry starts with the first bytes of the name.
    by_name: Box<[Option<(u64, &'static Command)>]>,
    by_full_name: HashMap<&'static str, &'static Command>,
    /// Commands by the names that `rename-command` gave them, in lower case.
    renamed: HashMap<Vec<u8>, &'static Command>,
    /// Original names of commands that `rename-command` removed.
    gone: Vec<&'static str>,
}

static REGISTRY: OnceLock<CommandRegistry> = OnceLock::new();

/// Returns the registry; built at the first call.
#[inline]
pub fn registry() -> &'static CommandRegistry {
    REGISTRY.get_or_init(|| {
        let (names, renamed) = (CommandTable::all(), HashMap::new());
        CommandRegistry::build(names, renamed)
    })
}

/// Renames commands as `rename-command` asks: pairs of the old name and the new one, which removes the command if it
/// is empty. Must be called before the first use of the registry.
pub fn rename(pairs: &[(String, String)]) -> Result<(), String> {
    if pairs.is_empty() {
        return Ok(());
    }
    let (mut names, mut renamed) = (CommandTable::all(), HashMap::new());
    for (old, new) in pairs {
        let (old, new) = (old.to_ascii_lowercase(), new.to_ascii_lowercase());
        let command = match names.0.remove(old.as_str()) {
            Some(command) => Some(command),
            None => renamed.remove(old.as_bytes()),
        };
        let command = command.ok_or_else(|| format!("No such command in rename-command: {old}"))?;
        if new.is_empty() {
            continue;
        }
        let is_taken = names.0.contains_key(new.as_str()) || renamed.contains_key(new.as_bytes());
        // A record logged under the name COMMAND is a note: no other command may be renamed to it.
        if is_taken || new == "command" && command.name != "command" {
            return Err(format!("Target command name already exists: {new}"));
        }
        if new == command.name {
            names.0.insert(command.name, command);
        } else {
            renamed.insert(new.into_bytes(), command);
        }
    }
    let registry = CommandRegistry::build(names, renamed);
    let is_first = REGISTRY.set(registry).is_ok();
    assert!(is_first, "commands get their names before they are used");
    Ok(())
}

/// A lookup table of commands by their original names.
struct CommandTable(HashMap<&'static str, &'static Command>);

impl CommandTable {
    fn all() -> CommandTable {
        let commands = families().iter().flat_map(|family| family.iter());
        CommandTable(commands.map(|command| (command.name, *command)).collect())
    }
}

impl CommandRegistry {
    fn build(names: CommandTable, renamed: HashMap<Vec<u8>, &'static Command>) -> CommandRegistry {
        let mut all = Vec::new();
        let mut by_name = vec![None; PLACES].into_boxed_slice();
        let mut by_full_name = HashMap::new();
        let mut gone = Vec::new();
        for &command in families().iter().flat_map(|family| family.iter()) {
            if names.0.contains_key(command.name) {
                let name = command.name.as_bytes();
                let mut at = place(name, head(name));
                while by_name[at].is_some() {
                    at = (at + 1) % PLACES;
                }
                by_name[at] = Some((head(name), command));
            } else if !renamed.values().any(|known| std::ptr::eq(*known, command)) {
                gone.push(command.name);
            }
            let holder = command;
            for command in std::iter::once(holder).chain(holder.children().iter().copied()) {
                let id = u16::try_from(all.len()).expect("fewer than 65,535 commands");
                let is_holder = std::ptr::eq(command, holder);
                // Redis treats the subcommands of DEBUG as arguments, not as a fixed set.
                let is_argument = !is_holder
                    && holder.flags.has(Flags::PROTECTED)
                    && !matches!(holder.run, Run::Container(_));
                let rule_id = match is_argument {
                    true => holder.id() as u16,
                    false => id,
                };
                command.set_id(id, rule_id);
                by_full_name.insert(command.full_name, command);
                all.push(command);
            }
        }
        let of_clients = all.len();
        for (command, needed) in notes::OWN {
            command.set_id(all.len() as u16, needed.id() as u16);
            all.push(command);
        }
        CommandRegistry {
            all,
            of_clients,
            by_name,
            by_full_name,
            renamed,
            gone,
        }
    }

    /// Returns all commands and subcommands.
    pub fn all(&self) -> &[&'static Command] {
        &self.all
    }

    /// Returns all commands and subcommands that clients can send, including renamed and removed ones.
    pub fn of_clients(&self) -> &[&'static Command] {
        &self.all[..self.of_clients]
    }

    /// Returns the commands and subcommands that can be called, including renamed ones.
    pub fn callable(&self) -> impl Iterator<Item = &'static Command> {
        let is_gone = |command: &Command| {
            let mut words = command.full_name.split('|');
            words.next().is_some_and(|name| self.gone.contains(&name))
        };
        let all = self.of_clients().iter().copied();
        all.filter(move |command| !is_gone(command))
    }

    /// Returns the commands that can be called, without subcommands of containers.
    pub fn top_level(&self) -> impl Iterator<Item = &'static Command> {
        self.callable()
            .filter(|command| command.name == command.full_name)
    }

    /// Finds a command by `name` or `container|sub`, in lower case.
    pub fn by_full_name(&self, name: &str) -> Option<&'static Command> {
        self.by_full_name.get(name).copied()
    }

    /// Finds a top-level command by name, ignoring case.
    #[inline]
    pub fn find(&self, name: &[u8]) -> Option<&'static Command> {
        let head = head(name);
        let mut at = place(name, head);
        loop {
            // An empty slot ends every search: there are far more slots than commands.
            let Some((its_head, command)) = self.by_name[at] else {
                return self.find_renamed(name);
            };
            let its_name = command.name.as_bytes();
            if its_head == head
                && its_name.len() == name.len()
                && (name.len() <= 8 || name[8..].eq_ignore_ascii_case(&its_name[8..]))
            {
                return Some(command);
            }
            at = (at + 1) % PLACES;
        }
    }

    #[cold]
    fn find_renamed(&self, name: &[u8]) -> Option<&'static Command> {
        if self.renamed.is_empty() {
            return None;
        }
        self.renamed.get(&name.to_ascii_lowercase()).copied()
    }
}

/// Slots of the hash table of names: a power of two, several times the number of commands.
const PLACES: usize = 2048;

/// Returns the slot where the search for a name begins: its [`head`], its last eight bytes and its length, mixed by
/// one multiplication. Only this server adds names to the table, so no client can provoke collisions that matter.
#[inline]
fn place(name: &[u8], head: u64) -> usize {
    let word = match name.last_chunk::<8>() {
        Some(last) => head ^ lower(u64::from_le_bytes(*last)).rotate_left(29),
        None => head,
    };
    let mixed = (word ^ name.len() as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed >> 40) as usize % PLACES
}

/// Returns the first eight bytes of a name, or all of a shorter one, in lower case, as a number.
#[inline]
fn head(name: &[u8]) -> u64 {
    if let Some(first) = name.first_chunk::<8>() {
        return lower(u64::from_le_bytes(*first));
    }
    let byte = |at: usize| u64::from(name[at]) << (at * 8);
    let word = match (name.first_chunk::<4>(), name.last_chunk::<4>()) {
        (Some(first), Some(last)) => {
            // The two halves overlap in bytes that agree.
            let last = u64::from(u32::from_le_bytes(*last));
            u64::from(u32::from_le_bytes(*first)) | last << ((name.len() - 4) * 8)
        }
        _ => match name.len() {
            0 => 0,
            len => byte(0) | byte(len / 2) | byte(len - 1),
        },
    };
    lower(word)
}

/// Converts the letters in eight bytes to lower case.
#[inline]
fn lower(word: u64) -> u64 {
    const EACH: u64 = 0x0101_0101_0101_0101;
    // The highest bit of each byte marks an upper-case letter; a byte that has it from the start is no letter.
    let low_bits = word & (0x7F * EACH);
    let is_from_a = low_bits + (0x80 - b'A' as u64) * EACH;
    let is_beyond_z = low_bits + (0x7F - b'Z' as u64) * EACH;
    let is_upper = is_from_a & !is_beyond_z & !word & (0x80 * EACH);
    word | is_upper >> 2
}

/// Returns the subcommand that a request names, or the container itself if it names none.
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

#[cfg(test)]
mod tests;
