//! The replication handshake: identity, capabilities, and the requested position of the stream.
//!
//! ```text
//! PING ▸ AUTH ▸ REPLCONF listening-port, ip-address, capa, version ▸ PSYNC id offset
//!                                          ◀ +FULLRESYNC id offset | +CONTINUE [id] | an error
//! ```

use std::io;

use crate::net::client::{Client, Timeout, request};
use crate::replication::history::ID_LEN;
use basalt_commands::cluster::node_id::NodeId;
use basalt_commands::command::host::primary::Words;
use basalt_commands::config::Config;
use basalt_core::base::lossless;
use basalt_core::resp::answer::Answer as Said;

/// Position at which the stream is to continue: its id, and the offset of the first byte wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PsyncPosition {
    pub(super) id: String,
    pub(super) next: u64,
}

/// Reply of a primary to PSYNC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PsyncReply {
    /// A snapshot follows, of the stream with this id up to this offset.
    Full { id: String, offset: u64 },
    /// The stream continues, under another id if one is given.
    Continue { id: Option<String> },
    /// The snapshot must be fetched over a second connection, which in Redis's protocol names this connection
    /// by its client id.
    Channel(Words, Option<u64>),
    /// The primary does not know PSYNC: a snapshot and the stream after it follow, but their offset is unknown.
    Old,
}

/// Why the primary provides no stream.
#[derive(Debug, thiserror::Error)]
pub(super) enum HandshakeRefusal {
    /// The connection broke.
    #[error("{}", match .0.kind() {
        io::ErrorKind::TimedOut => "Timeout connecting to the MASTER...".to_owned(),
        _ => .0.to_string(),
    })]
    Broken(#[from] io::Error),
    /// The primary cannot serve replicas now.
    #[error("Master is currently unable to PSYNC but should be in the future: {0}")]
    Later(String),
    /// The primary does not accept this server as a replica.
    #[error("{0}")]
    Denied(String),
    /// The reply is invalid.
    #[error("{0}")]
    Nonsense(String),
}

/// The Valkey version whose snapshots can be read here. A Valkey primary chooses the format by the announced
/// version, and refuses to send data that this version's format cannot represent.
pub(super) const KNOWN_VALKEY: &str = "9.1.0";

/// The capabilities that only basalt announces: it reads all that basalt writes, and compressed snapshots. Valkey's
/// words for the latter would make Valkey 9.2 compress the stream after them, too.
pub(super) const OWN_CAPABILITIES: [&[u8]; 6] = [
    b"capa",
    b"basalt",
    b"capa",
    b"basalt-lz4",
    b"capa",
    b"basalt-zstd",
];

/// Introduces this server, as `node` if it belongs to a cluster. `timeout` limits the wait for each reply.
pub(super) async fn introduce(
    client: &mut Client,
    config: &Config,
    node: Option<NodeId>,
    takes_channel: bool,
    timeout: Timeout<'_>,
) -> Result<(), HandshakeRefusal> {
    let reply = client.call(&[b"PING"], timeout).await?;
    let wants_more: [&[u8]; 3] = [b"NOAUTH", b"NOPERM", b"ERR operation not permitted"];
    let goes_on = match &reply {
        Said::Status(_) => true,
        Said::Error(why) => wants_more.iter().any(|text| why.starts_with(text)),
        Said::Words(_) | Said::Other => false,
    };
    if !goes_on {
        return Err(HandshakeRefusal::Denied(format!(
            "Error reply to PING from master: '{reply}'"
        )));
    }
    tracing::info!("Master replied to PING, replication can continue...");
    authenticate(client, config, timeout).await?;
    let port = announced_port(config);
    let address = lossless::bytes_of(&config.replica_announce_ip);
    let version = KNOWN_VALKEY;
    let mut said: Vec<(&str, Vec<&[u8]>)> = vec![(
        "listening-port",
        vec![b"REPLCONF", b"listening-port", port.as_bytes()],
    )];
    if !address.is_empty() {
        said.push(("ip-address", vec![b"REPLCONF", b"ip-address", &address]));
    }
    // The capabilities of basalt are harmless, because other servers ignore unknown capabilities.
    let mut can = vec![&b"REPLCONF"[..], b"capa", b"eof", b"capa", b"psync2"];
    can.extend(OWN_CAPABILITIES);
    if takes_channel && config.dual_channel_replication_enabled {
        can.extend([&b"capa"[..], b"dual-channel"]);
    }
    if takes_channel && config.repl_rdb_channel {
        can.extend([&b"capa"[..], b"rdb-channel-repl"]);
    }
    said.push(("capa", can));
    said.push(("VERSION", vec![b"REPLCONF", b"version", version.as_bytes()]));
    // Valkey 9 hands over only to a replica whose node it knows.
    if let Some(node) = &node {
        let words = vec![&b"REPLCONF"[..], b"set-cluster-node-id", node.as_bytes()];
        said.push(("SET-CLUSTER-NODE-ID", words));
    }
    let all: Vec<u8> = said.iter().flat_map(|(_, words)| request(words)).collect();
    client.send(&all, timeout).await?;
    for (name, _) in &said {
        let reply = client.read_reply(timeout).await?;
        if let Said::Error(_) = reply {
            tracing::info!("(Non critical) Master does not understand REPLCONF {name}: {reply}");
        }
    }
    Ok(())
}

