//! Shared code of the commands that let elements expire: hash fields and set members.

use super::context::ShardCx;
use super::error::CommandError;
use super::options::TimeForm;
use super::{Args, Out};
use basalt_core::base::number::parse_i64;
use basalt_core::structures::block::Content;
use basalt_engine::value::deadlines::ELEMENT_DEADLINE_MAX;

/// A command that sets element deadlines, and whether the request has run before, on another server or on this one
/// (as from a log).
#[derive(Clone, Copy)]
pub(super) struct Giver {
    command: &'static str,
    has_run_before: bool,
}

impl Giver {
    pub(super) fn of(cx: &ShardCx<'_>) -> Giver {
        Giver {
            command: cx.command.name,
            has_run_before: cx.client.origin.has_run_before(),
        }
    }
}

/// Returns the deadline that an argument gives to elements. A time in the past is allowed: it deletes the elements. A
/// time too late to be stored is refused, as by Redis; if a server has accepted it before, as Valkey does, it becomes
/// the latest possible deadline.
pub(super) fn given(
    args: &Args<'_>,
    time_at: usize,
    form: TimeForm,
    now_ms: u64,
    giver: Giver,
) -> Result<u64, CommandError> {
    let time = u64::try_from(args.integer(time_at)?)
        .map_err(|_| "ERR invalid expire time, must be >= 0")?;
    let start_ms = if form.is_relative() { now_ms } else { 0 };
    let ms = match form {
        TimeForm::Seconds | TimeForm::UnixSeconds => time.checked_mul(1000),
        TimeForm::Millis | TimeForm::UnixMillis => Some(time),
    };
    let at_ms = ms.and_then(|ms| ms.checked_add(start_ms));
    match at_ms.filter(|at_ms| *at_ms <= ELEMENT_DEADLINE_MAX) {
        None if giver.has_run_before => Ok(ELEMENT_DEADLINE_MAX),
        kept => kept.ok_or(CommandError::InvalidExpire(giver.command)),
    }
}

/// Formats a deadline as commands return it; seconds are rounded up, as Redis does for fields.
fn shown(at_ms: u64, form: TimeForm, now_ms: u64) -> i64 {
    let ms = if form.is_relative() {
        at_ms.saturating_sub(now_ms)
    } else {
        at_ms
    };
    let shown = match form {
        TimeForm::Seconds | TimeForm::UnixSeconds => ms.div_ceil(1000),
        TimeForm::Millis | TimeForm::UnixMillis => ms,
    };
    shown as i64
}

/// Replies with the deadline of each element; -2: there is no such element; -1: it has no deadline.
pub(super) fn reply_times<'a>(
    out: &mut Out,
    names: impl ExactSizeIterator<Item = &'a [u8]>,
    (form, now_ms): (TimeForm, u64),
    deadline: impl Fn(&[u8]) -> Option<Option<u64>>,
) {
    out.array(names.len());
    for name in names {
        out.integer(match deadline(name) {
            None => -2,
            Some(None) => -1,
            Some(Some(at_ms)) => shown(at_ms, form, now_ms),
        });
    }
}

/// The condition on the previous deadline for setting the new one (NX, XX, GT or LT).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Condition {
    Always,
    None,
    Some,
    Later,
    Sooner,
}

impl Condition {
    pub(super) fn of(args: &Args<'_>, at: usize) -> Condition {
        match () {
            () if args.is(at, "nx") => Condition::None,
            () if args.is(at, "xx") => Condition::Some,
            () if args.is(at, "gt") => Condition::Later,
            () if args.is(at, "lt") => Condition::Sooner,
            () => Condition::Always,
        }
    }

    /// Whether the deadline may be set; an element without deadline counts as one that never expires.
    pub(super) fn allows(self, before: Option<u64>, at_ms: u64) -> bool {
        match self {
            Condition::Always => true,
            Condition::None => before.is_none(),
            Condition::Some => before.is_some(),
            Condition::Later => before.is_some_and(|before_ms| at_ms > before_ms),
            Condition::Sooner => before.is_none_or(|before_ms| at_ms < before_ms),
        }
    }
}

/// The word before the count of named elements, and the errors for a wrong word or a wrong count.
pub(super) struct CountedNames {
    pub(super) word: &'static str,
    pub(super) missing: &'static str,
    pub(super) mismatch: &'static str,
}

impl CountedNames {
    /// Returns the names after the word and the count; the word is expected at `word_at`. Errs if anything follows
    /// the names.
    pub(super) fn read<'a>(
        &self,
        args: &Args<'a>,
        word_at: usize,
        bad_count: &'static str,
    ) -> Result<impl ExactSizeIterator<Item = &'a [u8]> + use<'a>, CommandError> {
        if word_at >= args.len() || !args.is(word_at, self.word) {
            return Err(self.missing.into());
        }
        if word_at + 1 >= args.len() {
            return Err(bad_count.into());
        }
        let count = parse_i64(args.get(word_at + 1)).filter(|count| *count >= 1);
        let count = count.ok_or(bad_count)?;
        let names = args.from(word_at + 2);
        if count as u64 != names.len() as u64 {
            return Err(self.mismatch.into());
        }
        Ok(names)
    }
}

/// Logs a command with names at its end.
pub(super) fn log_names(cx: &mut ShardCx<'_>, head: &[&[u8]], names: &[&[u8]]) {
    let all = head.iter().chain(names);
    let request: Vec<Content<'_>> = all.map(|part| Content::from(*part)).collect();
    cx.log_instead(request);
}

#[cfg(test)]
mod tests {
    use super::Condition;

    #[test]
    fn conditions_compare_with_the_deadline_before() {
        for (condition, none, sooner, same, later) in [
            (Condition::Always, true, true, true, true),
            (Condition::None, true, false, false, false),
            (Condition::Some, false, true, true, true),
            (Condition::Later, false, false, false, true),
            (Condition::Sooner, true, true, false, false),
        ] {
            assert_eq!(condition.allows(None, 10), none, "{condition:?}");
            assert_eq!(condition.allows(Some(20), 10), sooner, "{condition:?}");
            assert_eq!(condition.allows(Some(10), 10), same, "{condition:?}");
            assert_eq!(condition.allows(Some(5), 10), later, "{condition:?}");
        }
    }
}
