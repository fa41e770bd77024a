//! Another look at whose a slot is, with the shards of a request in hand.
//!
//! A request is admitted by the map of one moment and runs a little later, maybe in a queue. Where the map has changed
//! since, or the slot is on the move so that it matters which keys are here, it is decided again where it runs, in the
//! same hold: no other command can change that in between.

use std::fmt;

use basalt_commands::cluster::route::{self, Manner, Presence, Refusal, SlotOf, Verdict};
use basalt_commands::command::declaration::{Command, Flags, KeyFlags, Run};
use basalt_commands::command::host::cluster::{Routes, SlotMap, when_down};
use basalt_commands::command::{Args, keys};
use basalt_commands::config::Config;
use basalt_core::base::hash;
use basalt_engine::{Engine, Now, engine_of};

/// Where and when a request is decided again.
#[derive(Clone, Copy)]
pub struct Scene<'s> {
    /// The configuration.
    pub config: &'s Config,
    /// The moment.
    pub now: Now,
    /// The database of the client.
    pub db: usize,
}

/// How a request was admitted that names keys, in a cluster.
#[derive(Clone, Copy)]
pub struct SlotPass {
    /// The maps of all times.
    pub map: &'static SlotMap,
    /// The number of the map by which the request was admitted; 0: it is to be decided with its keys.
    pub version: u64,
    /// The slot of the keys.
    pub slot: SlotOf,
    /// How the request comes.
    pub manner: Manner,
}

impl fmt::Debug for SlotPass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {:?} by {}", self.slot, self.manner, self.version)
    }
}

impl SlotPass {
    /// A request that was admitted by a map of now. One whose slot is not plainly here is decided with its keys.
    #[inline]
    pub fn new(map: &'static SlotMap, routes: &Routes, slot: SlotOf, manner: Manner) -> SlotPass {
        let version = if routes.is_plain(slot) {
            routes.version
        } else {
            0
        };
        SlotPass {
            map,
            version,
            slot,
            manner,
        }
    }

    /// Whether it is to be decided again.
    #[inline]
    pub fn is_stale(&self) -> bool {
        self.map.version() != self.version
    }

    /// Why a request does not run here after all, if it does not. `each` goes over its arguments, with their keys;
    /// the engines of all of these are in hand.
    #[cold]
    pub fn refusal<'a>(
        &self,
        engines: &mut [&mut Engine],
        each: impl Iterator<Item = Args<'a>>,
        scene: Scene<'_>,
    ) -> Option<String> {
        let routes = self.map.load();
        let refusal = decided(&routes, self.slot, self.manner, scene.config, || {
            presence(engines, each, scene)
        })?;
        Some(routes.refusal_text(refusal, self.manner, scene.config))
    }
}

/// Why requests for a slot do not run here, if they do not; `look` finds out which of their keys are here.
pub fn decided(
    routes: &Routes,
    slot: SlotOf,
    manner: Manner,
    config: &Config,
    look: impl FnOnce() -> Presence,
) -> Option<Refusal> {
    if routes.is_plain(slot) {
        return None;
    }
    let verdict = match routes.decide(slot, manner, config) {
        Verdict::Look => {
            let found = Some(look());
            route::decide(&routes.map, slot, manner, when_down(config), found)
        }
        verdict => verdict,
    };
    match verdict {
        Verdict::Refuse(refusal) => Some(refusal),
        Verdict::Serve | Verdict::Look => None,
    }
}

/// How a command comes over a connection.
#[inline]
pub fn manner_of(command: &Command, connection: Manner) -> Manner {
    let moves_keys = matches!(command.run, Run::Session(_)) && command.is_write();
    match command.flags.any(Flags::ASKING.or(Flags::PUBSUB)) || moves_keys {
        true => special_manner(command, connection.put(Manner::MOVES, moves_keys)),
        false => connection,
    }
}

#[cold]
fn special_manner(command: &Command, manner: Manner) -> Manner {
    let manner = match command.flags.has(Flags::ASKING) {
        true => manner.or(Manner::ASKS),
        false => manner,
    };
    manner.put(Manner::CHANNEL, command.flags.has(Flags::PUBSUB))
}

/// The slot of what a command names that needs no shard: channels, or keys that another server is to get.
#[cold]
pub fn slot_of_names<'a>(
    command: &Command,
    count: usize,
    argument: impl Fn(usize) -> &'a [u8] + Copy,
) -> SlotOf {
    let mut slot = SlotOf::NONE;
    // Channels, and cursors, which are named as keys are.
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

/// Counts which keys of some requests are here. Nothing is touched, counted or deleted; a key whose time is over is not
/// here.
pub fn presence<'a>(
    engines: &mut [&mut Engine],
    each: impl Iterator<Item = Args<'a>>,
    scene: Scene<'_>,
) -> Presence {
    let mut presence = Presence::default();
    let mut first: Option<&'a [u8]> = None;
    for args in each {
        for routed in args.keys() {
            let key = args.key_of(routed);
            presence.is_several |= *first.get_or_insert(key.bytes) != key.bytes;
            let engine = engine_of(engines, routed.shard);
            match engine.is_some_and(|engine| engine.has_key(scene.db, &key, scene.now)) {
                true => presence.existing += 1,
                false => presence.missing += 1,
            }
        }
    }
    presence
}
