//! The last lines of the log, for clients that cannot read its file. Bounded in lines and bytes.

use std::collections::VecDeque;

use parking_lot::Mutex;

/// Number of log lines kept.
pub const LINES_MAX: usize = 200;

/// Bytes kept of each line's message.
const LINE_BYTES_MAX: usize = 400;

/// A line of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecentLogLine {
    /// Unix time in milliseconds.
    pub at_ms: u64,
    /// Name of the level.
    pub level: &'static str,
    /// The message.
    pub text: String,
}

/// The kept lines, oldest first.
#[derive(Debug)]
pub(super) struct RecentLines(Mutex<VecDeque<RecentLogLine>>);

impl RecentLines {
    pub(super) const fn new() -> RecentLines {
        RecentLines(Mutex::new(VecDeque::new()))
    }

    pub(super) fn add(&self, at_ms: u64, level: &'static str, text: &str) {
        let cut = text.floor_char_boundary(LINE_BYTES_MAX);
        let mut kept = self.0.lock();
        if kept.len() == LINES_MAX {
            kept.pop_front();
        }
        kept.push_back(RecentLogLine {
            at_ms,
            level,
            text: match cut < text.len() {
                true => format!("{}…", &text[..cut]),
                false => text.to_owned(),
            },
        });
    }

    pub(super) fn latest(&self, count: usize) -> Vec<RecentLogLine> {
        let kept = self.0.lock();
        let left_out = kept.len().saturating_sub(count);
        kept.iter().skip(left_out).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_kept_each_cut_at_a_whole_character() {
        let kept = RecentLines::new();
        for number in 0..LINES_MAX as u64 + 10 {
            kept.add(number, "notice", &format!("line {number}"));
        }
        kept.add(999, "warning", &"ä".repeat(LINE_BYTES_MAX));
        let lines = kept.latest(usize::MAX);
        assert_eq!((lines.len(), lines[0].at_ms), (LINES_MAX, 11));
        let last = &kept.latest(1)[0];
        assert_eq!((last.at_ms, last.level), (999, "warning"));
        assert_eq!(last.text.chars().count(), LINE_BYTES_MAX / 2 + 1);
    }
}
