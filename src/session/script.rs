//! EVAL and its kin: a script is a unit that takes all shards at once, tried a few times, and else travels as a message.

use std::sync::Arc;

use super::batch::{self, Batch, Plan};
use super::{Ran, SPINS_ALL, Session, TRIES_ALL};
use crate::command::Out;
use crate::command::context::{ShardPlace, publish_kept};
use crate::command::declaration::Command;
use crate::config::Config;
use crate::engine::{Engine, Now};
use crate::shard::message::{Message, Parts, TransactionRun};
use crate::shard::transaction::{Aftermath, Stage, Transaction, run_lone};

impl Session {
    /// Runs a script.
    #[cold]
    pub(super) fn on_script(
        &mut self,
        batch: &mut Batch,
        plan: &Plan,
        command: &'static Command,
        config: &Arc<Config>,
        now: Now,
    ) -> Ran {
        let service = self.service;
        let shards = &service.shards;
        let count = shards.len() as u16;
        let wanted: Vec<u16> = (0..count).collect();
        let server = service.server();
        for _ in 0..TRIES_ALL {
            let Some(mut all) = shards.try_take_all(&wanted) else {
                (0..SPINS_ALL).for_each(|_| std::hint::spin_loop());
                continue;
            };
            let mut stage = Stage {
                connection: &mut self.connection,
                server,
                scripts: &service.scripts,
                config,
                now,
                shard_count: count,
            };
            let mut hands = all.hands();
            let mut engines: Vec<&mut Engine> = hands.iter().map(|(_, engine)| engine).collect();
            let batch::Parts {
                args,
                out,
                deferred,
                ..
            } = batch.parts(plan);
            let mut aftermath = run_lone(command, &args, &mut engines, &mut stage, out);
            for engine in engines {
                deferred.append(&mut engine.deferred);
            }
            drop(all);
            deferred.settle();
            if service.pubsub.is_monitored() {
                self.show_script(batch, plan, command, &aftermath);
            }
            let publications = std::mem::take(&mut aftermath.publications);
            let wakes = &mut batch.deferred.wakes;
            publish_kept(publications, &service.pubsub, &mut batch.out, wakes);
            let failed = aftermath.failed;
            Self::after_exec(aftermath);
            return Ran::Yes { failed };
        }
        let args = batch.args(plan);
        let (message, ticket) = Message::new(Parts {
            shards: &wanted,
            place: ShardPlace { index: 0, count },
            command,
            args: &args,
            client: self.view(),
            now,
            config,
            out: Out::new(self.connection.protocol),
            gather: None,
            blocker: None,
            retry: None,
            transaction: Some(Box::new(TransactionRun {
                transaction: Transaction::lone(command, &args),
                connection: self.connection.clone(),
                server,
                scripts: &service.scripts,
                aftermath: Aftermath::default(),
            })),
        });
        shards.submit(message);
        Ran::Queued(ticket)
    }
}