/// Returns the port announced to the primary.
pub(super) fn announced_port(config: &Config) -> String {
    let port = match config.replica_announce_port {
        0 if config.tls_replication && config.tls_port != 0 => config.tls_port,
        0 => config.port,
        announced => announced,
    };
    port.to_string()
}

/// Authenticates with the primary, if `masterauth` is configured.
pub(super) async fn authenticate(
    client: &mut Client,
    config: &Config,
    timeout: Timeout<'_>,
) -> Result<(), HandshakeRefusal> {
    if let Some(asked) = config.sign_in(request) {
        client.send(&asked, timeout).await?;
        let reply = client.read_reply(timeout).await?;
        if let Said::Error(_) = reply {
            return Err(HandshakeRefusal::Denied(format!(
                "Unable to AUTH to MASTER: {reply}"
            )));
        }
    }
    Ok(())
}

/// Requests the stream from `position` on, or a full synchronization; with `hands_over`, tells the other server
/// to become the primary.
pub(super) async fn ask(
    client: &mut Client,
    position: Option<&PsyncPosition>,
    hands_over: bool,
    timeout: Timeout<'_>,
) -> Result<PsyncReply, HandshakeRefusal> {
    let next = position.map(|position| position.next.to_string());
    let mut words: Vec<&[u8]> = vec![b"PSYNC"];
    match (position, &next) {
        (Some(position), Some(next)) => {
            tracing::info!(
                "Trying a partial resynchronization (request {}:{next}).",
                position.id
            );
            words.extend([position.id.as_bytes(), next.as_bytes()]);
        }
        _ => {
            tracing::info!("Partial resynchronization not possible (no cached master)");
            words.extend([&b"?"[..], b"-1"]);
        }
    }
    if hands_over {
        words.push(b"FAILOVER");
    }
    let reply = client.call(&words, timeout).await?;
    let answer = answer_of(&reply)?;
    if answer == PsyncReply::Old && hands_over {
        return Err(HandshakeRefusal::Denied(format!(
            "The replica refused the failover: {reply}"
        )));
    }
    if answer == PsyncReply::Old {
        tracing::warn!("Master does not support PSYNC or is in error state (reply: {reply})");
        tracing::info!("Retrying with SYNC...");
        client.send(&request(&[b"SYNC"]), timeout).await?;
    }
    Ok(answer)
}

