//! A message with its queue link: one allocation per message that may have to queue.
//!
//! This module does not depend on gates and engines. A message is always in exactly one place: with its
//! requester, in one shard's queue, with one thread, or among a thread's messages to be finished. Only that
//! place touches the link.
#![expect(
    unsafe_code,
    reason = "intrusive list: links are raw pointers to boxes given up by their owners"
)]

use std::ops::{Deref, DerefMut};
use std::ptr::{self, NonNull};

use super::ShardList;
use super::sync::UnsafeCell;

/// Called on a message after the last token was released; specific to the message's type.
pub(super) type FinishFn = unsafe fn(NonNull<IntrusiveLink>);

/// First field of every message; the queues see nothing else of it.
pub(super) struct IntrusiveLink {
    next: UnsafeCell<*mut IntrusiveLink>,
    finish: UnsafeCell<Option<FinishFn>>,
}

// Bits 0 and 1 of a link's address are the gate's flags.
const _: () = assert!(align_of::<IntrusiveLink>() >= 4);

impl IntrusiveLink {
    /// # Safety
    /// 1. `link` points to a live message. 2. The caller is the only one who may touch its link now.
    #[inline]
    pub(super) unsafe fn next(link: NonNull<IntrusiveLink>) -> *mut IntrusiveLink {
        // SAFETY: the caller guarantees (1) and (2).
        unsafe { link.as_ref().next.with(|next| *next) }
    }

    /// # Safety
    /// 1. `link` points to a live message. 2. The caller is the only one who may touch its link now.
    #[inline]
    pub(super) unsafe fn set_next(link: NonNull<IntrusiveLink>, to: *mut IntrusiveLink) {
        // SAFETY: the caller guarantees (1) and (2).
        unsafe { link.as_ref().next.with_mut(|next| *next = to) }
    }

    /// # Safety
    /// 1. `link` points to a live message. 2. The caller is the only one who may touch its link now.
    #[inline]
    pub(super) unsafe fn finish(link: NonNull<IntrusiveLink>) -> Option<FinishFn> {
        // SAFETY: the caller guarantees (1) and (2).
        unsafe { link.as_ref().finish.with(|finish| *finish) }
    }

    /// # Safety
    /// 1. `link` points to a live message. 2. The caller is the only one who may touch its link now.
    #[inline]
    pub(super) unsafe fn set_finish(link: NonNull<IntrusiveLink>, to: FinishFn) {
        // SAFETY: the caller guarantees (1) and (2).
        unsafe { link.as_ref().finish.with_mut(|finish| *finish = Some(to)) }
    }
}

/// Number of times that a message which waits without tokens may fail to get its other shards before it keeps
/// its tokens while waiting (`QueuedMessage::insists`).
const MISSES_MAX: u8 = 4;

/// A message in its queueable form. The allocation may be reused by `finish`.
#[repr(C)] // the link comes first: a pointer to the message is a pointer to its link
pub struct QueuedMessage<M> {
    link: IntrusiveLink,
    /// The shards whose tokens this message carries, ascending. Only used with more than one shard. The tokens released
    /// after the run are read from here and never from the message, so a message with inconsistent shards cannot
    /// release tokens that it does not have.
    pub(super) tokens: ShardList,
    /// True if the message waits in the queue of a shard that is, or was, held for long, and gave up the tokens of its
    /// other shards.
    pub(super) waits_without_tokens: bool,
    /// Number of times that the message was dequeued but did not get the tokens of its other shards.
    pub(super) misses: u8,
    /// The address of the `Shards` that the message was submitted to.
    pub(super) home: usize,
    /// The message that was wrapped.
    pub(super) message: M,
}

// SAFETY: the raw pointers in the link are only followed by the message's owner (module invariant), the rest is `Send`
// with `M`.
unsafe impl<M: Send> Send for QueuedMessage<M> {}

impl<M> QueuedMessage<M> {
    /// Wraps a message; This is the only allocation that queueing needs, except for a list of many shards.
    pub fn new(message: M) -> Box<QueuedMessage<M>> {
        Box::new(QueuedMessage {
            link: IntrusiveLink {
                next: UnsafeCell::new(ptr::null_mut()),
                finish: UnsafeCell::new(None),
            },
            tokens: ShardList::new(),
            waits_without_tokens: false,
            misses: 0,
            home: 0,
            message,
        })
    }

    /// Returns whether the message keeps its tokens even while it waits at a shard that is held for long. Its
    /// other shards are then blocked, too, so this is only for messages that would otherwise starve.
    pub(super) fn insists(&self) -> bool {
        self.misses >= MISSES_MAX
    }

    /// Unwraps the message.
    pub fn into_message(self) -> M {
        self.message
    }

    #[inline]
    pub(super) fn into_link(self: Box<QueuedMessage<M>>) -> NonNull<IntrusiveLink> {
        // The cast keeps the provenance of the whole box.
        NonNull::from(Box::leak(self)).cast()
    }

    /// # Safety
    /// 1. `link` came from [`QueuedMessage::into_link`] of the same `M`. 2. It has no other owner any more.
    #[inline]
    pub(super) unsafe fn from_link(link: NonNull<IntrusiveLink>) -> Box<QueuedMessage<M>> {
        // SAFETY: (1) the pointer is that of a leaked box of this type; (2) it is turned back once.
        unsafe { Box::from_raw(link.cast().as_ptr()) }
    }

    /// # Safety
    /// As [`QueuedMessage::from_link`], but the message stays where it is: 3. the reference ends before it moves on.
    #[inline]
    pub(super) unsafe fn borrow<'a>(link: NonNull<IntrusiveLink>) -> &'a mut QueuedMessage<M> {
        // SAFETY: (1) live and of this type, (2) and (3) no other reference during `'a`.
        unsafe { link.cast().as_mut() }
    }
}

impl<M> Deref for QueuedMessage<M> {
    type Target = M;
    fn deref(&self) -> &M {
        &self.message
    }
}

impl<M> DerefMut for QueuedMessage<M> {
    fn deref_mut(&mut self) -> &mut M {
        &mut self.message
    }
}
