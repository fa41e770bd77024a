//! Directed graphs with kinds of edges: strongly connected components, and short cycles in them.

use std::collections::{HashMap, HashSet, VecDeque};

/// Kinds of edges, as a set of bits.
pub(crate) type Kinds = u8;

/// Searches for one cycle look at so many edges to begin with.
const STARTS_MAX: usize = 300;

/// Nodes are numbered from 0.
pub(crate) struct Graph {
    edges: Vec<Vec<(u32, Kinds)>>,
}

impl Graph {
    pub(crate) fn new(nodes: usize) -> Graph {
        Graph {
            edges: vec![Vec::new(); nodes],
        }
    }

    pub(crate) fn add_node(&mut self) -> usize {
        self.edges.push(Vec::new());
        self.edges.len() - 1
    }

    /// Adds an edge of one kind; an edge to itself says nothing and is left out.
    pub(crate) fn add(&mut self, from: usize, to: usize, kind: Kinds) {
        if from == to {
            return;
        }
        let edges = &mut self.edges[from];
        match edges.last_mut() {
            Some((last, kinds)) if *last == to as u32 => *kinds |= kind,
            _ => edges.push((to as u32, kind)),
        }
    }

    fn successors(&self, node: u32, kinds: Kinds) -> impl Iterator<Item = (u32, Kinds)> + '_ {
        let edges = self.edges[node as usize].iter();
        edges
            .filter(move |(_, kind)| kind & kinds != 0)
            .map(move |(to, kind)| (*to, kind & kinds))
    }

    /// Returns the components of more than one node, by edges of these kinds between these nodes (Tarjan's algorithm,
    /// without recursion).
    pub(crate) fn components(&self, nodes: &[u32], kinds: Kinds) -> Vec<Vec<u32>> {
        let within: HashMap<u32, usize> = nodes.iter().copied().zip(0..).collect();
        let edges: Vec<Vec<usize>> = nodes
            .iter()
            .map(|node| {
                let successors = self.successors(*node, kinds);
                successors
                    .filter_map(|(to, _)| within.get(&to).copied())
                    .collect()
            })
            .collect();
        let mut tarjan = Tarjan {
            edges: &edges,
            index: vec![u32::MAX; nodes.len()],
            low: vec![0; nodes.len()],
            is_open: vec![false; nodes.len()],
            open: Vec::new(),
            count: 0,
            found: Vec::new(),
        };
        for node in 0..nodes.len() {
            if tarjan.index[node] == u32::MAX {
                tarjan.visit(node);
            }
        }
        let to_nodes = |part: Vec<usize>| part.into_iter().map(|local| nodes[local]).collect();
        tarjan.found.into_iter().map(to_nodes).collect()
    }

    pub(crate) fn all_nodes(&self) -> Vec<u32> {
        (0..self.edges.len() as u32).collect()
    }

    /// Returns which nodes can be reached from these, by edges of any kind; these themselves only over a cycle.
    pub(crate) fn reached(&self, from: &[usize]) -> Vec<bool> {
        let mut reached = vec![false; self.edges.len()];
        let mut open: Vec<usize> = from.to_vec();
        while let Some(node) = open.pop() {
            for (next, _) in &self.edges[node] {
                if !std::mem::replace(&mut reached[*next as usize], true) {
                    open.push(*next as usize);
                }
            }
        }
        reached
    }

    /// Returns a short cycle of a component that has an edge of a kind in `first`, and otherwise only edges of kinds in
    /// `others`: each node with the kinds of the edge that leaves it.
    pub(crate) fn cycle(
        &self,
        component: &[u32],
        first: Kinds,
        others: Kinds,
    ) -> Option<Vec<(u32, Kinds)>> {
        let within: HashSet<u32> = component.iter().copied().collect();
        let starts = component.iter().flat_map(|from| {
            let successors = self.successors(*from, first);
            successors.map(move |(to, kinds)| (*from, to, kinds))
        });
        let starts = starts.filter(|(_, to, _)| within.contains(to));
        let mut best: Option<Vec<(u32, Kinds)>> = None;
        for (from, to, kinds) in starts.take(STARTS_MAX) {
            if let Some(path) = self.path(to, from, others, &within) {
                let cycle: Vec<(u32, Kinds)> = std::iter::once((from, kinds)).chain(path).collect();
                if best.as_ref().is_none_or(|best| cycle.len() < best.len()) {
                    best = Some(cycle);
                }
            }
        }
        best
    }

    /// Returns a shortest path, as nodes with the kinds of the edge that leaves them, without the last node.
    fn path(
        &self,
        from: u32,
        to: u32,
        kinds: Kinds,
        within: &HashSet<u32>,
    ) -> Option<Vec<(u32, Kinds)>> {
        let mut came: HashMap<u32, (u32, Kinds)> = HashMap::new();
        let mut queue = VecDeque::from([from]);
        while let Some(node) = queue.pop_front() {
            if node == to {
                let mut path = Vec::new();
                let mut at = to;
                while at != from {
                    let (before, kinds) = came[&at];
                    path.push((before, kinds));
                    at = before;
                }
                path.reverse();
                return Some(path);
            }
            for (next, kinds) in self.successors(node, kinds) {
                if within.contains(&next) && next != from && !came.contains_key(&next) {
                    came.insert(next, (node, kinds));
                    queue.push_back(next);
                }
            }
        }
        None
    }
}

struct Tarjan<'e> {
    edges: &'e [Vec<usize>],
    index: Vec<u32>,
    low: Vec<u32>,
    is_open: Vec<bool>,
    open: Vec<usize>,
    count: u32,
    found: Vec<Vec<usize>>,
}

impl Tarjan<'_> {
    fn enter(&mut self, node: usize) {
        self.index[node] = self.count;
        self.low[node] = self.count;
        self.count += 1;
        self.is_open[node] = true;
        self.open.push(node);
    }

    fn visit(&mut self, root: usize) {
        // A node, and how many of its edges were followed.
        let mut stack = vec![(root, 0)];
        self.enter(root);
        while let Some((node, followed)) = stack.last_mut() {
            let (node, next) = (*node, self.edges[*node].get(*followed).copied());
            *followed += 1;
            match next {
                Some(next) if self.index[next] == u32::MAX => {
                    self.enter(next);
                    stack.push((next, 0));
                }
                Some(next) if self.is_open[next] => {
                    self.low[node] = self.low[node].min(self.index[next]);
                }
                Some(_) => {}
                None => {
                    stack.pop();
                    if let Some((parent, _)) = stack.last() {
                        self.low[*parent] = self.low[*parent].min(self.low[node]);
                    }
                    self.close(node);
                }
            }
        }
    }

    /// Takes a component off the stack if this node is its first.
    fn close(&mut self, node: usize) {
        if self.low[node] != self.index[node] {
            return;
        }
        let at = self.open.iter().rposition(|open| *open == node);
        let part = self.open.split_off(at.expect("an open node"));
        part.iter().for_each(|node| self.is_open[*node] = false);
        if part.len() > 1 {
            self.found.push(part);
        }
    }
}
