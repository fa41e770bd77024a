//! What a command leaves in the log: itself if it changed anything, or what its handler says instead.
//!
//! A record is executed elsewhere, at another moment, perhaps by an older server. Handlers whose command would mean
//! something else there say what is to be executed ([`ShardCx::log_instead`]). They need not ask whether anybody
//! listens: what they say is dropped if no reader does. What takes work to put together asks first
//! ([`ShardCx::is_logged`]).
//!
//! ```text
//! relative times            absolute ones; in the past: DEL or UNLINK
//! chance                    what went, what was chosen
//! floats                    the sum
//! blocking, several keys    the plain command on the key that was served
//! `*`, `~`                  the id, the exact length
//! commands younger than 7.0 what a server of 7.0 executes to the same state, where there is such a thing
//! what no other server has  notes (`engine::note`)
//! ```
//!
//! Keys that expire on the way, and fields, are logged by the engine, before the record of the command that came across
//! them.

use super::Args;
use super::context::{Engines, Outbox, SessionCx, ShardCx, Statement};
use super::declaration::{CommandResult, Flags};
use super::host::scripts::{LogChange, Scripts};
use basalt_core::structures::block::Content;
use basalt_engine::Engine;
use basalt_engine::keyspace::Deadline;
use basalt_engine::note;
use basalt_engine::record::{Audience, Head, Records};

/// Commands that may leave something beside what expired.
const MAY_LEAVE_RECORDS: Flags = Flags::WRITE.or(Flags::MAY_REPLICATE);

impl ShardCx<'_> {
    /// Runs a handler, and logs the command if that changed anything and said nothing else.
    #[inline]
    pub fn logged<R>(&mut self, args: &Args<'_>, handler: impl FnOnce(&mut Self) -> R) -> R {
        if !self.command.flags.any(MAY_LEAVE_RECORDS) || !self.first_engine().effects.is_logging() {
            return handler(self);
        }
        self.statement = match self.client.audience {
            Audience::NONE => Statement::Off,
            _ => Statement::Itself,
        };
        let before = self.own_changes();
        let result = handler(self);
        self.log_itself(args, before);
        result
    }

    #[cold]
    #[inline(never)]
    fn log_itself(&mut self, args: &Args<'_>, changes_before: u64) {
        let leaves = match std::mem::take(&mut self.statement) {
            Statement::Off | Statement::Said => false,
            Statement::Itself => self.own_changes() != changes_before,
            Statement::ItselfAnyway => true,
        };
        if leaves {
            self.push_record(args.contents(0));
        }
    }

    /// Changes of the engines in hand that the clock did not make.
    fn own_changes(&self) -> u64 {
        let mut sum = 0;
        self.look_at_engines(|engine| sum += engine.effects.dirty() - engine.effects.by_clock());
        sum
    }

    /// Whether somebody reads what the command leaves in the log.
    #[inline]
    pub fn is_logged(&self) -> bool {
        self.statement != Statement::Off
    }

    /// Logs another command in place of the one that runs, behind those that were logged in place of it already.
    pub fn log_instead<'c, I>(&mut self, arguments: I)
    where
        I: IntoIterator<Item = Content<'c>, IntoIter: ExactSizeIterator>,
    {
        if self.is_logged() {
            self.statement = Statement::Said;
            self.push_record(arguments.into_iter());
        }
    }

    /// Logs a note in place of the command that runs, behind what was logged in place of it already: what other
    /// servers know nothing of.
    pub fn log_note(&mut self, words: &[&[u8]]) {
        if self.is_logged() {
            let all = note::words(words);
            self.log_instead(all.into_iter().map(Content::from));
        }
    }

    /// Logs nothing but what [`ShardCx::log_instead`] is told.
    pub fn log_nothing(&mut self) {
        if self.is_logged() {
            self.statement = Statement::Said;
        }
    }

    /// Logs the command even if it changes nothing here.
    pub fn log_anyway(&mut self) {
        if self.is_logged() {
            self.statement = Statement::ItselfAnyway;
        }
    }

    /// Logs that a key is deleted, in place of the command that runs.
    pub fn log_deletion(&mut self, key: &[u8], is_unlinked: bool) {
        self.log_instead([deletion(is_unlinked).into(), key.into()]);
    }

    /// Logs that a key expires at a Unix time in milliseconds, in place of the command that runs.
    pub fn log_deadline(&mut self, key: &[u8], at_ms: u64) {
        if self.is_logged() {
            let mut digits = itoa::Buffer::new();
            let at_ms = digits.format(at_ms).as_bytes();
            self.log_instead([b"PEXPIREAT".into(), key.into(), at_ms.into()]);
        }
    }

    /// Logs that a key holds a string, with the deadline that it has then, in place of the command that runs.
    pub fn log_string(&mut self, key: &[u8], value: Content<'_>, deadline: Deadline) {
        let set = b"SET".into();
        match deadline {
            _ if !self.is_logged() => {}
            Deadline::Clear => self.log_instead([set, key.into(), value]),
            Deadline::Keep => self.log_instead([set, key.into(), value, b"KEEPTTL".into()]),
            Deadline::At(at_ms) => {
                let mut digits = itoa::Buffer::new();
                let at_ms = digits.format(at_ms).as_bytes();
                self.log_instead([set, key.into(), value, b"PXAT".into(), at_ms.into()]);
            }
        }
    }

    /// Logs that a command with a count took so many elements of a key, in place of the command that runs.
    pub fn log_taken(&mut self, name: &[u8], key: &[u8], count: usize) {
        if self.is_logged() {
            let mut digits = itoa::Buffer::new();
            let count = digits.format(count).as_bytes();
            self.log_instead([name.into(), key.into(), count.into()]);
        }
    }

    #[cold]
    #[inline(never)]
    fn push_record<'c>(&mut self, arguments: impl ExactSizeIterator<Item = Content<'c>>) {
        let mut stamp = 0;
        self.look_at_engines(|engine| stamp = stamp.max(engine.effects.stamp()));
        let (db, audience) = (self.client.db, self.client.audience);
        let engine = self.first_engine_mut();
        engine.effects.raise(stamp);
        engine.effects.log_command(db, audience, arguments);
    }

    #[inline]
    fn first_engine(&self) -> &Engine {
        match self.engines() {
            Engines::One(engine) => engine,
            Engines::Many(engines) => engines[0],
        }
    }
}

