//! Seeded request streams of a cache: the sequence of keys, and the sizes of their values.
//!
//! Used by the hit-ratio bench and by tests that compare what the engine estimates or keeps with an exact
//! simulation. Independent of any server. The same seed yields the same stream on every machine. `n` is the number of
//! ranks.
//!
//! ```text
//! zipf 0.6 … 1.2   fixed popularity: rank r is requested in proportion to 1 / r^a
//! scan             Zipf 0.9; after every 0.2 n requests, a scan over 0.1 n keys that never recur
//! rescan           Zipf 0.9; after every 0.27 n requests, a scan over the same separate 0.13 n keys, in sequence
//! one-hit          40 % of all requests are for keys that never recur, the others are Zipf 0.9
//! shift            Zipf 0.9, and half of the ranks are reassigned to new keys at each tenth of the stream
//! drift            the newest key is the hottest (Zipf 0.9 by age), with a new key every 30 requests
//! sizes            Zipf 0.9 over values of lognormal size (median 245 bytes, sigma 1.4, at most 64 KiB)
//! web              the same sizes, a fifth one-hit wonders, and a tenth of the ranks reassigned at each tenth
//! ```
//!
//! In three more workloads, the data behind the cache change, as behind most caches (cache-aside):
//!
//! ```text
//! deleted          Zipf 0.9, and a tenth of the requests write: they delete the key, and the next reader stores it
//! expiring         Zipf 0.9, and each value has a lifetime of up to a fifth of the stream
//! aside            web with both: a twentieth of the requests write, and values live up to a third of the stream
//! ```

use std::sync::Arc;

use crate::random::Draw;

/// The pattern of key requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shape {
    /// Fixed popularity.
    Zipf,
    /// A scan workload; see the module.
    Scan,
    /// A repeated scan; see the module.
    Rescan,
    /// The given share of the requests is for keys that never recur.
    OneHit(f64),
    /// The given share of the ranks is reassigned to new keys at each tenth of the stream.
    Shift(f64),
    /// The newest key is the hottest; see the module.
    Drift,
    /// Both: one-hit wonders and reassigned ranks.
    Web(f64, f64),
}

/// The distribution of value sizes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Sizes {
    /// All values have this size.
    Fixed(usize),
    /// Lognormal, with this median and sigma.
    Lognormal(f64, f64),
}

/// A workload.
#[derive(Clone, Debug)]
pub struct Workload {
    /// The name in tables.
    pub name: &'static str,
    /// The pattern of key requests.
    pub shape: Shape,
    /// Exponent of the popularity.
    pub alpha: f64,
    /// The distribution of value sizes.
    pub sizes: Sizes,
    /// Number of keys among which popularity is distributed.
    pub ranks: usize,
    /// Number of requests in the stream.
    pub requests: usize,
    /// The share of requests that write, that is, delete the key.
    pub writes: f64,
    /// Maximum lifetime of a value, as a fraction of the stream; 0 for unlimited.
    pub lives: f64,
    /// Seed that determines the whole stream.
    pub seed: u64,
}

/// Maximum value size of a lognormal workload, in bytes.
const VALUE_BYTES_MAX: f64 = 65_536.0;

/// Maximum requests per millisecond, where values have deadlines.
pub const STEPS_PER_MS: u64 = 40;

/// Number of requests after which `drift` has a new newest key.
const DRIFT_REQUESTS: usize = 30;

impl Workload {
    /// Returns all workloads with this many ranks and requests; fixed-size values have 100 bytes.
    pub fn all(ranks: usize, requests: usize, seed: u64) -> Vec<Workload> {
        const FIXED: Sizes = Sizes::Fixed(100);
        const LOGNORMAL: Sizes = Sizes::Lognormal(245.0, 1.4);
        let rows = [
            ("zipf 0.6", Shape::Zipf, 0.6, FIXED),
            ("zipf 0.8", Shape::Zipf, 0.8, FIXED),
            ("zipf 0.9", Shape::Zipf, 0.9, FIXED),
            ("zipf 1.0", Shape::Zipf, 1.0, FIXED),
            ("zipf 1.2", Shape::Zipf, 1.2, FIXED),
            ("scan", Shape::Scan, 0.9, FIXED),
            ("rescan", Shape::Rescan, 0.9, FIXED),
            ("one-hit", Shape::OneHit(0.4), 0.9, FIXED),
            ("shift", Shape::Shift(0.5), 0.9, FIXED),
            ("drift", Shape::Drift, 0.9, FIXED),
            ("sizes", Shape::Zipf, 0.9, LOGNORMAL),
            ("web", Shape::Web(0.2, 0.1), 0.9, LOGNORMAL),
        ];
        rows.map(|(name, shape, alpha, sizes)| Workload {
            name,
            shape,
            alpha,
            sizes,
            ranks,
            requests,
            writes: 0.0,
            lives: 0.0,
            seed,
        })
        .to_vec()
    }

