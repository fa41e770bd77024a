//! Replication ids: they identify the stream of writes that this server's data result from, and the offset up to which
//! that stream equals the preceding one.

use basalt_core::base::random;

/// Characters of a replication id.
pub const ID_LEN: usize = 40;

/// The ids of a stream and of the stream that it continues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct History {
    /// The stream's id: 40 hexadecimal digits.
    pub id: String,
    /// The id of the stream before a failover, and the first offset that is no longer part of it.
    pub previous: Option<(String, u64)>,
}

impl Default for History {
    fn default() -> History {
        History::new()
    }
}

impl History {
    /// Returns a new stream that continues none.
    pub fn new() -> History {
        History {
            id: random_id(),
            previous: None,
        }
    }

    /// Begins a new stream that shares the bytes before an offset with the current one.
    pub fn branch(&mut self, offset: u64) {
        let id = std::mem::replace(&mut self.id, random_id());
        self.previous = Some((id, offset));
    }

    /// Continues under another id: the primary has begun a new stream at this offset.
    pub fn follow(&mut self, id: &str, offset: u64) {
        if id != self.id {
            let old = std::mem::replace(&mut self.id, id.to_owned());
            self.previous = Some((old, offset));
        }
    }

    /// True if the stream with this id has the same bytes as this stream from `offset` on, so that a replica of
    /// it can resume here.
    pub fn covers(&self, id: &str, offset: u64) -> bool {
        id == self.id
            || self
                .previous
                .as_ref()
                .is_some_and(|(previous, end)| id == previous && offset <= *end)
    }
}

/// Returns an id that no other server has.
pub fn random_id() -> String {
    random::hex_from_system(ID_LEN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_branch_covers_the_old_stream_up_to_where_it_began() {
        let mut history = History::new();
        let old = history.id.clone();
        assert!(old.len() == ID_LEN && history.covers(&old, 1 << 40));
        history.branch(100);
        assert!(history.covers(&old, 100) && !history.covers(&old, 101));
        let own = history.id.clone();
        assert!(history.covers(&own, 1000) && own != old);
        history.follow(&own, 150);
        assert_eq!(history.previous, Some((old, 100)));
        history.follow("new", 200);
        assert!(history.covers(&own, 200) && !history.covers(&own, 201));
    }
}
