//! The invalidations that a connection requests for keys that it may have cached (CLIENT TRACKING), and the client
//! that receives them in its place.
//!
//! The connection has its own copy of the options; this is the part that other threads see. The module knows neither
//! keys nor shards.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicU8,
    Ordering::{Acquire, Relaxed, Release},
};

use parking_lot::Mutex;

use super::Shared;
use basalt_core::bit_set;

bit_set! {
    /// The options of CLIENT TRACKING, and whether it is on.
    #[derive(Debug, Default)]
    pub struct TrackingOptions(u8) {
        /// Tracking is on.
        ON;
        /// All keys with certain prefixes are tracked, whether read or not.
        BCAST;
        /// Reads are tracked only after CLIENT CACHING YES.
        OPTIN;
        /// Reads are not tracked after CLIENT CACHING NO.
        OPTOUT;
        /// The client's own changes are not reported.
        NOLOOP;
    }
}

impl TrackingOptions {
    /// Nothing is tracked.
    pub const OFF: TrackingOptions = TrackingOptions::NONE;

    /// Whether keys that are read next are remembered; `is_caching`: CLIENT CACHING was just sent.
    pub fn remembers(self, is_caching: bool) -> bool {
        self.any(TrackingOptions::ON)
            && !self.any(TrackingOptions::BCAST)
            && (is_caching || !self.any(TrackingOptions::OPTIN))
            && !(is_caching && self.any(TrackingOptions::OPTOUT))
    }
}

/// A connection's tracking state, see the module. Created when the connection first tracks.
#[derive(Default)]
pub struct Tracking {
    options: AtomicU8,
    is_broken: AtomicBool,
    redirect: Mutex<Option<Arc<Shared>>>,
    prefixes: Mutex<BTreeSet<Box<[u8]>>>,
}

/// Bytes of a prefix in addition to its text, here and in the list of all prefixes.
const PREFIX_BYTES: usize = 176;

/// Returns the bytes of a prefix, which is stored here and in the list of all prefixes.
fn prefix_bytes(prefix: &[u8]) -> usize {
    2 * prefix.len() + PREFIX_BYTES
}

impl Tracking {
    /// Returns the current options.
    pub fn options(&self) -> TrackingOptions {
        TrackingOptions(self.options.load(Acquire))
    }

    /// Replaces the options, and the client that receives the invalidations in place of this one.
    pub fn set(&self, options: TrackingOptions, redirect: Option<Arc<Shared>>) {
        *self.redirect.lock() = redirect;
        self.is_broken.store(false, Relaxed);
        self.options.store(options.0, Release);
    }

    /// Returns the client that receives the invalidations in place of this one, if any.
    pub fn redirect(&self) -> Option<Arc<Shared>> {
        self.redirect.lock().clone()
    }

    /// Returns the ID of the client that receives the invalidations in place of this one; 0 for none.
    pub fn redirect_id(&self) -> u64 {
        self.redirect.lock().as_ref().map_or(0, |other| other.id)
    }

    /// Records that the client that receives the invalidations is gone.
    pub fn note_broken(&self) {
        self.is_broken.store(true, Relaxed);
    }

    /// Whether the client that receives the invalidations is gone.
    pub fn is_broken(&self) -> bool {
        self.is_broken.load(Relaxed)
    }

    /// Returns the tracked prefixes, in order.
    pub fn prefixes(&self) -> Vec<Box<[u8]>> {
        self.prefixes.lock().iter().cloned().collect()
    }
}

impl Shared {
    /// Returns the client's tracking state, if it ever tracked.
    pub fn tracking(&self) -> Option<&Tracking> {
        self.mailbox()?.tracking.get().map(|tracking| &**tracking)
    }

    /// Returns the client's tracking state, creating it if there is none.
    pub fn tracking_or_new(&self) -> &Tracking {
        self.mailbox_or_new().tracking.get_or_init(Box::default)
    }

    /// Adds a tracked prefix. Returns whether it is new.
    pub fn add_prefix(&self, prefix: &[u8]) -> bool {
        let tracking = self.tracking_or_new();
        let is_new = tracking.prefixes.lock().insert(prefix.into());
        if is_new {
            self.hold(prefix_bytes(prefix));
        }
        is_new
    }

    /// Removes and returns all prefixes.
    pub fn take_prefixes(&self) -> BTreeSet<Box<[u8]>> {
        let Some(tracking) = self.tracking() else {
            return BTreeSet::new();
        };
        let prefixes = std::mem::take(&mut *tracking.prefixes.lock());
        self.release(prefixes.iter().map(|prefix| prefix_bytes(prefix)).sum());
        prefixes
    }

    /// Returns the options of CLIENT TRACKING.
    pub fn tracking_options(&self) -> TrackingOptions {
        self.tracking()
            .map_or(TrackingOptions::OFF, Tracking::options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_say_which_reads_are_remembered() {
        let (on, optin, optout) = (
            TrackingOptions::ON,
            TrackingOptions::OPTIN,
            TrackingOptions::OPTOUT,
        );
        for (options, usually, after_caching) in [
            (TrackingOptions::OFF, false, false),
            (on, true, true),
            (on.or(TrackingOptions::NOLOOP), true, true),
            (on.or(TrackingOptions::BCAST), false, false),
            (on.or(optin), false, true),
            (on.or(optout), true, false),
        ] {
            let remembers = [options.remembers(false), options.remembers(true)];
            assert_eq!(remembers, [usually, after_caching], "{options:?}");
        }
    }
}
