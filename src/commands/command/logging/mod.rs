//! A command's log record: the command itself if it changed anything, or what its handler logs instead.
//!
//! A record is executed elsewhere, at another time, perhaps by an older server. Handlers whose command could have
//! another effect on that server log what it is to execute instead ([`ShardCx::log_instead`]). They need not check
//! whether there is a reader of the log: without one the records are dropped. Handlers whose records are costly to
//! assemble should check first ([`ShardCx::is_logged`]).
//!
//! ```text
//! relative times            absolute ones; in the past: DEL or UNLINK
//! randomness                what was removed, what was chosen
//! floats                    the sum
//! blocking, several keys    the plain command on the key that was served
//! `*`, `~`                  the ID, the exact length
//! commands newer than 7.0   commands that bring a server of 7.0 to the same state, if there are any
//! state unknown elsewhere   notes (`engine::note`)
//! ```
//!
//! Keys and fields that expire meanwhile are logged by the engine, before the record of the command that came across
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

/// Flags of commands that may log records other than of expirations.
const MAY_LEAVE_RECORDS: Flags = Flags::WRITE.or(Flags::MAY_REPLICATE);

impl ShardCx<'_> {
    /// Runs a handler, and logs the command if it changed anything and logged nothing else.
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

    /// Counts the changes of the locked engines other than by expiry.
    fn own_changes(&self) -> u64 {
        let mut sum = 0;
        self.look_at_engines(|engine| sum += engine.effects.dirty() - engine.effects.by_clock());
        sum
    }

    /// Whether the log has a reader of the command's records.
    #[inline]
    pub fn is_logged(&self) -> bool {
        self.statement != Statement::Off
    }

    /// Logs another command in place of the running one, after those already logged in place of it.
    pub fn log_instead<'c, I>(&mut self, arguments: I)
    where
        I: IntoIterator<Item = Content<'c>, IntoIter: ExactSizeIterator>,
    {
        if self.is_logged() {
            self.statement = Statement::Said;
            self.push_record(arguments.into_iter());
        }
    }

    /// Logs a note in place of the running command, after what was already logged in place of it: for state that
    /// other servers do not know.
    pub fn log_note(&mut self, words: &[&[u8]]) {
        if self.is_logged() {
            let all = note::words(words);
            self.log_instead(all.into_iter().map(Content::from));
        }
    }

    /// Logs nothing except what is passed to [`ShardCx::log_instead`].
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

    /// Logs that a key is deleted, in place of the running command.
    pub fn log_deletion(&mut self, key: &[u8], is_unlinked: bool) {
        self.log_instead([deletion(is_unlinked).into(), key.into()]);
    }

    /// Logs that a key expires at a Unix time in milliseconds, in place of the running command.
    pub fn log_deadline(&mut self, key: &[u8], at_ms: u64) {
        if self.is_logged() {
            let mut digits = itoa::Buffer::new();
            let at_ms = digits.format(at_ms).as_bytes();
            self.log_instead([b"PEXPIREAT".into(), key.into(), at_ms.into()]);
        }
    }

    /// Logs that a key holds a string, with its new deadline, in place of the running command.
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

    /// Logs that a command with a count removed `count` elements of a key, in place of the running command.
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
    /// Replicates the running command, although it changes no data.
    pub fn tell_replicas(&mut self, args: &Args<'_>) {
        let is_for_replicas = self.client.log_audience.any(Audience::REPLICAS);
        if !is_for_replicas || !self.server.pubsub().is_replicating() {
            return;
        }
        let head = self.head(Audience::REPLICAS);
        match &mut self.outbox {
            Outbox::Pending(_, records) => records.push(head, args.contents(0)),
            Outbox::Open(_) => {
                let mut records = Records::default();
                records.push(head, args.contents(0));
                // The reply does not wait for the record: a message is no data.
                if let Some(position) = self.server.log_records(&mut records, false) {
                    self.client.shared.note_log(position, 0);
                }
            }
        }
    }

    /// Changes libraries of functions, and logs the command if that succeeds. Even in a transaction its record is
    /// written at once, before all others, as it is not rolled back and does not concern data.
    pub fn change_libraries(
        &mut self,
        args: &Args<'_>,
        mut change: impl FnMut(&dyn Scripts, LogChange<'_>) -> CommandResult,
    ) -> CommandResult {
        let mut records = Records::default();
        if self.server.pubsub().is_logging() {
            let audience = self.client.log_audience;
            records.push(self.head(audience), args.contents(0));
        }
        let changed = self.server.change_libraries(&mut records, &mut change);
        // An error too may reflect changes of libraries by other clients.
        let seen = self.server.scripts().libraries_position();
        self.client.shared.see_log(seen);
        self.note_log_position(changed?);
        Ok(())
    }

    /// Reads libraries. The reply waits for the disk like one of a command that reads keys.
    pub fn read_libraries<R>(&mut self, read: impl FnOnce(&dyn Scripts) -> R) -> R {
        let scripts = self.server.scripts();
        let found = read(scripts);
        self.client.shared.see_log(scripts.libraries_position());
        found
    }

    /// Reads values that reflect data without locking a shard. The reply waits for the disk like that of a command
    /// that reads keys.
    pub fn read_figures<R>(&mut self, read: impl FnOnce(&mut Self) -> R) -> R {
        let found = read(self);
        // Operators read figures while replicas are away, too.
        if self.config.min_sync_replicas == 0 {
            self.client.shared.see_log(self.server.log_position());
        }
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

/// Returns the command that deletes a key, at once or in the background.
pub fn deletion(is_unlinked: bool) -> &'static [u8] {
    match is_unlinked {
        true => b"UNLINK",
        false => b"DEL",
    }
}

#[cfg(test)]
mod tests;
