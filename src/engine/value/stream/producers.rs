//! Deduplication of producers: the stream remembers which entries were added under which ids of their producers, so
//! that an entry sent twice is added once.
//!
//! An id is remembered for some seconds, counted from the time in the entry's ID, and only a limited number of each
//! producer's newest ids is remembered. The memory of expired ids is freed when a producer adds an entry: its own
//! expired ids are freed, and those of the next producers in turn. A stream without additions keeps expired ids in
//! memory.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::id::StreamId;
use basalt_core::base::hash;

/// Limits of the remembered ids: their lifetime, and their number per producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducerLimits {
    /// Seconds for which an id is remembered, from the addition of its entry.
    pub seconds: u64,
    /// Maximum number of ids per producer.
    pub each_max: u64,
}

impl ProducerLimits {
    /// The default rules of Redis.
    pub const USUAL: ProducerLimits = ProducerLimits {
        seconds: 100,
        each_max: 100,
    };
    /// Valid range of `seconds`.
    pub const SECONDS: std::ops::RangeInclusive<u64> = 1..=86_400;
    /// Valid range of `each_max`.
    pub const EACH_MAX: std::ops::RangeInclusive<u64> = 1..=10_000;

    pub(super) fn are_over(self, entry: StreamId, now_ms: u64) -> bool {
        entry.ms.saturating_add(self.seconds * 1_000) <= now_ms
    }
}

/// Facts common to all producers of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducerFacts {
    /// Limits of the remembered ids: their lifetime, and their number per producer.
    pub rules: ProducerLimits,
    /// Number of ids ever added.
    pub added: u64,
    /// Number of entries that were not added because their ids were remembered.
    pub duplicates: u64,
}

impl ProducerFacts {
    /// Returns initial facts under some rules.
    pub fn under(rules: ProducerLimits) -> ProducerFacts {
        ProducerFacts {
            rules,
            added: 0,
            duplicates: 0,
        }
    }
}

/// The producers of a stream, see the module.
#[derive(Clone, Debug)]
pub struct Producers {
    pub(super) facts: ProducerFacts,
    pub(super) by_name: BTreeMap<Box<[u8]>, Producer>,
    /// The producer last examined for expired ids.
    swept: Box<[u8]>,
}

/// The ids of one producer, the oldest first.
#[derive(Clone, Debug, Default)]
pub struct Producer {
    ids: VecDeque<(Box<[u8]>, StreamId)>,
    /// The sequence number of the oldest remembered id; ids are numbered in order of addition.
    first: u64,
    /// The hash of each id with the id's sequence number, for lookups.
    numbers: BTreeSet<(u64, u64)>,
}

impl Producer {
    /// Returns the number of remembered ids.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// True if no id is remembered.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Returns the ids with their entries, the oldest first.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&[u8], StreamId)> {
        self.ids.iter().map(|(id, entry)| (&**id, *entry))
    }

    /// Returns the approximate bytes of the ids.
    pub(super) fn bytes(&self) -> usize {
        const BESIDE_ID: usize = size_of::<(Box<[u8]>, StreamId)>() + size_of::<(u64, u64)>();
        self.ids.iter().map(|(id, _)| id.len() + BESIDE_ID).sum()
    }

    pub(super) fn find(&self, id: &[u8]) -> Option<StreamId> {
        let hash = hash::digest(id);
        let same = self.numbers.range((hash, 0)..=(hash, u64::MAX));
        same.rev()
            .filter_map(|(_, number)| self.ids.get(number.wrapping_sub(self.first) as usize))
            .find(|(known, _)| **known == *id)
            .map(|(_, entry)| *entry)
    }

    pub(super) fn push(&mut self, id: &[u8], entry: StreamId) {
        let number = self.first.wrapping_add(self.ids.len() as u64);
        self.numbers.insert((hash::digest(id), number));
        self.ids.push_back((id.into(), entry));
    }

    fn pop_oldest(&mut self) -> Option<(Box<[u8]>, StreamId)> {
        let oldest = self.ids.pop_front()?;
        self.numbers.remove(&(hash::digest(&oldest.0), self.first));
        self.first = self.first.wrapping_add(1);
        Some(oldest)
    }

    fn pop_newest(&mut self) {
        if let Some((id, _)) = self.ids.pop_back() {
            let number = self.first.wrapping_add(self.ids.len() as u64);
            self.numbers.remove(&(hash::digest(&id), number));
        }
    }

    fn push_oldest(&mut self, id: &[u8], entry: StreamId) {
        self.first = self.first.wrapping_sub(1);
        self.numbers.insert((hash::digest(id), self.first));
        self.ids.push_front((id.into(), entry));
    }
}

