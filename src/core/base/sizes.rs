//! Sizes that are reduced in tests, so that little data takes the same paths as much data in a server.
//!
//! Small in this crate's own tests, and in a test process that called `shrink`; a server built for the black-box
//! tests has the usual sizes, although the same build includes the testing features.

#[cfg(any(test, feature = "testing"))]
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

#[cfg(any(test, feature = "testing"))]
static ARE_SMALL: AtomicBool = AtomicBool::new(cfg!(test));

/// Makes sizes small from now on, in this process.
#[cfg(any(test, feature = "testing"))]
pub fn shrink() {
    ARE_SMALL.store(true, Relaxed);
}

/// Returns the usual size, except in tests.
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
