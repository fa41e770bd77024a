//! PSYNC, SYNC, REPLCONF: requests of a replica to its primary before it receives the stream. Later requests are read
//! by the task that then owns the replica's socket.

use crate::client::announced::Announced;
use crate::client::shared::Labels;
use crate::command::context::{After, SessionCx};
use crate::command::declaration::{Command, CommandResult, Flags, Group};
use crate::command::error::{CommandError, shown};
use crate::command::host::cluster::Cluster;
use crate::command::host::primary::{Follow, Words};
use crate::command::{Args, Out};
use crate::config::Config;
use basalt_core::base::lossless;
use basalt_core::base::text::split_arguments;

/// Maximum length of an address that a replica may announce.
const ADDRESS_LEN_MAX: usize = 255;

const FLAGS: Flags = Flags::ADMIN
    .or(Flags::NOSCRIPT)
    .or(Flags::NO_ASYNC_LOADING)
    .or(Flags::NO_MULTI);

/// `PSYNC replicationid offset`
pub(super) static PSYNC: Command = Command::new("psync", Group::Server, -3)
    .flags(FLAGS)
    .doc(
        "2.8.0",
        "replicationid offset:integer",
        "Starts replication from this server, if possible from where a replica left off.",
    )
    .on_session(psync);

fn psync(cx: &mut SessionCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let offset = args.integer(2).inspect_err(|_| {
        tracing::warn!(
            "Replica {} asks for synchronization but with a wrong offset",
            cx.client.shared.address
        );
    })?;
    if args.len() > 3 && args.is(3, "failover") {
        cx.server.replica().take_over(args.get(1))?;
    }
    let resume = Some((args.get(1).to_vec(), offset));
    follow(cx, resume, out)
}

/// `SYNC`
pub(super) static SYNC: Command = Command::new("sync", Group::Server, 1)
    .flags(FLAGS)
    .doc(
        "1.0.0",
        "",
        "Starts replication from this server with a full synchronization.",
    )
    .on_session(|cx, _, out| follow(cx, None, out));

fn follow(cx: &mut SessionCx<'_>, resume: Option<(Vec<u8>, i64)>, out: &mut Out) -> CommandResult {
    if let Some(error) = cx.server.replica().refuses_replicas() {
        return Err(error);
    }
    if !out.is_empty() {
        return Err("ERR SYNC and PSYNC are invalid with pending output".into());
    }
    let announced = cx.client.shared.announced();
    if announced.is_filtered() && !announced.takes_end_mark {
        return Err("ERR Filtered replica requires EOF capability".into());
    }
    let (client, primary) = (&cx.client.shared, cx.server.primary());
    let goes_on = |(id, offset): &(Vec<u8>, i64)| primary.goes_on(client, id.as_slice(), *offset);
    let words = Words::agreed(cx.config, &announced)
        .filter(|_| resume.as_ref().is_some_and(|resume| !goes_on(resume)));
    match words {
        // The replica fetches the snapshot over another connection, and then requests the stream after it.
        Some(Words::Valkey) => {
            out.simple("DUALCHANNELSYNC");
            return Ok(());
        }
        Some(Words::Redis) => out.simple(format!("RDBCHANNELSYNC {}", client.id)),
        None => {}
    }
    let awaits_rdb_channel = words.is_some();
    cx.after = After::Follow(Box::new(Follow {
        resume,
        awaits_rdb_channel,
    }));
    Ok(())
}

/// `REPLCONF`
pub static REPLCONF: Command = Command::new("replconf", Group::Server, -1)
    .flags(
        Flags::ADMIN
            .or(Flags::NOSCRIPT)
            .or(Flags::LOADING)
            .or(Flags::STALE)
            .or(Flags::ALLOW_BUSY)
            .or(Flags::SYSCMD),
    )
    .doc(
        "3.0.0",
        "",
        "Sends a replica's settings and progress to its primary.",
    )
    .complexity("O(1)")
    .on_session(replconf);

