//! Data that other threads send to a connection: messages, invalidations, lines for MONITOR; and the connection's
//! subscriptions.
//!
//! Other threads write into the connection's queue, in the connection's protocol; its own task takes the queue when
//! none of its requests is being run. So pushes come between replies and never inside one. A task is woken once, and
//! not again until it has taken everything. A client that does not read is closed: its queue never exceeds its limit.

use std::collections::HashSet;
use std::sync::atomic::{
    AtomicBool, AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};
use std::sync::{Arc, OnceLock};
use std::task::Waker;

use parking_lot::Mutex;

use super::Shared;
use super::tracking::Tracking;
use basalt_core::resp::reply::{Out, Protocol};

/// Number of connections closed since the start because they did not read what was sent to them.
pub static CUT: AtomicU64 = AtomicU64::new(0);

/// Bytes of the queue for each push, in addition to the push itself.
const PUSH_BYTES: usize = 32;

/// Bytes of a subscription in addition to its name: in the list of the client, and in that of all names.
const SUBSCRIPTION_BYTES: usize = 192;

/// Limits of a client's queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutputBound {
    /// Maximum bytes; 0: no limit.
    pub hard_bytes: u64,
    /// Maximum bytes that may be queued for longer than `soft_ms`; 0: no limit.
    pub soft_bytes: u64,
    /// Milliseconds for which more than `soft_bytes` may be queued.
    pub soft_ms: u64,
}

/// The kinds of subscriptions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topic {
    /// Channels by name.
    Channel,
    /// Channels by pattern.
    Pattern,
    /// Shard channels by name.
    ShardChannel,
}

impl Topic {
    /// All kinds.
    pub const ALL: [Topic; 3] = [Topic::Channel, Topic::Pattern, Topic::ShardChannel];
}

/// Data from other threads, see the module. Created when a connection first needs it.
#[derive(Default)]
pub struct Mailbox {
    queue: Mutex<MailboxQueue>,
    /// Bytes in the queue, for readers that do not lock it.
    bytes: AtomicUsize,
    /// Pushes in the queue.
    pushes: AtomicUsize,
    /// The client's subscriptions, for its own task; the registry of subscriptions has them by name.
    pub(crate) subscribed: Mutex<[HashSet<Arc<[u8]>>; 3]>,
    counts: [AtomicUsize; 3],
    /// Whether the client receives every command that is run (MONITOR).
    pub(crate) monitors: AtomicBool,
    /// The client's tracking state, if it ever requested invalidations.
    pub(super) tracking: OnceLock<Box<Tracking>>,
}

#[derive(Default)]
struct MailboxQueue {
    out: Out,
    /// Whether the client's task was woken for the queued data and has not taken it yet.
    is_told: bool,
    /// Whether the client was closed because of its queue: nothing is queued any more.
    is_cut: bool,
    /// When the queue grew beyond the soft limit, in Unix milliseconds; 0: the limit is not exceeded.
    above_soft_since_ms: u64,
    /// Bytes sent to the client when its progress was last seen, and when that was, in Unix milliseconds.
    progress: (u64, u64),
}

impl Mailbox {
    /// Returns the bytes in the queue.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }

    /// Returns the number of pushes in the queue.
    pub fn pushes(&self) -> usize {
        self.pushes.load(Relaxed)
    }

    /// Returns the number of subscriptions of one kind.
    pub fn count(&self, topic: Topic) -> usize {
        self.counts[topic as usize].load(Relaxed)
    }

    /// Returns the number of subscriptions of all kinds.
    pub fn subscriptions(&self) -> usize {
        self.counts.iter().map(|count| count.load(Relaxed)).sum()
    }

    /// Sets the number of subscriptions of a kind.
    pub(crate) fn set_count(&self, topic: Topic, count: usize) {
        self.counts[topic as usize].store(count, Relaxed);
    }
}

/// Returns the bytes of a subscription to a channel, or to a pattern. Each subscriber is charged for the name,
/// although all subscribers share it: any of them may be the last one.
pub(crate) fn subscription_bytes(name: &[u8]) -> usize {
    name.len() + SUBSCRIPTION_BYTES
}

impl Shared {
    /// Queues the push that `write` writes, if any. The caller must wake the returned waker, if any, once it has no
    /// lock and no shard locked.
    pub fn post(&self, bound: OutputBound, write: impl FnOnce(&mut Out)) -> Option<Waker> {
        self.post_several(bound, 1, write)
    }

