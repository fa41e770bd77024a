//! What holds commands back although they may run: pauses, each for a reason of its own, and keys that are on their way
//! to another server.
//!
//! Every command looks at one word, which is zero but while something is held back.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};

use parking_lot::Mutex;

use crate::script::{self, library::Library};
use crate::shard::unit::transaction::Transaction;
use basalt_commands::cluster::slot_set::SlotSet;
use basalt_commands::command::Args;
use basalt_commands::command::declaration::{Command, Flags, Run};
use basalt_core::base::hash;
use basalt_engine::expire::Rest;

/// The longest that a command waits for a key before it looks again, even if no thread nudges it.
const LOOK_AGAIN_MS: u64 = 50;

/// What commands are held back for. Each pause ends by itself: a client that ends its own ends no other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// CLIENT PAUSE.
    Client,
    /// DEBUG SLEEP, which stops everybody.
    Sleep,
    /// The last snapshot before the end.
    Ending,
    /// DEBUG RELOAD.
    Reload,
    /// A replica takes over.
    Failover,
    /// Slots go over to another node: only what may write to these waits.
    SlotMove,
}

/// How many reasons there are.
const REASONS: usize = Reason::SlotMove as usize + 1;

/// One pause: until which Unix time in milliseconds all commands are held back, and until when those that may write.
#[derive(Clone, Copy, Debug, Default)]
struct Span {
    all_ms: u64,
    writes_ms: u64,
}

/// What is held back now.
#[derive(Debug, Default)]
struct Held {
    /// The pauses, by their reasons.
    spans: [Span; REASONS],
    /// Keys that move, of whatever database.
    keys: HashSet<Box<[u8]>>,
    /// Slots that go over to another node.
    slots: SlotSet,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Pause {
    /// No command is held back beyond this Unix time in milliseconds.
    gate_ms: AtomicU64,
    /// What rests with commands: nothing expires while there is a pause, so that the data stays as it is.
    pub rest: Arc<Rest>,
    held: Mutex<Held>,
}

impl Pause {
    /// No pause. Shards that share `rest` let nothing expire while there is one.
    pub fn new(rest: Arc<Rest>) -> Pause {
        Pause {
            rest,
            ..Pause::default()
        }
    }

    /// Whether the server sleeps (DEBUG SLEEP).
    pub fn sleeps(&self, now_ms: u64) -> bool {
        self.held.lock().spans[Reason::Sleep as usize].all_ms > now_ms
    }

    /// Whether the primary's stream is held back with all writes.
    pub fn holds_stream(&self, now_ms: u64) -> bool {
        self.is_on(now_ms) && self.held.lock().until_ms(|span| span.writes_ms) > now_ms
    }

    /// Holds clients back; a pause under way is never shortened nor softened, as in Redis.
    pub fn start(&self, reason: Reason, until_ms: u64, writes_only: bool, now_ms: u64) {
        let mut held = self.held.lock();
        let span = &mut held.spans[reason as usize];
        let until_ms = until_ms.max(span.writes_ms);
        span.writes_ms = until_ms;
        if !writes_only || span.all_ms > now_ms {
            span.all_ms = until_ms;
        }
        self.follow(&held);
    }

    /// Holds back what may write to these slots, as [`Pause::start`] does.
    pub fn hold_slots(&self, slots: &SlotSet, until_ms: u64, now_ms: u64) {
        self.held.lock().slots.clone_from(slots);
        self.start(Reason::SlotMove, until_ms, true, now_ms);
    }

    /// Ends the pause that has this reason. Commands that wait have to be nudged.
    pub fn stop(&self, reason: Reason) {
        let mut held = self.held.lock();
        held.spans[reason as usize] = Span::default();
        self.follow(&held);
    }

    /// Holds back commands that want one of these keys; false, and nothing is done, if one of them is held already.
    pub fn hold_keys(&self, wanted: &[Box<[u8]>]) -> bool {
        let mut held = self.held.lock();
        if wanted.iter().any(|key| held.keys.contains(key)) {
            return false;
        }
        held.keys.extend(wanted.iter().cloned());
        self.follow(&held);
        true
    }

