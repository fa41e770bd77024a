//! The look pass: before a batch runs, fetch into the cache what it will touch.
//!
//! First the bucket lines of all keys are prefetched without any token, from the directory that each table publishes.
//! Then each free shard is taken for a moment, the slots that may hold the key are found by their tags, and the
//! entries are prefetched; nothing is read of them. So the cache misses of a pipeline overlap instead of following one
//! another under the token. It changes nothing and may be left out at any place.

use super::batch::{Batch, Route};
use super::service::Service;
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
    let mut previous = None;
    for plan in plans {
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
}
