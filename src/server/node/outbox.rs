//! Messages published here that go to other nodes. Commands put messages into the outbox without waiting,
//! possibly while shards are locked; the thread of the bus sends the messages.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use parking_lot::Mutex;
use tokio::sync::Notify;

use basalt_commands::cluster::packet::Message;

/// Maximum bytes of waiting messages.
const BYTES_MAX: usize = 256 << 20;
/// Overhead of a message besides its channel and payload.
const MESSAGE_BYTES: usize = size_of::<(Message, bool)>();

/// Bounded queue of published messages for other nodes.
#[derive(Default)]
pub(super) struct ClusterPublishQueue {
    waiting: Mutex<Vec<(Message, bool)>>,
    bytes: AtomicUsize,
    wake: Notify,
}

impl ClusterPublishQueue {
    /// Adds a message, and whether it is for subscribers of shard channels; returns false if the outbox is full.
    pub(super) fn put(&self, message: Message, is_shard: bool) -> bool {
        let bytes = message.channel.len() + message.payload.len() + MESSAGE_BYTES;
        let before = self.bytes.fetch_add(bytes, Relaxed);
        if before > 0 && before + bytes > BYTES_MAX {
            self.bytes.fetch_sub(bytes, Relaxed);
            return false;
        }
        self.waiting.lock().push((message, is_shard));
        self.wake.notify_one();
        true
    }

    /// Waits until there are messages, and takes them all.
    pub(super) async fn take(&self) -> Vec<(Message, bool)> {
        loop {
            let taken = std::mem::take(&mut *self.waiting.lock());
            if !taken.is_empty() {
                let bytes = taken.iter().map(|(message, _)| {
                    message.channel.len() + message.payload.len() + MESSAGE_BYTES
                });
                self.bytes.fetch_sub(bytes.sum(), Relaxed);
                return taken;
            }
            self.wake.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(bytes: usize) -> Message {
        Message {
            channel: b"c".to_vec(),
            payload: vec![0; bytes],
        }
    }

    #[tokio::test]
    async fn messages_wait_in_order_and_within_a_bound() {
        let outbox = ClusterPublishQueue::default();
        assert!(outbox.put(message(BYTES_MAX / 2), false));
        assert!(outbox.put(message(1), true));
        assert!(!outbox.put(message(BYTES_MAX / 2), false));
        let taken = outbox.take().await;
        let shapes: Vec<_> = taken
            .iter()
            .map(|(message, is_shard)| (message.payload.len(), *is_shard))
            .collect();
        assert_eq!(shapes, [(BYTES_MAX / 2, false), (1, true)]);
        assert!(outbox.put(message(2 * BYTES_MAX), false), "one always fits");
    }
}
