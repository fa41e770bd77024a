//! Why a node does not serve, as the log and the views of the cluster give it.

use std::fmt;

use super::Millis;
use super::slot_set::SlotSet;

/// Ranges of slots that a text names; the others are counted.
const NAMED_RANGES: usize = 8;

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Down {
    /// The node has just started: others may have its slots by now.
    Starting,
    /// The node did nothing for longer than the node timeout, and has not heard of the majority since.
    Slept {
        /// For how long.
        millis: Millis,
        /// Primaries that have answered since, this one among them.
        heard: usize,
        /// Primaries that have to.
        needed: usize,
    },
    /// Fewer primaries than the majority can be reached.
    Minority {
        /// Primaries that can, this one among them.
        reachable: usize,
        /// Primaries that have to.
        needed: usize,
    },
    /// As that, because the file of what is kept can not be written: until it can, this node says nothing.
    Unsaved,
    /// The majority is heard of again; a primary waits a little for what it may have to say.
    Rejoining,
    /// Slots whose primary has failed, or that have none.
    Uncovered(SlotSet),
}

impl fmt::Display for Down {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Down::Starting => write!(f, "this node has just started"),
            Down::Slept {
                millis,
                heard,
                needed,
            } => write!(
                f,
                "this node was stopped for {millis} milliseconds; {heard} of the primaries have answered since, {needed} have to"
            ),
            Down::Minority { reachable, needed } => write!(
                f,
                "this node reaches {reachable} of the primaries, {needed} are the majority"
            ),
            Down::Unsaved => write!(
                f,
                "the cluster config file can not be written, so this node says nothing to the others"
            ),
            Down::Rejoining => write!(f, "this node has just come back from a minority"),
            Down::Uncovered(slots) => {
                let count = slots.len();
                write!(f, "{count} slots have no primary that works (")?;
                for (at, (first, last)) in slots.ranges().take(NAMED_RANGES).enumerate() {
                    let comma = if at == 0 { "" } else { "," };
                    match first == last {
                        true => write!(f, "{comma}{first}")?,
                        false => write!(f, "{comma}{first}-{last}")?,
                    }
                }
                let more = slots.ranges().count().saturating_sub(NAMED_RANGES);
                match more {
                    0 => write!(f, ")"),
                    more => write!(f, " and {more} ranges more)"),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_named_by_ranges_and_the_rest_is_counted() {
        let slots = (0..5).chain([9]).collect();
        let text = Down::Uncovered(slots).to_string();
        assert_eq!(text, "6 slots have no primary that works (0-4,9)");
        let apart = (0..40).step_by(2).collect();
        let text = Down::Uncovered(apart).to_string();
        assert!(text.ends_with("(0,2,4,6,8,10,12,14 and 12 ranges more)"));
    }
}
