//! Resumable client sessions, bounded in number and lifetime, kept in memory.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustls::server::StoresServerSessions;

/// The session store. A session can be resumed only once; its client then gets a new session.
pub(super) struct Sessions {
    count_max: usize,
    lifetime: Duration,
    kept: Mutex<SessionCache>,
}

#[derive(Default)]
struct SessionCache {
    sessions: HashMap<Vec<u8>, (Instant, Vec<u8>)>,
    /// Keys of sessions with their creation times, oldest first; some of these sessions have already been
    /// resumed or removed.
    order: VecDeque<(Instant, Vec<u8>)>,
}

impl Sessions {
    /// Creates a store for at most `count_max` sessions, 0 for no bound, each kept for `lifetime`.
    pub(super) fn new(count_max: u32, lifetime: Duration) -> Sessions {
        Sessions {
            count_max: match count_max {
                0 => usize::MAX,
                count => count as usize,
            },
            lifetime,
            kept: Mutex::default(),
        }
    }

    fn insert(&self, key: Vec<u8>, value: Vec<u8>, now: Instant) {
        let mut kept = self.kept.lock();
        let SessionCache { sessions, order } = &mut *kept;
        order.push_back((now, key.clone()));
        sessions.insert(key, (now, value));
        // Keys of resumed sessions stay in the list until they are due.
        while let Some((at, first)) = order.front() {
            let is_due = order.len() > self.count_max || now.duration_since(*at) >= self.lifetime;
            let is_stale = sessions.get(first).is_none_or(|(kept_at, _)| kept_at != at);
            if !is_due && !is_stale {
                break;
            }
            if !is_stale {
                sessions.remove(first);
            }
            order.pop_front();
        }
    }

    fn find(&self, key: &[u8], takes: bool, now: Instant) -> Option<Vec<u8>> {
        let mut kept = self.kept.lock();
        let (at, value) = match takes {
            true => kept.sessions.remove(key)?,
            false => kept.sessions.get(key)?.clone(),
        };
        (now.duration_since(at) < self.lifetime).then_some(value)
    }
}

impl StoresServerSessions for Sessions {
    fn put(&self, key: Vec<u8>, value: Vec<u8>) -> bool {
        self.insert(key, value, Instant::now());
        true
    }

    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.find(key, false, Instant::now())
    }

    fn take(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.find(key, true, Instant::now())
    }

    fn can_cache(&self) -> bool {
        true
    }
}

impl fmt::Debug for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sessions")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_so_many_at_most_and_each_for_so_long() {
        let sessions = Sessions::new(2, Duration::from_secs(10));
        let began = Instant::now();
        let at = |seconds| began + Duration::from_secs(seconds);
        for key in [b"a", b"b", b"c"] {
            sessions.insert(key.to_vec(), b"x".to_vec(), began);
        }
        assert_eq!(sessions.find(b"a", false, began), None);
        assert!(sessions.find(b"b", true, at(9)).is_some());
        assert_eq!(sessions.find(b"b", true, at(9)), None);
        assert!(sessions.find(b"c", false, at(9)).is_some());
        assert_eq!(sessions.find(b"c", false, at(10)), None);
        sessions.insert(b"d".to_vec(), b"x".to_vec(), at(10));
        assert_eq!(sessions.kept.lock().order.len(), 1);
        assert_eq!(sessions.kept.lock().sessions.len(), 1);
    }
}
