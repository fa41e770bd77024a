//! ROLE, REPLICAOF, SLAVEOF, FAILOVER: the server's role and its primary.

use crate::command::context::{After, Outbox, SessionCx};
use crate::command::declaration::{Categories, Command, CommandResult, Flags, Group, always};
use crate::command::error::CommandError;
use crate::command::host::Told;
use crate::command::host::primary::{ReplicaFacts, ReplicaState};
use crate::command::host::replica::FailoverRequest;
use crate::command::{Args, Out};
use crate::config::values::ClusterMode;

/// `ROLE`
pub(super) static ROLE: Command = Command::new("role", Group::Server, 1)
    .flags(
        Flags::NOSCRIPT
            .or(Flags::LOADING)
            .or(Flags::STALE)
            .or(Flags::FAST),
    )
    .categories(Categories::ADMIN.or(Categories::DANGEROUS))
    .doc(
        "2.8.12",
        "",
        "Returns the replication role of this server, with its primary or replicas.",
    )
    .complexity("O(1)")
    .repeatable()
    .on_session(role);

fn role(cx: &mut SessionCx<'_>, _: &Args<'_>, out: &mut Out) -> CommandResult {
    if let Some(upstream) = cx.server.replica().upstream() {
        out.array(5);
        out.bulk(b"slave");
        out.bulk(upstream.host.as_bytes());
        out.integer(i64::from(upstream.port));
        out.bulk(upstream.state.name().as_bytes());
        out.integer(upstream.offset);
        return Ok(());
    }
    let primary = cx.server.primary();
    let is_online = |replica: &ReplicaFacts| replica.state == ReplicaState::Online;
    let replicas: Vec<_> = primary.replicas().into_iter().filter(is_online).collect();
    out.array(3);
    out.bulk(b"master");
    out.integer(primary.stream().offset.cast_signed());
    out.array(replicas.len());
    for replica in replicas {
        out.array(3);
        out.bulk(replica.ip.as_bytes());
        out.bulk(replica.port.to_string().as_bytes());
        out.bulk(replica.offset.to_string().as_bytes());
    }
    Ok(())
}

const FOLLOWS: Flags = Flags::ADMIN
    .or(Flags::NOSCRIPT)
    .or(Flags::STALE)
    .or(Flags::NO_ASYNC_LOADING);

const TARGET: &str = "<host port | NO ONE>";

/// `REPLICAOF <host port | NO ONE>`
pub(super) static REPLICAOF: Command = Command::new("replicaof", Group::Server, 3)
    .flags(FOLLOWS)
    .doc(
        "5.0.0",
        TARGET,
        "Makes this server a replica of another one, or a primary.",
    )
    .complexity("O(1)")
    .on_session(replicaof);

/// `SLAVEOF <host port | NO ONE>`
pub(super) static SLAVEOF: Command = Command::new("slaveof", Group::Server, 3)
    .flags(FOLLOWS)
    .doc(
        "1.0.0",
        TARGET,
        "Makes this server a replica of another one, or a primary.",
    )
    .complexity("O(1)")
    .deprecated("5.0.0", "`REPLICAOF`")
    .on_session(replicaof);

fn replicaof(cx: &mut SessionCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    if cx.config.cluster_enabled == ClusterMode::Yes {
        return Err("ERR REPLICAOF not allowed in cluster mode.".into());
    }
    let target = match args.is(1, "no") && args.is(2, "one") {
        true => None,
        false => {
            let host = String::from_utf8_lossy(args.get(1)).into_owned();
            let port = args
                .integer(2)
                .ok()
                .and_then(|port| u16::try_from(port).ok());
            Some((host, port.ok_or("ERR Invalid master port")?))
        }
    };
    let change = cx.server.replica().follow(target)?;
    match (&cx.outbox, change.told) {
        // A transaction does not wait, and the commands after this one see the new primary.
        (Outbox::Pending(..), Told::Text(text)) => {
            (change.begin)(Box::new(drop));
            out.simple(text);
        }
        _ => cx.after = After::Await(change),
    }
    Ok(())
}

/// `FAILOVER [TO host port [FORCE]] [ABORT] [TIMEOUT milliseconds]`
pub(super) static FAILOVER: Command = Command::new("failover", Group::Server, -1)
    .flags(Flags::ADMIN.or(Flags::NOSCRIPT).or(Flags::STALE))
    .doc(
        "6.2.0",
        "[TO <host port [FORCE]>] [ABORT] [TIMEOUT milliseconds]",
        "Promotes a replica to take over from this primary.",
    )
    .complexity("O(1)")
    .postponed_if(always)
    .on_session(failover);

fn failover(cx: &mut SessionCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    if cx.config.cluster_enabled == ClusterMode::Yes {
        return Err(
            "ERR FAILOVER not allowed in cluster mode. Use CLUSTER FAILOVER command instead."
                .into(),
        );
    }
    if args.len() == 2 && args.is(1, "abort") {
        cx.server.replica().abort_failover()?;
        out.ok();
        return Ok(());
    }
    let mut wanted = FailoverRequest::default();
    let mut at = 1;
    while at < args.len() {
        if args.is(at, "timeout") && at + 1 < args.len() && wanted.timeout_ms.is_none() {
            let timeout_ms = args.integer(at + 1)?;
            if timeout_ms <= 0 {
                return Err("ERR FAILOVER timeout must be greater than 0".into());
            }
            wanted.timeout_ms = Some(timeout_ms.cast_unsigned());
            at += 2;
        } else if args.is(at, "to") && at + 2 < args.len() && wanted.target.is_none() {
            let port = u16::try_from(args.integer(at + 2)?).unwrap_or(0);
            let host = String::from_utf8_lossy(args.get(at + 1)).into_owned();
            wanted.target = Some((host, port));
            at += 3;
        } else if args.is(at, "force") && !wanted.is_forced {
            wanted.is_forced = true;
            at += 1;
        } else {
            return Err(CommandError::Syntax);
        }
    }
    cx.server.replica().fail_over(wanted)?;
    out.ok();
    Ok(())
}
