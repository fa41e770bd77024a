//! Input from a replica that receives the stream: acknowledgements (REPLCONF ACK).

use crate::telemetry::log;
use basalt_commands::command::declaration::Flags;
use basalt_commands::command::registry::{registry, resolve};
use basalt_commands::command::replication::REPLCONF;
use basalt_core::base::number;
use basalt_core::resp::request::{Parser, RequestLimits, Requests};

/// Maximum length of a replica's request: replicas only send short requests.
const BYTES_MAX: u64 = 1 << 20;

/// Flags of commands that access data or the replication stream, which a replica must not send.
const KEYSPACE: Flags = Flags::READONLY.or(Flags::WRITE).or(Flags::MAY_REPLICATE);

/// Acknowledged offsets of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Acknowledgement {
    /// Offset up to which the replica has received the stream.
    pub received: u64,
    /// Offset up to which the replica has synced the stream to its disk, if it reports that.
    pub synced: Option<u64>,
    /// Whether the replica becomes a primary itself. Only a replica that is basalt says so.
    pub is_promoted: bool,
}

/// Parses and removes the complete requests of the input. Returns the last acknowledgement, if any, or a message about
/// any other request.
pub(super) fn read(
    parser: &mut Parser,
    input: &mut Vec<u8>,
    requests: &mut Requests,
) -> Result<Option<Acknowledgement>, String> {
    let limits = RequestLimits {
        bulk_len_max: BYTES_MAX,
        ..RequestLimits::default()
    };
    let mut last = None;
    loop {
        requests.clear();
        let consumed = parser
            .parse(input, &limits, usize::MAX / 2, requests)
            .map_err(|error| String::from_utf8_lossy(&error.text()).into_owned())?;
        for request in &requests.requests {
            let arguments: Vec<&[u8]> = requests.arguments(input, *request).collect();
            if let Some(acknowledged) = acknowledgement(&arguments)? {
                last = Some(acknowledged);
            }
        }
        if consumed == 0 {
            requests.clear();
            return Ok(last);
        }
        input.drain(..consumed);
    }
}

fn acknowledgement(arguments: &[&[u8]]) -> Result<Option<Acknowledgement>, String> {
    let command = registry().find(arguments[0]);
    let is_word = |at: usize, word: &str| {
        let argument: Option<&&[u8]> = arguments.get(at);
        argument.is_some_and(|argument| argument.eq_ignore_ascii_case(word.as_bytes()))
    };
    let is_replconf = command.is_some_and(|command| std::ptr::eq(command, &raw const REPLCONF));
    if !is_replconf || !is_word(1, "ack") {
        let command = command.map(|command| resolve(command, arguments.get(1).copied()));
        let name = match command {
            Some(command) => command.full_name.into(),
            None => log::quoted(arguments[0]),
        };
        if command.is_some_and(|command| command.flags.any(KEYSPACE)) {
            tracing::warn!(
                "== CRITICAL == This master is sending an error to its replica: '-ERR Replica can't interact with the \
                 keyspace' after processing the command '{name}'"
            );
        }
        return Err(format!(
            "Replica generated a reply to command '{name}', disconnecting it"
        ));
    }
    let offset = |at: usize| {
        let number = arguments.get(at).copied().and_then(number::parse_i64);
        number.and_then(|number| u64::try_from(number).ok())
    };
    Ok(offset(2).map(|received| Acknowledgement {
        received,
        synced: match is_word(3, "fack") {
            true => offset(4),
            false => None,
        },
        is_promoted: is_word(3, "promoted"),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &str) -> Result<Option<Acknowledgement>, String> {
        let (mut parser, mut requests) = (Parser::default(), Requests::default());
        let mut input = text.as_bytes().to_vec();
        let found = read(&mut parser, &mut input, &mut requests);
        assert!(found.is_err() || input.len() < 10, "{input:?}");
        found
    }

    #[test]
    fn the_last_acknowledgement_counts_and_lines_that_are_empty_say_nothing() {
        let acknowledged = |received, synced| {
            Ok(Some(Acknowledgement {
                received,
                synced,
                is_promoted: false,
            }))
        };
        let promoted = Acknowledgement {
            received: 5,
            synced: None,
            is_promoted: true,
        };
        assert_eq!(all("REPLCONF ACK 5 PROMOTED 1\r\n"), Ok(Some(promoted)));
        assert_eq!(all("\n\n"), Ok(None));
        assert_eq!(all("replconf ack 5\r\n"), acknowledged(5, None));
        let both = "*3\r\n$8\r\nREPLCONF\r\n$3\r\nACK\r\n$1\r\n7\r\n\
                    *5\r\n$8\r\nREPLCONF\r\n$3\r\nACK\r\n$2\r\n12\r\n$4\r\nFACK\r\n$1\r\n9\r\n*3\r\n$8";
        assert_eq!(all(both), acknowledged(12, Some(9)));
        for lies in [
            "REPLCONF ACK -1\r\n",
            "REPLCONF ACK x\r\n",
            "REPLCONF ACK\r\n",
        ] {
            assert_eq!(all(lies), Ok(None), "{lies}");
        }
    }

    #[test]
    fn whatever_asks_for_a_reply_is_refused() {
        assert!(all("PING\r\n").is_err());
        assert!(all("REPLCONF capa eof\r\n").is_err());
        assert!(all("*3\r\n*1\r\n").is_err());
        assert!(all("nonsense\r\n").is_err());
    }
}
