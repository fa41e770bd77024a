//! One shard's word, its queue and its engine: the atomic steps of the protocol and nothing else.
//!
//! This module does not depend on messages and workers. Invariant: `backlog` and `engine` are touched only by
//! the holder of the token.
#![expect(
    unsafe_code,
    reason = "the word is a tagged pointer; the token stands in for a lock"
)]

use std::ptr::{self, NonNull};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::queued::IntrusiveLink;
use super::sync::{AtomicPtr, InjectedFault, UnsafeCell};

/// Bit 0 of the word; links are aligned, so their addresses leave it clear.
const HELD: usize = 1;

/// Bit 1: the holder will not release the token for long, so that no message should wait here with tokens of other
/// shards.
const LONG: usize = 2;

const FLAGS: usize = HELD | LONG;

/// The word of a held shard with nothing queued. An address without provenance: it is compared, never followed.
const HELD_ALONE: *mut IntrusiveLink = ptr::without_provenance_mut(HELD);

/// The word, the data that the token protects, and the counter that every take increments, on one pair of cache
/// lines.
///
/// The word is null (free, and then nothing is queued), or `newest queued link | HELD`, with `LONG` if the holder set
/// it. Only the holder sets and clears `LONG`, and clears it before the release.
#[repr(C)]
pub(super) struct ShardGate<E> {
    word: AtomicPtr<IntrusiveLink>,
    /// Messages taken from the word's list that have not run yet, oldest first.
    backlog: UnsafeCell<*mut IntrusiveLink>,
    /// Number of takes. The token's holder increments it by a plain load and store; any thread may read it.
    takes: AtomicU64,
    /// std's cell even under loom, where the models' engines detect races themselves.
    engine: std::cell::UnsafeCell<E>,
    #[cfg(loom)]
    fault: InjectedFault,
}

// SAFETY: the word is atomic; `backlog` and `engine` are only touched with the token, which one thread has at a time
// and which passes from one to the next by release and acquire (see each step). Links are owned by the queue they are
// in.
unsafe impl<E: Send> Send for ShardGate<E> {}
// SAFETY: as above.
unsafe impl<E: Send> Sync for ShardGate<E> {}

/// Outcome of `ShardGate::take_or_push`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AcquireOutcome {
    /// The caller has the token, and still owns the link.
    Taken,
    /// The link was queued and belongs to the token's holder now.
    Queued,
    /// The shard is held for long, and the caller asked not to queue then: nothing was done.
    HeldLong,
}

impl<E> ShardGate<E> {
    pub(super) fn new(engine: E, fault: InjectedFault) -> ShardGate<E> {
        let _ = fault;
        ShardGate {
            word: AtomicPtr::new(ptr::null_mut()),
            backlog: UnsafeCell::new(ptr::null_mut()),
            takes: AtomicU64::new(0),
            engine: std::cell::UnsafeCell::new(engine),
            #[cfg(loom)]
            fault,
        }
    }

    #[cfg(loom)]
    pub(super) fn has(&self, fault: InjectedFault) -> bool {
        self.fault == fault
    }

    #[cfg(not(loom))]
    #[inline(always)]
    pub(super) const fn has(&self, _fault: InjectedFault) -> bool {
        false
    }

    /// Returns the engine, to be dereferenced only with the token.
    #[inline(always)]
    pub(super) fn engine(&self) -> *mut E {
        self.engine.get()
    }

    pub(super) fn takes(&self) -> u64 {
        self.takes.load(Relaxed)
    }

    /// Returns whether the shard seems free, for callers that do not have the token.
    #[inline]
    pub(super) fn seems_free(&self) -> bool {
        self.word.load(Relaxed).is_null()
    }

    /// Takes the token if it is free. One CAS, without a prior load: the cache line is needed for writing
    /// anyway.
    #[inline]
    pub(super) fn try_take(&self) -> bool {
        if self.has(InjectedFault::TakesInTwoSteps) {
            if !self.seems_free() {
                return false;
            }
            self.word.store(HELD_ALONE, Relaxed);
        } else {
            // Acquire pairs with the Release of `try_release`: the last holder's changes are seen.
            let taken = self
                .word
                .compare_exchange(ptr::null_mut(), HELD_ALONE, Acquire, Relaxed);
            if taken.is_err() {
                return false;
            }
        }
        self.count_take();
        true
    }

