//! Options that several families share: expiry of keys and fields, and timeouts of blocking requests.
//!
//! Option words are parsed first and their values later, because Redis reports a syntax error before it looks at a
//! number, and some commands look at the key in between.

use super::Args;
use super::error::CommandError;
use basalt_core::base::number;
use basalt_engine::Now;
use basalt_engine::keyspace::Deadline;

/// The unit and the zero point of a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeForm {
    /// `EX`: seconds from now.
    Seconds,
    /// `PX`: milliseconds from now.
    Millis,
    /// `EXAT`: seconds of the Unix epoch.
    UnixSeconds,
    /// `PXAT`: milliseconds of the Unix epoch.
    UnixMillis,
}

impl TimeForm {
    /// Returns the form that an option word names.
    pub fn of(word: &[u8]) -> Option<TimeForm> {
        let named = |name: &str| word.eq_ignore_ascii_case(name.as_bytes());
        match word.len() {
            2 if named("ex") => Some(TimeForm::Seconds),
            2 if named("px") => Some(TimeForm::Millis),
            4 if named("exat") => Some(TimeForm::UnixSeconds),
            4 if named("pxat") => Some(TimeForm::UnixMillis),
            _ => None,
        }
    }

    /// Whether the time is relative to the time of the command.
    pub fn is_relative(self) -> bool {
        matches!(self, TimeForm::Seconds | TimeForm::Millis)
    }

    /// Converts a positive time to Unix milliseconds; `command` is named in the error.
    pub fn deadline_ms(
        self,
        value: i64,
        now: Now,
        command: &'static str,
    ) -> Result<u64, CommandError> {
        let at_ms = || {
            let ms = match self {
                TimeForm::Seconds | TimeForm::UnixSeconds => value.checked_mul(1000)?,
                TimeForm::Millis | TimeForm::UnixMillis => value,
            };
            if self.is_relative() {
                ms.checked_add(now.unix_ms as i64)
            } else {
                Some(ms)
            }
        };
        match at_ms() {
            Some(at_ms) if value > 0 => Ok(at_ms as u64),
            _ => Err(CommandError::InvalidExpire(command)),
        }
    }
}

/// The expiry option of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Expiry {
    /// No expiry option was given.
    #[default]
    Unsaid,
    /// `KEEPTTL`.
    Keep,
    /// `PERSIST`.
    Persist,
    /// A time was given, at the argument of this index.
    Given(TimeForm, usize),
}

impl Expiry {
    /// Parses the option at `at`, if it is about expiry and does not conflict with earlier ones. Returns the position
    /// of the next option; None if it is not.
    ///
    /// `bare` is the one word without a value that the command takes: `KEEPTTL` or `PERSIST`. As in Redis an option
    /// may be repeated, and its last value counts, but two different options conflict.
    pub fn accept(&mut self, args: &Args<'_>, at: usize, bare: BareWord) -> Option<usize> {
        let word = args.get(at);
        if TimeForm::of(word).is_some() {
            return self.accept_time(args, at);
        }
        if !word.eq_ignore_ascii_case(bare.word.as_bytes())
            || (*self != Expiry::Unsaid && *self != bare.means)
        {
            return None;
        }
        *self = bare.means;
        Some(at + 1)
    }

    /// Like [`Expiry::accept`], for commands that take no bare word.
    pub fn accept_time(&mut self, args: &Args<'_>, at: usize) -> Option<usize> {
        let form = TimeForm::of(args.get(at))?;
        let fits = match self {
            Expiry::Unsaid => true,
            Expiry::Given(before, _) => *before == form,
            _ => false,
        };
        if !fits || at + 1 >= args.len() {
            return None;
        }
        *self = Expiry::Given(form, at + 1);
        Some(at + 2)
    }

    /// Returns the given time, if any, as Unix milliseconds.
    pub fn deadline_ms(
        self,
        args: &Args<'_>,
        now: Now,
        command: &'static str,
    ) -> Result<Option<u64>, CommandError> {
        match self {
            Expiry::Given(form, at) => form.deadline_ms(args.integer(at)?, now, command).map(Some),
            _ => Ok(None),
        }
    }

    /// Returns what to do with the deadline when the value is replaced.
    pub fn on_replace(
        self,
        args: &Args<'_>,
        now: Now,
        command: &'static str,
    ) -> Result<Deadline, CommandError> {
        Ok(match self.deadline_ms(args, now, command)? {
            Some(at_ms) => Deadline::At(at_ms),
            None if self == Expiry::Keep => Deadline::Keep,
            None => Deadline::Clear,
        })
    }
}

