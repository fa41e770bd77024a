//! Judges what a crash or a failover has left of a history of list-append: the lists afterwards are those of a moment
//! before it, so that what is lost is the end of the history and nothing out of its middle.

use std::collections::HashMap;

use crate::history::{Element, Key, Op, Outcome, Txn};
use crate::list_append::{Anomalies, Judge};

/// The transactions of a history that survived a fault.
#[derive(Debug, Default)]
pub(crate) struct Survival {
    /// Answered transactions with appends.
    pub(crate) answered: usize,
    /// Answered transactions that are gone.
    pub(crate) lost: usize,
    pub(crate) anomalies: Anomalies,
}

/// Judges the lists as they are after the fault. What ended before `kept_until` must be there.
pub(crate) fn judge_survivors(
    history: &[Txn],
    lists: &HashMap<Key, Vec<Element>>,
    kept_until: u64,
) -> Survival {
    let mut survival = Survival::default();
    let mut judge = Judge::new(history);
    for (key, list) in lists {
        let order = judge.orders.entry(*key).or_default();
        if !order.starts_with(list) && !list.starts_with(order) {
            let text = || format!("key {key}: {list:?} after the fault, {order:?} before");
            survival.anomalies.add("incompatible-order", text);
        }
        if let Some(alien) = list
            .iter()
            .find(|it| !judge.writers.contains_key(&(*key, **it)))
        {
            let text = || format!("key {key}: {alien} was never appended");
            survival.anomalies.add("phantom", text);
        }
        if list.len() > order.len() {
            *order = list;
        }
    }
    let is_there = |key: &Key, element: &Element| {
        let list = lists.get(key);
        list.is_some_and(|list| list.contains(element))
    };
    let mut lost = Vec::new();
    let mut kept = Vec::new();
    for (index, txn) in history.iter().enumerate() {
        let appends = txn.ops.iter().filter_map(|op| match op {
            Op::Append(key, element) => Some(is_there(key, element)),
            Op::Read(..) => None,
        });
        let appends: Vec<bool> = appends.collect();
        let present = appends.iter().filter(|is_there| **is_there).count();
        if appends.is_empty() {
            continue;
        }
        survival.answered += usize::from(txn.outcome == Outcome::Ok);
        if present > 0 && txn.outcome == Outcome::Fail {
            survival
                .anomalies
                .add("G1a", || format!("refused, but there: {txn:?}"));
        }
        if present == appends.len() {
            kept.push(index);
        } else if present > 0 {
            survival
                .anomalies
                .add("torn", || format!("half of {txn:?}"));
        } else if txn.outcome == Outcome::Ok {
            survival.lost += 1;
            lost.push(index);
            if txn.ended < kept_until {
                let text = || format!("kept until {kept_until}: {txn:?}");
                survival.anomalies.add("lost-append", text);
            }
        }
    }
    let after_a_loss = judge.graph().reached(&lost);
    for index in kept.into_iter().filter(|index| after_a_loss[*index]) {
        let text = || format!("something before it is gone: {:?}", history[index]);
        survival.anomalies.add("hole", text);
    }
    survival
}