    /// Returns more workloads, in which keys are deleted and expire.
    pub fn changing(ranks: usize, requests: usize, seed: u64) -> Vec<Workload> {
        let all = Workload::all(ranks, requests, seed);
        let rows = [
            ("deleted", "zipf 0.9", 0.1, 0.0),
            ("expiring", "zipf 0.9", 0.0, 0.2),
            ("aside", "web", 0.05, 0.33),
        ];
        rows.into_iter()
            .filter_map(|(name, like, writes, lives)| {
                let like = all.iter().find(|workload| workload.name == like)?.clone();
                Some(Workload {
                    name,
                    writes,
                    lives,
                    ..like
                })
            })
            .collect()
    }

    /// Returns the keys of the stream, and whether each request is a write.
    pub fn steps(&self) -> impl Iterator<Item = (u32, bool)> + use<> {
        let (writes, mut draw) = (self.writes, Draw::new(self.seed ^ 0x0de1_e7ed));
        self.keys()
            .map(move |key| (key, writes > 0.0 && draw.unit() < writes))
    }

    /// Returns the duration of the stream where values have deadlines, so that these mean the same for all servers.
    pub fn duration_ms(&self) -> u64 {
        self.requests as u64 / STEPS_PER_MS
    }

    /// Returns the lifetime of a key's value in milliseconds, which is always the same; `None` for unlimited.
    pub fn life_ms(&self, key: u32) -> Option<u64> {
        let longest_ms = self.lives * self.duration_ms() as f64;
        let mut draw = Draw::new(self.seed ^ (u64::from(key) << 20) ^ 0x11fe);
        (self.lives > 0.0).then(|| (longest_ms * (0.1 + 0.9 * draw.unit())) as u64 + 1)
    }

    /// Returns the keys in request order, numbered in the order in which they first may occur.
    pub fn keys(&self) -> Keys {
        Keys {
            popularity: Popularity::new(self.ranks, self.alpha),
            shape: self.shape,
            ranks: self.ranks,
            requests: self.requests,
            done: 0,
            names: match self.shape {
                Shape::Shift(_) | Shape::Web(..) => (0..self.ranks as u32).collect(),
                _ => Vec::new(),
            },
            // One-time and new keys are numbered after those that the ranks have from the start.
            fresh: self.ranks as u32,
            draw: Draw::new(self.seed ^ 0x5eed_cafe_f00d_d00d),
        }
    }

    /// Returns the bytes of a key's value, which are always the same.
    pub fn value_bytes(&self, key: u32) -> usize {
        match self.sizes {
            Sizes::Fixed(bytes) => bytes,
            Sizes::Lognormal(median, sigma) => {
                let mut draw = Draw::new(self.seed ^ (u64::from(key) << 20) ^ 0xb17e5);
                let (one, two) = (1.0 - draw.unit(), draw.unit());
                let normal = (-2.0 * one.ln()).sqrt() * (std::f64::consts::TAU * two).cos();
                (median * (sigma * normal).exp()).clamp(1.0, VALUE_BYTES_MAX) as usize
            }
        }
    }

    /// Returns the number of distinct keys in the stream, and the bytes of their values.
    pub fn footprint(&self) -> (usize, usize) {
        let mut seen = Vec::new();
        let (mut keys, mut bytes) = (0, 0);
        for key in self.keys() {
            let index = key as usize;
            if seen.len() <= index {
                seen.resize(index + 1, false);
            }
            if !seen[index] {
                seen[index] = true;
                keys += 1;
                bytes += self.value_bytes(key);
            }
        }
        (keys, bytes)
    }
}

/// The keys of a stream; see [`Workload::keys`].
pub struct Keys {
    popularity: Popularity,
    shape: Shape,
    ranks: usize,
    requests: usize,
    done: usize,
    /// The current key of each rank, where that changes.
    names: Vec<u32>,
    fresh: u32,
    draw: Draw,
}

impl Keys {
    fn fresh(&mut self) -> u32 {
        self.fresh += 1;
        self.fresh - 1
    }

    /// Reassigns this share of the ranks to new keys.
    fn rename(&mut self, share: f64) {
        for rank in 0..self.names.len() {
            if self.draw.unit() < share {
                self.names[rank] = self.fresh();
            }
        }
    }

