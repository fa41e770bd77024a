//! The pre-images of one database: the state of its keys before an attempt changed them.
//!
//! Independent of the engine and of accounts; images are charged to no account. For a collection in nodes or tables
//! no copy is kept, only a journal that undoes its changes ([`KeyBeforeImage::Changed`]); that is no full image, as a
//! later image may hold the collection itself, once it is deleted or overwritten. Invariants: the first full image of a
//! key is kept, later ones change nothing; applying the images from the newest to the oldest restores the state at the
//! start of the attempt.

use std::cell::Cell;
use std::collections::HashMap;

use crate::value::{Journal, Object};
use basalt_core::alloc::account;
use basalt_core::structures::block::SharedBlock;
use basalt_core::structures::entry::{Entry, EntryRef, Value};

/// The previous state of a key.
pub(crate) enum KeyBeforeImage {
    /// The key did not exist.
    Absent(Box<[u8]>),
    /// An entry that was removed from the database, or copied before it was changed in place.
    Present {
        /// The entry with key, value and deadline.
        entry: Entry<Object>,
        /// True if this is the database's own entry, moved here, and not a copy.
        was_moved: bool,
    },
    /// The value did not change; the key had this deadline, or none.
    Deadline(Box<[u8]>, Option<u64>),
    /// A collection that was changed in place, with the journal that undoes the changes, and its deadline.
    Changed {
        /// The key.
        key: Box<[u8]>,
        /// Previous deadline of the key.
        deadline: Option<u64>,
        /// Previous metadata words (stale window and tags) of the entry.
        words: Box<[u32]>,
        /// The journal that undoes the changes; None while the collection is being edited and records the journal
        /// itself.
        journal: Option<Journal>,
    },
}

impl KeyBeforeImage {
    /// Returns the key of the image.
    pub(crate) fn key(&self) -> &[u8] {
        match self {
            KeyBeforeImage::Absent(key)
            | KeyBeforeImage::Deadline(key, _)
            | KeyBeforeImage::Changed { key, .. } => key,
            KeyBeforeImage::Present { entry, .. } => entry.view().key(),
        }
    }

    fn is_full(&self) -> bool {
        !matches!(
            self,
            KeyBeforeImage::Deadline(..) | KeyBeforeImage::Changed { .. }
        )
    }
}

/// Drops the log kept for reuse on this thread, for tests that count bytes.
#[cfg(any(test, feature = "testing"))]
pub(super) fn drop_room() {
    SPARE.take();
}

thread_local! {
    /// An empty log kept for reuse: most transactions and scripts change a key or two.
    static SPARE: Cell<Option<Box<UndoImages>>> = const { Cell::new(None) };
}

/// One pre-image: the state of a key before a change.
pub(crate) struct Image {
    /// Keyed hash of the key.
    pub(crate) hash: u64,
    /// The key's previous state.
    pub(crate) before: KeyBeforeImage,
}

/// Up to this number, images are searched linearly; beyond it, an index by hash is kept.
const INDEX_FROM: usize = 16;

/// The images of an attempt, see the module.
#[derive(Default)]
pub(crate) struct UndoImages {
    images: Vec<Image>,
    /// The newest image of each hash, once there are many.
    index: HashMap<u64, usize>,
}

impl UndoImages {
    /// True if the key's original value is known already, so that nothing more needs to be kept.
    pub(crate) fn has_value(&self, hash: u64, key: &[u8]) -> bool {
        self.newest(hash, key).is_some_and(KeyBeforeImage::is_full)
    }

    /// True if an image of the key exists, so that its deadline need not be saved separately.
    pub(crate) fn has_deadline(&self, hash: u64, key: &[u8]) -> bool {
        self.newest(hash, key).is_some()
    }

    /// Returns the bytes of the journal of the collection under a key, if there is one.
    pub(crate) fn journal_bytes(&self, hash: u64, key: &[u8]) -> usize {
        match self.newest(hash, key) {
            Some(KeyBeforeImage::Changed {
                journal: Some(journal),
                ..
            }) => journal.bytes(),
            _ => 0,
        }
    }

    /// Takes the journal that a collection has recorded so far. Returns it with the index for
    /// [`UndoImages::put_journal`]; None if the key has no such image, or has a newer one.
    pub(crate) fn take_journal(
        &mut self,
        hash: u64,
        key: &[u8],
    ) -> Option<(usize, Option<Journal>)> {
        let at = self.newest_at(hash, key)?;
        match &mut self.images[at].before {
            KeyBeforeImage::Changed { journal, .. } => Some((at, journal.take())),
            _ => None,
        }
    }

    /// Puts back a journal, see [`UndoImages::take_journal`].
    pub(crate) fn put_journal(&mut self, at: usize, returned: Option<Journal>) {
        if let Some(image) = self.images.get_mut(at)
            && let KeyBeforeImage::Changed { journal, .. } = &mut image.before
        {
            *journal = returned;
        }
    }

    fn newest(&self, hash: u64, key: &[u8]) -> Option<&KeyBeforeImage> {
        self.newest_at(hash, key).map(|at| &self.images[at].before)
    }

    fn newest_at(&self, hash: u64, key: &[u8]) -> Option<usize> {
        let at = match self.images.len() {
            ..=INDEX_FROM => self.images.iter().rposition(|image| image.hash == hash),
            _ => self.index.get(&hash).copied(),
        };
        // Two keys with one hash merely cause an unnecessary image.
        at.filter(|&at| self.images[at].before.key() == key)
    }

    /// Keeps an image and returns its index. It is charged to no account.
    pub(crate) fn keep(&mut self, hash: u64, before: KeyBeforeImage) -> usize {
        account::uncharged(|| {
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

    /// Removes the images and returns them, oldest first.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = Image> {
        if !self.index.is_empty() {
            self.index = HashMap::new();
        }
        self.images.drain(..)
    }

    /// Returns an empty log, reusing the one kept on this thread if there is any.
    pub(crate) fn in_kept_room() -> Box<UndoImages> {
        SPARE
            .take()
            .unwrap_or_else(|| account::uncharged(Box::<UndoImages>::default))
    }

    /// Keeps this empty log for reuse.
    pub(crate) fn keep_room(self: Box<UndoImages>) {
        if self.images.is_empty() && self.images.capacity() <= INDEX_FROM {
            SPARE.set(Some(self));
        }
    }
}

/// Whether a copy may share memory with the original.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sharing {
    /// Sharing is allowed: the code that changes the original unshares it first.
    Allowed,
    /// The code that changes the original assumes that it is the only owner.
    Forbidden,
}

/// Returns a copy of an entry that is about to change in place; charged to no account.
pub(crate) fn copy(entry: EntryRef<'_, Object>, sharing: Sharing) -> Entry<Object> {
    account::uncharged(|| {
        let (kind, key, deadline) = (entry.kind(), entry.key(), entry.deadline());
        let mut copy = match entry.value() {
            Value::Integer(number) => Entry::integer(kind, key, number, deadline),
            Value::Bytes(bytes) => Entry::bytes(kind, key, bytes, deadline),
            Value::Block(block) if sharing == Sharing::Allowed => {
                Entry::block(kind, key, SharedBlock::clone(block), deadline)
            }
            Value::Block(block) => Entry::block(kind, key, SharedBlock::new(block), deadline),
            Value::Object(object) => Entry::object(kind, key, object.duplicate(), deadline),
        };
        copy.set_flag(entry.flags(), true);
        copy.set_words(entry.words());
        copy
    })
}