fn replconf(cx: &mut SessionCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    if args.len().is_multiple_of(2) {
        return Err(CommandError::Syntax);
    }
    for at in (1..args.len()).step_by(2) {
        if args.is(at, "getack") {
            cx.server.replica().acknowledge();
            return Ok(());
        }
        if args.is(at, "ack") {
            // Only a replica or a primary sends this subcommand, and it has no reply.
            return Ok(());
        }
        let mut announced = cx.client.shared.announced();
        announce(&mut announced, cx.config, cx.server.cluster(), args, at)?;
        let labels = |labels: &mut Labels| labels.announced = Some(Box::new(announced));
        cx.client.shared.set_labels(labels);
    }
    out.ok();
    Ok(())
}

fn announce(
    announced: &mut Announced,
    config: &Config,
    cluster: Option<&dyn Cluster>,
    args: &Args<'_>,
    at: usize,
) -> CommandResult {
    let value = args.get(at + 1);
    // Refused as unknown if both protocols are disabled: redis-cli would take acceptance as permission to receive a
    // snapshot over a separate connection.
    let has_channels = config.dual_channel_replication_enabled || config.repl_rdb_channel;
    if args.is(at, "listening-port") {
        announced.port = u16::try_from(args.integer(at + 1)?).unwrap_or(0);
    } else if args.is(at, "ip-address") {
        if value.len() > ADDRESS_LEN_MAX {
            let len = value.len();
            let text = "REPLCONF ip-address provided by replica instance is too long";
            return Err(format!("ERR {text}: {len} bytes").into());
        }
        announced.ip = String::from_utf8_lossy(value).into_owned();
    } else if args.is(at, "capa") {
        announced.takes_end_mark |= args.is(at + 1, "eof");
        announced.changes_ids |= args.is(at + 1, "psync2");
        announced.takes_dual_channel |= args.is(at + 1, "dual-channel");
        announced.takes_rdb_channel |= args.is(at + 1, "rdb-channel-repl");
        announced.is_basalt |= args.is(at + 1, "basalt");
        // Valkey's words ask for a compressed stream too, which basalt as replica does not read.
        announced.takes_lz4 |= args.is(at + 1, "lz4") || args.is(at + 1, "basalt-lz4");
        announced.takes_zstd |= args.is(at + 1, "zstd") || args.is(at + 1, "basalt-zstd");
    } else if args.is(at, "set-cluster-node-id") {
        let cluster = cluster.ok_or("ERR This instance has cluster support disabled")?;
        let node = cluster.map().find(value).map(|node| node.id);
        let unknown = || format!("ERR Unknown node {}", lossless::text_of(value));
        announced.node = Some(node.ok_or_else(unknown)?);
    } else if args.is(at, "rdb-only") {
        announced.wants_snapshot_only = switch(args, at + 1)?;
    } else if has_channels && args.is(at, "rdb-channel") {
        announced.is_rdb_channel = switch(args, at + 1)?;
    } else if has_channels && args.is(at, "main-ch-client-id") {
        announced.main_client = u64::try_from(args.integer(at + 1)?).ok();
    } else if has_channels && args.is(at, "set-rdb-client-id") {
        announced.rdb_client = u64::try_from(args.integer(at + 1)?).ok();
    } else if args.is(at, "rdb-filter-only") {
        let (mut words, mut ranges) = (Vec::new(), Vec::new());
        split_arguments(value, &mut words, |range| ranges.push(range))
            .map_err(|_| "ERR Missing rdb-filter-only values")?;
        (announced.lacks_data, announced.lacks_functions) = (true, true);
        for range in ranges {
            match &words[range] {
                word if word.eq_ignore_ascii_case(b"functions") => {
                    announced.lacks_functions = false
                }
                word => {
                    let word = shown(word);
                    return Err(format!("ERR Unsupported rdb-filter-only option: {word}").into());
                }
            }
        }
    } else if args.is(at, "version") {
        announced.version = String::from_utf8_lossy(value).into_owned();
    } else {
        let option = shown(args.get(at));
        return Err(format!("ERR Unrecognized REPLCONF option: {option}").into());
    }
    Ok(())
}

fn switch(args: &Args<'_>, at: usize) -> Result<bool, CommandError> {
    match args.integer(at)? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err("ERR value is out of range, value must between 0 and 1".into()),
    }
}
