//! The prefetch pass: before a part of a batch runs, it fetches the data that the part will touch into the cache.
//!
//! First, while no shard is locked, the words of the shards' tokens (locks) and the bucket cache lines of all
//! keys are prefetched, from the directory that each table publishes. Then each free shard is locked for a
//! moment, and the entries that may have the key are found by their tags and prefetched, without being read. If
//! the command reads beyond the entry, in a list or an element of a large table, one more step follows. So the
//! cache misses of a pipeline overlap, instead of occurring one after the other while the shard is locked. The
//! pass changes nothing and may be omitted anywhere.

use super::batch::{Batch, Plan, Route};
use super::hot_keys;
use crate::state::Service;
use crate::telemetry::counters;
use basalt_commands::command::declaration::Ahead;
use basalt_core::structures::prefetch::line_to_write;
use basalt_core::structures::table::prefetch_line;
use basalt_engine::published::Published;

/// Minimum number of requests for which the pass is worthwhile.
const REQUESTS_MIN: usize = 4;

/// Maximum number of requests per pass. More would not be any faster, as a core has a limited number of cache
/// misses in flight, and the longer a shard's cache lines stay unused, the likelier it is that another core has
/// claimed them.
const REQUESTS_MAX: usize = 16;

/// Prefetches the data that the next plans of a batch will touch.
pub(super) fn prefetch(batch: &mut Batch, service: &Service, db: usize) {
    let end = batch.plans.len().min(batch.next + REQUESTS_MAX);
    batch.prefetched = end;
    let batch = &*batch;
    let plans = &batch.plans[batch.next..end];
    if plans.len() < REQUESTS_MIN {
        return;
    }
    let copied = match counters::local().hot_copies.keys.get() {
        0 => 0,
        _ => copied(batch, plans, db),
    };
    for (number, plan) in plans.iter().enumerate() {
        if copied >> number & 1 != 0 {
            continue;
        }
        for key in batch.keys(plan) {
            let published = &service.all_published[usize::from(key.shard)];
            line_to_write(service.shards.addresses(key.shard)[0]);
            prefetch_line(&published.dbs[db].directory, key.hash);
        }
    }
    let mut leads_further = false;
    let mut previous = None;
    for (number, plan) in plans.iter().enumerate() {
        leads_further |= plan
            .command
            .is_some_and(|command| command.ahead != Ahead::Nothing);
        if !matches!(plan.route, Route::Shard(_) | Route::Script) {
            continue;
        }
        let [key] = batch.keys(plan) else { continue };
        // Consecutive commands on one key need only one prefetch.
        if previous == Some(key.hash) || copied >> number & 1 != 0 {
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

/// Returns a bit for each plan, set if this thread will probably answer the plan from its copy of the key's value.
#[cold]
fn copied(batch: &Batch, plans: &[Plan], db: usize) -> u32 {
    let is_copied = |plan: &Plan| {
        let args = batch.args(plan);
        plan.command
            .is_some_and(|command| command.copy_reply(&args).is_some())
            && hot_keys::has_copy(db, &args.key(1))
    };
    let bits = plans.iter().enumerate();
    bits.fold(0, |all, (number, plan)| {
        all | u32::from(is_copied(plan)) << number
    })
}

/// Prefetches the lines that a command writes of its shard: the token's word, the first line of the engine, and
/// the first line of the published data. If another core used the shard last, the lines arrive together instead
/// of one by one.
#[inline(always)]
pub(super) fn fetch_shard(service: &Service, shard: u16) {
    let addresses = service.shards.addresses(shard);
    addresses.into_iter().for_each(line_to_write);
    let published: &Published = &service.all_published[usize::from(shard)];
    line_to_write(std::ptr::from_ref(published).cast());
}

/// Prefetches the data that the entries refer to, for commands that declare what they read there.
///
/// For large sets, hashes and sorted sets these are the lines of the named elements: hashing an element a
/// second time costs less than a miss of a table that is in no nearby cache. For lists the line is that of the
/// end that is read; the links on the way are followed, because they are in a nearby cache if the list is in
/// use. Only commands that read or pop declare this: a push touches what the previous push touched, but a pop
/// reaches elements that were not touched for long.
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
        // Each end of a list is prefetched once.
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
