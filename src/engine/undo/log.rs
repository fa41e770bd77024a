//! The pre-images of one database: what its keys held before an attempt changed them.
//!
//! Knows no engine and no accounts; what it keeps is charged to no account. Of a collection in nodes or tables no copy
//! is kept but what undoes its changes ([`Before::Changed`]); that is no full image, as a later image may hold the
//! collection itself, once it is deleted or overwritten. Invariants: the first full image of a key is kept, later ones
//! change nothing; going through the images from the newest to the oldest leads back to the start.

use std::cell::Cell;
use std::collections::HashMap;

use crate::value::{Journal, Object};
use basalt_core::alloc::account;
use basalt_core::structures::block::Block;
use basalt_core::structures::entry::{Entry, EntryRef, Value};

/// What a key held.
pub(crate) enum Before {
    /// Nothing.
    Absent(Box<[u8]>),
    /// An entry that was taken out of the database, or copied before it was changed in place.
    Present {
        /// With key, value and deadline.
        entry: Entry<Object>,
        /// The entry is the one of the database and no copy.
        was_moved: bool,
    },
    /// The value stayed and had another deadline, or none.
    Deadline(Box<[u8]>, Option<u64>),
    /// A collection before some changes, and its deadline.
    Changed {
        /// The key.
        key: Box<[u8]>,
        /// When it was to expire.
        deadline: Option<u64>,
        /// The words of the entry.
        words: Box<[u32]>,
        /// What undoes the changes; while the collection is being edited, it has this itself.
        journal: Option<Journal>,
    },
}

impl Before {
    /// The key that this is about.
    pub(crate) fn key(&self) -> &[u8] {
        match self {
            Before::Absent(key) | Before::Deadline(key, _) | Before::Changed { key, .. } => key,
            Before::Present { entry, .. } => entry.view().key(),
        }
    }

    fn is_full(&self) -> bool {
        !matches!(self, Before::Deadline(..) | Before::Changed { .. })
    }
}

/// Drops the room that is kept on this thread, for tests that count bytes.
#[cfg(any(test, feature = "testing"))]
pub(super) fn drop_room() {
    SPARE.take();
}

thread_local! {
    /// Room for a log: most units change a key or two.
    static SPARE: Cell<Option<Box<Log>>> = const { Cell::new(None) };
}

/// One image.
pub(crate) struct Image {
    /// Keyed hash of the key.
    pub(crate) hash: u64,
    /// See there.
    pub(crate) before: Before,
}

/// Images up to here are looked through; beyond, an index is kept.
const INDEX_FROM: usize = 16;

/// See the module.
#[derive(Default)]
pub(crate) struct Log {
    images: Vec<Image>,
    /// The newest image of each hash, once there are many.
    index: HashMap<u64, usize>,
}

impl Log {
    /// Whether the key's value at the start is known already, so that nothing more needs to be kept of it.
    pub(crate) fn has_value(&self, hash: u64, key: &[u8]) -> bool {
        self.newest(hash, key).is_some_and(Before::is_full)
    }

    /// Whether the deadline of a key is kept alone, without its value.
    pub(crate) fn has_deadline(&self, hash: u64, key: &[u8]) -> bool {
        self.newest(hash, key).is_some()
    }

    /// Bytes of what undoes the changes of the collection under a key, if that is kept.
    pub(crate) fn journal_bytes(&self, hash: u64, key: &[u8]) -> usize {
        match self.newest(hash, key) {
            Some(Before::Changed {
                journal: Some(journal),
                ..
            }) => journal.bytes(),
            _ => 0,
        }
    }

    /// Hands out what undoes the changes of a collection so far, and where [`Log::put_journal`] puts it back; nothing
    /// if the key has no such image, or a newer one.
    pub(crate) fn take_journal(
        &mut self,
        hash: u64,
        key: &[u8],
    ) -> Option<(usize, Option<Journal>)> {
        let at = self.newest_at(hash, key)?;
        match &mut self.images[at].before {
            Before::Changed { journal, .. } => Some((at, journal.take())),
            _ => None,
        }
    }

    /// See [`Log::take_journal`].
    pub(crate) fn put_journal(&mut self, at: usize, returned: Option<Journal>) {
        if let Some(image) = self.images.get_mut(at)
            && let Before::Changed { journal, .. } = &mut image.before
        {
            *journal = returned;
        }
    }

    fn newest(&self, hash: u64, key: &[u8]) -> Option<&Before> {
        self.newest_at(hash, key).map(|at| &self.images[at].before)
    }

    fn newest_at(&self, hash: u64, key: &[u8]) -> Option<usize> {
        let at = match self.images.len() {
            ..=INDEX_FROM => self.images.iter().rposition(|image| image.hash == hash),
            _ => self.index.get(&hash).copied(),
        };
        // Two keys of one hash only lead to an image too many.
        at.filter(|&at| self.images[at].before.key() == key)
    }

    /// Keeps an image, and says where. It is charged to no account.
    pub(crate) fn keep(&mut self, hash: u64, before: Before) -> usize {
        account::apart(|| {
            self.images.push(Image { hash, before });
            let count = self.images.len();
            if count == INDEX_FROM + 1 {
                let all = self.images.iter().enumerate();
                self.index.extend(all.map(|(at, image)| (image.hash, at)));
            } else if count > INDEX_FROM {
                self.index.insert(hash, count - 1);
            }
            count - 1
        })
    }

    /// The images, oldest first.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = Image> {
        if !self.index.is_empty() {
            self.index = HashMap::new();
        }
        self.images.drain(..)
    }

    /// An empty one, in room that another one left on this thread if there is any.
    pub(crate) fn in_kept_room() -> Box<Log> {
        SPARE
            .take()
            .unwrap_or_else(|| account::apart(Box::<Log>::default))
    }

    /// Leaves its room to the next one. It is empty.
    pub(crate) fn keep_room(self: Box<Log>) {
        if self.images.is_empty() && self.images.capacity() <= INDEX_FROM {
            SPARE.set(Some(self));
        }
    }
}

/// Whether a copy may share what can be shared.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sharing {
    /// Sharing is allowed: who changes the original sees to it that it is not shared any more.
    Allowed,
    /// The original is changed by somebody who believes to be its only owner.
    Forbidden,
}

/// A copy of an entry that is about to change in place; charged to no account.
pub(crate) fn copy(entry: EntryRef<'_, Object>, sharing: Sharing) -> Entry<Object> {
    account::apart(|| {
        let (kind, key, deadline) = (entry.kind(), entry.key(), entry.deadline());
        let mut copy = match entry.value() {
            Value::Integer(number) => Entry::integer(kind, key, number, deadline),
            Value::Bytes(bytes) => Entry::bytes(kind, key, bytes, deadline),
            Value::Block(block) if sharing == Sharing::Allowed => {
                Entry::block(kind, key, Block::clone(block), deadline)
            }
            Value::Block(block) => Entry::block(kind, key, Block::new(block), deadline),
            Value::Object(object) => Entry::object(kind, key, object.duplicate(), deadline),
        };
        copy.set_flag(entry.flags(), true);
        copy.set_words(entry.words());
        copy
    })
}
