//! Hot keys: the keys with the most commands, bytes and time, found by sampling commands.
//!
//! Every thread counts down to its next sample, at random intervals, and records samples in its own lists
//! ([`SpaceSaving`]); a query sums them. There are two sets of lists: permanent ones, by commands and by bytes, in
//! which old samples are discounted (`hot-keys-sample`, HOTKEYS TOP, the metrics, LATENCY DOCTOR); and those of the
//! session that HOTKEYS START begins, by time and by bytes, of which there is one at a time. All weights are scaled
//! to all commands. The time and bytes of a command with several keys are divided evenly among them.

use std::collections::HashMap;
use std::iter::repeat;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;

use super::counters::{self, ThreadCounters};
use super::hot_lists::{Lists, SessionLists};
use super::prefix_uses::Counts;
use super::prefixes::Prefixes;
use super::process;
use basalt_commands::command::Args;
use basalt_commands::command::declaration::{Command, Flags};
use basalt_commands::command::host::{HotKeysReport, HotKeysRequest, HotKeysTop};
use basalt_core::structures::space_saving::{Heavy, SpaceSaving, heaviest};
use basalt_engine::Key;

/// Counters kept for each key that HOTKEYS START requests: tracking more candidates than are reported makes the ranking
/// more accurate.
const PLACES_PER_KEY: usize = 4;

/// Protocol overhead of a request's argument, in bytes, besides the argument itself.
const FRAME_BYTES: usize = 5;

/// Interval at which the weight of old samples is halved.
const AGING_MS: u64 = 300_000;

/// Samples of a key from which on its count is considered reliable.
const KNOWN_SAMPLES_MIN: u64 = 4;

/// Countdown value for "never sample".
const NEVER: u64 = u64::MAX;

/// Totals since the server started.
#[derive(Clone, Copy, Debug, Default)]
struct HotKeysTotals {
    duration_ns: u64,
    net_bytes: u64,
    user_ms: u64,
    system_ms: u64,
}

impl HotKeysTotals {
    fn now() -> HotKeysTotals {
        let mut totals = HotKeysTotals::default();
        for thread in counters::all() {
            totals.duration_ns += thread.duration_ns();
            totals.net_bytes += thread.bytes_in.get() + thread.bytes_out.get();
        }
        let cpu = process::cpu().own;
        totals.user_ms = (cpu.user * 1e3) as u64;
        totals.system_ms = (cpu.system * 1e3) as u64;
        totals
    }
}

/// A session begun by HOTKEYS START.
#[derive(Debug)]
struct HotKeysSession {
    request: HotKeysRequest,
    number: u64,
    started_ms: u64,
    before: HotKeysTotals,
    ended: Option<(u64, HotKeysTotals)>,
}

impl HotKeysSession {
    fn is_running(&self) -> bool {
        self.ended.is_none()
    }
}

/// A sampled command that has run.
pub struct Sampled {
    /// The command.
    pub command: &'static Command,
    /// Duration of its run.
    pub duration_ns: u64,
    /// Size of its reply.
    pub reply_bytes: usize,
    /// For a read: whether each of its keys exists, if known.
    pub found: Vec<Option<bool>>,
}

/// Hot-key tracking; see the module.
#[derive(Debug)]
pub struct HotKeys {
    /// Sampling interval in commands while there is no session; 0 to disable sampling.
    always: AtomicU32,
    /// The interval in force.
    interval: AtomicU32,
    /// The largest countdown under the current interval; a thread's higher countdown predates the interval.
    countdown_max: AtomicU64,
    /// The number of the running session, 0 for none.
    running: AtomicU64,
    session: Mutex<Option<HotKeysSession>>,
    numbers: AtomicU64,
    aged_ms: AtomicU64,
}

impl Default for HotKeys {
    fn default() -> HotKeys {
        HotKeys {
            always: AtomicU32::new(0),
            interval: AtomicU32::new(0),
            countdown_max: AtomicU64::new(NEVER),
            running: AtomicU64::new(0),
            session: Mutex::new(None),
            numbers: AtomicU64::new(0),
            aged_ms: AtomicU64::new(0),
        }
    }
}

impl HotKeys {
    /// Applies `hot-keys-sample`: from now on, one in `interval` commands is sampled.
    pub fn configure(&self, interval: u32) {
        let session = self.session.lock();
        self.always.store(interval, Relaxed);
        self.set_interval(&session);
    }