    /// Ends that. Commands that wait have to be nudged.
    pub fn release_keys(&self, released: &[Box<[u8]>]) {
        let mut held = self.held.lock();
        for key in released {
            held.keys.remove(key);
        }
        if held.keys.is_empty() {
            held.keys = HashSet::new();
        }
        self.follow(&held);
    }

    /// The gate and expiry know what is held back now.
    fn follow(&self, held: &Held) {
        let until_ms = held.until_ms(|span| span.writes_ms);
        self.rest.set(until_ms);
        let gate_ms = match held.keys.is_empty() {
            true => until_ms,
            false => u64::MAX,
        };
        self.gate_ms.store(gate_ms, Release);
    }

    /// Whether anything is held back.
    #[inline]
    pub fn is_on(&self, now_ms: u64) -> bool {
        self.gate_ms.load(Acquire) > now_ms
    }

    /// Until when a command has to wait, if it has to. A pause of everything holds CLIENT UNPAUSE back too, as in
    /// Redis. `queued` is what an EXEC runs.
    #[cold]
    pub fn holds(
        &self,
        command: &Command,
        args: &Args<'_>,
        queued: Option<&Transaction>,
        scripts: &Library,
        now_ms: u64,
    ) -> Option<u64> {
        let any = |test: &dyn Fn(&Command, &Args<'_>) -> bool| match queued {
            Some(queued) => queued
                .commands()
                .any(|(command, args)| test(command, &args)),
            None => test(command, args),
        };
        let writes = |command: &Command, args: &Args<'_>| script::may_write(command, args, scripts);
        let held = self.held.lock();
        let all_ms = held.until_ms(|span| span.all_ms);
        if all_ms > now_ms {
            return Some(all_ms);
        }
        let writes_ms = held.writes_ms();
        if writes_ms > now_ms && any(&writes) {
            return Some(writes_ms);
        }
        let slots_ms = held.spans[Reason::SlotMove as usize].writes_ms;
        if slots_ms > now_ms
            && any(&|command, args| writes(command, args) && reaches(&held.slots, command, args))
        {
            return Some(slots_ms);
        }
        let is_held = !held.keys.is_empty()
            && any(&|command, args| match command.run {
                Run::Script(_) => writes(command, args),
                _ => meets(&held.keys, command, args),
            });
        is_held.then_some(now_ms + LOOK_AGAIN_MS)
    }
}

impl Held {
    /// Until when all that may write waits.
    fn writes_ms(&self) -> u64 {
        let is_of_all = |at: &usize| *at != Reason::SlotMove as usize;
        let all = (0..REASONS)
            .filter(is_of_all)
            .map(|at| self.spans[at].writes_ms);
        all.max().unwrap_or(0)
    }

