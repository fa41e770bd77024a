//! Sizes that tests make small, so that little data passes what much data passes in a server.
//!
//! Small in this crate's own tests, and in a process of tests that called `shrink`; a server that is built for the
//! black-box tests has the usual sizes, although the same build has what tests need.

#[cfg(any(test, feature = "testing"))]
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

#[cfg(any(test, feature = "testing"))]
static ARE_SMALL: AtomicBool = AtomicBool::new(cfg!(test));

/// Makes sizes small from now on, in this process.
#[cfg(any(test, feature = "testing"))]
pub fn shrink() {
    ARE_SMALL.store(true, Relaxed);
}

/// One of two sizes: the usual one, but in tests.
#[inline(always)]
#[must_use]
pub fn usual_or_small(usual: usize, small: usize) -> usize {
    #[cfg(any(test, feature = "testing"))]
    if ARE_SMALL.load(Relaxed) {
        return small;
    }
    let _ = small;
    usual
}
