//! Judges histories of transactions that append to lists and read them: is there an order of all of them, one at a
//! time, that explains every answer and keeps real time (strict serializability)?
//!
//! The longest read of a key shows the order of its appends, and so which transaction wrote before which (ww), was seen
//! by which (wr), and did not see which (rw). With the edges of real time, any cycle is an anomaly; it is named by the
//! edges that it needs, after Adya. The method is that of Elle (Kingsbury and Alvaro, "Elle: inferring isolation
//! anomalies from experimental observations", VLDB 2020).

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::graph::{Graph, Kinds};
use crate::history::{Element, Key, NEVER, Op, Outcome, Txn};

const WW: Kinds = 1;
const WR: Kinds = 2;
const RW: Kinds = 4;
/// One ended before the other began.
const TIME: Kinds = 8;
/// Both stand in one pipeline, in this order.
const ORDER: Kinds = 16;

/// Anomalies of one name that are described; more are only counted.
const DESCRIBED_MAX: usize = 3;

/// Observations that no serial order explains: descriptions by name of the anomaly.
#[derive(Debug, Default)]
pub(crate) struct Anomalies {
    pub(crate) found: BTreeMap<&'static str, Vec<String>>,
    pub(crate) count: usize,
}

impl Anomalies {
    pub(crate) fn add(&mut self, name: &'static str, text: impl FnOnce() -> String) {
        self.count += 1;
        let texts = self.found.entry(name).or_default();
        if texts.len() < DESCRIBED_MAX {
            texts.push(text());
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }
}

/// Judges a history.
pub(crate) fn judge(history: &[Txn]) -> Anomalies {
    let mut judge = Judge::new(history);
    judge.find_internal();
    judge.find_in_reads();
    judge.find_lost();
    judge.find_cycles();
    judge.anomalies
}

pub(crate) struct Judge<'h> {
    history: &'h [Txn],
    /// The transaction of each append, and whether it is its last one to that key.
    pub(crate) writers: HashMap<(Key, Element), (usize, bool)>,
    /// The appends to each key in their order, as the longest read shows them.
    pub(crate) orders: HashMap<Key, &'h [Element]>,
    anomalies: Anomalies,
}

