//! The look pass: before a batch runs, fetch into the cache what it will touch.
//!
//! First the bucket lines of all keys are prefetched without any token, from the directory that each table publishes.
//! Then each free shard is taken for a moment, the slots that may hold the key are found by their tags, and the
//! entries are prefetched; nothing is read of them. So the cache misses of a pipeline overlap instead of following one
//! another under the token. It changes nothing and may be left out at any place.

use super::batch::{Batch, Plan, Route};
use super::service::Service;
use crate::command::declaration::{Command, Flags, Group};
use crate::structures::table::prefetch_line;

/// Below so many requests the pass costs more than it saves.
const REQUESTS_MIN: usize = 4;

/// Looks at the plans of a batch from `batch.next` on.
pub fn look(batch: &Batch, service: &Service, db: usize) {
    let plans = &batch.plans[batch.next..];
    if plans.len() < REQUESTS_MIN {
        return;
    }
    for plan in plans {
        for key in batch.keys(plan) {
            let board = &service.boards[usize::from(key.shard)];
            prefetch_line(&board.dbs[db].directory, key.hash);
        }
    }
    let mut has_objects = false;
    let mut previous = None;
    for plan in plans {
        has_objects |= plan.command.is_some_and(leads_further);
        let Route::Shard(shard) = plan.route else {
            continue;
        };
        let [key] = batch.keys(plan) else { continue };
        // A run on one shard keeps its token when it is executed; its lines come along with the first.
        if previous == Some(key.hash) {
            continue;
        }
        previous = Some(key.hash);
        if let Some(engine) = service.shards.try_take(shard)
            && let Some(db) = engine.db(db)
        {
            db.prefetch(key.hash);
        }
    }
    if has_objects {
        look_behind(batch, plans, service, db);
    }
}

/// What lies behind the entries: an object, what the object points to, and what that points to.
const OBJECT_STEPS: usize = 3;

/// Follows the entries of lists further, one step for all of them at a time, as long as any of them leads on.
fn look_behind(batch: &Batch, plans: &[Plan], service: &Service, db: usize) {
    for step in 0..OBJECT_STEPS {
        let mut any = false;
        let mut previous = None;
        for plan in plans {
            let Route::Shard(shard) = plan.route else {
                continue;
            };
            let [routed] = batch.keys(plan) else { continue };
            if previous == Some(routed.hash) {
                continue;
            }
            previous = Some(routed.hash);
            if let Some(engine) = service.shards.try_take(shard)
                && let Some(db) = engine.db(db)
            {
                any |= db.prefetch_object(&batch.args(plan).key_of(routed), step);
            }
        }
        if !any {
            return;
        }
    }
}

/// Whether it pays to look behind the entry. What a command that adds to a list touches is what the one before it has
/// touched; one that reads or takes comes to elements that nobody has seen for long. For tables the second hashing of
/// the element costs more than the overlapping of two misses saves.
fn leads_further(command: &'static Command) -> bool {
    command.group == Group::List && !command.flags.has(Flags::DENYOOM)
}
