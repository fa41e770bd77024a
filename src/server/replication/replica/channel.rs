//! The second connection to a primary: it carries the snapshot, while the first one carries the stream, whose
//! bytes are buffered on this server until the snapshot is loaded.
//!
//! ```text
//!          first connection                             second connection
//! Valkey   PSYNC ▸ +DUALCHANNELSYNC                     REPLCONF rdb-channel 1 ▸ SYNC ▸ $ENDOFF:offset id db client
//!          REPLCONF set-rdb-client-id client            ▸ $EOF:mark ▸ snapshot
//!          PSYNC id offset+1 ▸ +CONTINUE ▸ stream
//! Redis    PSYNC ▸ +RDBCHANNELSYNC client ▸ stream      REPLCONF rdb-channel 1 main-ch-client-id client
//!                                                       PSYNC ? -1 ▸ +FULLRESYNC id offset ▸ $EOF:mark ▸ snapshot
//! ```

use std::io;
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};

use super::coming::SnapshotPosition;
use super::full_sync::SIGN_OF_LIFE;
use super::handshake::{self, HandshakeRefusal, PsyncPosition, PsyncReply, shown};
use super::wire::Wire;
use super::{PrimaryFollower, Target};
use crate::net::client::{Client, Timeout, request, within};
use basalt_commands::command::host::primary::Words;
use basalt_commands::config::Config;
use basalt_core::base::lossless;
use basalt_core::resp::answer::Answer as Said;

/// Interval between checks whether the buffer has capacity again.
const LOOK_FOR_ROOM: Duration = Duration::from_millis(100);

/// A second connection over which a snapshot is about to arrive.
pub(super) struct IncomingSnapshot {
    pub(super) wire: Wire,
    pub(super) position: SnapshotPosition,
}

/// The stream position of a snapshot and the client id of its connection, as Valkey's protocol states them.
#[derive(Debug, PartialEq, Eq)]
struct EndOffset {
    position: SnapshotPosition,
    client: u64,
}

/// Opens the second connection, and requests the stream over the first one, `main`.
pub(super) async fn open(
    main: &mut Wire,
    target: &Target,
    words: Words,
    main_client: Option<u64>,
    config: &Config,
    timeout: Timeout<'_>,
) -> Result<IncomingSnapshot, HandshakeRefusal> {
    let from = config.bind_source_addr.parse().ok();
    let mut wire = Wire::open(&target.host, target.port, from, main.tls(), timeout).await?;
    handshake::authenticate(&mut wire.client, config, timeout).await?;
    let main_client = main_client.map(|client| client.to_string());
    introduce(&mut wire.client, main_client.as_deref(), config, timeout).await?;
    match words {
        Words::Redis => {
            let words: [&[u8]; 3] = [b"PSYNC", b"?", b"-1"];
            let reply = wire.client.call(&words, timeout).await?;
            match handshake::answer_of(&reply)? {
                PsyncReply::Full { id, offset } => {
                    let db = None;
                    let position = SnapshotPosition { id, offset, db };
                    Ok(IncomingSnapshot { wire, position })
                }
                _ => Err(refusal(&reply)),
            }
        }
        Words::Valkey => {
            wire.client.send(&request(&[b"SYNC"]), timeout).await?;
            let line = wire.line(timeout).await?;
            let told = end_offset(&line).ok_or_else(|| HandshakeRefusal::Denied(shown(&line)))?;
            follow(&mut main.client, &told, timeout).await?;
            let position = told.position;
            Ok(IncomingSnapshot { wire, position })
        }
    }
}

/// Requests the snapshot alone, without the stream after it.
async fn introduce(
    client: &mut Client,
    main_client: Option<&str>,
    config: &Config,
    timeout: Timeout<'_>,
) -> Result<(), HandshakeRefusal> {
    let (port, address) = (
        handshake::announced_port(config),
        lossless::bytes_of(&config.replica_announce_ip),
    );
    let version = handshake::KNOWN_VALKEY;
    let mut said: Vec<&[u8]> = vec![b"REPLCONF", b"capa", b"eof"];
    said.extend(handshake::OWN_CAPABILITIES);
    said.extend([&b"rdb-only"[..], b"1"]);
    said.extend([&b"rdb-channel"[..], b"1"]);
    match main_client {
        Some(client) => said.extend([&b"main-ch-client-id"[..], client.as_bytes()]),
        // Redis 8.0 does not know `version`, and rejects a whole REPLCONF that contains it.
        None => said.extend([&b"version"[..], version.as_bytes()]),
    }
    said.extend([&b"listening-port"[..], port.as_bytes()]);
    if !address.is_empty() {
        said.extend([&b"ip-address"[..], &address]);
    }
    match client.call(&said, timeout).await? {
        Said::Status(_) => Ok(()),
        other => Err(refusal(&other)),
    }
}