impl<'h> Judge<'h> {
    pub(crate) fn new(history: &'h [Txn]) -> Judge<'h> {
        let mut writers = HashMap::new();
        let mut orders: HashMap<Key, &[Element]> = HashMap::new();
        for (index, txn) in history.iter().enumerate() {
            let mut later = HashSet::new();
            for op in txn.ops.iter().rev() {
                if let Op::Append(key, element) = op {
                    writers.insert((*key, *element), (index, later.insert(*key)));
                }
            }
        }
        for (_, key, read) in reads(history) {
            let order = orders.entry(key).or_default();
            if read.len() > order.len() {
                *order = read;
            }
        }
        Judge {
            history,
            writers,
            orders,
            anomalies: Anomalies::default(),
        }
    }

    /// Finds transactions that contradict themselves: a read lacks what the transaction itself has read or appended
    /// before.
    fn find_internal(&mut self) {
        for txn in answered(self.history) {
            // The contents that a list must have if it was read, or else the elements that it must end with.
            let mut known: HashMap<Key, (bool, Vec<Element>)> = HashMap::new();
            for op in &txn.ops {
                match op {
                    Op::Append(key, element) => known.entry(*key).or_default().1.push(*element),
                    Op::Read(key, Some(read)) => {
                        let (is_whole, elements) = known.entry(*key).or_default();
                        let fits = match is_whole {
                            true => read == elements,
                            false => read.ends_with(elements),
                        };
                        if !fits {
                            self.anomalies
                                .add("internal", || format!("{op:?} in {txn:?}"));
                        }
                        (*is_whole, *elements) = (true, read.clone());
                    }
                    Op::Read(_, None) => {}
                }
            }
        }
    }

    /// Finds reads that no order of whole transactions can give.
    fn find_in_reads(&mut self) {
        for (reader, key, read) in reads(self.history) {
            let order = self.orders[&key];
            let what = || format!("key {key}: {read:?} read by {:?}", self.history[reader]);
            if !order.starts_with(read) {
                let text = || format!("{}, but also {order:?}", what());
                self.anomalies.add("incompatible-order", text);
            }
            let mut seen = HashSet::new();
            if !read.iter().all(|element| seen.insert(element)) {
                self.anomalies.add("duplicate-elements", what);
            }
            for element in read {
                match self.writers.get(&(key, *element)) {
                    None => self.anomalies.add("phantom", what),
                    Some((writer, _)) if self.history[*writer].outcome == Outcome::Fail => {
                        self.anomalies.add("G1a", what);
                    }
                    Some(_) => {}
                }
            }
            let last = read.last().and_then(|last| self.writers.get(&(key, *last)));
            if let Some((writer, false)) = last
                && *writer != reader
            {
                let text = || format!("{}, of {:?}", what(), self.history[*writer]);
                self.anomalies.add("G1b", text);
            }
        }
    }

    /// Finds answered appends that a later read lacks, and that no read shows.
    fn find_lost(&mut self) {
        let mut last_read: HashMap<Key, u64> = HashMap::new();
        for (reader, key, _) in reads(self.history) {
            let began = last_read.entry(key).or_default();
            *began = self.history[reader].began.max(*began);
        }
        let shown: HashSet<(Key, Element)> = self
            .orders
            .iter()
            .flat_map(|(key, order)| order.iter().map(|element| (*key, *element)))
            .collect();
        for txn in answered(self.history) {
            for op in &txn.ops {
                if let Op::Append(key, element) = op
                    && !shown.contains(&(*key, *element))
                    && last_read.get(key).is_some_and(|began| *began > txn.ended)
                {
                    self.anomalies
                        .add("lost-append", || format!("{op:?} of {txn:?}"));
                }
            }
        }
    }

    fn find_cycles(&mut self) {
        let graph = self.graph();
        for component in graph.components(&graph.all_nodes(), WW | WR | RW | TIME | ORDER) {
            let named = classify(&graph, &component);
            let (name, cycle) = named.unwrap_or(("cycle", Vec::new()));
            let text = || {
                let steps = cycle.iter().filter_map(|(node, kinds)| {
                    let txn = self.history.get(*node as usize)?;
                    Some(format!("{txn:?}\n   --{}-->", label(*kinds)))
                });
                steps.collect::<Vec<_>>().join("\n")
            };
            self.anomalies.add(name, text);
        }
    }

    /// Returns the graph of all transactions; further nodes serve the edges of real time.
    pub(crate) fn graph(&self) -> Graph {
        let mut graph = Graph::new(self.history.len());
        let writer = |key: Key, element: Element| {
            let writer = self.writers.get(&(key, element));
            writer.map(|(writer, _)| *writer)
        };
        for (key, order) in &self.orders {
            let writers: Vec<_> = order.iter().filter_map(|it| writer(*key, *it)).collect();
            for pair in writers.windows(2) {
                graph.add(pair[0], pair[1], WW);
            }
        }
        for (reader, key, read) in reads(self.history) {
            let last = read.last().and_then(|last| writer(key, *last));
            if let Some(last) = last {
                graph.add(last, reader, WR);
            }
            let next = self.orders[&key].get(read.len());
            if let Some(next) = next.and_then(|next| writer(key, *next)) {
                graph.add(reader, next, RW);
            }
        }
        for (index, txn) in self
            .history
            .iter()
            .enumerate()
            .filter(|(_, txn)| txn.follows)
        {
            let before = self.history[..index]
                .iter()
                .rposition(|it| it.process == txn.process);
            if let Some(before) = before
                && self.history[before].outcome == Outcome::Ok
                && txn.outcome == Outcome::Ok
            {
                graph.add(before, index, ORDER);
            }
        }
        self.add_time(&mut graph);
        graph
    }

    /// Adds the edges of real time: from each end over a chain of further nodes, one for each end, to each beginning
    /// after it. So their number is linear.
    fn add_time(&self, graph: &mut Graph) {
        let is_known = |index: &usize| self.history[*index].ended != NEVER;
        let mut ends: Vec<usize> = (0..self.history.len()).filter(is_known).collect();
        ends.sort_by_key(|index| self.history[*index].ended);
        let mut chain = Vec::with_capacity(ends.len());
        for end in ends {
            let node = graph.add_node();
            graph.add(end, node, TIME);
            if let Some((_, before)) = chain.last() {
                graph.add(*before, node, TIME);
            }
            chain.push((self.history[end].ended, node));
        }
        for (index, txn) in self.history.iter().enumerate() {
            let ended_before = chain.partition_point(|(ended, _)| *ended < txn.began);
            if ended_before > 0 {
                graph.add(chain[ended_before - 1].1, index, TIME);
            }
        }
    }
}

/// Returns all answered transactions.
fn answered(history: &[Txn]) -> impl Iterator<Item = &Txn> {
    history.iter().filter(|txn| txn.outcome == Outcome::Ok)
}

/// Returns what answered transactions read, each with the index of its transaction.
fn reads(history: &[Txn]) -> impl Iterator<Item = (usize, Key, &[Element])> {
    let answered = history.iter().enumerate();
    let answered = answered.filter(|(_, txn)| txn.outcome == Outcome::Ok);
    answered.flat_map(|(index, txn)| {
        txn.ops.iter().filter_map(move |op| match op {
            Op::Read(key, Some(read)) => Some((index, *key, read.as_slice())),
            _ => None,
        })
    })
}

/// Names the anomaly of a component by the weakest edges that suffice for a cycle.
fn classify(graph: &Graph, component: &[u32]) -> Option<(&'static str, Vec<(u32, Kinds)>)> {
    let time = TIME | ORDER;
    let questions = [
        ("G0", WW, WW),
        ("G1c", WR, WW | WR),
        ("G-single", RW, WW | WR),
        ("G2", RW, WW | WR | RW),
        ("G0-realtime", WW, WW | time),
        ("G1c-realtime", WR, WW | WR | time),
        ("G-single-realtime", RW, WW | WR | time),
        ("G2-realtime", RW, WW | WR | RW | time),
    ];
    questions.into_iter().find_map(|(name, first, others)| {
        let parts = graph.components(component, first | others);
        let cycle = parts
            .iter()
            .find_map(|part| graph.cycle(part, first, others));
        cycle.map(|cycle| (name, cycle))
    })
}

fn label(kinds: Kinds) -> String {
    let names = [
        (WW, "ww"),
        (WR, "wr"),
        (RW, "rw"),
        (TIME, "time"),
        (ORDER, "pipeline"),
    ];
    let names = names.iter().filter(|(kind, _)| kinds & kind != 0);
    names.map(|(_, name)| *name).collect::<Vec<_>>().join("|")
}