    /// Takes the token or leaves the link with its holder: one atomic decision on one word, so there is no moment at
    /// which a link could be queued at a shard that is not held. With `heeds_long` a shard that is held for long gets
    /// no link: the same word marks it, so that no link slips in after the holder has checked the queue.
    ///
    /// # Safety
    /// 1. `link` points to a live message that is in no queue. 2. After `Queued` the caller does not touch it again.
    #[inline]
    pub(super) unsafe fn take_or_push(
        &self,
        link: NonNull<IntrusiveLink>,
        heeds_long: bool,
    ) -> AcquireOutcome {
        let mut word: *mut IntrusiveLink = ptr::null_mut();
        loop {
            if word.is_null() {
                // As in `try_take`.
                match self
                    .word
                    .compare_exchange(word, HELD_ALONE, Acquire, Relaxed)
                {
                    Ok(_) => {
                        self.count_take();
                        return AcquireOutcome::Taken;
                    }
                    Err(current) => word = current,
                }
            } else {
                let flags = word.addr() & FLAGS;
                if heeds_long && flags & LONG != 0 {
                    return AcquireOutcome::HeldLong;
                }
                let newest = word.map_addr(|address| address & !FLAGS);
                // SAFETY: (1) the link is live; it is not published yet, so only this thread uses it.
                unsafe { IntrusiveLink::set_next(link, newest) };
                let pushed = link.as_ptr().map_addr(|address| address | flags);
                // Release pairs with the Acquire swap of `pop`: the holder sees the link, the message, and whatever was
                // done under the tokens that the message carries. Later pushes continue the release sequence.
                let push = if self.has(InjectedFault::PushesRelaxed) {
                    Relaxed
                } else {
                    Release
                };
                match self.word.compare_exchange_weak(word, pushed, push, Relaxed) {
                    Ok(_) => return AcquireOutcome::Queued,
                    Err(current) => word = current,
                }
            }
        }
    }

    /// Releases the token if no message is pending; returns whether it was released.
    ///
    /// # Safety
    /// The caller has the token, and does not use it after `true` was returned.
    #[inline]
    pub(super) unsafe fn try_release(&self) -> bool {
        // SAFETY: the backlog belongs to the token.
        if !unsafe { self.backlog.with(|backlog| *backlog) }.is_null() {
            return false;
        }
        if self.has(InjectedFault::ForgetsPending) {
            self.word.store(ptr::null_mut(), Release);
            return true;
        }
        let release = if self.has(InjectedFault::ReleasesRelaxed) {
            Relaxed
        } else {
            Release
        };
        // Release pairs with the Acquire of the next taker. On failure nothing is read, so Relaxed is enough.
        self.word
            .compare_exchange(HELD_ALONE, ptr::null_mut(), release, Relaxed)
            .is_ok()
    }

    /// Removes and returns the oldest pending link of a message.
    ///
    /// # Safety
    /// 1. The caller has the token. 2. Something is pending: `try_release` has just returned false.
    pub(super) unsafe fn pop(&self) -> NonNull<IntrusiveLink> {
        // SAFETY: (1) the backlog belongs to the token.
        let mut oldest = unsafe { self.backlog.with(|backlog| *backlog) };
        if oldest.is_null() {
            // Acquire pairs with the Release of every push in the list. The whole list is taken, never one link, so a
            // link that comes back to the same address causes no ABA problem.
            let newest = self
                .word
                .swap(HELD_ALONE, Acquire)
                .map_addr(|address| address & !FLAGS);
            oldest = if self.has(InjectedFault::RunsNewestFirst) {
                newest
            } else {
                // SAFETY: the list was published whole and is now ours alone.
                unsafe { reversed(newest) }
            };
        }
        let oldest =
            NonNull::new(oldest).expect("a token that could not be released has queued messages");
        // SAFETY: (1) the link and the backlog belong to the token's holder.
        unsafe {
            let rest = IntrusiveLink::next(oldest);
            let rest = if self.has(InjectedFault::DropsBacklog) {
                ptr::null_mut()
            } else {
                rest
            };
            self.backlog.with_mut(|backlog| *backlog = rest);
        }
        oldest
    }

