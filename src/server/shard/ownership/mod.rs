//! Exclusive ownership of a shard's engine: the token, the queue behind it, and messages that travel with tokens.
//!
//! This module does not depend on Redis, sockets, the runtime or a clock; of the shard's worker task it uses
//! only the waker. It is generic over the engine `E` and the message `M`. "Held" means that a thread, a message
//! or a worker has the shard's token, which acts as an exclusive lock.
//!
//! # The protocol
//!
//! Each shard has one word: null when free, otherwise a HELD bit and a list of messages, newest first.
//!
//! - **Take**: one CAS, null to HELD. A free word has nothing queued, so the taker has no pending messages to run.
//! - **Submit**: "take it or queue" is one CAS on the one word: either the submitter gets the token and runs
//!   the message immediately, or the message is in the list of a holder that cannot release the token without
//!   running it. As one word contains both the flag and the queue, no fence and no second check are needed, and
//!   no message is lost.
//! - **Release**: one CAS, HELD to null, which fails exactly if something was queued. Then the whole list is taken,
//!   reversed into the `backlog`, and run oldest first; the backlog always precedes newer pushes, so each shard is
//!   first come, first served.
//! - **Bound**: after 64 messages a holder passes the *held* token to the shard's worker and wakes it. So no
//!   thread is kept busy without limit, and no shard is ever free while messages are queued.
//! - **Travel**: a message for several shards visits them in ascending order. Where a shard is free, the thread
//!   carrying the message takes the token for it; where it is held, the message joins the queue *with its tokens*, and
//!   the holder of that shard carries it on. The thread that gets the last token runs the message, then releases all
//!   tokens.
//! - **Held for long**: a slow message is offloaded with its tokens to a separate thread ([`extend`]). Its
//!   shards are marked as held for long in their words. A message that queues there releases its tokens of
//!   other shards and keeps its position in the queue. When it is dequeued, the thread tries to take the other
//!   tokens without waiting; after some failures the message travels with tokens again and waits wherever it
//!   has to, so that it cannot starve.
//! - **HeldTokens**: running code may try to take more tokens, but never waits for them ([`extend`]).
//! - **End of a hold**: each time before a token is released, the engine's deferred work moves to the thread
//!   ([`ShardMessage::collect`]), and is done when the thread holds no token at all ([`ShardMessage::settle`]). There
//!   is no other way to release a token.
//!
//! Example: A holds shard 2. B submits a message for 1 and 2: it takes 1, finds 2 held, queues the message there, and
//! returns (shard 1 is now held by no thread, only by the message). C submits to 1: held, so it queues. A releases 2:
//! it finds the message, which now has 1 and 2, runs it, and releases 1 (finds and runs C's message) and 2.
//!
//! # Correctness
//!
//! - *Exclusion*: a token is in one place, with a thread, a travelling message or a worker, and moves by release and
//!   acquire on one of two words (the gate's word, the worker's `handed`).
//! - *No deadlock*: threads never wait. Only messages wait while holding tokens, and only for higher shards; a
//!   holder runs its queue in order without waiting, so the message with the highest held shard always
//!   progresses. A message at a shard that was held for long tries for its other shards, and releases all if it
//!   does not get them.
//! - *Serialisable*: a message runs with all its tokens at once, and they were taken two-phase.
//! - *No recursion*: carrying and releasing are one loop over a worklist ([`drain`]), regardless of what triggers what.
//! - *Quiet*: `finish` (which wakes and frees) runs when this thread holds no token at all ([`holds`]).
//!
//! Limits: exclusive tokens serialise reads too; a thread that is descheduled while it holds the token keeps the shard
//! for its time slice (others queue meanwhile, they do not block); and a travelling message holds its earlier shards
//! while it waits for a later one, so callers should try [`ShardSet::try_take_all`] a few times first.
#![expect(
    unsafe_code,
    reason = "the token stands in for a lock around each engine"
)]

pub mod counters;
mod drain;
pub mod engines;
pub mod extend;
mod gate;
mod holds;
pub mod queued;
mod sync;
pub mod tokens;

#[cfg(all(test, loom))]
mod models;
#[cfg(all(test, not(loom)))]
mod tests;

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::task::{Poll, Waker};

use crossbeam::utils::CachePadded;