    fn set_interval(&self, session: &Option<HotKeysSession>) {
        let running = session.as_ref().filter(|session| session.is_running());
        let interval = match running {
            Some(session) => session.request.sample,
            None => self.always.load(Relaxed),
        };
        self.running
            .store(running.map_or(0, |session| session.number), Relaxed);
        self.interval.store(interval, Relaxed);
        let countdown_max = match interval {
            0 => NEVER,
            interval => 2 * u64::from(interval),
        };
        self.countdown_max.store(countdown_max, Relaxed);
    }

    /// Discards a countdown that predates the current interval. A thread calls this before it runs commands.
    #[inline]
    pub fn prepare(&self, thread: &ThreadCounters) {
        if thread.until_sample.get() > self.countdown_max.load(Relaxed) {
            thread
                .until_sample
                .set(u64::from(self.interval.load(Relaxed).saturating_sub(1)));
        }
    }

    /// Returns the indices of the commands that the thread's countdown selects for sampling, among `count`
    /// commands that run together.
    pub fn choose(&self, thread: &ThreadCounters, count: usize) -> Vec<usize> {
        let mut chosen = Vec::new();
        let mut at = 0;
        loop {
            let left = thread.until_sample.get();
            let others = (count - at) as u64;
            if left >= others {
                thread.until_sample.set(left - others);
                return chosen;
            }
            chosen.push(at + left as usize);
            at += left as usize + 1;
            self.count_anew(thread);
        }
    }

    /// Restarts the thread's countdown to its next sample.
    pub fn count_anew(&self, thread: &ThreadCounters) {
        let interval = u64::from(self.interval.load(Relaxed));
        if interval == 0 {
            thread.until_sample.set(NEVER);
            return;
        }
        let mut lists = thread.hot.lock();
        thread
            .until_sample
            .set(lists.get_or_insert_default().next(interval));
    }

    /// Returns the interval of permanent sampling; 0 if commands are sampled only during sessions.
    pub fn sampled(&self) -> u32 {
        match self.always.load(Relaxed) {
            0 => 0,
            _ => self.interval.load(Relaxed),
        }
    }

    /// Records a sampled command: its keys, time, and bytes in and out.
    #[cold]
    #[inline(never)]
    pub fn add(
        &self,
        thread: &ThreadCounters,
        prefixes: &Prefixes,
        args: &Args<'_>,
        sampled: &Sampled,
    ) {
        let received = args.from(0).map(|argument| argument.len() + FRAME_BYTES);
        let bytes = (received.sum::<usize>() + sampled.reply_bytes) as u64;
        let keys = args.keys().iter().map(|routed| args.key_of(routed));
        self.add_keys(thread, keys, sampled.duration_ns, bytes);
        self.add_prefixes(thread, prefixes, args, sampled);
    }

    fn add_prefixes(
        &self,
        thread: &ThreadCounters,
        prefixes: &Prefixes,
        args: &Args<'_>,
        sampled: &Sampled,
    ) {
        let weight = u64::from(self.sampled());
        let flags = sampled.command.flags;
        let (reads, writes) = match (flags.has(Flags::WRITE), flags.has(Flags::READONLY)) {
            (true, _) => (0, weight),
            (false, true) => (weight, 0),
            // A script may read and write.
            (false, false) => return,
        };
        let mut lists = thread.hot.lock();
        let uses = &mut lists.get_or_insert_default().by_prefix;
        let found = sampled.found.iter().copied().chain(repeat(None));
        for (routed, found) in args.keys().iter().zip(found) {
            let counts = Counts {
                reads,
                writes,
                hits: if found == Some(true) { reads } else { 0 },
                misses: if found == Some(false) { reads } else { 0 },
            };
            prefixes.count(uses, args.key_of(routed).bytes, counts);
        }
    }

