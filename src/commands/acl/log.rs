//! ACL LOG: denials, the latest first.

use std::collections::VecDeque;

use super::denied::Denied;

/// Denials of the same kind share an entry if they are at most this many milliseconds apart.
const SAME_MS: u64 = 60_000;

/// Number of latest entries that are compared with a new one.
const LOOKED_AT: usize = 10;

/// Maximum bytes kept of a name, so that the log stays small whatever clients send.
const NAME_BYTES_MAX: usize = 4096;

/// The context of a denial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AclLogContext {
    /// A request outside of transactions and scripts.
    TopLevel,
    /// A command in a transaction.
    Multi,
    /// A command called by a script.
    Lua,
}

impl AclLogContext {
    /// Returns the name in ACL LOG.
    pub fn name(self) -> &'static str {
        match self {
            AclLogContext::TopLevel => "toplevel",
            AclLogContext::Multi => "multi",
            AclLogContext::Lua => "lua",
        }
    }
}

/// One denial, or several equal ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AclLogEntry {
    /// Number of denials in the entry.
    pub count: u64,
    /// The kind of denial.
    pub denied: Denied,
    /// Where the denied command ran: top level, transaction or script.
    pub place: AclLogContext,
    /// The command, key or channel.
    pub object: Vec<u8>,
    /// The name of the denied user.
    pub user: Vec<u8>,
    /// The last client that was denied, as CLIENT LIST describes it.
    pub client: String,
    /// Number of the entry; later entries have larger ones.
    pub id: u64,
    /// Time of the first denial, in Unix milliseconds.
    pub created_ms: u64,
    /// Time of the last denial, in Unix milliseconds.
    pub updated_ms: u64,
}

/// The log of denials, see the module.
#[derive(Debug, Default)]
pub struct AclLog {
    entries: VecDeque<AclLogEntry>,
    next_id: u64,
}

impl AclLog {
    /// Adds a denial; at most `entries_max` entries are kept. The ID of the entry is assigned here.
    pub fn add(&mut self, mut entry: AclLogEntry, entries_max: usize) {
        entry.object.truncate(NAME_BYTES_MAX);
        entry.user.truncate(NAME_BYTES_MAX);
        let is_same = |known: &AclLogEntry| {
            known.denied == entry.denied
                && known.place == entry.place
                && known.updated_ms.abs_diff(entry.updated_ms) <= SAME_MS
                && known.object == entry.object
                && known.user == entry.user
        };
        let known = self.entries.iter().take(LOOKED_AT).position(is_same);
        let entry = match known.and_then(|at| self.entries.remove(at)) {
            Some(known) => AclLogEntry {
                count: known.count + 1,
                client: entry.client,
                updated_ms: entry.updated_ms,
                ..known
            },
            None => {
                entry.id = self.next_id;
                self.next_id += 1;
                entry
            }
        };
        self.entries.push_front(entry);
        self.entries.truncate(entries_max);
    }

    /// Returns the latest `count` entries, the latest first.
    pub fn latest(&self, count: usize) -> Vec<AclLogEntry> {
        self.entries.iter().take(count).cloned().collect()
    }

    /// Removes all entries (ACL LOG RESET).
    pub fn clear(&mut self) {
        self.entries.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(object: &str, at_ms: u64) -> AclLogEntry {
        AclLogEntry {
            count: 1,
            denied: Denied::Key,
            place: AclLogContext::TopLevel,
            object: object.as_bytes().to_vec(),
            user: b"somebody".to_vec(),
            client: format!("at {at_ms}"),
            id: 0,
            created_ms: at_ms,
            updated_ms: at_ms,
        }
    }

    #[test]
    fn the_same_within_a_minute_is_one_entry_that_comes_first_again() {
        let mut log = AclLog::default();
        for (object, at_ms) in [
            ("a", 0),
            ("b", 10),
            ("a", 20),
            ("a", 60_020),
            ("a", 120_021),
        ] {
            log.add(entry(object, at_ms), 3);
        }
        let seen: Vec<_> = log
            .latest(10)
            .into_iter()
            .map(|entry| (entry.object, entry.count, entry.id, entry.created_ms))
            .collect();
        assert_eq!(
            seen,
            [
                (b"a".to_vec(), 1, 2, 120_021),
                (b"a".to_vec(), 3, 0, 0),
                (b"b".to_vec(), 1, 1, 10)
            ]
        );
        assert_eq!(log.latest(1).len(), 1);
        log.add(entry("c", 130_000), 2);
        assert_eq!(log.latest(10).len(), 2);
        log.clear();
        assert!(log.latest(10).is_empty());
    }

    #[test]
    fn a_name_is_kept_in_part_however_long_it_is() {
        let mut log = AclLog::default();
        log.add(entry(&"x".repeat(1 << 20), 1), 128);
        assert_eq!(log.latest(1)[0].object.len(), NAME_BYTES_MAX);
    }
}