/// Parses a reply to PSYNC.
pub(super) fn answer_of(reply: &Said) -> Result<PsyncReply, HandshakeRefusal> {
    let text = reply.to_string();
    let nonsense =
        || HandshakeRefusal::Nonsense(format!("Unexpected reply to PSYNC from master: {text}"));
    let mut words = text.split(' ').filter(|word| !word.is_empty());
    match words.next() {
        Some("+FULLRESYNC") => {
            let (Some(id), Some(offset), None) = (words.next(), words.next(), words.next()) else {
                return Err(nonsense());
            };
            let offset = offset.parse::<i64>().ok().and_then(|at| at.try_into().ok());
            match (is_id(id), offset) {
                (true, Some(offset)) => Ok(PsyncReply::Full {
                    id: id.to_owned(),
                    offset,
                }),
                _ => Err(nonsense()),
            }
        }
        Some("+CONTINUE") => match (words.next(), words.next()) {
            (None, _) => Ok(PsyncReply::Continue { id: None }),
            (Some(id), None) if is_id(id) => Ok(PsyncReply::Continue {
                id: Some(id.to_owned()),
            }),
            _ => Err(nonsense()),
        },
        Some("+DUALCHANNELSYNC") => match words.next() {
            None => Ok(PsyncReply::Channel(Words::Valkey, None)),
            Some(_) => Err(nonsense()),
        },
        Some("+RDBCHANNELSYNC") => match (words.next().map(str::parse), words.next()) {
            (Some(Ok(client)), None) => Ok(PsyncReply::Channel(Words::Redis, Some(client))),
            _ => Err(nonsense()),
        },
        Some("-NOMASTERLINK" | "-LOADING") => Err(HandshakeRefusal::Later(text)),
        Some(word) if word.starts_with('-') => Ok(PsyncReply::Old),
        _ => Err(nonsense()),
    }
}

/// Redis accepts any 40 characters as an id; here ids are written to files and lines, so only alphanumeric ones are
/// accepted.
pub(super) fn is_id(text: &str) -> bool {
    text.len() == ID_LEN && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// Formats received data for the log.
pub(super) fn shown(line: &[u8]) -> String {
    lossless::text_of(line).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_one_of_few_or_nonsense() {
        let id = "0123456789abcdef0123456789abcdef01234567";
        let full = PsyncReply::Full {
            id: id.to_owned(),
            offset: 12,
        };
        let read = |text: String| {
            let (sign, rest) = text.split_at_checked(1).unwrap_or(("", ""));
            let rest = rest.as_bytes().to_vec();
            answer_of(&match sign {
                "+" => Said::Status(rest),
                "-" => Said::Error(rest),
                _ => Said::Other,
            })
        };
        assert_eq!(read(format!("+FULLRESYNC {id} 12")).expect("fine"), full);
        let other = PsyncReply::Continue {
            id: Some(id.to_owned()),
        };
        assert_eq!(read(format!("+CONTINUE {id}")).expect("fine"), other);
        let same = PsyncReply::Continue { id: None };
        assert_eq!(read("+CONTINUE".to_owned()).expect("fine"), same);
        let dual = PsyncReply::Channel(Words::Valkey, None);
        assert_eq!(read("+DUALCHANNELSYNC".to_owned()).expect("fine"), dual);
        let rdb = PsyncReply::Channel(Words::Redis, Some(7));
        assert_eq!(read("+RDBCHANNELSYNC 7".to_owned()).expect("fine"), rdb);
        assert_eq!(
            read("-ERR unknown".to_owned()).expect("fine"),
            PsyncReply::Old
        );
        for text in ["-LOADING x", "-NOMASTERLINK y"] {
            assert!(matches!(
                read(text.to_owned()),
                Err(HandshakeRefusal::Later(_))
            ));
        }
        for text in [
            "".to_owned(),
            "+OK".to_owned(),
            "+FULLRESYNC".to_owned(),
            format!("+FULLRESYNC {id}"),
            format!("+FULLRESYNC {id} -1"),
            format!("+FULLRESYNC {id} x"),
            format!("+FULLRESYNC {id} 1 2"),
            "+FULLRESYNC short 1".to_owned(),
            "+CONTINUE short".to_owned(),
            "+DUALCHANNELSYNC 1".to_owned(),
            "+RDBCHANNELSYNC".to_owned(),
            "+RDBCHANNELSYNC -1".to_owned(),
            "+RDBCHANNELSYNC 1 2".to_owned(),
            format!("+CONTINUE {id} {id}"),
            format!("+CONTINUE {}", "/".repeat(40)),
        ] {
            assert!(matches!(read(text), Err(HandshakeRefusal::Nonsense(_))));
        }
    }
}