    /// Queues `count` pushes, like [`Shared::post`].
    pub fn post_several(
        &self,
        bound: OutputBound,
        count: usize,
        write: impl FnOnce(&mut Out),
    ) -> Option<Waker> {
        let mailbox = self.mailbox_or_new();
        let mut queue = mailbox.queue.lock();
        if queue.is_cut {
            return None;
        }
        queue.out.set_protocol(match self.resp.load(Relaxed) {
            3 => Protocol::Resp3,
            _ => Protocol::Resp2,
        });
        let before = queue.out.len_bytes();
        write(&mut queue.out);
        if queue.out.len_bytes() == before {
            return None;
        }
        let pushes = mailbox.pushes.load(Relaxed) + count;
        let bytes = queue.out.len_bytes() + pushes * PUSH_BYTES;
        let unsent = self.output_bytes.load(Relaxed);
        if bound.hard_bytes > 0 && (bytes + unsent) as u64 > bound.hard_bytes {
            self.cut(mailbox, &mut queue);
            return self.waker.take();
        }
        mailbox.pushes.store(pushes, Relaxed);
        mailbox.bytes.store(bytes, Release);
        let is_first = !std::mem::replace(&mut queue.is_told, true);
        drop(queue);
        self.note_memory();
        is_first.then(|| self.waker.take()).flatten()
    }

    /// Closes a client that does not read, and drops everything queued for it.
    fn cut(&self, mailbox: &Mailbox, queue: &mut MailboxQueue) {
        queue.out = Out::default();
        queue.is_cut = true;
        mailbox.bytes.store(0, Release);
        mailbox.pushes.store(0, Relaxed);
        CUT.fetch_add(1, Relaxed);
        self.condemn();
    }

    /// Closes the client if the soft limit has been exceeded for too long. To be called about once a second.
    pub fn check_output(&self, bound: OutputBound, now_ms: u64) {
        let unsent = self.output_bytes.load(Relaxed) as u64;
        if bound.soft_bytes == 0 || (self.mailbox().is_none() && unsent <= bound.soft_bytes) {
            return;
        }
        let mailbox = self.mailbox_or_new();
        let mut queue = mailbox.queue.lock();
        let waiting = mailbox.bytes() + self.output_bytes.load(Relaxed);
        if queue.is_cut || waiting as u64 <= bound.soft_bytes {
            queue.above_soft_since_ms = 0;
        } else if queue.above_soft_since_ms == 0 {
            queue.above_soft_since_ms = now_ms;
        } else if now_ms.saturating_sub(queue.above_soft_since_ms) >= bound.soft_ms {
            self.cut(mailbox, &mut queue);
            drop(queue);
            self.waker.wake();
        }
    }

    /// Closes the client if it has accepted nothing of its unsent output for `stuck_ms`; 0: never. To be called about
    /// once a second while there is unsent output.
    pub fn check_progress(&self, stuck_ms: u64, now_ms: u64) {
        if stuck_ms == 0 || self.output_bytes.load(Relaxed) == 0 {
            return;
        }
        let mailbox = self.mailbox_or_new();
        let mut queue = mailbox.queue.lock();
        let sent = self.bytes_out.get();
        match queue.progress {
            (before, since_ms) if before == sent && since_ms > 0 => {
                if !queue.is_cut && now_ms.saturating_sub(since_ms) >= stuck_ms {
                    self.cut(mailbox, &mut queue);
                    drop(queue);
                    self.waker.wake();
                }
            }
            _ => queue.progress = (sent, now_ms),
        }
    }

    /// Whether anything is queued.
    #[inline]
    pub fn has_mail(&self) -> bool {
        self.mailbox()
            .is_some_and(|mailbox| mailbox.bytes.load(Acquire) > 0)
    }

    /// Takes everything that is queued; None if nothing is.
    pub fn take_mail(&self) -> Option<Out> {
        if !self.has_mail() {
            return None;
        }
        let mailbox = self.mailbox()?;
        let mut queue = mailbox.queue.lock();
        queue.is_told = false;
        mailbox.bytes.store(0, Relaxed);
        mailbox.pushes.store(0, Relaxed);
        Some(std::mem::take(&mut queue.out))
    }