use self::counters::{Counters, OwnershipCounters};
use self::drain::Drain;
use self::engines::HeldEngines;
use self::gate::{AcquireOutcome, ShardGate};
use self::queued::{IntrusiveLink, QueuedMessage};
use self::sync::{AtomicBool, AtomicWaker, InjectedFault, spin_loop};
use self::tokens::{HeldTokens, Offloaded};

/// Maximum number of messages that a holder runs for others before the shard's worker gets the rest.
pub const DRAIN_MESSAGES_MAX: usize = 64;

/// A list of shards, mostly short.
pub type ShardList = smallvec::SmallVec<[u16; 8]>;

/// Maximum number of shards in one set; shard numbers are `u16`.
pub const SHARDS_MAX: usize = 1 << 16;

/// A command that may have to queue, or to travel over several shards.
///
/// A message owns all it needs: its requester may be gone when it runs.
pub trait ShardMessage<E>: Send + Sized + 'static {
    /// Returns the shards that the message needs: ascending, without duplicates, at least one (except for an
    /// offloaded message), and the same on each call.
    fn shards(&self) -> &[u16];

    /// Does the work. The tokens of all its shards are held. Must not take or release tokens, submit messages,
    /// wake tasks, block or free large data; a panic ends the process.
    fn run(&mut self, engines: &mut HeldEngines<'_, E>);

    /// Called once after `run`, with no token on this thread: wakes the waiting task, frees or recycles. May
    /// submit messages, unless this message was turned away ([`HeldTokens::turn_away`]) and did not run.
    fn finish(queued: Box<QueuedMessage<Self>>);

    /// Moves an engine's deferred work to this thread; returns whether there is any. The engine's token is
    /// held, and about to be released.
    fn collect(engine: &mut E) -> bool {
        let _ = engine;
        false
    }

    /// Does the deferred work collected on this thread, which holds no token. May submit messages.
    fn settle() {}

    /// Returns whether the message may need more shards, and is therefore run by [`ShardMessage::run_extendable`]. Must
    /// return the same on each call.
    fn is_extendable(&self) -> bool {
        false
    }

    /// Does the same as [`ShardMessage::run`], and may try to take more tokens.
    fn run_extendable(&mut self, held: &mut HeldTokens<'_, E, Self>) {
        let _ = held;
        unreachable!("an extendable message must implement run_extendable");
    }

    /// Returns whether the message is offloaded, instead of running on the thread that gets its last token.
    /// Must return the same on each call.
    fn is_offloaded(&self) -> bool {
        false
    }

    /// Passes an offloaded message to a thread that will [`ShardSet::resume`] it. The calling thread holds no
    /// token.
    fn offload(offloaded: Offloaded<Self>) {
        drop(offloaded);
        unreachable!("an offloaded message must implement offload");
    }
}

/// Returns whether the calling thread holds tokens. Safe to call in signal handlers.
pub fn is_holding() -> bool {
    holds::is_open()
}

/// A fixed set of shards, each an engine behind its token.
pub struct ShardSet<E, M> {
    gates: Box<[CachePadded<ShardGate<E>>]>,
    sides: Box<[CachePadded<ShardSideState>]>,
    drain_max: usize,
    messages: PhantomData<fn(M) -> M>,
}

/// State of a shard that its token does not protect, on a separate cache line.
struct ShardSideState {
    /// True while the worker has the token: set by the holder that hands it over, cleared by the worker that picks it
    /// up.
    handed: AtomicBool,
    worker: AtomicWaker,
    tally: OwnershipCounters,
}

impl<E: Send, M: ShardMessage<E>> ShardSet<E, M> {
    /// Creates one shard per engine, all free.
    pub fn new(engines: Vec<E>) -> ShardSet<E, M> {
        ShardSet::with(engines, DRAIN_MESSAGES_MAX, InjectedFault::None)
    }

    fn with(engines: Vec<E>, drain_max: usize, fault: InjectedFault) -> ShardSet<E, M> {
        assert!(
            (1..=SHARDS_MAX).contains(&engines.len()),
            "1 to {SHARDS_MAX} shards"
        );
        let side = || ShardSideState {
            handed: AtomicBool::new(false),
            worker: AtomicWaker::new(),
            tally: OwnershipCounters::default(),
        };
        ShardSet {
            sides: engines.iter().map(|_| CachePadded::new(side())).collect(),
            gates: engines
                .into_iter()
                .map(|e| CachePadded::new(ShardGate::new(e, fault)))
                .collect(),
            drain_max,
            messages: PhantomData,
        }
    }

