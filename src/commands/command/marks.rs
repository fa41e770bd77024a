//! The options of SET and LFILL on a key beside its value and its deadline: for how long before its expiry it counts
//! as stale, and its tags. Both are logged as [notes](basalt_engine::note), which other servers ignore.

use super::Args;
use super::bless;
use super::context::ShardCx;
use super::error::CommandError;
use basalt_core::structures::block::Content;
use basalt_engine::Key;
use basalt_engine::keyspace::Deadline;
use basalt_engine::marks::{Marks, TAG_BYTES_MAX, TAGS_MAX};
use basalt_engine::note;

/// `[STALE milliseconds] [TAGS numtags tag [tag ...]]`
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MarkOptions {
    /// Index of the stale window's argument.
    stale: Option<usize>,
    /// Index of the first tag, and the number of tags.
    tags: Option<(usize, usize)>,
}

impl MarkOptions {
    /// Parses the option at `at`, if it is STALE or TAGS. Returns the position of the next option; None for other
    /// options.
    pub(super) fn accept(
        &mut self,
        args: &Args<'_>,
        at: usize,
    ) -> Result<Option<usize>, CommandError> {
        if args.is(at, "stale") && at + 1 < args.len() {
            self.stale = Some(at + 1);
            return Ok(Some(at + 2));
        }
        if !args.is(at, "tags") || at + 2 >= args.len() {
            return Ok(None);
        }
        let count = args.integer(at + 1)?;
        let count = usize::try_from(count).ok().filter(|count| *count > 0);
        let count = count.ok_or("ERR numtags should be greater than 0")?;
        let first = at + 2;
        if count > args.len() - first {
            return Err("ERR Number of tags can't be greater than number of args".into());
        }
        check_tags(args.from(first).take(count))?;
        self.tags = Some((first, count));
        Ok(Some(first + count))
    }

    /// Whether neither option was given.
    #[inline]
    pub(super) fn are_unsaid(self) -> bool {
        self.stale.is_none() && self.tags.is_none()
    }

    /// Returns the deadline to store for a key that stays, stale, for its stale window after the requested deadline,
    /// and the window in milliseconds.
    pub(super) fn stretch(
        self,
        args: &Args<'_>,
        deadline: Deadline,
        command: &'static str,
    ) -> Result<(Deadline, u32), CommandError> {
        let Some(at) = self.stale else {
            return Ok((deadline, 0));
        };
        let Deadline::At(at_ms) = deadline else {
            return Err("ERR STALE needs EX, PX, EXAT or PXAT".into());
        };
        let window_ms = window_ms(args, at, command)?;
        let window_ms = if window_ms == 0 {
            None
        } else {
            Some(window_ms)
        };
        let window_ms = window_ms.ok_or(invalid_window(command))?;
        let at_ms = at_ms.checked_add(u64::from(window_ms));
        let at_ms = at_ms.filter(|at_ms| *at_ms <= i64::MAX as u64);
        let at_ms = at_ms.ok_or(CommandError::InvalidExpire(command))?;
        Ok((Deadline::At(at_ms), window_ms))
    }

    /// Returns the tags.
    pub(super) fn tags<'a>(self, args: &Args<'a>) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let (first, count) = self.tags.unwrap_or((args.len(), 0));
        args.from(first).take(count)
    }
}

fn invalid_window(command: &'static str) -> CommandError {
    format!("ERR invalid stale time in '{command}' command").into()
}

/// Parses a stale window in milliseconds, at most 49 days.
pub(super) fn window_ms(
    args: &Args<'_>,
    at: usize,
    command: &'static str,
) -> Result<u32, CommandError> {
    u32::try_from(args.integer(at)?).map_err(|_| invalid_window(command))
}

/// Checks the number of a key's tags, and their lengths.
pub(super) fn check_tags<'t>(
    tags: impl ExactSizeIterator<Item = &'t [u8]>,
) -> Result<(), CommandError> {
    if tags.len() > TAGS_MAX {
        return Err(too_many_tags());
    }
    check_lengths(tags)
}

/// Checks the tags' lengths.
pub(super) fn check_lengths<'t>(
    mut tags: impl Iterator<Item = &'t [u8]>,
) -> Result<(), CommandError> {
    match tags.any(|tag| tag.len() > TAG_BYTES_MAX) {
        true => Err(format!("ERR a tag is longer than {TAG_BYTES_MAX} bytes").into()),
        false => Ok(()),
    }
}

pub(super) fn too_many_tags() -> CommandError {
    format!("ERR a key has at most {TAGS_MAX} tags").into()
}

impl ShardCx<'_> {
    /// Logs a key's marks, after its value was logged.
    pub(super) fn log_marks(&mut self, key: &[u8], marks: &Marks<'_>) {
        if marks.stale_ms > 0 {
            self.log_stale(key, marks.stale_ms);
        }
        if !marks.tags.is_empty() {
            self.log_tags(key, marks.tags.iter().copied());
        }
    }

    /// Logs that a key holds a string, in place of the command that edited it: SET removes the marks that an edit
    /// leaves, so they are logged after it.
    pub(super) fn log_edited_string(
        &mut self,
        key: &Key<'_>,
        value: Content<'_>,
        deadline: Deadline,
    ) {
        self.log_string(key.bytes, value, deadline);
        if !self.is_logged() {
            return;
        }
        let keyspace = self.at(key);
        let (stale_ms, tags) = (keyspace.stale_ms_of(key), keyspace.tags_of(key));
        if stale_ms > 0 {
            self.log_stale(key.bytes, stale_ms);
        }
        if !tags.is_empty() {
            self.log_tags(key.bytes, tags.iter().map(|tag| &**tag));
        }
    }

    /// Logs again that a key is blessed, after its deletion was logged in place of a change of its value.
    pub(super) fn log_blessing(&mut self, key: &Key<'_>) {
        if self.is_logged() && self.at(key).is_blessed(key) {
            self.log_note(&[b"BLESS", b"SET", key.bytes, bless::NO_EVICT]);
        }
    }

    /// Logs a key's stale window.
    pub(super) fn log_stale(&mut self, key: &[u8], window_ms: u32) {
        let mut digits = itoa::Buffer::new();
        let digits = digits.format(window_ms).as_bytes();
        self.log_note(&[b"LSTALE", key, digits]);
    }

    /// Logs that tags were added to a key.
    pub(super) fn log_tags<'t>(&mut self, key: &[u8], tags: impl Iterator<Item = &'t [u8]>) {
        self.log_each_piece(&[b"TAG", b"ADD", key], tags);
    }

    /// Logs that tags were removed from a key.
    pub(super) fn log_removed_tags<'t>(
        &mut self,
        key: &[u8],
        tags: impl Iterator<Item = &'t [u8]>,
    ) {
        self.log_each_piece(&[b"TAG", b"REM", key], tags);
    }

    /// Logs that tags were invalidated.
    pub(super) fn log_invalidation<'t>(&mut self, tags: impl Iterator<Item = &'t [u8]>) {
        self.log_each_piece(&[b"TAG", b"INVALIDATE"], tags);
    }

    /// Logs notes about tags, split into several notes as one may be too long for a record.
    fn log_each_piece<'t>(&mut self, head: &[&[u8]], tags: impl Iterator<Item = &'t [u8]>) {
        if !self.is_logged() {
            return;
        }
        let tags: Vec<&[u8]> = tags.collect();
        for piece in note::pieces(&tags) {
            self.log_note(&[head, piece].concat());
        }
    }
}
