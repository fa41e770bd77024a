//! Failed attempts to authenticate: an address that tries many passwords gets slow replies. A correct password always
//! gets an immediate reply.

use std::collections::HashMap;

/// Number of failures of an address, without a pause of [`WINDOW_MS`], that get an immediate reply.
const FREE: u32 = 32;

/// Milliseconds without a failure after which an address is forgotten.
const WINDOW_MS: u64 = 60_000;

/// Minimum milliseconds between two delayed replies to an address, over all its connections.
const PAUSE_MS: u64 = 50;

/// Maximum milliseconds that a reply is delayed.
const DELAY_MS_MAX: u64 = 5_000;

/// Maximum number of addresses remembered.
const ADDRESSES_MAX: usize = 4_096;

#[derive(Clone, Copy, Debug, Default)]
struct Address {
    failures: u32,
    /// When the latest reply to the address is or was sent, in Unix milliseconds.
    answered_ms: u64,
}

/// Failed attempts by address, see the module.
#[derive(Debug, Default)]
pub struct Attempts(HashMap<Box<str>, Address>);

impl Attempts {
    /// Records a failure; returns when to reply, in Unix milliseconds.
    pub fn fail(&mut self, host: &str, now_ms: u64) -> u64 {
        if self.0.len() >= ADDRESSES_MAX && !self.0.contains_key(host) {
            self.0
                .retain(|_, address| address.answered_ms + WINDOW_MS > now_ms);
            if self.0.len() >= ADDRESSES_MAX {
                self.0.clear();
            }
        }
        let address = self.0.entry(host.into()).or_default();
        if address.answered_ms + WINDOW_MS <= now_ms {
            address.failures = 0;
        }
        address.failures = address.failures.saturating_add(1);
        let answered_ms = match address.failures <= FREE {
            true => now_ms,
            false => {
                let next_ms = address.answered_ms + PAUSE_MS;
                next_ms.clamp(now_ms, now_ms + DELAY_MS_MAX)
            }
        };
        address.answered_ms = answered_ms;
        answered_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_failures_of_one_address_are_answered_slowly_and_those_of_others_at_once() {
        let mut attempts = Attempts::default();
        for _ in 0..FREE {
            assert_eq!(attempts.fail("a", 1_000_000), 1_000_000);
        }
        assert_eq!(attempts.fail("a", 1_000_000), 1_000_050);
        assert_eq!(attempts.fail("a", 1_000_000), 1_000_100);
        assert_eq!(attempts.fail("b", 1_000_000), 1_000_000);
        for _ in 0..1_000 {
            assert!(attempts.fail("a", 1_000_000) <= 1_005_000);
        }
        assert_eq!(attempts.fail("a", 1_010_000), 1_010_000);
        assert_eq!(attempts.fail("a", 1_010_000), 1_010_050);
        assert_eq!(attempts.fail("a", 2_000_000), 2_000_000);
        assert_eq!(attempts.fail("a", 2_000_000), 2_000_000);
    }

    #[test]
    fn addresses_that_are_remembered_are_bounded() {
        let mut attempts = Attempts::default();
        for number in 0..3 * ADDRESSES_MAX {
            attempts.fail(&number.to_string(), 1_000_000);
        }
        assert!(attempts.0.len() <= ADDRESSES_MAX);
    }
}