/// Requests the stream after the snapshot.
async fn follow(
    main: &mut Client,
    told: &EndOffset,
    timeout: Timeout<'_>,
) -> Result<(), HandshakeRefusal> {
    let client = told.client.to_string();
    let named = [&b"REPLCONF"[..], b"set-rdb-client-id", client.as_bytes()];
    let reply = main.call(&named, timeout).await?;
    let Said::Status(_) = reply else {
        return Err(refusal(&reply));
    };
    let position = PsyncPosition {
        id: told.position.id.clone(),
        next: told.position.offset + 1,
    };
    match handshake::ask(main, Some(&position), false, timeout).await? {
        PsyncReply::Continue { id } if id.is_none() || id.as_ref() == Some(&position.id) => Ok(()),
        answer => Err(HandshakeRefusal::Nonsense(format!(
            "the replication stream does not continue the snapshot: {answer:?}"
        ))),
    }
}

/// Parses `$ENDOFF:<offset> <id> <db or -1> <client id>`.
fn end_offset(line: &[u8]) -> Option<EndOffset> {
    let text = str::from_utf8(line.strip_prefix(b"$ENDOFF:")?).ok()?;
    let words: Vec<&str> = text.split(' ').collect();
    let &[offset, id, db, client] = words.as_slice() else {
        return None;
    };
    let (offset, db): (i64, i64) = (offset.parse().ok()?, db.parse().ok()?);
    handshake::is_id(id).then_some(())?;
    Some(EndOffset {
        position: SnapshotPosition {
            id: id.to_owned(),
            offset: u64::try_from(offset).ok()?,
            db: usize::try_from(db).ok(),
        },
        client: client.parse().ok()?,
    })
}

fn refusal(reply: &Said) -> HandshakeRefusal {
    HandshakeRefusal::Denied(reply.to_string())
}

/// Reads the stream ahead until the limit is reached; further data stays with the primary. Returns when the
/// connection breaks.
pub(super) async fn read_ahead(follower: &PrimaryFollower, main: &mut Wire) -> io::Error {
    let timeout = &move || follower.timeout();
    let mut signs = interval(SIGN_OF_LIFE);
    signs.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut is_full = false;
    loop {
        let kept = main.kept_bytes();
        follower.note_ahead(kept);
        if kept as u64 >= follower.ahead_max() {
            if !std::mem::replace(&mut is_full, true) {
                tracing::info!(
                    "{kept} bytes of the replication stream are buffered until the snapshot is loaded, which is the \
                     limit: the rest stays with the master"
                );
            }
            tokio::select! {
                _ = signs.tick() => main.send_soon(b"\n"),
                () = tokio::time::sleep(LOOK_FOR_ROOM) => {}
            }
            continue;
        }
        // The loop is inside the timeout, so that a keepalive sent in between does not extend it.
        let reading = async {
            loop {
                tokio::select! {
                    biased;
                    read = main.read_ahead() => return read,
                    _ = signs.tick() => main.send_soon(b"\n"),
                }
            }
        };
        if let Err(error) = within(timeout, reading).await {
            return error;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_a_snapshot_ends_is_told_in_four_words() {
        let id = "0123456789abcdef0123456789abcdef01234567";
        let read = |text: String| end_offset(text.as_bytes());
        let told = |db| {
            let (id, offset) = (id.to_owned(), 12);
            let position = SnapshotPosition { id, offset, db };
            let client = 7;
            Some(EndOffset { position, client })
        };
        assert_eq!(read(format!("$ENDOFF:12 {id} -1 7")), told(None));
        assert_eq!(read(format!("$ENDOFF:12 {id} 3 7")), told(Some(3)));
        for lie in [
            String::new(),
            "$EOF:x".to_owned(),
            "$ENDOFF:".to_owned(),
            format!("$ENDOFF:-1 {id} 0 7"),
            format!("$ENDOFF:12 {id} 0"),
            format!("$ENDOFF:12 {id} x 7"),
            format!("$ENDOFF:12 {id} 0 -7"),
            format!("$ENDOFF:12 {id} 0 7 8"),
            "$ENDOFF:12 short 0 7".to_owned(),
        ] {
            assert_eq!(read(lie.clone()), None, "{lie}");
        }
    }
}
