//! Updates of a stream's producer records, including the upkeep of undo state and cuts.

use super::StreamValue;
use super::before::Before;
use super::cut::StreamCut;
use super::id::StreamId;
use super::producers::{
    Producer, ProducerChange, ProducerFacts, ProducerLimits, ProducerObserver, Producers,
};

/// The undo state and the cut, which must be notified of changes.
struct ChangeObservers<'a> {
    before: Option<&'a mut Box<Before>>,
    cut: Option<&'a mut Box<StreamCut>>,
}

impl ProducerObserver for ChangeObservers<'_> {
    fn changes(&mut self, name: &[u8], producer: Option<&Producer>) {
        if let Some(cut) = &mut self.cut {
            cut.note_producer(name, producer);
        }
    }

    fn step(&mut self, step: impl FnOnce() -> ProducerChange) {
        if let Some(before) = &mut self.before {
            before.keep_step(step);
        }
    }
}

impl StreamValue {
    /// Returns the stream's producer records; None until a producer has identified itself or rules were set.
    pub fn producers(&self) -> Option<&Producers> {
        self.producers.as_deref()
    }

    /// Returns the ID of the entry that a producer added under an id, if that is remembered.
    pub fn added_before(&self, producer: &[u8], id: &[u8], now_ms: u64) -> Option<StreamId> {
        let producers = self.producers.as_deref()?;
        let found = producers.by_name.get(producer)?.find(id);
        found.filter(|entry| !producers.facts.rules.are_over(*entry, now_ms))
    }

    /// Counts an entry that was not added because its id is remembered.
    pub fn note_duplicate(&mut self) {
        if let Some(producers) = &mut self.producers {
            producers.facts.duplicates = producers.facts.duplicates.saturating_add(1);
        }
    }

    /// Records that a producer added an entry under an id that is not remembered; `usual` are the rules for a stream
    /// that has no rules yet.
    pub fn remember(
        &mut self,
        producer: &[u8],
        id: &[u8],
        entry: StreamId,
        usual: ProducerLimits,
        now_ms: u64,
    ) {
        let (producers, mut observers) = self.watched_producers(usual);
        observers.changes(producer, producers.by_name.get(producer));
        let rules = producers.facts.rules;
        let one = match producers.by_name.get_mut(producer) {
            Some(one) => one,
            None => producers.by_name.entry(producer.into()).or_default(),
        };
        let beside_max = usize::try_from(rules.each_max.saturating_sub(1)).unwrap_or(usize::MAX);
        one.drop_old(producer, rules, beside_max, now_ms, &mut observers);
        // Drop an expired record of this id that is not the oldest, as restored records may be in any order.
        while one.find(id).is_some() {
            one.drop_oldest(producer, &mut observers);
        }
        one.push(id, entry);
        observers.step(|| ProducerChange::Added(producer.into()));
        producers.facts.added = producers.facts.added.saturating_add(1);
        producers.sweep(&mut observers, now_ms);
    }

    /// Returns the producer records for changing them, and the parts to notify.
    fn watched_producers(
        &mut self,
        usual: ProducerLimits,
    ) -> (&mut Producers, ChangeObservers<'_>) {
        let producers = self
            .producers
            .get_or_insert_with(|| Box::new(Producers::new(usual)));
        let observers = ChangeObservers {
            before: self.before.as_mut(),
            cut: self.cut.as_mut(),
        };
        (producers, observers)
    }

    /// Sets the rules; if they differ from the current rules, all ids are dropped. Returns whether they differ.
    pub fn set_rules(&mut self, rules: ProducerLimits, usual: ProducerLimits) -> bool {
        let known = self.producers.as_deref();
        if known.map_or(usual, |producers| producers.facts.rules) == rules {
            return false;
        }
        let (producers, mut observers) = self.watched_producers(usual);
        for (name, producer) in &producers.by_name {
            observers.changes(name, Some(producer));
        }
        observers.step(|| ProducerChange::Cleared(producers.by_name.clone()));
        producers.by_name.clear();
        producers.facts.rules = rules;
        true
    }

    /// For RESTORE: sets the facts common to all producers.
    pub fn restore_producers(&mut self, facts: Option<ProducerFacts>) {
        match (facts, &mut self.producers) {
            (Some(facts), Some(producers)) => producers.facts = facts,
            (Some(facts), none) => {
                let mut producers = Producers::new(facts.rules);
                producers.facts = facts;
                *none = Some(Box::new(producers));
            }
            (None, producers) => *producers = None,
        }
    }

    /// For RESTORE: adds an id of a producer, after its older ones. Returns false if the id is known already.
    pub fn restore_id(&mut self, producer: &[u8], id: &[u8], entry: StreamId) -> bool {
        let Some(producers) = &mut self.producers else {
            return false;
        };
        let one = producers.by_name.entry(producer.into()).or_default();
        let is_new = one.find(id).is_none();
        if is_new {
            one.push(id, entry);
        }
        is_new
    }
}
