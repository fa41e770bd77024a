//! Tags of the keys of a database.
//!
//! ```text
//! "user:7" ─▶ id 3 ─▶ the short hashes of its keys          an entry's words:  stale window | 3 | …
//! ```
//!
//! A tag has a number, which is stored in the entry of each key that has the tag ([`marks`](crate::marks)), and
//! keeps the [short hashes](short_hash) of its keys in [`Parted`] rows: nine bytes for each key and tag, and a
//! little more. Invalidating a tag removes its name: its number is void from then on, however many keys have it,
//! and a lookup that finds a key with it reports a miss. Keys tagged with that name later get another number. The
//! keys are deleted in slices afterwards, and the number is reused once nothing refers to it any more: no key, and
//! no image that may be restored ([`Db::sweep_tags`]).
//!
//! Invariant: a key is in the row of a tag if and only if its entry has the number. [`Db::insert`] and the other
//! methods that add or remove table entries ensure that. A database that is dropped, swapped, or put in place of
//! another one takes its tags with it. Without tags nothing is allocated, and only a bit of an entry's header is
//! tested.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use smallvec::SmallVec;

use super::Db;
use crate::marks::{Marks, stale_ms, tag_ids};
use crate::short_hash::{self, is_at, places, shorten};
use crate::snapshot::DatabaseProgress;
use crate::value::Object;
use basalt_core::base::maps;
use basalt_core::structures::entry::{Entry, EntryRef};
use basalt_core::structures::parted::Parted;
use basalt_core::structures::table::{EntrySlot, Table};

/// The numbers of a key's tags.
pub(crate) type Ids = SmallVec<[u32; 8]>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TagState {
    InForce,
    /// The tag was invalidated: its keys are invisible and yet to be deleted. A snapshot whose cut came before that
    /// still contains them.
    Void {
        since_cut: bool,
    },
    /// The number belongs to no tag.
    Free,
}

struct KeyTag {
    name: Arc<[u8]>,
    keys: Parted<u32>,
    state: TagState,
}

/// The tags of a database, see the module.
#[derive(Default)]
pub(crate) struct Tags {
    ids: HashMap<Arc<[u8]>, u32>,
    tags: Vec<KeyTag>,
    free: Vec<u32>,
    /// Numbers of tags whose keys are to be deleted.
    void: VecDeque<u32>,
    /// Numbers that lost their last key; some may have been given to a key again.
    idle: Vec<u32>,
}

impl Tags {
    fn get(&self, id: u32) -> Option<&KeyTag> {
        self.tags.get(id as usize)
    }

    /// Returns the number of a tag, allocating one if it had none.
    fn intern(&mut self, name: &[u8]) -> u32 {
        if let Some(id) = self.ids.get(name) {
            return *id;
        }
        let name: Arc<[u8]> = name.into();
        let tag = KeyTag {
            name: Arc::clone(&name),
            keys: Parted::EMPTY,
            state: TagState::InForce,
        };
        let id = match self.free.pop() {
            Some(id) => {
                self.tags[id as usize] = tag;
                id
            }
            None => {
                self.tags.push(tag);
                (self.tags.len() - 1) as u32
            }
        };
        self.ids.insert(name, id);
        // Listed as idle for now, in case that no key gets the tag after all.
        self.idle.push(id);
        id
    }

    fn add(&mut self, id: u32, short: u32) {
        match self.tags.get_mut(id as usize) {
            Some(tag) => tag.keys.push(short),
            None => debug_assert!(false, "an entry lists existing tags only"),
        }
    }

    /// Removes a key from a tag. Returns whether it was the tag's last key.
    fn remove(&mut self, id: u32, short: u32) -> bool {
        let Some(tag) = self.tags.get_mut(id as usize) else {
            debug_assert!(false, "an entry lists existing tags only");
            return false;
        };
        let was_there = tag.keys.remove(short);
        debug_assert!(was_there, "a removed key was added before");
        let is_last = tag.keys.is_empty();
        if is_last {
            self.idle.push(id);
        }
        is_last
    }

    fn is_void(&self, id: u32) -> bool {
        self.get(id)
            .is_some_and(|tag| matches!(tag.state, TagState::Void { .. }))
    }

    /// Frees the numbers of tags without keys.
    fn sweep(&mut self) {
        for id in std::mem::take(&mut self.idle) {
            let Some(tag) = self.tags.get_mut(id as usize) else {
                continue;
            };
            if !tag.keys.is_empty() || tag.state == TagState::Free {
                continue;
            }
            tag.state = TagState::Free;
            let name = std::mem::take(&mut tag.name);
            if self.ids.get(&name) == Some(&id) {
                self.ids.remove(&name);
                maps::shrink(&mut self.ids);
            }
            self.void.retain(|void| *void != id);
            self.free.push(id);
        }
    }

