//! The reason why a node does not serve requests, as shown in the log and in views of the cluster.

use std::fmt;

use super::Millis;
use super::slot_set::SlotSet;

/// Maximum number of slot ranges listed in a text; further ranges are only counted.
const NAMED_RANGES: usize = 8;

/// The reason why a node does not serve, see the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Down {
    /// The node has just started: other nodes may own its slots by now.
    Starting,
    /// The process was stopped for longer than the node timeout, and the node has not heard from the majority of
    /// primaries since.
    Slept {
        /// Milliseconds for which the process was stopped.
        millis: Millis,
        /// Primaries that have replied since, including this one.
        heard: usize,
        /// Number of primaries required.
        needed: usize,
    },
    /// Fewer primaries than the majority are reachable.
    Minority {
        /// Number of reachable primaries, including this one.
        reachable: usize,
        /// Number of primaries required.
        needed: usize,
    },
    /// Like `Minority`, because nodes.conf cannot be written: until it can, this node sends nothing.
    Unsaved,
    /// The majority is reachable again; a primary waits a little, in case that other nodes claim its slots with a
    /// newer epoch.
    Rejoining,
    /// Some slots have no owner, or an owner that has failed.
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
                "this node was stopped for {millis} milliseconds; {heard} primaries have replied since then, {needed} \
                 are required"
            ),
            Down::Minority { reachable, needed } => write!(
                f,
                "this node reaches {reachable} primaries, but the majority is {needed}"
            ),
            Down::Unsaved => write!(
                f,
                "the cluster config file cannot be written, so this node sends nothing to other nodes"
            ),
            Down::Rejoining => write!(f, "this node was in a minority until just now"),
            Down::Uncovered(slots) => {
                let count = slots.len();
                write!(f, "{count} slots have no working primary (")?;
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
                    more => write!(f, " and {more} more ranges)"),
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
        assert_eq!(text, "6 slots have no working primary (0-4,9)");
        let apart = (0..40).step_by(2).collect();
        let text = Down::Uncovered(apart).to_string();
        assert!(text.ends_with("(0,2,4,6,8,10,12,14 and 12 more ranges)"));
    }
}