    fn add_keys<'k>(
        &self,
        thread: &ThreadCounters,
        keys: impl ExactSizeIterator<Item = Key<'k>>,
        duration_ns: u64,
        bytes: u64,
    ) {
        let interval = u64::from(self.interval.load(Relaxed));
        let count = keys.len() as u64;
        if interval == 0 || count == 0 {
            return;
        }
        let mut lists = thread.hot.lock();
        let lists = lists.get_or_insert_default();
        let running = self.running.load(Relaxed);
        if running != 0
            && lists
                .session
                .as_ref()
                .is_none_or(|kept| kept.number != running)
        {
            lists.session = self.session_lists(running);
        }
        let (own_ns, own_bytes) = (duration_ns / count * interval, bytes / count * interval);
        for key in keys {
            lists.by_commands.add(key.bytes, key.hash, interval);
            lists.by_bytes.add(key.bytes, key.hash, own_bytes);
            if let Some(session) = &mut lists.session
                && session.number == running
            {
                if let Some(list) = &mut session.by_ns {
                    list.add(key.bytes, key.hash, own_ns);
                }
                if let Some(list) = &mut session.by_bytes {
                    list.add(key.bytes, key.hash, own_bytes);
                }
            }
        }
    }

    fn session_lists(&self, number: u64) -> Option<SessionLists> {
        let session = self.session.lock();
        let request = &session
            .as_ref()
            .filter(|session| session.number == number)?
            .request;
        let list = || SpaceSaving::new(request.count * PLACES_PER_KEY);
        Some(SessionLists {
            number,
            by_ns: request.cpu.then(list),
            by_bytes: request.net.then(list),
        })
    }

    /// Starts a session (HOTKEYS START). Returns false if one is running.
    pub fn start(&self, request: HotKeysRequest, now_ms: u64) -> bool {
        let mut session = self.session.lock();
        end_if_over(&mut session, now_ms);
        if session.as_ref().is_some_and(HotKeysSession::is_running) {
            return false;
        }
        *session = Some(HotKeysSession {
            request,
            number: self.numbers.fetch_add(1, Relaxed) + 1,
            started_ms: now_ms,
            before: HotKeysTotals::now(),
            ended: None,
        });
        self.set_interval(&session);
        true
    }

    /// Stops the session (HOTKEYS STOP). Returns false if none is running.
    pub fn stop(&self, now_ms: u64) -> bool {
        let mut session = self.session.lock();
        end_if_over(&mut session, now_ms);
        let running = session.as_mut().filter(|session| session.is_running());
        let is_running = running.is_some();
        if let Some(session) = running {
            session.ended = Some((now_ms, HotKeysTotals::now()));
        }
        self.set_interval(&session);
        is_running
    }

    /// Discards the session (HOTKEYS RESET). Returns false if it is still running.
    pub fn reset(&self, now_ms: u64) -> bool {
        let mut session = self.session.lock();
        end_if_over(&mut session, now_ms);
        if session.as_ref().is_some_and(HotKeysSession::is_running) {
            return false;
        }
        *session = None;
        self.set_interval(&session);
        drop(session);
        for thread in counters::all() {
            if let Some(lists) = thread.hot.lock().as_mut() {
                lists.session = None;
            }
        }
        true
    }

    /// Returns the session's report (HOTKEYS GET); `None` before the first session and after a reset.
    pub fn report(&self, now_ms: u64) -> Option<HotKeysReport> {
        let (request, number, started_ms, before, ended) = {
            let mut session = self.session.lock();
            end_if_over(&mut session, now_ms);
            self.set_interval(&session);
            let session = session.as_ref()?;
            (
                session.request,
                session.number,
                session.started_ms,
                session.before,
                session.ended,
            )
        };
        let (until_ms, after) = ended.unwrap_or_else(|| (now_ms, HotKeysTotals::now()));
        let sum = |list: fn(&SessionLists) -> &Option<SpaceSaving>, scale: u64| {
            let threads = counters::all();
            let kept: Vec<SpaceSaving> = threads
                .iter()
                .filter_map(|thread| {
                    let lists = thread.hot.lock();
                    let session = lists.as_ref()?.session.as_ref()?;
                    (session.number == number).then(|| list(session).clone())?
                })
                .collect();
            let (heavy, _) = heaviest(kept.iter(), request.count);
            heavy
                .into_iter()
                .map(|heavy| (heavy.name.into_vec(), heavy.weight / scale))
                .collect()
        };
        Some(HotKeysReport {
            is_active: ended.is_none(),
            sample: request.sample,
            all_us: after.duration_ns.saturating_sub(before.duration_ns) / 1_000,
            all_bytes: after.net_bytes.saturating_sub(before.net_bytes),
            started_ms,
            duration_ms: until_ms.saturating_sub(started_ms),
            user_ms: after.user_ms.saturating_sub(before.user_ms),
            system_ms: after.system_ms.saturating_sub(before.system_ms),
            by_us: request.cpu.then(|| sum(|session| &session.by_ns, 1_000)),
            by_bytes: request.net.then(|| sum(|session| &session.by_bytes, 1)),
        })
    }

    /// Returns the hottest recent keys, by the weight that is certainly their own. This excludes a key that merely
    /// took a slot of a full list by arriving last.
    pub fn top(&self, count: usize) -> HotKeysTop {
        let sum = |list: fn(&Lists) -> &SpaceSaving, is_known: &dyn Fn(u64, u64) -> bool| {
            let threads = counters::all();
            let kept: Vec<SpaceSaving> = threads
                .iter()
                .filter_map(|thread| Some(list(thread.hot.lock().as_ref()?).clone()))
                .collect();
            let (heavy, total) = heaviest(kept.iter(), usize::MAX);
            let own = |heavy: Heavy| {
                let own = heavy.weight.saturating_sub(heavy.excess);
                is_known(own, heavy.excess).then(|| (heavy.name.into_vec(), own))
            };
            let known = heavy.into_iter().filter_map(own).take(count);
            (known.collect(), total)
        };
        let uses_min = KNOWN_SAMPLES_MIN * u64::from(self.interval.load(Relaxed));
        let (by_commands, commands) = sum(|lists| &lists.by_commands, &|own, _| own >= uses_min);
        // The number of samples that make up the bytes is unknown, so require that at least half of them are
        // certainly the key's own.
        let (by_bytes, bytes) = sum(|lists| &lists.by_bytes, &|own, excess| own >= excess);
        HotKeysTop {
            interval: self.interval.load(Relaxed),
            commands,
            bytes,
            by_commands,
            by_bytes,
            copied: copied(),
        }
    }

    /// Returns the certain recent uses of reliably counted keys, by the keys' hashes.
    pub fn counts(&self) -> Vec<(u64, u64)> {
        let mut counts = HashMap::<u64, u64>::new();
        for thread in counters::all() {
            if let Some(lists) = thread.hot.lock().as_ref() {
                for (hash, uses) in lists.by_commands.certain() {
                    *counts.entry(hash).or_default() += uses;
                }
            }
        }
        let uses_min = KNOWN_SAMPLES_MIN * u64::from(self.interval.load(Relaxed));
        counts.retain(|_, uses| *uses >= uses_min);
        counts.into_iter().collect()
    }

    /// Runs in the cron: ends a session that has expired, and halves the weight of old samples when due.
    pub fn tick(&self, now_ms: u64) {
        if self.running.load(Relaxed) != 0 {
            let mut session = self.session.lock();
            end_if_over(&mut session, now_ms);
            self.set_interval(&session);
        }
        let aged_ms = self.aged_ms.load(Relaxed);
        if now_ms.saturating_sub(aged_ms) >= AGING_MS {
            self.aged_ms.store(now_ms, Relaxed);
            for thread in counters::all().iter().filter(|_| aged_ms != 0) {
                if let Some(lists) = thread.hot.lock().as_mut() {
                    lists.by_commands.age();
                    lists.by_bytes.age();
                }
            }
        }
    }

    /// Returns a key whose share of the traffic is so large that its shard is the bottleneck, if there is one.
    pub fn hottest(&self) -> Option<HotKey> {
        const NOTABLE_PERCENT: u64 = 20;
        const COMMANDS_MIN: u64 = 10_000;
        let top = self.top(1);
        let (key, commands) = top.by_commands.first()?;
        let percent = (commands * 100).checked_div(top.commands)?;
        (top.commands >= COMMANDS_MIN && percent >= NOTABLE_PERCENT).then(|| HotKey {
            key: key.clone(),
            shown: shown(key),
            percent,
        })
    }
}