    fn ranked(&mut self) -> u32 {
        self.popularity.draw(&mut self.draw)
    }
}

impl Iterator for Keys {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        let at = self.done;
        if at == self.requests {
            return None;
        }
        self.done += 1;
        let starts_tenth = at > 0 && at.is_multiple_of((self.requests / 10).max(1));
        Some(match self.shape {
            Shape::Zipf => self.ranked(),
            Shape::Scan => {
                let (calm, scan) = (self.ranks / 5, self.ranks / 10);
                match at % (calm + scan) < calm {
                    true => self.ranked(),
                    false => self.fresh(),
                }
            }
            Shape::Rescan => {
                let scan = self.ranks * 2 / 15;
                let within = at % (3 * scan);
                match within < 2 * scan {
                    true => self.ranked(),
                    // Separate keys, the same each time.
                    false => (self.ranks + within - 2 * scan) as u32,
                }
            }
            Shape::OneHit(share) => match self.draw.unit() < share {
                true => self.fresh(),
                false => self.ranked(),
            },
            Shape::Shift(share) => {
                if starts_tenth {
                    self.rename(share);
                }
                let rank = self.ranked();
                self.names[rank as usize]
            }
            Shape::Web(once, share) => {
                if starts_tenth {
                    self.rename(share);
                }
                if self.draw.unit() < once {
                    return Some(self.fresh());
                }
                let rank = self.ranked();
                self.names[rank as usize]
            }
            Shape::Drift => (self.ranks + at / DRIFT_REQUESTS) as u32 - self.ranked(),
        })
    }
}

/// Samples ranks in proportion to 1 / (rank + 1)^alpha.
#[derive(Clone)]
struct Popularity(Arc<[f64]>);

impl Popularity {
    fn new(ranks: usize, alpha: f64) -> Popularity {
        let mut sum = 0.0;
        let sums: Vec<f64> = (1..=ranks)
            .map(|rank| {
                sum += (rank as f64).powf(-alpha);
                sum
            })
            .collect();
        Popularity(sums.into())
    }

    fn draw(&self, draw: &mut Draw) -> u32 {
        let Some(&all) = self.0.last() else { return 0 };
        let at = draw.unit() * all;
        self.0
            .partition_point(|sum| *sum <= at)
            .min(self.0.len() - 1) as u32
    }
}

/// An exact LRU cache of `bytes_max` bytes for comparison: objects with their sizes.
pub struct Lru {
    bytes_max: u64,
    bytes: u64,
    /// By key: bytes, and the neighbors towards the front and the back; bytes are zero if the key is absent.
    nodes: Vec<(u64, u32, u32)>,
    front: u32,
    back: u32,
}

const NOBODY: u32 = u32::MAX;

impl Lru {
    /// Creates an empty cache.
    pub fn new(bytes_max: u64) -> Lru {
        Lru {
            bytes_max,
            bytes: 0,
            nodes: Vec::new(),
            front: NOBODY,
            back: NOBODY,
        }
    }

    /// Requests an object, and stores it if it is absent. Returns whether it was present.
    pub fn ask(&mut self, key: u32, bytes: u64) -> bool {
        let index = key as usize;
        if self.nodes.len() <= index {
            self.nodes.resize(index + 1, (0, NOBODY, NOBODY));
        }
        let found = self.nodes[index].0 != 0;
        if found {
            self.unlink(key);
        } else {
            self.bytes += bytes;
        }
        self.nodes[index] = (bytes, NOBODY, self.front);
        match self.front {
            NOBODY => self.back = key,
            front => self.nodes[front as usize].1 = key,
        }
        self.front = key;
        while self.bytes > self.bytes_max && self.back != NOBODY {
            let last = self.back;
            self.unlink(last);
            self.bytes -= std::mem::take(&mut self.nodes[last as usize].0);
        }
        found
    }

    /// Removes an object, if present.
    pub fn remove(&mut self, key: u32) {
        let bytes = self.nodes.get(key as usize).map_or(0, |node| node.0);
        if bytes != 0 {
            self.unlink(key);
            self.bytes -= bytes;
            self.nodes[key as usize].0 = 0;
        }
    }

    fn unlink(&mut self, key: u32) {
        let (_, front, back) = self.nodes[key as usize];
        match front {
            NOBODY => self.front = back,
            front => self.nodes[front as usize].2 = back,
        }
        match back {
            NOBODY => self.back = front,
            back => self.nodes[back as usize].1 = front,
        }
    }
}
