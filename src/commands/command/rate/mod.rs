//! Counters and rate limits.
//!
//! ```text
//! increx    INCREX: a counter with bounds and a deadline
//! throttle  CL.THROTTLE: a rate with bursts
//! ```
//!
//! Both kinds keep their state in an ordinary string.

mod increx;
#[cfg(test)]
mod tests;
mod throttle;

use super::declaration::Command;

pub(super) static TABLE: &[&Command] = &[&throttle::THROTTLE, &increx::INCREX];