    /// Returns the number of subscriptions.
    #[inline]
    pub fn subscriptions(&self) -> usize {
        self.mailbox().map_or(0, Mailbox::subscriptions)
    }

    /// Whether the client receives every command that is run (MONITOR).
    pub fn is_monitor(&self) -> bool {
        self.mailbox()
            .is_some_and(|mailbox| mailbox.monitors.load(Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;
    use std::task::Wake;

    #[derive(Default)]
    struct Count(AtomicU32);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    fn client() -> (Shared, Arc<Count>) {
        let address = "127.0.0.1:1".to_owned();
        let shared = Shared::new(1, address.clone(), address, 8, false, 0);
        let count = Arc::new(Count::default());
        shared.waker.register(&Waker::from(Arc::clone(&count)));
        (shared, count)
    }

    const FREE: OutputBound = OutputBound {
        hard_bytes: 0,
        soft_bytes: 0,
        soft_ms: 0,
    };

    #[test]
    fn a_task_is_woken_once_until_it_took_its_mail() {
        let (shared, count) = client();
        let post = || {
            if let Some(waker) = shared.post(FREE, |out| out.integer(1)) {
                waker.wake();
            }
            count.0.load(Relaxed)
        };
        assert_eq!([post(), post(), post()], [1, 1, 1]);
        shared.waker.register(&Waker::from(Arc::clone(&count)));
        let mail = shared.take_mail().expect("three pushes");
        assert_eq!(mail.as_slice(), Some(&b":1\r\n:1\r\n:1\r\n"[..]));
        assert!(shared.take_mail().is_none());
        assert_eq!([post(), post()], [2, 2]);
    }

    #[test]
    fn pushes_are_written_in_the_protocol_of_the_connection() {
        let (shared, _) = client();
        shared.post(FREE, |out| out.push(0));
        shared.resp.store(3, Relaxed);
        shared.post(FREE, |out| out.push(0));
        let mail = shared.take_mail().expect("two pushes");
        assert_eq!(mail.as_slice(), Some(&b"*0\r\n>0\r\n"[..]));
    }

    #[test]
    fn beyond_the_hard_bound_the_client_is_cut_and_nothing_is_kept() {
        let (shared, count) = client();
        let bound = OutputBound {
            hard_bytes: 1000,
            ..FREE
        };
        shared.post(bound, |out| out.bulk(&[b'x'; 500]));
        assert!(!shared.is_killed());
        shared.waker.register(&Waker::from(Arc::clone(&count)));
        let waker = shared.post(bound, |out| out.bulk(&[b'x'; 500]));
        waker.expect("it is told to close").wake();
        assert!(shared.is_killed() && !shared.has_mail());
        assert!(shared.post(bound, |out| out.bulk(b"more")).is_none());
        assert!(!shared.has_mail());
    }

    #[test]
    fn beyond_the_soft_bound_it_is_cut_after_some_time_only() {
        let (shared, _) = client();
        let bound = OutputBound {
            soft_bytes: 100,
            soft_ms: 5_000,
            ..FREE
        };
        shared.post(bound, |out| out.bulk(&[b'x'; 500]));
        shared.check_output(bound, 10_000);
        shared.check_output(bound, 14_000);
        drop(shared.take_mail());
        shared.check_output(bound, 16_000);
        assert!(!shared.is_killed(), "it caught up");
        shared.post(bound, |out| out.bulk(&[b'x'; 500]));
        shared.check_output(bound, 17_000);
        shared.check_output(bound, 21_999);
        assert!(!shared.is_killed());
        shared.check_output(bound, 22_000);
        assert!(shared.is_killed());
    }

    #[test]
    fn who_accepts_nothing_of_his_output_for_some_time_is_cut() {
        let (shared, _) = client();
        let check = |unsent, now_ms| {
            shared.output_bytes.store(unsent, Relaxed);
            shared.check_progress(5_000, now_ms);
            shared.is_killed()
        };
        assert!(!check(100, 10_000) && !check(100, 14_999));
        shared.bytes_out.add(1);
        assert!(!check(99, 15_000), "it has read something");
        shared.check_progress(0, 90_000);
        assert!(!check(0, 91_000), "nothing is unsent");
        shared.bytes_out.add(99);
        assert!(!check(100, 100_000) && !check(100, 104_999));
        assert!(check(100, 105_000));
    }
}