    /// Returns the number of shards.
    #[expect(clippy::len_without_is_empty, reason = "there is always a shard")]
    pub fn len(&self) -> usize {
        self.gates.len()
    }

    /// Returns the addresses of the token's word and of the engine, for prefetching only.
    #[inline(always)]
    pub fn addresses(&self, shard: u16) -> [*const u8; 2] {
        let gate = &*self.gates[shard as usize];
        [std::ptr::from_ref(gate).cast(), gate.engine().cast()]
    }

    /// Takes the token if it is free: one CAS. Free also means that nothing is queued, so there is nothing to run
    /// first.
    #[inline]
    pub fn try_take(&self, shard: u16) -> Option<ShardGuard<'_, E, M>> {
        if self.gates[shard as usize].try_take() {
            return Some(ShardGuard::new(self, shard));
        }
        self.found_held(shard);
        None
    }

    /// Takes the token, retrying up to `spins` times (some 10-40 ns each, by processor) while it is held.
    #[inline]
    pub fn take_spinning(&self, shard: u16, spins: u32) -> Option<ShardGuard<'_, E, M>> {
        if self.gates[shard as usize].try_take() {
            return Some(ShardGuard::new(self, shard));
        }
        self.spin_and_take(shard, spins)
    }

    #[cold]
    fn spin_and_take(&self, shard: u16, spins: u32) -> Option<ShardGuard<'_, E, M>> {
        self.found_held(shard);
        let gate = &self.gates[shard as usize];
        for _ in 0..spins {
            spin_loop();
            if gate.seems_free() && gate.try_take() {
                return Some(ShardGuard::new(self, shard));
            }
        }
        None
    }

    /// Runs the message: immediately if its shards are free, otherwise by their holders. Never waits.
    ///
    /// `finish` is called when this thread holds no token, or on the thread that ran the message. A message in
    /// flight when the set is dropped is dropped without a `finish`.
    pub fn submit(&self, mut queued: Box<QueuedMessage<M>>) {
        queued.home = std::ptr::from_ref(self).addr();
        let route = queued.shards();
        if route.is_empty() && queued.is_offloaded() {
            return M::offload(Offloaded::new(queued));
        }
        // Check now: a panic while a token is held would end the process.
        assert!(
            is_route(route, self.len()),
            "ascending shards without duplicates, in range"
        );
        assert!(
            queued.tokens.is_empty(),
            "a message at rest carries no tokens"
        );
        let first = route[0];
        let hold = holds::TokenHoldGuard::new();
        let link = queued.into_link();
        // SAFETY: (1) just made from a box, hence live and in no queue; (2) used below only if it was not queued.
        match unsafe { self.gates[first as usize].take_or_push(link, false) } {
            AcquireOutcome::Queued | AcquireOutcome::HeldLong => {
                self.tally(first).queued.fetch_add(1, Relaxed);
            }
            AcquireOutcome::Taken => {
                let mut drain = Drain::new(self);
                // SAFETY: (1) and (2): this thread owns the message and has the token of its first shard.
                unsafe { drain.carry_and_settle(link, first) };
                drain.close();
            }
        }
        drop(hold);
    }

    /// Polls the worker of a shard: ready if a holder had handed the token to the worker. Then one bounded
    /// round of the queue has been run, and the token is released, or handed to this worker again. No token is
    /// held on return, so the worker task can do other things or yield between rounds. Only one task per shard
    /// may call this.
    pub fn poll_worker(&self, shard: u16, waker: &Waker) -> Poll<Round> {
        let side = &self.sides[shard as usize];
        let late = self.gates[shard as usize].has(InjectedFault::RegistersTooLate);
        if !side.pick_up() {
            // Register, then check again: a token handed over before the second check is seen by it, one handed over
            // later finds the waker. `AtomicWaker` orders the two.
            side.worker.register(waker);
            if late || !side.pick_up() {
                return Poll::Pending;
            }
        }
        let hold = holds::TokenHoldGuard::new();
        let mut drain = Drain::new(self);
        // SAFETY: the token was handed to us.
        unsafe { drain.settle(shard) };
        let messages = drain.close();
        drop(hold);
        Poll::Ready(Round { messages })
    }

    /// Returns the shard's counters, read without the token.
    pub fn counters(&self, shard: u16) -> Counters {
        self.tally(shard).read(self.gates[shard as usize].takes())
    }

    /// Restarts the measurement of a shard's longest recent hold.
    pub fn forget_recent_hold(&self, shard: u16) {
        self.tally(shard).forget_recent_hold();
    }

    /// Returns the unique number of a shard's current hold, or `None` if the shard seems free. For diagnosis.
    pub fn hold_number(&self, shard: u16) -> Option<u64> {
        let Counters {
            takes,
            worker_handovers,
            ..
        } = self.counters(shard);
        (!self.seems_free(shard)).then_some(takes + worker_handovers)
    }

    /// Records how long a token was held, measured by the caller; returns whether that is the longest recent hold.
    #[inline]
    pub fn note_hold_ns(&self, shard: u16, hold_ns: u64) -> bool {
        self.tally(shard).note_hold_ns(hold_ns)
    }

    /// Returns whether the token was free a moment ago: for diagnosis and tests.
    pub fn seems_free(&self, shard: u16) -> bool {
        self.gates[shard as usize].seems_free()
    }

    fn tally(&self, shard: u16) -> &OwnershipCounters {
        &self.sides[shard as usize].tally
    }

    #[cold]
    fn found_held(&self, shard: u16) {
        self.tally(shard).takes_found_held.fetch_add(1, Relaxed);
    }

    /// # Safety
    /// 1. The caller has the tokens of `shards` for `'a`, and uses no other view of them meanwhile. 2. `shards` is
    ///    ascending without duplicates and in range.
    #[inline(always)]
    unsafe fn engines<'a>(&'a self, shards: &'a [u16]) -> HeldEngines<'a, E> {
        // SAFETY: the caller guarantees (1) and (2).
        unsafe { HeldEngines::new(&self.gates, shards) }
    }

    /// Releases a token if no message waits for it; returns whether it did. The engine's deferred work moves to this
    /// thread in any case. Every token is released here.
    ///
    /// # Safety
    /// The caller has the token, and does not use it after `true` was returned.
    #[inline]
    unsafe fn try_release(&self, shard: u16) -> bool {
        let gate = &self.gates[shard as usize];
        // SAFETY: the caller has the token, and no view of the engine lives any more.
        if M::collect(unsafe { &mut *gate.engine() }) {
            holds::owe(M::settle);
        }
        // SAFETY: the caller guarantees this function's contract.
        unsafe { gate.try_release() }
    }

    /// Marks a shard as held for long. Messages that wait there with tokens keep their positions and lose their tokens,
    /// which are added to `loose`.
    ///
    /// # Safety
    /// The caller has the token, and afterwards also those in `loose`.
    unsafe fn hold_long(&self, shard: u16, loose: &mut ShardList) {
        let gate = &self.gates[shard as usize];
        gate.set_long(true);
        // SAFETY: the caller has the token, so the queue's messages belong to this thread until they are put back.
        unsafe {
            let list = gate.take_queue();
            let mut next = NonNull::new(list);
            while let Some(link) = next {
                let queued = QueuedMessage::<M>::borrow(link);
                if !queued.tokens.is_empty() && !queued.insists() {
                    loose.append(&mut queued.tokens);
                    queued.waits_without_tokens = true;
                }
                next = NonNull::new(IntrusiveLink::next(link));
            }
            gate.put_queue_back(list);
        }
    }

    /// Passes a held token to the shard's worker, which the caller must wake afterwards.
    fn hand_to_worker(&self, shard: u16) {
        self.tally(shard).worker_handovers.fetch_add(1, Relaxed);
        // Release pairs with the Acquire of `pick_up`: the token's state moves with the flag.
        let relaxed = self.gates[shard as usize].has(InjectedFault::HandsOverRelaxed);
        let release = if relaxed { Relaxed } else { Release };
        self.sides[shard as usize].handed.store(true, release);
    }

    fn wake_worker(&self, shard: u16) {
        if !self.gates[shard as usize].has(InjectedFault::DropsWorkerWake) {
            self.sides[shard as usize].worker.wake();
        }
    }

    /// Releases several tokens, after running the messages queued for them.
    ///
    /// # Safety
    /// The caller has the tokens, and does not use them afterwards.
    unsafe fn let_go_all(&self, tokens: &[u16]) {
        // Tokens that no message waits for are released at once; the list of the rest is only allocated if needed.
        // SAFETY: the caller has the tokens, and does not use them afterwards.
        let let_go = |&shard: &u16| unsafe { self.try_release(shard) };
        let wanted: ShardList = tokens
            .iter()
            .copied()
            .filter(|shard| !let_go(shard))
            .collect();
        if !wanted.is_empty() {
            let mut drain = Drain::new(self);
            for shard in wanted {
                // SAFETY: the caller still has the token, which could not be released above.
                unsafe { drain.let_go(shard) };
            }
            drain.settle_rest();
            drain.close();
        }
    }

    /// Releases one token, after running the messages queued for it.
    #[cold]
    #[inline(never)]
    fn let_go_slowly(&self, shard: u16) {
        let mut drain = Drain::new(self);
        // SAFETY: called by `ShardGuard` for its own token.
        unsafe { drain.settle(shard) };
        drain.close();
    }
}

