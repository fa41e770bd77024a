//! The look pass: before a batch runs, fetch into the cache what it will touch.
//!
//! First the bucket lines of all keys are prefetched without any token, from the directory that each table publishes.
//! Then each free shard is taken for a moment, the slots that may hold the key are found by their tags, and the
//! entries are prefetched; nothing is read of them. So the cache misses of a pipeline overlap instead of following one
//! another under the token. It changes nothing and may be left out at any place.

use super::batch::{Batch, Plan, Route};
use super::service::Service;
use crate::command::declaration::{Command, Group};
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
        has_objects |= plan.command.is_some_and(is_about_objects);
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

/// Follows the entries of collections further, one step for all of them at a time, as long as any of them leads on.
fn look_behind(batch: &Batch, plans: &[Plan], service: &Service, db: usize) {
    for step in 0..OBJECT_STEPS {
        let mut any = false;
        let mut previous = None;
        for plan in plans {
            let (Route::Shard(shard), Some(command)) = (plan.route, plan.command) else {
                continue;
            };
            let [routed] = batch.keys(plan) else { continue };
            // What a key's object needs is fetched once; only tables are read at another place for each element.
            let is_by_element = step > 0 && command.group != Group::List;
            if previous == Some(routed.hash) && !is_by_element {
                continue;
            }
            previous = Some(routed.hash);
            if let Some(engine) = service.shards.try_take(shard)
                && let Some(db) = engine.db(db)
            {
                let args = batch.args(plan);
                let element = routed.argument as usize + element_after_key(command);
                let element = match is_by_element && element < args.len() {
                    true => args.get(element),
                    false => b"",
                };
                any |= db.prefetch_object(&args.key_of(routed), step, element);
            }
        }
        if !any {
            return;
        }
    }
}

/// How far behind the key the element stands that a command is most likely about: ZADD and ZINCRBY have a number
/// between the two.
fn element_after_key(command: &'static Command) -> usize {
    match (command.group, command.name.as_bytes()) {
        (
            Group::SortedSet,
            [b'z', b'a', b'd', b'd'] | [b'z', b'i', b'n', b'c', b'r', b'b', b'y'],
        ) => 2,
        _ => 1,
    }
}

/// Whether a command works on values that may be objects.
fn is_about_objects(command: &'static Command) -> bool {
    matches!(
        command.group,
        Group::List | Group::Set | Group::SortedSet | Group::Hash | Group::Stream | Group::Geo
    )
}
