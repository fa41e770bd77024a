//! Connection slots and their eviction.
//!
//! A new connection always gets a slot. If none is free, the address with the most connections loses its oldest
//! one; so an address with many requests takes slots from itself. A connection with a streaming response, such
//! as an open console page, is a "staying" connection: no ordinary request evicts it. The number of staying
//! connections is limited, so that slots remain for requests. Beyond the limit a connection may not stay,
//! unless another address has more of them, which then loses one.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;
use tokio::task::AbortHandle;

/// Maximum number of connections.
pub(super) const CONNECTIONS_MAX: usize = 96;

/// Maximum number of staying connections.
const STAYING_MAX: usize = 72;

/// Maximum number of staying connections per address.
const STAYING_OF_ONE_MAX: usize = 48;

const _: () = assert!(STAYING_OF_ONE_MAX < STAYING_MAX && STAYING_MAX + 16 <= CONNECTIONS_MAX);

/// Connection slots; see the module.
#[derive(Default)]
pub(super) struct ConnectionSlots {
    /// Open connections in order of arrival.
    taken: Mutex<Vec<ConnectionSlot>>,
    last_number: AtomicU64,
}

struct ConnectionSlot {
    number: u64,
    address: IpAddr,
    task: AbortHandle,
    stays: bool,
}

/// A guard that makes a connection stay.
pub struct Stay {
    places: Arc<ConnectionSlots>,
    number: u64,
}

impl Drop for Stay {
    fn drop(&mut self) {
        let mut taken = self.places.taken.lock();
        if let Some(place) = taken.iter_mut().find(|place| place.number == self.number) {
            place.stays = false;
        }
    }
}

impl ConnectionSlots {
    pub(super) fn next_number(&self) -> u64 {
        self.last_number.fetch_add(1, Relaxed)
    }

    /// Registers a new connection, evicting another one if necessary.
    pub(super) fn take(&self, number: u64, address: IpAddr, task: AbortHandle) {
        let mut taken = self.taken.lock();
        let leaves = match taken.len() >= CONNECTIONS_MAX {
            true => most(&taken, false).map(|(first, _)| taken.remove(first)),
            false => None,
        };
        taken.push(ConnectionSlot {
            number,
            address,
            task,
            stays: false,
        });
        drop(taken);
        if let Some(place) = leaves {
            place.task.abort();
        }
    }

    /// Removes a connection that has ended.
    pub(super) fn leave(&self, number: u64) {
        self.taken.lock().retain(|place| place.number != number);
    }

    /// Marks a connection as staying and returns its guard, or `None` if the limits do not allow it.
    pub(super) fn stay(places: &Arc<ConnectionSlots>, number: u64) -> Option<Stay> {
        let mut taken = places.taken.lock();
        let address = taken.iter().find(|place| place.number == number)?.address;
        let staying = taken.iter().filter(|place| place.stays);
        let (mut all, mut own) = (0, 0);
        for place in staying {
            all += 1;
            own += usize::from(place.address == address);
        }
        if own >= STAYING_OF_ONE_MAX {
            return None;
        }
        let leaves = match all >= STAYING_MAX {
            true => {
                let (first, count) = most(&taken, true)?;
                // Do not evict if that only moves the imbalance: the other address must have at least two more.
                if count <= own + 1 {
                    return None;
                }
                Some(taken.remove(first))
            }
            false => None,
        };
        if let Some(place) = taken.iter_mut().find(|place| place.number == number) {
            place.stays = true;
        }
        drop(taken);
        if let Some(place) = leaves {
            place.task.abort();
        }
        Some(Stay {
            places: Arc::clone(places),
            number,
        })
    }
}

/// Finds the address with the most connections, among the staying ones if `stay`, else among the others.
/// Returns the index of its oldest connection, and the number of its connections.
fn most(taken: &[ConnectionSlot], stay: bool) -> Option<(usize, usize)> {
    let of_kind = || taken.iter().filter(|place| place.stays == stay);
    let mut counts: HashMap<IpAddr, usize> = HashMap::new();
    for place in of_kind() {
        *counts.entry(place.address).or_default() += 1;
    }
    let most = counts.values().copied().max()?;
    let is_of_most =
        |place: &ConnectionSlot| place.stays == stay && counts.get(&place.address) == Some(&most);
    Some((taken.iter().position(is_of_most)?, most))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn address(last: u8) -> IpAddr {
        Ipv4Addr::new(10, 0, 0, last).into()
    }

    /// Opens a connection from an address, which remains until it is evicted.
    fn come(places: &Arc<ConnectionSlots>, from: u8) -> (u64, tokio::task::JoinHandle<()>) {
        let number = places.next_number();
        let task = tokio::spawn(std::future::pending());
        places.take(number, address(from), task.abort_handle());
        (number, task)
    }

    fn count(places: &ConnectionSlots, from: u8, stays: bool) -> usize {
        let taken = places.taken.lock();
        let is = |place: &&ConnectionSlot| place.address == address(from) && place.stays == stays;
        taken.iter().filter(is).count()
    }

    #[tokio::test]
    async fn an_address_takes_its_places_from_itself() {
        let places = Arc::<ConnectionSlots>::default();
        let (other, _task) = come(&places, 2);
        for _ in 0..3 * CONNECTIONS_MAX {
            come(&places, 1);
        }
        assert_eq!(count(&places, 1, false), CONNECTIONS_MAX - 1);
        assert_eq!(count(&places, 2, false), 1);
        places.leave(other);
        assert_eq!(places.taken.lock().len(), CONNECTIONS_MAX - 1);
    }

    #[tokio::test]
    async fn the_page_too_many_of_an_address_is_refused_and_the_others_stay() {
        let places = Arc::<ConnectionSlots>::default();
        let open = |from| {
            let (number, _) = come(&places, from);
            ConnectionSlots::stay(&places, number)
        };
        let mut first: Vec<Option<Stay>> = (0..STAYING_OF_ONE_MAX).map(|_| open(1)).collect();
        assert!(first.iter().all(Option::is_some));
        assert!(open(1).is_none(), "it is one too many");
        assert_eq!(count(&places, 1, true), STAYING_OF_ONE_MAX);
        // Requests take no slots from staying connections.
        for _ in 0..3 * CONNECTIONS_MAX {
            come(&places, 1);
        }
        assert_eq!(count(&places, 1, true), STAYING_OF_ONE_MAX);
        // An address at its limit may open a page again after closing one.
        first.pop();
        first.push(open(1));
        assert!(first.iter().all(Option::is_some));
        // Another address gets its share although no slot is free: the address with the most loses one.
        let others: Vec<Option<Stay>> = (0..40).map(|_| open(2)).collect();
        let staying = others.iter().filter(|stay| stay.is_some()).count();
        assert_eq!(staying, STAYING_MAX / 2);
        assert_eq!(count(&places, 1, true), STAYING_MAX / 2);
        drop((first, others));
        assert_eq!(count(&places, 1, true) + count(&places, 2, true), 0);
    }
}