impl ShardSideState {
    /// Takes the token that a holder handed to this worker; returns whether there was one.
    fn pick_up(&self) -> bool {
        // Acquire pairs with the Release of `hand_to_worker`. A CAS and not a swap: an idle check writes nothing (and
        // loom, which does not model a swap's read and write as indivisible, would believe that a later swap can miss
        // the hand-over).
        self.handed
            .compare_exchange(true, false, Acquire, Relaxed)
            .is_ok()
    }
}

impl<E, M> Drop for ShardSet<E, M> {
    fn drop(&mut self) {
        for gate in &mut self.gates {
            for link in gate.take_pending() {
                // SAFETY: (1) only messages of `M` are queued here, (2) each is in one queue only, and this empties it.
                drop(unsafe { QueuedMessage::<M>::from_link(link) });
            }
        }
    }
}

/// Result of a worker's round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Round {
    /// Number of messages that were run or carried to their next shard.
    pub messages: usize,
}

/// One shard's token. Dropping it runs the messages queued meanwhile (up to [`DRAIN_MESSAGES_MAX`], then the worker
/// does) and releases it. Stays on its thread; must not be leaked, or the shard stays held and this thread finishes no
/// messages any more.
#[must_use = "dropping it lets go of the shard"]
pub struct ShardGuard<'s, E: Send, M: ShardMessage<E>> {
    shards: &'s ShardSet<E, M>,
    shard: u16,
    not_send: PhantomData<*mut E>,
}

