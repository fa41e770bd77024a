//! Marks of keys (stale windows and tags), as handlers access them.

use smallvec::SmallVec;

use super::Keyspace;
use crate::Key;
use crate::db::Db;
use crate::marks::{self, Marks, TAGS_MAX};
use crate::value::Object;
use basalt_core::structures::entry::{Entry, EntryRef};
use basalt_core::structures::table::EntrySlot;

/// Error: the key would have more than the maximum number of tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyTags;

/// The marks that a key keeps when an edit replaces its entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeptMarks {
    /// The stale window, which belongs to the deadline.
    Window,
    /// The stale window and the tags.
    All,
}

impl Keyspace<'_> {
    fn db(&self) -> &Db {
        self.engine.db(self.db).expect("a place implies a database")
    }

    fn db_mut(&mut self) -> &mut Db {
        let db = self.engine.db_mut(self.db);
        db.expect("a place implies a database")
    }

    /// True if a tag of the key at `place` was invalidated.
    #[cold]
    pub(super) fn is_invalidated(&self, place: EntrySlot) -> bool {
        self.db().is_invalidated(self.entry(place))
    }

    /// True if the key at `place` is within its stale window.
    #[inline]
    pub fn is_stale(&self, place: EntrySlot) -> bool {
        let entry = self.entry(place);
        entry.has_words() && marks::is_stale(entry, self.now)
    }

    /// Returns the names of the tags of the key at `place`.
    pub fn tags(&self, place: EntrySlot) -> Vec<Box<[u8]>> {
        let entry = self.entry(place);
        match entry.has_words() {
            true => self.db().tag_names(entry).map(Box::from).collect(),
            false => Vec::new(),
        }
    }

    /// Returns the stale window of a key that was looked up before, in milliseconds.
    pub fn stale_ms_of(&self, key: &Key<'_>) -> u32 {
        let place = self.db().find(key);
        place.map_or(0, |place| marks::stale_ms(self.entry(place)))
    }

    /// Returns the names of the tags of a key that was looked up before.
    pub fn tags_of(&self, key: &Key<'_>) -> Vec<Box<[u8]>> {
        let place = self.db().find(key);
        place.map_or_else(Vec::new, |place| self.tags(place))
    }

    /// Replaces the marks of a key that was just stored.
    pub fn set_marks(&mut self, key: &Key<'_>, marks: &Marks<'_>) {
        let db = self.db_mut();
        let Some(place) = db.find(key) else {
            return;
        };
        let mut words: SmallVec<[u32; 8]> = SmallVec::new();
        if !marks.tags.is_empty() {
            words = db.intern_tags(marks.tags.iter().copied().take(TAGS_MAX));
        }
        if !marks.is_empty() {
            words.insert(0, marks.stale_ms);
        }
        db.set_words(place, &words);
    }

    /// Sets how long before its expiry the key at `place` counts as stale, in milliseconds; 0: never.
    pub fn set_stale_ms(&mut self, place: EntrySlot, stale_ms: u32) {
        let mut words: SmallVec<[u32; 8]> = self.entry(place).words().collect();
        match words.first_mut() {
            Some(first) => *first = stale_ms,
            None => words.push(stale_ms),
        }
        if words[..] == [0] {
            words.clear();
        }
        self.db_mut().set_words(place, &words);
    }

    /// Adds tags to the key at `place`. Returns how many of these tags the key did not have.
    pub fn add_tags<'n>(
        &mut self,
        place: EntrySlot,
        names: impl Iterator<Item = &'n [u8]>,
    ) -> Result<usize, TooManyTags> {
        let mut words: SmallVec<[u32; 8]> = self.entry(place).words().collect();
        if words.is_empty() {
            words.push(0);
        }
        let before = words.len();
        let db = self.db_mut();
        for id in db.intern_tags(names) {
            if !words[1..].contains(&id) {
                words.push(id);
            }
        }
        if words.len() > TAGS_MAX + 1 {
            db.charged(Db::sweep_tags);
            return Err(TooManyTags);
        }
        let added = words.len() - before;
        if added > 0 {
            db.set_words(place, &words);
        }
        Ok(added)
    }

    /// Removes tags from the key at `place`. Returns how many of these tags the key had.
    pub fn remove_tags<'n>(
        &mut self,
        place: EntrySlot,
        names: impl Iterator<Item = &'n [u8]>,
    ) -> usize {
        let ids = self.db().known_tags(names);
        let words: SmallVec<[u32; 8]> = self.entry(place).words().collect();
        let mut left: SmallVec<[u32; 8]> = words.iter().copied().take(1).collect();
        left.extend(words.iter().skip(1).copied().filter(|id| !ids.contains(id)));
        let removed = words.len() - left.len();
        if left[..] == [0] {
            left.clear();
        }
        if removed > 0 {
            self.db_mut().set_words(place, &left);
        }
        removed
    }

    /// Returns the number of keys with a tag.
    pub fn tagged_count(&self, name: &[u8]) -> usize {
        let db = self.engine.db(self.db);
        db.map_or(0, |db| db.tagged_count(name))
    }

    /// Visits keys of a tag, see [`Db::walk_tag`]; expired keys are left out.
    pub fn walk_tag(
        &self,
        name: &[u8],
        position: u64,
        count: usize,
        mut visit: impl FnMut(EntryRef<'_, Object>),
    ) -> u64 {
        let (engine, now_ms) = (&*self.engine, self.now.unix_ms);
        let Some(db) = engine.db(self.db) else {
            return 0;
        };
        db.walk_tag(name, position, count, |entry| {
            if !db.is_gone(entry, now_ms) && !engine.is_coming(entry.key()) {
                visit(entry);
            }
        })
    }

    /// Completes a copy of the value at `place`, built by a [`SlicedCopy`](crate::value::copying::SlicedCopy): returns
    /// it as [`Keyspace::duplicate`] would.
    pub fn complete_copy(&self, place: EntrySlot, mut copy: Entry<Object>) -> Entry<Object> {
        let entry = self.entry(place);
        if copy.view().deadline() != entry.deadline() {
            copy.set_deadline(entry.deadline());
        }
        if entry.has_words() {
            inherit(entry, &mut copy, KeptMarks::Window);
        }
        copy
    }

    /// Copies the marks of the entry at `place` to an entry that is about to replace it.
    pub fn inherit_marks(&self, place: EntrySlot, entry: &mut Entry<Object>) {
        inherit(self.entry(place), entry, KeptMarks::All);
    }

    /// Gives a key the tags that it had before it was stored under this name or in this database.
    pub fn restore_tags(&mut self, key: &Key<'_>, tags: &[Box<[u8]>]) {
        if tags.is_empty() {
            return;
        }
        if let Some(place) = self.engine.db(self.db).and_then(|db| db.find(key)) {
            let names = tags.iter().map(|name| &**name);
            let added = self.add_tags(place, names);
            debug_assert!(added.is_ok(), "as many as it had");
        }
    }
}

/// Copies marks of an entry to another entry in the same database.
#[cold]
pub(super) fn inherit(from: EntryRef<'_, Object>, to: &mut Entry<Object>, kept: KeptMarks) {
    let mut words: SmallVec<[u32; 8]> = from.words().collect();
    if kept == KeptMarks::Window {
        words.truncate(1);
        if words[..] == [0] {
            words.clear();
        }
    }
    to.set_words(words.into_iter());
}

/// Removes the tags of an entry that leaves its database, as their numbers are valid only there.
#[cold]
pub(super) fn without_tags(entry: &mut Entry<Object>) {
    let window = entry.view().words().next().filter(|window| *window > 0);
    entry.set_words(
        window
            .into_iter()
            .collect::<SmallVec<[u32; 1]>>()
            .into_iter(),
    );
}