/// An expiry option without a value.
#[derive(Clone, Copy, Debug)]
pub struct BareWord {
    word: &'static str,
    means: Expiry,
}

/// KEEPTTL, of commands that write values.
pub const KEEPTTL: BareWord = BareWord {
    word: "keepttl",
    means: Expiry::Keep,
};

/// PERSIST, of commands that read values.
pub const PERSIST: BareWord = BareWord {
    word: "persist",
    means: Expiry::Persist,
};

/// Parses a timeout in seconds, possibly fractional. Returns the Unix time in milliseconds at which it ends; None for
/// 0, which never ends.
pub fn blocking_timeout(args: &Args<'_>, at: usize, now: Now) -> Result<Option<u64>, CommandError> {
    let seconds =
        number::parse_f64(args.get(at)).ok_or("ERR timeout is not a float or out of range")?;
    let timeout_ms = (seconds * 1_000.0).ceil();
    // The cast is exact below 2^63, and larger values are refused.
    const MS_MAX: f64 = i64::MAX as f64;
    if timeout_ms >= MS_MAX {
        return Err("ERR timeout is out of range".into());
    }
    until_ms(timeout_ms as i64, now)
}

/// Parses a timeout in milliseconds, like [`blocking_timeout`].
pub fn blocking_timeout_ms(
    args: &Args<'_>,
    at: usize,
    now: Now,
) -> Result<Option<u64>, CommandError> {
    let timeout_ms = args
        .integer(at)
        .map_err(|_| "ERR timeout is not an integer or out of range")?;
    until_ms(timeout_ms, now)
}

/// Returns the end of `WAIT milliseconds` as Unix time in milliseconds; None for a wait of 0, which lasts forever as
/// with BLPOP.
#[cold]
pub fn wait_until_ms(args: &Args<'_>, at: usize, now_ms: u64) -> Result<Option<u64>, CommandError> {
    let wait_ms = args
        .integer(at)
        .map_err(|_| "ERR timeout is not an integer or out of range")?;
    match (wait_ms, wait_ms.checked_add(now_ms as i64)) {
        (..0, _) => Err("ERR timeout is negative".into()),
        (0, _) => Ok(None),
        (_, Some(until_ms)) => Ok(Some(until_ms as u64)),
        (_, None) => Err("ERR timeout is out of range".into()),
    }
}

fn until_ms(timeout_ms: i64, now: Now) -> Result<Option<u64>, CommandError> {
    match timeout_ms {
        ..0 => Err("ERR timeout is negative".into()),
        0 => Ok(None),
        _ => timeout_ms
            .checked_add(now.unix_ms as i64)
            .map(|until_ms| Some(until_ms as u64))
            .ok_or_else(|| "ERR timeout is out of range".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Now = Now { unix_ms: 1_000_000 };

    #[test]
    fn times_become_unix_milliseconds() {
        for (form, value, at_ms) in [
            (TimeForm::Seconds, 5, 1_005_000),
            (TimeForm::Millis, 5, 1_000_005),
            (TimeForm::UnixSeconds, 5, 5_000),
            (TimeForm::UnixMillis, 5, 5),
            (TimeForm::UnixMillis, i64::MAX, i64::MAX as u64),
        ] {
            assert_eq!(form.deadline_ms(value, NOW, "set"), Ok(at_ms));
        }
    }

    #[test]
    fn times_that_are_no_time_are_refused() {
        let error = Err(CommandError::InvalidExpire("set"));
        for form in [
            TimeForm::Seconds,
            TimeForm::Millis,
            TimeForm::UnixSeconds,
            TimeForm::UnixMillis,
        ] {
            for value in [0, -1, i64::MIN] {
                assert_eq!(form.deadline_ms(value, NOW, "set"), error);
            }
        }
        for form in [TimeForm::Seconds, TimeForm::UnixSeconds] {
            assert_eq!(form.deadline_ms(i64::MAX / 1000 + 1, NOW, "set"), error);
        }
        assert_eq!(
            TimeForm::Seconds.deadline_ms(i64::MAX / 1000, NOW, "set"),
            error
        );
        assert_eq!(TimeForm::Millis.deadline_ms(i64::MAX, NOW, "set"), error);
    }
}