/// A change of the remembered ids, for undo.
#[derive(Debug)]
pub(super) enum ProducerChange {
    /// The producer's newest id was added.
    Added(Box<[u8]>),
    /// The producer's oldest id was dropped: the producer, the id, and the ID of its entry.
    Dropped(Box<[u8]>, Box<[u8]>, StreamId),
    /// All ids were dropped.
    Cleared(BTreeMap<Box<[u8]>, Producer>),
}

impl ProducerChange {
    /// Returns the approximate bytes that the step refers to, without the step itself.
    pub(super) fn bytes(&self) -> usize {
        match self {
            ProducerChange::Added(name) => name.len(),
            ProducerChange::Dropped(name, id, _) => name.len() + id.len(),
            ProducerChange::Cleared(all) => all.values().map(Producer::bytes).sum(),
        }
    }
}

/// A receiver of changes: undo state and cuts.
pub(super) trait ProducerObserver {
    /// Called before a producer changes, or is added.
    fn changes(&mut self, name: &[u8], producer: Option<&Producer>);
    /// Called after a change.
    fn step(&mut self, step: impl FnOnce() -> ProducerChange);
}

impl Producer {
    /// Drops a producer's expired ids, and its oldest ids until at most `count_max` are left.
    pub(super) fn drop_old(
        &mut self,
        name: &[u8],
        rules: ProducerLimits,
        count_max: usize,
        now_ms: u64,
        watch: &mut impl ProducerObserver,
    ) {
        while let Some((_, oldest)) = self.ids.front()
            && (self.len() > count_max || rules.are_over(*oldest, now_ms))
        {
            self.drop_oldest(name, watch);
        }
    }

    /// Drops a producer's oldest id.
    pub(super) fn drop_oldest(&mut self, name: &[u8], watch: &mut impl ProducerObserver) {
        if let Some((id, entry)) = self.pop_oldest() {
            watch.step(|| ProducerChange::Dropped(name.into(), id.clone(), entry));
        }
    }
}

impl Producers {
    pub(super) fn new(rules: ProducerLimits) -> Producers {
        Producers {
            facts: ProducerFacts::under(rules),
            by_name: BTreeMap::new(),
            swept: Box::default(),
        }
    }

    /// Returns the facts common to all producers.
    pub fn facts(&self) -> ProducerFacts {
        self.facts
    }

    /// Returns the producers with their names, in the order of the names.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&[u8], &Producer)> {
        self.by_name.iter().map(|(name, one)| (&**name, one))
    }

    /// Returns how many producers and how many ids are remembered at a time.
    pub fn counts(&self, now_ms: u64) -> (usize, usize) {
        let live = self.by_name.values().map(|producer| {
            let is_live =
                |(_, entry): &&(Box<[u8]>, StreamId)| !self.facts.rules.are_over(*entry, now_ms);
            producer.ids.iter().filter(is_live).count()
        });
        live.filter(|count| *count > 0)
            .fold((0, 0), |(names, ids), count| (names + 1, ids + count))
    }

    /// Drops expired ids of the next producers in turn.
    pub(super) fn sweep(&mut self, watch: &mut impl ProducerObserver, now_ms: u64) {
        /// Producers swept per addition. One producer at most is added at a time, so that all are swept in the end.
        const PRODUCERS_EACH: usize = 2;
        use std::ops::Bound::{Excluded, Unbounded};
        for _ in 0..PRODUCERS_EACH {
            let behind = (Excluded(&*self.swept), Unbounded);
            let next = self.by_name.range_mut::<[u8], _>(behind).next();
            let Some((name, producer)) = next else {
                self.swept = Box::default();
                return;
            };
            let name: Box<[u8]> = name.clone();
            let rules = self.facts.rules;
            let is_over = |entry: &(Box<[u8]>, StreamId)| rules.are_over(entry.1, now_ms);
            if producer.ids.front().is_some_and(is_over) {
                watch.changes(&name, Some(producer));
                producer.drop_old(&name, rules, usize::MAX, now_ms, watch);
                if producer.is_empty() {
                    self.by_name.remove(&name);
                }
            }
            self.swept = name;
        }
    }

    /// Undoes the last change.
    pub(super) fn undo(&mut self, step: &ProducerChange) {
        match step {
            ProducerChange::Added(name) => {
                if let Some(producer) = self.by_name.get_mut(name) {
                    producer.pop_newest();
                    if producer.is_empty() {
                        self.by_name.remove(name);
                    }
                }
            }
            ProducerChange::Dropped(name, id, entry) => {
                let producer = self.by_name.entry(name.clone()).or_default();
                producer.push_oldest(id, *entry);
            }
            ProducerChange::Cleared(all) => self.by_name.clone_from(all),
        }
    }
}