    /// The latest of one end of all pauses.
    fn until_ms(&self, end: impl Fn(&Span) -> u64) -> u64 {
        self.spans.iter().map(end).max().unwrap_or(0)
    }
}

/// Whether a command that may write may do so to one of these slots.
fn reaches(slots: &SlotSet, command: &Command, args: &Args<'_>) -> bool {
    match command.run {
        // Scripts may reach keys that they do not name.
        Run::Keys(_) if !args.keys().is_empty() => {
            let is_there = |at: u32| slots.contains(hash::slot(args.get(at as usize)));
            args.keys().iter().any(|key| is_there(key.argument))
        }
        _ => true,
    }
}

/// Whether a command works, or may work, on one of these keys. Going over all keys one by one is no work on any.
fn meets(keys: &HashSet<Box<[u8]>>, command: &Command, args: &Args<'_>) -> bool {
    const UNDECLARED: Flags = Flags::TOUCHES_ARBITRARY_KEYS.or(Flags::NO_MANDATORY_KEYS);
    match command.run {
        Run::Keys(_) => {
            let is_named = |at: u32| keys.contains(args.get(at as usize));
            command.flags.any(UNDECLARED) || args.keys().iter().any(|key| is_named(key.argument))
        }
        Run::Session(_) | Run::Transaction(_) => command.flags.has(Flags::WRITE),
        _ => command.flags.any(Flags::WRITE.or(Flags::MAY_REPLICATE)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shard::route::Router;
    use basalt_commands::command::args::RoutedKey;
    use basalt_commands::command::keys;
    use basalt_commands::command::owned::OwnedArgs;
    use basalt_commands::command::table::registry;
    use basalt_core::base::hash::Seed;

    fn is_held(pause: &Pause, name: &str) -> bool {
        let command = registry().find(name.as_bytes()).expect("a command");
        let args = Args::none();
        let scripts = Library::default();
        pause.is_on(5) && pause.holds(command, &args, None, &scripts, 5).is_some()
    }

    #[test]
    fn a_pause_ends_while_keys_stay_held_and_the_other_way_round() {
        let pause = Pause::default();
        let keys: [Box<[u8]>; 1] = [Box::from(&b"k"[..])];
        assert!(!is_held(&pause, "ping"));
        pause.start(Reason::Client, 10, false, 5);
        assert!(pause.hold_keys(&keys));
        assert!(!pause.hold_keys(&keys), "held already");
        assert!(is_held(&pause, "ping") && is_held(&pause, "flushall"));
        pause.stop(Reason::Client);
        assert!(!is_held(&pause, "ping") && is_held(&pause, "flushall"));
        pause.start(Reason::Client, 10, true, 5);
        pause.release_keys(&keys);
        assert!(!is_held(&pause, "ping") && is_held(&pause, "flushall"));
        pause.stop(Reason::Client);
        assert!(!is_held(&pause, "flushall"));
    }

    #[test]
    fn only_what_may_write_to_slots_that_go_over_waits() {
        let pause = Pause::default();
        pause.hold_slots(&[hash::slot(b"k")].into_iter().collect(), 10, 5);
        let router = Router::new(Seed { k0: 1, k1: 2 }, 1);
        let held = |line: &str| {
            let words: Vec<Vec<u8>> = line
                .split(' ')
                .map(|word| word.as_bytes().to_vec())
                .collect();
            let command = registry().find(&words[0]).expect("a command");
            let mut owned = OwnedArgs::of(&words);
            let found = keys::all(command, words.len(), |at| &words[at]).expect("keys");
            let routed: Vec<RoutedKey> = found
                .iter()
                .map(|(at, _)| router.routed(*at, &words[*at]))
                .collect();
            owned.route(&routed);
            let scripts = Library::default();
            pause
                .holds(command, &owned.args(), None, &scripts, 5)
                .is_some()
        };
        for line in [
            "SET k 1",
            "DEL other k",
            "SPOP {k}s",
            "FLUSHALL",
            "EVAL x 1 other",
        ] {
            assert!(held(line), "{line}");
        }
        for line in ["GET k", "SET other 1", "PING"] {
            assert!(!held(line), "{line}");
        }
        assert!(pause.rest.stops(5), "nothing expires");
        pause.stop(Reason::SlotMove);
        assert!(!held("SET k 1"));
    }

    #[test]
    fn a_pause_ends_no_other_and_none_is_softened() {
        let pause = Pause::default();
        pause.start(Reason::Failover, 20, true, 5);
        pause.start(Reason::Client, 10, false, 5);
        pause.start(Reason::Client, 8, true, 5);
        assert!(is_held(&pause, "ping") && pause.rest.stops(15));
        pause.stop(Reason::Client);
        assert!(!is_held(&pause, "ping") && is_held(&pause, "flushall"));
        pause.stop(Reason::Failover);
        assert!(!is_held(&pause, "flushall") && !pause.rest.stops(5));
    }
}