impl SessionCx<'_> {
    /// Has replicas run the command, too: it changes no data.
    pub fn tell_replicas(&mut self, args: &Args<'_>) {
        let audience = Audience::from_bits(self.client.log_audience & Audience::REPLICAS.bits());
        if audience == Audience::NONE || !self.server.pubsub().is_replicating() {
            return;
        }
        let head = self.head(audience);
        match &mut self.outbox {
            Outbox::Pending(_, records) => records.push(head, args.contents(0)),
            Outbox::Open(_) => {
                let mut records = Records::default();
                records.push(head, args.contents(0));
                let position = self.server.log_records(&mut records, false);
                self.note_log_position(position);
            }
        }
    }

    /// Changes libraries of functions, and logs the command if that succeeds. In a transaction too its record goes at
    /// once, ahead of all others, as it is not rolled back and has to do with no data.
    pub fn change_libraries(
        &mut self,
        args: &Args<'_>,
        mut change: impl FnMut(&dyn Scripts, LogChange<'_>) -> CommandResult,
    ) -> CommandResult {
        let mut records = Records::default();
        if self.server.pubsub().is_logging() {
            let audience = Audience::from_bits(self.client.log_audience);
            records.push(self.head(audience), args.contents(0));
        }
        let changed = self.server.change_libraries(&mut records, &mut change);
        // An error too may tell of libraries that others changed.
        let seen = self.server.scripts().libraries_position();
        self.client.shared.see_log(seen);
        self.note_log_position(changed?);
        Ok(())
    }

    /// Reads what is known of libraries. The reply waits for the disk as one does that reads keys.
    pub fn read_libraries<R>(&mut self, read: impl FnOnce(&dyn Scripts) -> R) -> R {
        let scripts = self.server.scripts();
        let found = read(scripts);
        self.client.shared.see_log(scripts.libraries_position());
        found
    }

    /// Reads figures that tell of data without a shard in hand. The reply waits for the disk as one does that reads
    /// keys.
    pub fn read_figures<R>(&mut self, read: impl FnOnce(&mut Self) -> R) -> R {
        let found = read(self);
        self.client.shared.see_log(self.server.log_position());
        found
    }

    fn head(&self, audience: Audience) -> Head {
        Head {
            stamp: self.client.stamp,
            db: self.client.db,
            audience,
        }
    }

    fn note_log_position(&mut self, position: Option<u64>) {
        if let Some(position) = position {
            self.client.shared.note_log(position, position);
        }
    }
}

/// The command that deletes a key, at once or behind the scenes.
pub fn deletion(is_unlinked: bool) -> &'static [u8] {
    match is_unlinked {
        true => b"UNLINK",
        false => b"DEL",
    }
}

#[cfg(test)]
mod tests;
