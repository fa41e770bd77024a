//! Moves names of channels and patterns out of sparse slabs of the allocator.

use std::sync::Arc;

use super::PubSub;
use crate::client::shared::mailbox::Topic;
use basalt_core::alloc::slabs::Mover;

impl PubSub {
    /// Returns the names of all subscriptions.
    pub fn all_names(&self) -> Vec<(Topic, Arc<[u8]>)> {
        let of =
            |topic: Topic, names: Vec<Arc<[u8]>>| names.into_iter().map(move |name| (topic, name));
        of(Topic::Channel, self.channels.names(|_| true))
            .chain(of(Topic::ShardChannel, self.shard_channels.names(|_| true)))
            .chain(of(Topic::Pattern, self.patterns.names()))
            .collect()
    }

    /// Moves some names, with the lists of their subscribers.
    pub fn relocate(&self, names: &[(Topic, Arc<[u8]>)], mover: &mut Mover) {
        mover.begin();
        for (_, name) in names {
            mover.add(name.as_ptr().addr());
        }
        mover.look();
        for (index, (topic, name)) in names.iter().enumerate() {
            if mover.must_move(index) {
                self.relocate_one(*topic, name);
            }
        }
    }

    fn relocate_one(&self, topic: Topic, name: &[u8]) {
        let relocated = match topic {
            Topic::Channel => self.channels.relocate(name),
            Topic::ShardChannel => self.shard_channels.relocate(name),
            Topic::Pattern => self.patterns.relocate(name),
        };
        // The subscribers share the text of the name, so each is given the new one; a client that has unsubscribed
        // meanwhile is not.
        let Some((name, clients)) = relocated else {
            return;
        };
        for mailbox in clients.iter().filter_map(|client| client.mailbox()) {
            let mut subscribed = mailbox.subscribed.lock();
            let names = &mut subscribed[topic as usize];
            if names.contains(&name) {
                names.replace(Arc::clone(&name));
            }
        }
    }
}