    /// Sets or clears the mark that the shard is held for long. Only the holder may call this. Links already
    /// queued stay queued.
    pub(super) fn set_long(&self, is_long: bool) {
        let mut word = self.word.load(Relaxed);
        loop {
            let changed = word.map_addr(|address| match is_long {
                true => address | LONG,
                false => address & !LONG,
            });
            // Relaxed: the bit orders nothing by itself, and pushes before it stay in the release sequence of the word.
            match self
                .word
                .compare_exchange_weak(word, changed, Relaxed, Relaxed)
            {
                Ok(_) => return,
                Err(current) => word = current,
            }
        }
    }

    /// Returns whether a link was queued since the list was last taken. Only the holder may call this.
    pub(super) fn has_new(&self) -> bool {
        self.word.load(Relaxed).addr() & !FLAGS != 0
    }

    /// Takes all queued links, oldest first, as a list.
    ///
    /// # Safety
    /// The caller has the token.
    pub(super) unsafe fn take_queue(&self) -> *mut IntrusiveLink {
        // Only the holder, which the caller is, changes the flags.
        let flags = self.word.load(Relaxed).addr() & FLAGS;
        // Acquire as in `pop`.
        let newest = self
            .word
            .swap(ptr::without_provenance_mut(flags), Acquire)
            .map_addr(|address| address & !FLAGS);
        // SAFETY: the backlog belongs to the token's holder, and the list was published whole and is now ours alone.
        unsafe {
            let newer = reversed(newest);
            let backlog = self
                .backlog
                .with_mut(|backlog| std::mem::replace(&mut *backlog, ptr::null_mut()));
            let Some(mut last) = NonNull::new(backlog) else {
                return newer;
            };
            while let Some(next) = NonNull::new(IntrusiveLink::next(last)) {
                last = next;
            }
            IntrusiveLink::set_next(last, newer);
            backlog
        }
    }

    /// Puts a list back in front of the links queued meanwhile.
    ///
    /// # Safety
    /// 1. The caller has the token. 2. The list was returned by `take_queue`; links may have been removed from it, but
    ///    none was popped from the gate meanwhile.
    pub(super) unsafe fn put_queue_back(&self, list: *mut IntrusiveLink) {
        // SAFETY: (1) and (2): the backlog is the holder's, and empty.
        unsafe { self.backlog.with_mut(|backlog| *backlog = list) };
    }

    /// Takes all links still queued, oldest first; called when the shard is dropped.
    pub(super) fn take_pending(&mut self) -> Vec<NonNull<IntrusiveLink>> {
        let newest = self.word.load(Relaxed).map_addr(|address| address & !FLAGS);
        let mut links = Vec::new();
        // SAFETY: `&mut self`: no other thread has the token or pushes, so both lists are ours.
        unsafe {
            let backlog = self
                .backlog
                .with_mut(|backlog| std::mem::replace(&mut *backlog, ptr::null_mut()));
            for mut list in [backlog, reversed(newest)] {
                while let Some(link) = NonNull::new(list) {
                    list = IntrusiveLink::next(link);
                    links.push(link);
                }
            }
        }
        self.word.store(ptr::null_mut(), Relaxed);
        links
    }

    /// Increments the counter without a locked instruction: only a holder writes it.
    #[inline(always)]
    fn count_take(&self) {
        self.takes.store(self.takes.load(Relaxed) + 1, Relaxed);
    }
}

/// Reverses a list: pushing builds it newest first, but messages run oldest first.
///
/// # Safety
/// All links of the list are live, and only the caller uses them.
unsafe fn reversed(mut list: *mut IntrusiveLink) -> *mut IntrusiveLink {
    let mut turned = ptr::null_mut();
    while let Some(link) = NonNull::new(list) {
        // SAFETY: the caller guarantees this function's contract.
        unsafe {
            list = IntrusiveLink::next(link);
            IntrusiveLink::set_next(link, turned);
        }
        turned = link.as_ptr();
    }
    turned
}