    fn is_empty(&self) -> bool {
        self.free.len() == self.tags.len()
    }
}

/// Returns the marks of an entry for a snapshot; None if it had been invalidated before the cut.
pub(crate) fn marks_at_cut<'t>(
    tags: Option<&'t Tags>,
    entry: EntryRef<'_, Object>,
) -> Option<Marks<'t>> {
    let mut marks = Marks::default();
    if !entry.has_words() {
        return Some(marks);
    }
    marks.stale_ms = stale_ms(entry);
    for tag in tag_ids(entry).filter_map(|id| tags?.get(id)) {
        if tag.state == (TagState::Void { since_cut: false }) {
            return None;
        }
        marks.tags.push(&tag.name);
    }
    Some(marks)
}

/// Some keys of an invalidated tag, to be deleted.
pub(crate) struct VoidKeys {
    pub(crate) id: u32,
    pub(crate) shorts: SmallVec<[u32; 64]>,
}

impl Db {
    /// True if a tag of an entry was invalidated, so that the key is invisible.
    #[inline]
    pub(crate) fn is_invalidated(&self, entry: EntryRef<'_, Object>) -> bool {
        entry.has_words() && self.has_void_tag(entry)
    }

    #[cold]
    fn has_void_tag(&self, entry: EntryRef<'_, Object>) -> bool {
        let tags = self.tags.as_deref();
        tags.is_some_and(|tags| !tags.void.is_empty() && tag_ids(entry).any(|id| tags.is_void(id)))
    }

    /// Records the cut of a snapshot: keys whose tag was invalidated before the cut are not in the snapshot.
    pub(crate) fn cut_tags(&mut self) {
        if let Some(tags) = &mut self.tags {
            for id in &tags.void {
                tags.tags[*id as usize].state = TagState::Void { since_cut: false };
            }
        }
    }

