//! What holds commands back although they may run: CLIENT PAUSE, and keys that are on their way to another server.
//!
//! Every command looks at one word, which is zero but while something is held back.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

use parking_lot::Mutex;

use crate::command::Args;
use crate::command::declaration::{Command, Flags, Run};
use crate::engine::expire::Rest;
use crate::script::{self, library::Library};
use crate::shard::unit::transaction::Transaction;

/// The longest that a command waits for a key before it looks again, even if nobody nudges it.
const LOOK_AGAIN_MS: u64 = 50;

/// See the module.
#[derive(Debug, Default)]
pub struct Pause {
    /// No command is held back beyond this Unix time in milliseconds.
    gate_ms: AtomicU64,
    until_ms: AtomicU64,
    writes_only: AtomicBool,
    /// Nothing expires either, so that the data stays as it is.
    rest: Arc<Rest>,
    /// Keys that move, of whatever database.
    keys: Mutex<HashSet<Box<[u8]>>>,
}

impl Pause {
    /// No pause. Shards that share `rest` let nothing expire while there is one.
    pub fn new(rest: Arc<Rest>) -> Pause {
        Pause {
            rest,
            ..Pause::default()
        }
    }

    /// Whether nothing expires.
    pub fn rests(&self, now_ms: u64) -> bool {
        self.rest.holds(now_ms)
    }

    /// Keys whose time has come stay while data are loaded.
    pub fn set_loading(&self, is_loading: bool) {
        self.rest.set_loading(is_loading);
    }

    /// Holds clients back; a running pause is never shortened nor softened, as in Redis.
    pub fn start(&self, until_ms: u64, writes_only: bool, now_ms: u64) {
        let keys = self.keys.lock();
        let running = self.until_ms.load(Relaxed) > now_ms;
        self.writes_only.store(
            writes_only && (!running || self.writes_only.load(Relaxed)),
            Relaxed,
        );
        let until_ms = until_ms.max(self.until_ms.load(Relaxed));
        self.until_ms.store(until_ms, Relaxed);
        self.rest.set(until_ms);
        self.set_gate(!keys.is_empty());
    }

    /// Ends the pause.
    pub fn stop(&self) {
        let keys = self.keys.lock();
        self.until_ms.store(0, Relaxed);
        self.rest.set(0);
        self.set_gate(!keys.is_empty());
    }

    /// Holds back whoever wants one of these keys; false, and nothing is done, if one of them is held already.
    pub fn hold_keys(&self, wanted: &[Box<[u8]>]) -> bool {
        let mut keys = self.keys.lock();
        if wanted.iter().any(|key| keys.contains(key)) {
            return false;
        }
        keys.extend(wanted.iter().cloned());
        self.set_gate(!keys.is_empty());
        true
    }

    /// Ends that. Those who wait have to be nudged.
    pub fn release_keys(&self, held: &[Box<[u8]>]) {
        let mut keys = self.keys.lock();
        for key in held {
            keys.remove(key);
        }
        if keys.is_empty() {
            *keys = HashSet::new();
        }
        self.set_gate(!keys.is_empty());
    }

    /// For those who hold the lock.
    fn set_gate(&self, has_keys: bool) {
        let gate_ms = match has_keys {
            true => u64::MAX,
            false => self.until_ms.load(Relaxed),
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
        let until_ms = self.until_ms.load(Relaxed);
        if until_ms > now_ms && (!self.writes_only.load(Relaxed) || any(&writes)) {
            return Some(until_ms);
        }
        let keys = self.keys.lock();
        let is_held = !keys.is_empty()
            && any(&|command, args| match command.run {
                Run::Script(_) => writes(command, args),
                _ => meets(&keys, command, args),
            });
        is_held.then_some(now_ms + LOOK_AGAIN_MS)
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
    use crate::command::table::registry;

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
        pause.start(10, false, 5);
        assert!(pause.hold_keys(&keys));
        assert!(!pause.hold_keys(&keys), "held already");
        assert!(is_held(&pause, "ping") && is_held(&pause, "flushall"));
        pause.stop();
        assert!(!is_held(&pause, "ping") && is_held(&pause, "flushall"));
        pause.start(10, true, 5);
        pause.release_keys(&keys);
        assert!(!is_held(&pause, "ping") && is_held(&pause, "flushall"));
        pause.stop();
        assert!(!is_held(&pause, "flushall"));
    }
}
