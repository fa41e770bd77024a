//! Commands as ACL rules name them: by their original names, regardless of `rename-command`.

use super::declaration::{Categories, Command};
use super::registry::registry;
use crate::acl::{Catalogue, Entry};

/// The table of commands, as the ACL module accesses it.
pub struct Commands;

impl Catalogue for Commands {
    fn count(&self) -> usize {
        registry().all().len()
    }

    fn find(&self, name: &str) -> Option<Entry> {
        let command = registry().by_full_name(name)?;
        (!command.is_first_argument()).then(|| entry(command))
    }

    fn category(&self, name: &str) -> Option<Vec<Entry>> {
        let category = Categories::named(name)?;
        let all = registry().of_clients().iter().copied();
        let is_in = |command: &&Command| command.acl_categories().any(category);
        Some(all.filter(is_in).map(entry).collect())
    }
}

fn entry(command: &'static Command) -> Entry {
    let children = command.children().iter();
    let children = children.filter(|child| !child.is_first_argument());
    Entry {
        id: command.rule_id(),
        full_name: command.full_name,
        is_sub: command.name != command.full_name,
        children: children.map(|child| child.id()).collect(),
    }
}