/// A notable key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HotKey {
    /// The key.
    pub key: Vec<u8>,
    /// The key as displayed.
    pub shown: String,
    /// Percentage of all key uses that it accounts for.
    pub percent: u64,
}

/// Returns the keys that threads have copies of, with the number of threads; those with most threads first.
fn copied() -> Vec<(Vec<u8>, u64)> {
    let mut threads = HashMap::<(usize, Box<[u8]>), u64>::new();
    for thread in counters::all() {
        thread.hot_copies.each_copy(|copy| {
            *threads.entry((copy.db, copy.name.clone())).or_default() += 1;
        });
    }
    let named = threads
        .into_iter()
        .map(|((_, name), threads)| (name.into_vec(), threads));
    let mut copied: Vec<(Vec<u8>, u64)> = named.collect();
    copied.sort_unstable_by(|one, other| (other.1, &one.0).cmp(&(one.1, &other.0)));
    copied
}

fn end_if_over(session: &mut Option<HotKeysSession>, now_ms: u64) {
    if let Some(session) = session
        && session.is_running()
        && session.request.duration_s > 0
    {
        let over_ms = session
            .started_ms
            .saturating_add(session.request.duration_s.saturating_mul(1_000));
        if over_ms <= now_ms {
            session.ended = Some((over_ms, HotKeysTotals::now()));
        }
    }
}

/// Formats a key for display.
pub fn shown(key: &[u8]) -> String {
    const BYTES_MAX: usize = 64;
    let text = String::from_utf8_lossy(&key[..key.len().min(BYTES_MAX)]).into_owned();
    match key.len() > BYTES_MAX {
        true => format!("{text:?}…"),
        false => format!("{text:?}"),
    }
}

#[cfg(test)]
mod tests;
