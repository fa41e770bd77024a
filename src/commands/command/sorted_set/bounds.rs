//! Ranges of sorted sets as requests give them: by rank, by score, by member. All ranges are converted to ranks.

use crate::client::connection::Origin;
use crate::command::error::CommandError;
use basalt_core::base::number;
use basalt_core::structures::ordered::Direction;
use basalt_engine::value::sorted_set::SortedSet;

/// A range of ranks: `from` up to but not including `to`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ranks {
    pub(super) from: usize,
    pub(super) to: usize,
}

impl Ranks {
    const NONE: Ranks = Ranks { from: 0, to: 0 };

    fn new(from: usize, to: usize) -> Ranks {
        if from < to {
            Ranks { from, to }
        } else {
            Ranks::NONE
        }
    }

    pub(super) fn count(self) -> usize {
        self.to - self.from
    }

    /// Returns the part of the range that a LIMIT leaves: all after the offset if the count is negative, nothing if
    /// the offset is.
    pub(super) fn limited(self, offset: i64, count: i64, direction: Direction) -> Ranks {
        let Ok(offset) = usize::try_from(offset) else {
            return Ranks::NONE;
        };
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        match direction {
            Direction::Ascending => {
                let from = self.from.saturating_add(offset);
                Ranks::new(from, self.to.min(from.saturating_add(count)))
            }
            Direction::Descending => {
                let to = self.to.saturating_sub(offset);
                Ranks::new(self.from.max(to.saturating_sub(count)), to)
            }
        }
    }
}

/// A range as requested.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum SortedSetRange<'a> {
    /// From one rank to another, both counted from the end if they are negative.
    Rank(i64, i64),
    Score(ScoreBound, ScoreBound),
    Lex(LexBound<'a>, LexBound<'a>),
}

/// One end of a range of scores.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ScoreBound {
    score: f64,
    is_exclusive: bool,
}

/// One end of a range of members.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum LexBound<'a> {
    Least,
    Greatest,
    Inclusive(&'a [u8]),
    Exclusive(&'a [u8]),
}

impl<'a> SortedSetRange<'a> {
    /// Parses a range of scores. Clients may not leave out the number of a bound, as in Valkey 9.2; Redis takes that
    /// for 0, so what another server has run is taken.
    pub(super) fn scores(
        origin: Origin,
        min: &[u8],
        max: &[u8],
    ) -> Result<SortedSetRange<'a>, CommandError> {
        let is_without_number = [min, max].iter().any(|text| matches!(*text, b"" | b"("));
        match (ScoreBound::parse(min), ScoreBound::parse(max)) {
            (Some(min), Some(max)) if !is_without_number || origin.has_run_before() => {
                Ok(SortedSetRange::Score(min, max))
            }
            _ => Err("ERR min or max is not a float".into()),
        }
    }

    pub(super) fn members(
        min: &'a [u8],
        max: &'a [u8],
    ) -> Result<SortedSetRange<'a>, CommandError> {
        match (LexBound::parse(min), LexBound::parse(max)) {
            (Some(min), Some(max)) => Ok(SortedSetRange::Lex(min, max)),
            _ => Err("ERR min or max not valid string range item".into()),
        }
    }

    /// Returns the ranks that the range covers. In a descending walk, ranks are counted from the other end; bounds of
    /// scores and members are not affected.
    pub(super) fn ranks(self, set: SortedSet<'_>, direction: Direction) -> Ranks {
        match self {
            SortedSetRange::Rank(start, stop) => by_rank(start, stop, set.len(), direction),
            SortedSetRange::Score(min, max) => {
                let from = set.rank_by_score(|score| {
                    score < min.score || (min.is_exclusive && score == min.score)
                });
                let to = set.rank_by_score(|score| {
                    score < max.score || (!max.is_exclusive && score == max.score)
                });
                Ranks::new(from, to)
            }
            SortedSetRange::Lex(min, max) => {
                let from = match min {
                    LexBound::Least => 0,
                    LexBound::Greatest => return Ranks::NONE,
                    LexBound::Inclusive(min) => set.rank_by_member(|member| member < min),
                    LexBound::Exclusive(min) => set.rank_by_member(|member| member <= min),
                };
                let to = match max {
                    LexBound::Least => return Ranks::NONE,
                    LexBound::Greatest => set.len(),
                    LexBound::Inclusive(max) => set.rank_by_member(|member| member <= max),
                    LexBound::Exclusive(max) => set.rank_by_member(|member| member < max),
                };
                Ranks::new(from, to)
            }
        }
    }
}