impl<'s, E: Send, M: ShardMessage<E>> ShardGuard<'s, E, M> {
    #[inline(always)]
    fn new(shards: &'s ShardSet<E, M>, shard: u16) -> ShardGuard<'s, E, M> {
        holds::enter();
        ShardGuard {
            shards,
            shard,
            not_send: PhantomData,
        }
    }

    /// Returns the shard's number.
    #[inline]
    pub fn shard(&self) -> u16 {
        self.shard
    }

    /// Returns the engine as a view for code that handles any number of shards.
    #[inline]
    pub fn engines(&mut self) -> HeldEngines<'_, E> {
        // SAFETY: (1) our token, and `&mut self` for the view's life; (2) one shard, checked when it was taken.
        unsafe { self.shards.engines(std::slice::from_ref(&self.shard)) }
    }
}

impl<E: Send, M: ShardMessage<E>> Deref for ShardGuard<'_, E, M> {
    type Target = E;
    #[inline]
    fn deref(&self) -> &E {
        // SAFETY: the guard has the token, and changes need `&mut self`.
        unsafe { &*self.shards.gates[self.shard as usize].engine() }
    }
}

impl<E: Send, M: ShardMessage<E>> DerefMut for ShardGuard<'_, E, M> {
    #[inline]
    fn deref_mut(&mut self) -> &mut E {
        // SAFETY: the guard has the token, and `&mut self` lends one reference at a time.
        unsafe { &mut *self.shards.gates[self.shard as usize].engine() }
    }
}

impl<E: Send, M: ShardMessage<E>> Drop for ShardGuard<'_, E, M> {
    #[inline]
    fn drop(&mut self) {
        if holds::unwinds() {
            return;
        }
        // SAFETY: this thread has the token, and does not use it after `true`.
        if !unsafe { self.shards.try_release(self.shard) } {
            self.shards.let_go_slowly(self.shard);
        }
        holds::leave();
    }
}

/// Returns whether these are valid shards in the order in which they may be taken.
fn is_route(shards: &[u16], count: usize) -> bool {
    shards.is_sorted_by(|a, b| a < b) && shards.last().is_some_and(|&last| (last as usize) < count)
}
