//! The prefetch pass: before a stretch of a batch runs, fetch into the cache what it will touch.
//!
//! First the words of all tokens, and the bucket lines of all keys, are prefetched without any token, from the
//! directory that each table publishes. Then each free shard is taken for a moment, the slots that may hold the key are
//! found by their tags, and the entries are prefetched; nothing is read of them. Where the command leads further, into
//! a list or to an element of a large table, one more step follows. So the cache misses of a pipeline overlap instead
//! of following one another under the token. The pass changes nothing and may be left out at any place.

use super::batch::{Batch, Plan, Route};
use crate::state::Service;
use basalt_commands::command::declaration::Ahead;
use basalt_core::structures::prefetch::line_to_write;
use basalt_core::structures::table::prefetch_line;
use basalt_engine::published::Published;

/// Below so many requests the pass costs more than it saves.
const REQUESTS_MIN: usize = 4;

/// Requests of one pass. More of them would not come any faster, as a core has no more lines under way, and the longer
/// a shard's lines lie here before they are used, the more often other cores have taken them away by then.
const REQUESTS_MAX: usize = 16;

/// Fetches what the next plans of a batch will touch.
pub(super) fn prefetch(batch: &mut Batch, service: &Service, db: usize) {
    let end = batch.plans.len().min(batch.next + REQUESTS_MAX);
    batch.prefetched = end;
    let batch = &*batch;
    let plans = &batch.plans[batch.next..end];
    if plans.len() < REQUESTS_MIN {
        return;
    }
    for plan in plans {
        for key in batch.keys(plan) {
            let published = &service.all_published[usize::from(key.shard)];
            line_to_write(service.shards.addresses(key.shard)[0]);
            prefetch_line(&published.dbs[db].directory, key.hash);
        }
    }
    let mut leads_further = false;
    let mut previous = None;
    for plan in plans {
        leads_further |= plan
            .command
            .is_some_and(|command| command.ahead != Ahead::Nothing);
        if !matches!(plan.route, Route::Shard(_) | Route::Script) {
            continue;
        }
        let [key] = batch.keys(plan) else { continue };
        // A run on one shard keeps its token when it is executed; its lines come along with the first.
        if previous == Some(key.hash) {
            continue;
        }
        previous = Some(key.hash);
        if let Some(engine) = service.shards.try_take(key.shard)
            && let Some(db) = engine.db(db)
        {
            db.prefetch(key.hash);
        }
    }
    if leads_further {
        prefetch_further(batch, plans, service, db);
    }
}

/// Fetches what a command writes of its shard: the token's word, the first line of the engine, and the first line of
/// what it publishes. Where another core had the shard they come together, and not one after the other.
#[inline(always)]
pub(super) fn fetch_shard(service: &Service, shard: u16) {
    let addresses = service.shards.addresses(shard);
    addresses.into_iter().for_each(line_to_write);
    let published: &Published = &service.all_published[usize::from(shard)];
    line_to_write(std::ptr::from_ref(published).cast());
}

/// Fetches what lies behind the entries, where commands say what they read there.
///
/// Of large sets, hashes and sorted sets these are the lines of the elements that are named: an element is hashed twice
/// for it, which costs less than a miss of a table that no cache near by holds. Of lists it is the end that is read
/// from: what lies in between is followed, as it is in some cache near by if the list is used at all. What a command
/// that adds to a list touches is what the one before it has touched; one that reads or takes comes to elements that no
/// command has seen for long, and says so.
fn prefetch_further(batch: &Batch, plans: &[Plan], service: &Service, db: usize) {
    let mut previous = None;
    for plan in plans {
        let (Some(command), Route::Shard(shard)) = (plan.command, plan.route) else {
            continue;
        };
        let [routed] = batch.keys(plan) else { continue };
        if command.ahead == Ahead::Nothing {
            continue;
        }
        let place = Some((routed.hash, command.ahead));
        let is_in_use = std::mem::replace(&mut previous, place) == place;
        // What is read at one end of a list is fetched once.
        if is_in_use && matches!(command.ahead, Ahead::End(_)) {
            continue;
        }
        let Some(engine) = service.shards.try_take(shard) else {
            continue;
        };
        let Some(db) = engine.db(db) else { continue };
        let args = batch.args(plan);
        let key = args.key_of(routed);
        match command.ahead {
            Ahead::Nothing => {}
            Ahead::End(end) => db.prefetch_end(&key, end),
            Ahead::Element(argument) => db.prefetch_element(&key, args.get(argument), is_in_use),
        }
    }
}
