//! Reasons to delay commands that may otherwise run: pauses, each for its own reason, and keys that are being
//! migrated to another server.
//!
//! Every command checks one word, which is zero unless something is paused.

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

/// Maximum time that a command waits for a key before it checks again, even if no thread wakes it.
const LOOK_AGAIN_MS: u64 = 50;

/// Why commands are paused. Each pause ends separately: CLIENT UNPAUSE ends only a pause by CLIENT PAUSE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// A pause by CLIENT PAUSE.
    Client,
    /// DEBUG SLEEP, which stops all clients.
    Sleep,
    /// The last snapshot before shutdown.
    Ending,
    /// A pause while DEBUG RELOAD runs.
    Reload,
    /// A failover to a replica.
    Failover,
    /// A slot handover to another node: only commands that may write to these slots wait.
    SlotMove,
}

/// Number of reasons.
const REASONS: usize = Reason::SlotMove as usize + 1;

/// A pause: when it ends for all commands, and when for write commands, in Unix milliseconds.
#[derive(Clone, Copy, Debug, Default)]
struct PauseDeadlines {
    all_ms: u64,
    writes_ms: u64,
}

/// Everything that is currently paused.
#[derive(Debug, Default)]
struct ActivePauses {
    /// The pauses, by reason.
    spans: [PauseDeadlines; REASONS],
    /// Keys being migrated by MIGRATE, of any database.
    keys: HashSet<Box<[u8]>>,
    /// Slots being handed over to another node.
    slots: SlotSet,
}

/// The current pauses; see the module.
#[derive(Debug, Default)]
pub struct Pause {
    /// Unix time in milliseconds after which no command is delayed.
    gate_ms: AtomicU64,
    /// State shared with expiry: nothing expires during a pause, so that the data does not change.
    pub rest: Arc<Rest>,
    held: Mutex<ActivePauses>,
}

impl Pause {
    /// Creates the state without a pause. Shards that share `rest` expire nothing during a pause.
    pub fn new(rest: Arc<Rest>) -> Pause {
        Pause {
            rest,
            ..Pause::default()
        }
    }

    /// Whether the server is sleeping (DEBUG SLEEP).
    pub fn sleeps(&self, now_ms: u64) -> bool {
        self.held.lock().spans[Reason::Sleep as usize].all_ms > now_ms
    }

    /// Whether the primary's stream is delayed together with all writes.
    pub fn holds_stream(&self, now_ms: u64) -> bool {
        self.is_on(now_ms) && self.held.lock().until_ms(|span| span.writes_ms) > now_ms
    }

    /// Pauses clients; as in Redis, a pause in progress is never shortened or weakened.
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

    /// Pauses commands that may write to these slots, like [`Pause::start`].
    pub fn hold_slots(&self, slots: &SlotSet, until_ms: u64, now_ms: u64) {
        self.held.lock().slots.clone_from(slots);
        self.start(Reason::SlotMove, until_ms, true, now_ms);
    }

    /// Ends the pause with this reason. The caller must then wake the waiting commands.
    pub fn stop(&self, reason: Reason) {
        let mut held = self.held.lock();
        held.spans[reason as usize] = PauseDeadlines::default();
        self.follow(&held);
    }

    /// Delays commands that use one of these keys. Returns false, without effect, if commands on one of the
    /// keys are already delayed.
    pub fn hold_keys(&self, wanted: &[Box<[u8]>]) -> bool {
        let mut held = self.held.lock();
        if wanted.iter().any(|key| held.keys.contains(key)) {
            return false;
        }
        held.keys.extend(wanted.iter().cloned());
        self.follow(&held);
        true
    }

    /// Ends the delay of commands that use these keys. The caller must then wake the waiting commands.
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

    /// Updates `gate_ms` and the pause of expiry from the current pauses.
    fn follow(&self, held: &ActivePauses) {
        let until_ms = held.until_ms(|span| span.writes_ms);
        self.rest.set(until_ms);
        let gate_ms = match held.keys.is_empty() {
            true => until_ms,
            false => u64::MAX,
        };
        self.gate_ms.store(gate_ms, Release);
    }

    /// Whether anything is paused.
    #[inline]
    pub fn is_on(&self, now_ms: u64) -> bool {
        self.gate_ms.load(Acquire) > now_ms
    }

    /// Returns when a paused command is to be checked again, in Unix milliseconds; `None` if it need not wait. As in
    /// Redis, a pause of everything delays CLIENT UNPAUSE, too. `queued` is the transaction that an EXEC runs.
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

impl ActivePauses {
    /// Returns the end of the pauses that delay all write commands, in Unix milliseconds; 0 if there was none.
    fn writes_ms(&self) -> u64 {
        let is_of_all = |at: &usize| *at != Reason::SlotMove as usize;
        let all = (0..REASONS)
            .filter(is_of_all)
            .map(|at| self.spans[at].writes_ms);
        all.max().unwrap_or(0)
    }

    /// Returns the latest value of `end` over all pauses, in Unix milliseconds.
    fn until_ms(&self, end: impl Fn(&PauseDeadlines) -> u64) -> u64 {
        self.spans.iter().map(end).max().unwrap_or(0)
    }
}

/// Whether a write command may write to one of these slots.
fn reaches(slots: &SlotSet, command: &Command, args: &Args<'_>) -> bool {
    match command.run {
        // Scripts may access keys that they do not declare.
        Run::Keys(_) if !args.keys().is_empty() => {
            let is_there = |at: u32| slots.contains(hash::slot(args.get(at as usize)));
            args.keys().iter().any(|key| is_there(key.argument))
        }
        _ => true,
    }
}

/// Whether a command uses, or may use, one of these keys. Iterating over all keys one by one does not count.
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
    use basalt_commands::command::registry::registry;
    use basalt_core::base::hash::HashSeed;

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
        let router = Router::new(HashSeed { k0: 1, k1: 2 }, 1);
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