fn by_rank(start: i64, stop: i64, len: usize, direction: Direction) -> Ranks {
    let from_end = |rank: i64| {
        if rank < 0 {
            rank.saturating_add(len as i64)
        } else {
            rank
        }
    };
    let (start, stop) = (from_end(start).max(0), from_end(stop));
    let Ok(stop) = usize::try_from(stop) else {
        return Ranks::NONE;
    };
    let start = usize::try_from(start).unwrap_or(usize::MAX);
    let end = stop.saturating_add(1).min(len);
    if start >= end {
        return Ranks::NONE;
    }
    match direction {
        Direction::Ascending => Ranks::new(start, end),
        Direction::Descending => Ranks::new(len - end, len - start),
    }
}

impl ScoreBound {
    fn parse(text: &[u8]) -> Option<ScoreBound> {
        let (is_exclusive, text) = match text.strip_prefix(b"(") {
            Some(text) => (true, text),
            None => (false, text),
        };
        Some(ScoreBound {
            score: bound_score(text)?,
            is_exclusive,
        })
    }
}

/// Parses a bound like C's `strtod`, which is laxer than for a score: an empty text is 0, leading blanks are allowed,
/// and numbers too large or too small are infinite or 0.
fn bound_score(text: &[u8]) -> Option<f64> {
    if let Some(score) = number::parse_i64(text) {
        return Some(score as f64);
    }
    if text.is_empty() {
        return Some(0.0);
    }
    let text = text.trim_ascii_start();
    number::parse_f64(text).or_else(|| {
        let value: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
        (!value.is_nan()).then_some(value)
    })
}

impl<'a> LexBound<'a> {
    fn parse(text: &'a [u8]) -> Option<LexBound<'a>> {
        match text {
            b"-" => Some(LexBound::Least),
            b"+" => Some(LexBound::Greatest),
            [b'[', member @ ..] => Some(LexBound::Inclusive(member)),
            [b'(', member @ ..] => Some(LexBound::Exclusive(member)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_count_from_either_end() {
        let up = |start, stop| {
            let ranks = by_rank(start, stop, 10, Direction::Ascending);
            (ranks.from, ranks.to)
        };
        assert_eq!(up(0, -1), (0, 10));
        assert_eq!(up(-3, -2), (7, 9));
        assert_eq!(up(-100, 100), (0, 10));
        assert_eq!(up(5, 4), (0, 0));
        assert_eq!(up(10, 20), (0, 0));
        assert_eq!(up(0, -11), (0, 0));
        assert_eq!(up(i64::MIN, i64::MAX), (0, 10));
        assert_eq!(up(i64::MAX, i64::MIN), (0, 0));
        let down = by_rank(0, 2, 10, Direction::Descending);
        assert_eq!((down.from, down.to), (7, 10));
    }

    #[test]
    fn limits_leave_a_part_of_either_end() {
        let ranks = Ranks { from: 2, to: 8 };
        let limited = |offset, count, direction| {
            let ranks = ranks.limited(offset, count, direction);
            (ranks.from, ranks.to)
        };
        assert_eq!(limited(1, 2, Direction::Ascending), (3, 5));
        assert_eq!(limited(1, 2, Direction::Descending), (5, 7));
        assert_eq!(limited(0, -1, Direction::Descending), (2, 8));
        assert_eq!(limited(4, 100, Direction::Ascending), (6, 8));
        assert_eq!(limited(6, 1, Direction::Ascending), (0, 0));
        assert_eq!(limited(-1, 1, Direction::Ascending), (0, 0));
        assert_eq!(limited(0, 0, Direction::Descending), (0, 0));
        assert_eq!(limited(i64::MAX, i64::MAX, Direction::Descending), (0, 0));
    }

    #[test]
    fn bounds_of_scores_are_read_as_strtod_reads_them() {
        for (text, score) in [
            ("", Some(0.0)),
            ("5", Some(5.0)),
            (" 5", Some(5.0)),
            ("5 ", None),
            (" ", None),
            ("-inf", Some(f64::NEG_INFINITY)),
            ("+inf", Some(f64::INFINITY)),
            ("1e400", Some(f64::INFINITY)),
            ("1e-400", Some(0.0)),
            ("nan", None),
            ("x", None),
            ("0x10", Some(16.0)),
        ] {
            assert_eq!(bound_score(text.as_bytes()), score, "{text:?}");
        }
        assert!(ScoreBound::parse(b"((1").is_none());
        assert!(ScoreBound::parse(b"(1").is_some_and(|bound| bound.is_exclusive));
    }
}
