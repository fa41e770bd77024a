//! Messages that a connection publishes in one batch: consecutive messages to one channel are posted together, so
//! that each subscriber is visited once for all of them.
//!
//! Clients see only one difference: no reply to any of these requests has been sent, and before the connection does
//! anything else the messages are posted ([`PubSub::post_gathered`]). The number of receivers in all their replies is
//! that of the first message, even if clients subscribe or unsubscribe while further messages are gathered. A message
//! that is not followed by another is posted, and counted, at once.

use std::cell::Cell;
use std::task::Waker;

use super::message::MessageBatch;
use super::{Posting, PubSub};

/// Messages that a batch publishes, see the module.
#[derive(Default)]
pub struct Outgoing {
    /// Tasks that were sent messages by the batch, to be woken at its end.
    pub wakes: Vec<Waker>,
    /// Whether the request after the current one publishes too.
    pub more_follow: bool,
    /// Messages that are not posted yet, if any.
    gathered: Option<Box<Gathered>>,
}

/// Maximum bytes that are posted together to all subscribers of a channel: other connections wait that long, and
/// memory is allocated for all of them at once.
const POSTED_BYTES_MAX: usize = 8 * 1024 * 1024;

#[derive(Default)]
struct Gathered {
    run: MessageBatch,
    /// Number of subscribers to the channel when the first message was published.
    receivers: usize,
    /// The log position that the messages of the publisher reflect.
    log_seen: u64,
}

thread_local! {
    /// The buffers of the last gathered messages on this thread, for reuse.
    static SPARE: Cell<Option<Box<Gathered>>> = const { Cell::new(None) };
}

impl Outgoing {
    /// Whether messages are waiting to be posted.
    #[inline]
    pub fn has_messages(&self) -> bool {
        self.gathered.is_some()
    }

    /// Wakes the tasks that were sent messages.
    #[inline]
    pub fn wake_all(&mut self) {
        if !self.wakes.is_empty() {
            self.wakes.drain(..).for_each(Waker::wake);
        }
    }
}

impl Gathered {
    /// Whether a message can be added to the gathered ones.
    fn takes(&self, is_sharded: bool, channel: &[u8], payload: &[u8]) -> bool {
        self.run.is_of(is_sharded, channel)
            && self.run.has_room(payload)
            && self.run.bytes_with(payload) * self.receivers <= POSTED_BYTES_MAX
    }

    fn add(&mut self, payload: &[u8], log_seen: u64) -> usize {
        self.run.push(payload);
        self.log_seen = log_seen;
        self.receivers
    }
}

impl PubSub {
    /// Publishes a message, now or together with later messages in its channel. Returns the number of subscriptions.
    /// The message reflects the log up to `log_seen`.
    pub fn gather(
        &self,
        is_sharded: bool,
        channel: &[u8],
        payload: &[u8],
        log_seen: u64,
        outgoing: &mut Outgoing,
    ) -> usize {
        let hear_by_pattern = !is_sharded && !self.patterns.is_empty();
        if let Some(gathered) = &mut outgoing.gathered
            && gathered.takes(is_sharded, channel, payload)
            && !hear_by_pattern
        {
            let receivers = gathered.add(payload, log_seen);
            if !outgoing.more_follow {
                // Posted here, so that the time counts as that of the command.
                self.post_gathered(outgoing);
            }
            return receivers;
        }
        self.post_gathered(outgoing);
        if hear_by_pattern || !outgoing.more_follow || !MessageBatch::fits(channel, payload) {
            let mut posting = Posting::new(log_seen, &mut outgoing.wakes);
            return self.publish(is_sharded, channel, payload, &mut posting);
        }
        let receivers = self.channels(is_sharded).with(channel, |_| {});
        if receivers > 0 {
            let mut gathered = SPARE.take().unwrap_or_default();
            gathered.run.begin(is_sharded, &[channel]);
            gathered.receivers = receivers;
            gathered.add(payload, log_seen);
            outgoing.gathered = Some(gathered);
        }
        receivers
    }

    /// Posts the gathered messages. The caller must have no shard locked.
    #[inline]
    pub fn post_gathered(&self, outgoing: &mut Outgoing) {
        if let Some(mut gathered) = outgoing.gathered.take() {
            let mut posting = Posting::new(gathered.log_seen, &mut outgoing.wakes);
            self.post_run(&gathered.run, &mut posting);
            gathered.run.clear();
            SPARE.set(Some(gathered));
        }
    }
}
