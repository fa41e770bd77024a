//! What commands changed: the one place on which persistence, replication, notifications, tracking and waiters feed.
//!
//! Every effect carries a Lamport stamp: one more than the larger of the shard's and the connection's, so that
//! streams of several shards can be merged in an order that respects what each client did in order.

/// What happened to a key, named as keyspace notifications name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Notification class, as in `notify-keyspace-events`.
    pub class: u8,
    /// The event's name.
    pub name: &'static str,
}

impl Event {
    /// An event of a class.
    pub const fn new(class: u8, name: &'static str) -> Event {
        Event { class, name }
    }

    /// A generic event (class `g`).
    pub const fn generic(name: &'static str) -> Event {
        Event::new(b'g', name)
    }

    /// An event of strings (class `$`).
    pub const fn string(name: &'static str) -> Event {
        Event::new(b'$', name)
    }

    /// A key deleted because its time had come.
    pub const EXPIRED: Event = Event::new(b'x', "expired");
    /// Fields of a hash deleted because their time had come.
    pub const HEXPIRED: Event = Event::new(b'h', "hexpired");
    /// A key deleted.
    pub const DEL: Event = Event::generic("del");
}

/// One change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effect {
    /// Order among all shards.
    pub stamp: u64,
    /// Database.
    pub db: usize,
    /// Key.
    pub key: Box<[u8]>,
    /// What happened.
    pub event: Event,
}

/// The changes of one shard.
#[derive(Debug, Default)]
pub struct Effects {
    stamp: u64,
    dirty: u64,
    by_clock: u64,
    recording: bool,
    log: Vec<Effect>,
}

impl Effects {
    /// The stamp of the last effect or of the last reader that knew more.
    pub fn stamp(&self) -> u64 {
        self.stamp
    }

    /// Raises the stamp to what a connection or another shard has seen.
    pub fn raise(&mut self, stamp: u64) {
        self.stamp = self.stamp.max(stamp);
    }

    /// Changes so far.
    pub fn dirty(&self) -> u64 {
        self.dirty
    }

    /// How many of them no command asked for: something's time had come.
    pub fn by_clock(&self) -> u64 {
        self.by_clock
    }

    /// Records a change that the clock made.
    pub fn expired(&mut self, db: usize, key: &[u8], event: Event) {
        self.by_clock += 1;
        self.wrote(db, key, event);
    }

    /// Records a change.
    pub fn wrote(&mut self, db: usize, key: &[u8], event: Event) {
        self.dirty += 1;
        self.followed(db, key, event);
    }

    /// Records what a change brought about, which is no change more: the end of a collection that it emptied.
    pub fn followed(&mut self, db: usize, key: &[u8], event: Event) {
        self.stamp += 1;
        if self.recording {
            self.log.push(Effect {
                stamp: self.stamp,
                db,
                key: key.into(),
                event,
            });
        }
    }

    /// Counts changes that belong to no single key (FLUSHALL, SWAPDB).
    pub fn changed(&mut self, count: u64) {
        self.stamp += 1;
        self.dirty += count;
    }

    /// Starts or stops keeping the effects themselves, not only their count.
    pub fn set_recording(&mut self, recording: bool) {
        self.recording = recording;
        if !recording {
            self.log = Vec::new();
        }
    }

    /// Hands out what was recorded since the last call.
    pub fn take(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.log)
    }
}
