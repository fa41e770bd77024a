//! The slots of a request in a cluster: decides whether this node serves them, at admission and again where the request
//! runs.
//!
//! A request is admitted by the slot map of one moment and runs a little later, possibly after waiting in a
//! queue. Once its shards are locked, [`Permit::still_valid`] is called: if the map has changed since, or the
//! slot is migrating (so that it matters which keys are still on this node), the request is decided again,
//! under the same lock. No other command can change the result in between. Commands on one or several shards,
//! transactions, scripts and waiters all use this one check.

use std::fmt;

use basalt_commands::cluster::route::{self, Presence, Refusal, RoutingFlags, SlotOf, Verdict};
use basalt_commands::command::declaration::{Command, Flags, KeyFlags, Run};
use basalt_commands::command::host::cluster::{Routes, SlotMap, down_policy};
use basalt_commands::command::{Args, keys};
use basalt_commands::config::Config;
use basalt_core::base::hash;
use basalt_engine::{Engine, Now, engine_of};

/// The slot of a request's keys, how the request arrived, and the version of the slot map that admitted it.
#[derive(Clone, Copy)]
pub struct Permit {
    /// Source of the current slot map.
    pub map: &'static SlotMap,
    /// Version of the slot map that admitted the request; 0 if its keys have to be checked in any case.
    pub version: u64,
    /// The slot of the keys.
    pub slot: SlotOf,
    /// Flags of how the request arrived, such as after ASKING.
    pub routing: RoutingFlags,
}

/// The refusal of a request by this node, with its error reply.
#[derive(Debug)]
pub struct Redirect {
    /// The reason why this node refuses the request.
    pub refusal: Refusal,
    /// The error reply, without the leading `-`.
    pub text: String,
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {:?} by {}", self.slot, self.routing, self.version)
    }
}

impl Permit {
    /// Creates the permit of a request that `routes`, the current slot map, admits.
    #[inline]
    pub fn new(
        map: &'static SlotMap,
        routes: &Routes,
        slot: SlotOf,
        routing: RoutingFlags,
    ) -> Permit {
        let version = match routes.is_plain(slot) {
            true => routes.version,
            false => 0,
        };
        Permit {
            map,
            version,
            slot,
            routing,
        }
    }

    /// Checks that the request still runs on this node. The shards of its keys must be locked; `look`
    /// determines which of the keys this node has.
    #[inline]
    pub fn still_valid(
        &self,
        config: &Config,
        look: impl FnOnce() -> Presence,
    ) -> Result<(), Redirect> {
        match self.map.version() == self.version {
            true => Ok(()),
            false => self.judge(&self.map.load(), config, || Some(look())),
        }
    }

    /// Checks that the request runs on this node by this slot map. If `look` cannot determine which of the keys
    /// this node has, the request passes for now and is decided when its shards are locked.
    #[cold]
    pub fn judge(
        &self,
        routes: &Routes,
        config: &Config,
        look: impl FnOnce() -> Option<Presence>,
    ) -> Result<(), Redirect> {
        judge(routes, (self.slot, self.routing), config, look).map_err(|refusal| Redirect {
            refusal,
            text: routes.refusal_text(refusal, self.routing, config),
        })
    }
}

/// Checks that requests for `slot` with these routing flags run on this node.
pub fn judge(
    routes: &Routes,
    (slot, routing): (SlotOf, RoutingFlags),
    config: &Config,
    look: impl FnOnce() -> Option<Presence>,
) -> Result<(), Refusal> {
    if routes.is_plain(slot) {
        return Ok(());
    }
    let down_policy = down_policy(config);
    let verdict = match route::decide(&routes.map, slot, routing, down_policy, None) {
        Verdict::NeedsKeyCheck => match look() {
            Some(found) => route::decide(&routes.map, slot, routing, down_policy, Some(found)),
            None => Verdict::NeedsKeyCheck,
        },
        verdict => verdict,
    };
    match verdict {
        Verdict::Refuse(refusal) => Err(refusal),
        Verdict::Serve | Verdict::NeedsKeyCheck => Ok(()),
    }
}

/// Returns the routing flags of a command that arrives over a connection with flags `connection`.
#[inline]
pub fn routing_of(command: &Command, connection: RoutingFlags) -> RoutingFlags {
    let moves_keys = matches!(command.run, Run::Session(_)) && command.is_write();
    match command.flags.any(Flags::ASKING.or(Flags::PUBSUB)) || moves_keys {
        true => special_routing(command, connection.put(RoutingFlags::MOVES, moves_keys)),
        false => connection,
    }
}

#[cold]
fn special_routing(command: &Command, routing: RoutingFlags) -> RoutingFlags {
    let routing = match command.flags.has(Flags::ASKING) {
        true => routing.or(RoutingFlags::ASKS),
        false => routing,
    };
    routing.put(RoutingFlags::CHANNEL, command.flags.has(Flags::PUBSUB))
}

/// Returns the slot of a shardless command's names: channels, or keys to migrate to another server.
#[cold]
pub fn slot_of_names<'a>(
    command: &Command,
    count: usize,
    argument: impl Fn(usize) -> &'a [u8] + Copy,
) -> SlotOf {
    let mut slot = SlotOf::NONE;
    // The names are channels or cursors, which the command declares like keys.
    let names_no_keys = command
        .keys
        .iter()
        .all(|spec| spec.flags.has(KeyFlags::NOT_KEY));
    if names_no_keys {
        let _ = keys::positions(command, count, argument, |at, _| {
            slot = slot.with(SlotOf::of(hash::slot(argument(at))));
        });
    } else if let Ok(found) = keys::all(command, count, argument) {
        for (at, _) in found {
            slot = slot.with(SlotOf::of(hash::slot(argument(at))));
        }
    }
    slot
}

/// Counts the keys of some requests that exist here, in a database. Expired keys count as missing. The check
/// updates no access times, counts as no lookup and deletes no expired keys.
pub fn presence<'a>(
    engines: &mut [&mut Engine],
    each: impl Iterator<Item = Args<'a>>,
    (db, now): (usize, Now),
) -> Presence {
    let mut presence = Presence::default();
    let mut first: Option<&'a [u8]> = None;
    for args in each {
        for routed in args.keys() {
            let key = args.key_of(routed);
            presence.is_several |= *first.get_or_insert(key.bytes) != key.bytes;
            let engine = engine_of(engines, routed.shard);
            match engine.is_some_and(|engine| engine.has_key(db, &key, now)) {
                true => presence.existing += 1,
                false => presence.missing += 1,
            }
        }
    }
    presence
}
