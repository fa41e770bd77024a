//! The connection of an export: sending, receiving, and checks whether the migration may continue.

use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use tokio::io::AsyncWriteExt;
use tokio::time::timeout;

use super::super::job::SlotMigration;
use super::super::pieces::ToSend;
use super::super::{filter, has_all};
use super::{Export, ExportFailure, LOOK_AGAIN, LOST, NOT_OWNED};
use crate::persist::snapshot::HeldOff;
use basalt_engine::serial::commands;

/// Bytes sent between two checks for other events.
const SENT_TOGETHER: usize = 1 << 20;

/// Interval between checks whether a migration was cancelled while the target is silent or reads nothing.
const SILENT_LOOK: Duration = Duration::from_millis(100);

/// Maximum time that a waiting snapshot is delayed by a large key that the target does not read.
const SNAPSHOT_WAITS: Duration = Duration::from_secs(1);

/// Interval between keepalives of the two nodes.
const ACK_EVERY: Duration = Duration::from_secs(1);

/// Returns the result of `work`, or an error: of a timeout, or that the migration was cancelled meanwhile.
pub(super) async fn unless_cancelled<R>(
    job: &SlotMigration,
    patience: Duration,
    work: impl Future<Output = io::Result<R>>,
) -> Result<io::Result<R>, ExportFailure> {
    let (mut work, began) = (pin!(work), Instant::now());
    loop {
        match timeout(SILENT_LOOK, &mut work).await {
            Ok(done) => return Ok(done),
            Err(_) if job.is_cancelled() => return Err(ExportFailure::Cancelled),
            Err(_) if began.elapsed() >= patience => {
                return Ok(Err(io::ErrorKind::TimedOut.into()));
            }
            Err(_) => {}
        }
    }
}

impl Export {
    fn write_word(&mut self, word: &str) {
        commands::command(
            self.out.text(),
            &[b"CLUSTER", b"SYNCSLOTS", word.as_bytes()],
        );
    }

    pub(super) async fn say(&mut self, word: &str) -> Result<(), ExportFailure> {
        self.write_word(word);
        self.send().await
    }

    /// Sends queued data, reads the target's messages, and checks whether the migration may continue.
    pub(super) async fn exchange(&mut self) -> Result<(), ExportFailure> {
        // Send no keepalive within a large collection, because its parts may end in the middle of a command.
        if self.open_shard_of_collection.is_none() && self.last_sent_at.elapsed() > ACK_EVERY {
            self.write_word("ACK");
            self.last_sent_at = Instant::now();
        }
        self.send().await?;
        self.hear()?;
        self.check()
    }

    pub(super) fn check(&mut self) -> Result<(), ExportFailure> {
        if self.job.is_cancelled() {
            return Err(ExportFailure::Cancelled);
        }
        self.look_whether_held(self.held_until_ms)?;
        let map = self.bus.map();
        if !map.me().is_primary() || !has_all(&map, self.job.source, &self.job.slots) {
            return Err(NOT_OWNED.into());
        }
        if self.heard_at.elapsed() > self.patience {
            return Err(io::Error::from(io::ErrorKind::TimedOut).into());
        }
        let waiting = self.reader.waiting_bytes() + self.later.held_bytes();
        self.job.waiting_bytes.store(waiting, Relaxed);
        let texts = (self.taken.capacity() + self.client.input.capacity()) as u64;
        let own = texts + self.out.held_bytes() + self.larges.held_bytes();
        self.job.buffer_bytes.store(waiting + own, Relaxed);
        let config = self.bus.service.config.load();
        let limit = config.client_output_buffer_limit.replica.hard_bytes;
        match limit > 0 && waiting > limit {
            true => Err("The target node is too slow for the rate of changes".into()),
            false => Ok(()),
        }
    }

    /// Sends queued data. Takes log records in between, so that the log need not keep all of them.
    pub(super) async fn send(&mut self) -> Result<(), ExportFailure> {
        while let Some(part) = self.out.pop() {
            let is_large =
                self.open_shard_of_collection.is_some() || matches!(part, ToSend::Shared(_));
            let mut rest = part.bytes();
            while !rest.is_empty() {
                let together = rest.len().min(SENT_TOGETHER);
                let sent = self.write(&rest[..together], is_large).await?;
                rest = &rest[sent..];
                if is_large && !rest.is_empty() {
                    self.take_log()?;
                    self.check()?;
                }
            }
        }
        Ok(())
    }

    /// Sends some of `bytes`; returns how many.
    async fn write(&mut self, bytes: &[u8], is_large: bool) -> Result<usize, ExportFailure> {
        let began = Instant::now();
        loop {
            match timeout(SILENT_LOOK, self.client.socket.write(bytes)).await {
                Ok(Ok(0)) => return Err(LOST.into()),
                Ok(sent) => {
                    let sent = sent?;
                    self.job.figures.bytes.fetch_add(sent as u64, Relaxed);
                    if is_large {
                        // Do not count the target as silent: it sends nothing until it has received a whole
                        // command.
                        self.heard_at = Instant::now();
                    }
                    return Ok(sent);
                }
                Err(_) if began.elapsed() >= self.patience => {
                    return Err(io::Error::from(io::ErrorKind::TimedOut).into());
                }
                Err(_) => {
                    self.check()?;
                    let held_off = self.held_off.as_ref();
                    let is_awaited = held_off.is_some_and(HeldOff::keeps_one_waiting);
                    if is_awaited && began.elapsed() >= SNAPSHOT_WAITS {
                        return Err(
                            "A snapshot must begin while a large key is still being sent".into(),
                        );
                    }
                }
            }
        }
    }

    /// Reads the target's messages, without waiting.
    fn hear(&mut self) -> Result<(), ExportFailure> {
        loop {
            match self.client.socket.try_read(&mut self.client.input) {
                Ok(0) => return Err(LOST.into()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error.into()),
            }
        }
        while let Some(answer) = self.client.take_reply()? {
            self.heard_at = Instant::now();
            self.job.note_heard();
            match filter::word(answer) {
                Ok(word) if word == "ACK" => {}
                Ok(word) => self.heard.push(word),
                Err(text) => {
                    return Err(ExportFailure::Failed(format!(
                        "Target node replied with error: {text}"
                    )));
                }
            }
        }
        Ok(())
    }

    /// Waits for the reply to the first command sent.
    pub(super) async fn reply(&mut self) -> Result<Result<String, String>, ExportFailure> {
        let patience = self.patience;
        let timeout = &|| patience;
        let reading = self.client.read_reply(timeout);
        let answer = unless_cancelled(&self.job, patience, reading).await??;
        self.heard_at = Instant::now();
        Ok(filter::word(answer))
    }

    /// Sends log records until the target sends the message `word`.
    pub(super) async fn await_word(&mut self, word: &str) -> Result<(), ExportFailure> {
        loop {
            self.follow().await?;
            if let Some(at) = self.heard.iter().position(|heard| heard == word) {
                self.heard.remove(at);
                return Ok(());
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }
}