    /// Returns the names of an entry's tags.
    pub(crate) fn tag_names<'t>(
        &'t self,
        entry: EntryRef<'t, Object>,
    ) -> impl Iterator<Item = &'t [u8]> {
        let tags = self.tags.as_deref();
        tag_ids(entry).filter_map(move |id| Some(&*tags?.get(id)?.name))
    }

    /// Returns the numbers of tags, allocating missing ones, for an entry that is about to get them.
    pub(crate) fn intern_tags<'n>(&mut self, names: impl Iterator<Item = &'n [u8]>) -> Ids {
        self.charged(|db| {
            db.sweep_tags();
            let tags = db.tags.get_or_insert_default();
            let mut ids = Ids::new();
            for name in names {
                let id = tags.intern(name);
                if !ids.contains(&id) {
                    ids.push(id);
                }
            }
            ids
        })
    }

    /// Returns the numbers of those tags that exist.
    pub(crate) fn known_tags<'n>(&self, names: impl Iterator<Item = &'n [u8]>) -> Ids {
        let tags = self.tags.as_deref();
        names
            .filter_map(|name| tags?.ids.get(name).copied())
            .collect()
    }

    /// Frees numbers and names of tags without keys, except while undo images are kept: a restored image could have
    /// such a tag.
    pub(crate) fn sweep_tags(&mut self) {
        if self.keeps_images() {
            return;
        }
        if let Some(tags) = &mut self.tags {
            tags.sweep();
            if tags.is_empty() {
                self.tags = None;
            }
        }
    }

    /// Returns the table, the progress in a snapshot, and the tags.
    pub(crate) fn saving_parts(
        &mut self,
    ) -> (
        &mut Table<Entry<Object>>,
        Option<&mut DatabaseProgress>,
        Option<&Tags>,
    ) {
        let tags = self.tags.as_deref();
        (&mut self.table, self.saving.as_deref_mut(), tags)
    }

    /// Replaces the metadata words (stale window and tag numbers) of an entry.
    pub(crate) fn set_words(&mut self, place: EntrySlot, words: &[u32]) {
        let entry = self.at(place);
        if entry.words().eq(words.iter().copied()) {
            return;
        }
        let (hash, before) = (self.hash_of(entry), Db::ids_of(entry));
        self.edit(place, |entry| entry.set_words(words.iter().copied()));
        self.charged(|db| {
            db.note_tagged(hash, words.get(1..).unwrap_or_default());
            db.note_untagged(hash, &before);
        });
    }

    /// Adds an entry, which is new or has just been given tags, to the rows of its tags.
    #[cold]
    #[inline(never)]
    pub(super) fn note_tagged(&mut self, hash: u64, ids: &[u32]) {
        if let Some(tags) = &mut self.tags {
            ids.iter().for_each(|id| tags.add(*id, shorten(hash)));
        }
        debug_assert!(ids.is_empty() || self.tags.is_some());
    }

    /// Removes an entry, which was removed or has just been given other tags, from the rows of its former tags.
    #[cold]
    #[inline(never)]
    pub(super) fn note_untagged(&mut self, hash: u64, ids: &[u32]) {
        let Some(tags) = &mut self.tags else {
            return debug_assert!(ids.is_empty());
        };
        let mut any_idle = false;
        for id in ids {
            any_idle |= tags.remove(*id, shorten(hash));
        }
        if any_idle {
            // 0 makes the background run, which frees the tag's name.
            self.published.next_deadline_ms.set(0);
        }
    }

    /// Returns the tag numbers in an entry's metadata words.
    pub(super) fn ids_of(entry: EntryRef<'_, Object>) -> Ids {
        tag_ids(entry).collect()
    }

    /// Returns the number of keys with a tag, including expired ones that have not been deleted yet.
    pub(crate) fn tagged_count(&self, name: &[u8]) -> usize {
        let tag = self.tag(name);
        tag.map_or(0, |tag| tag.keys.len())
    }

    fn tag(&self, name: &[u8]) -> Option<&KeyTag> {
        let tags = self.tags.as_deref()?;
        tags.get(*tags.ids.get(name)?)
    }

    /// Removes a tag's name. Returns its number and how many keys had it.
    pub(crate) fn invalidate_tag(&mut self, name: &[u8]) -> Option<(u32, usize)> {
        self.charged(|db| {
            let tags = db.tags.as_deref_mut()?;
            let id = tags.ids.remove(name)?;
            let tag = &mut tags.tags[id as usize];
            tag.state = TagState::Void { since_cut: true };
            let count = tag.keys.len();
            tags.void.push_back(id);
            Some((id, count))
        })
    }

    /// Undoes [`Db::invalidate_tag`].
    pub(crate) fn undo_invalidate_tag(&mut self, id: u32) {
        self.charged(|db| {
            let Some(tags) = db.tags.as_deref_mut() else {
                return;
            };
            tags.void.retain(|void| *void != id);
            let tag = &mut tags.tags[id as usize];
            tag.state = TagState::InForce;
            tags.ids.insert(Arc::clone(&tag.name), id);
        });
    }

    /// Returns at most `count` keys of an invalidated tag to delete; None if no such keys are left.
    pub(crate) fn void_keys(&mut self, count: usize) -> Option<VoidKeys> {
        loop {
            let tags = self.tags.as_deref_mut()?;
            let id = *tags.void.front()?;
            let mut shorts = SmallVec::new();
            tags.tags[id as usize].keys.following(0, count, &mut shorts);
            if !shorts.is_empty() {
                return Some(VoidKeys { id, shorts });
            }
            tags.void.pop_front();
            tags.idle.push(id);
        }
    }

    /// Finds a key with this short hash and this tag.
    pub(crate) fn find_tagged(&self, short: u32, id: u32) -> Option<EntrySlot> {
        let depth = self.table.depth();
        places(short_hash::known(short), depth).find_map(|at| {
            self.table.find_by_hash(at, |entry| {
                is_at(self.seed.hash(entry.key()), at, depth)
                    && tag_ids(entry).any(|other| other == id)
            })
        })
    }

    /// Handles a tag that lists a key which does not exist. That is a bug in this file; it must not keep the
    /// background busy forever.
    pub(crate) fn forget_tagged(&mut self, short: u32, id: u32) {
        debug_assert!(false, "a tag lists existing keys only");
        if let Some(tags) = &mut self.tags {
            tags.remove(id, short);
        }
    }

    /// Visits `count` keys of a tag, or slightly more, starting at a position. Returns the next position, 0 at the
    /// end. A key that has the tag from the first call to the last is visited exactly once.
    pub(crate) fn walk_tag(
        &self,
        name: &[u8],
        position: u64,
        count: usize,
        mut visit: impl FnMut(EntryRef<'_, Object>),
    ) -> u64 {
        let known = self.tags.as_deref().and_then(|tags| tags.ids.get(name));
        let (Some(tag), Some(&id)) = (self.tag(name), known) else {
            return 0;
        };
        let mut shorts = Vec::new();
        let next = tag.keys.following(position, count, &mut shorts);
        let depth = self.table.depth();
        let at_all = |short: &u32| places(short_hash::known(*short), depth);
        for at in shorts.iter().flat_map(at_all) {
            // The closure rejects every entry, so that it sees all.
            let found = self.table.find_by_hash(at, |entry| {
                let is_meant = is_at(self.seed.hash(entry.key()), at, depth);
                if is_meant && tag_ids(entry).any(|other| other == id) {
                    visit(entry);
                }
                false
            });
            debug_assert!(found.is_none());
        }
        next.unwrap_or(0)
    }
}
