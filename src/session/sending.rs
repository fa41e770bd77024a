//! Commands that this connection does not run here and now: they travel as messages, to the queue of a shard that is held,
//! to a thread of their own, or with keys to another server.

use std::sync::Arc;

use super::batch::{Batch, Plan};
use super::{Ran, Session};
use crate::client::registry::Shared;
use crate::command::Out;
use crate::command::context::{After, ShardPlace};
use crate::command::declaration::{Command, Flags};
use crate::command::generic::migrate::Migration;
use crate::config::Config;
use crate::engine::Now;
use crate::shard::Shards;
use crate::shard::message::{Message, Parts, Ticket};
use crate::shard::ownership::parcel::Parcel;

impl Session {
    /// Leaves the keys to whoever carries them, and waits for the reply as for that of a command that had to queue.
    #[cold]
    pub(super) fn migrate(
        &mut self,
        batch: &Batch,
        plan: &Plan,
        command: &'static Command,
        migration: Box<Migration>,
        config: &Arc<Config>,
        now: Now,
    ) -> Ran {
        let Some(migrator) = self.service.migrator.get() else {
            return Ran::Then(After::Close);
        };
        let out = Out::new(self.connection.protocol);
        let args = batch.args(plan);
        let parts = Parts::new(command, &args, self.view(), now, config, out);
        let (message, ticket) = Message::new(parts);
        migrator.start(migration, message);
        Ran::Queued(ticket)
    }

    /// Hands the command to the queue of its first shard.
    #[expect(
        clippy::too_many_arguments,
        reason = "the hot path hands on what it holds"
    )]
    #[cold]
    pub(super) fn queue(
        &mut self,
        batch: &Batch,
        plan: &Plan,
        command: &'static Command,
        wanted: &[u16],
        shards: &Shards,
        config: &Arc<Config>,
        now: Now,
    ) -> Ran {
        let blocks = command.flags.has(Flags::BLOCKING);
        let blocker = blocks.then(|| Arc::clone(&self.connection.shared));
        let blocker = blocker.as_ref();
        let (message, ticket) = self.message(batch, plan, command, wanted, config, now, blocker);
        shards.submit(message);
        Ran::Queued(ticket)
    }

    /// A message of a command and its ticket.
    #[expect(
        clippy::too_many_arguments,
        reason = "the hot path hands on what it holds"
    )]
    fn message(
        &self,
        batch: &Batch,
        plan: &Plan,
        command: &'static Command,
        wanted: &[u16],
        config: &Arc<Config>,
        now: Now,
        blocker: Option<&Arc<Shared>>,
    ) -> (Box<Parcel<Message>>, Arc<Ticket>) {
        let out = Out::new(self.connection.protocol);
        let args = batch.args(plan);
        Message::new(Parts {
            shards: wanted,
            place: ShardPlace {
                index: wanted[0],
                count: self.service.shards.len() as u16,
            },
            blocker,
            ..Parts::new(command, &args, self.view(), now, config, out)
        })
    }

    /// Has a command that takes long run where nobody else waits for the thread.
    #[cold]
    #[inline(never)]
    pub(super) fn send_apart(
        &mut self,
        batch: &Batch,
        plan: &Plan,
        command: &'static Command,
        wanted: &[u16],
        config: &Arc<Config>,
        now: Now,
    ) -> Ran {
        let (message, _) = self.message(batch, plan, command, wanted, config, now, None);
        Ran::Queued(Message::send_apart(message, self.service.ground_apart()))
    }
}
