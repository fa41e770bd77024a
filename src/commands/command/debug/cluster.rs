//! DEBUG subcommands that disturb the cluster's bus: they close links and drop packets.

use super::super::context::SessionCx;
use super::super::declaration::CommandResult;
use super::super::error::CommandError;
use super::super::host::cluster::{Cluster, LinkDirection};
use super::super::{Args, Out};
use super::leading_integer;
use crate::cluster::node_id::NodeId;
use basalt_core::base::lossless;

fn cluster<'s>(cx: &SessionCx<'s>) -> Result<&'s dyn Cluster, CommandError> {
    const NONE: &str = "ERR Debug option only available for cluster mode enabled setup!";
    cx.server.cluster().ok_or_else(|| NONE.into())
}

/// `DEBUG CLUSTERLINK KILL <to|from|all> node-id`
pub(super) fn kill_link(cx: &SessionCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let cluster = cluster(cx)?;
    let direction = match () {
        () if args.is(3, "to") => LinkDirection::To,
        () if args.is(3, "from") => LinkDirection::From,
        () if args.is(3, "all") => LinkDirection::Any,
        () => {
            let word = lossless::text_of(args.get(3));
            return Err(format!("ERR Unknown direction {word}").into());
        }
    };
    let node = NodeId::from_text(args.get(4));
    if !node.is_some_and(|node| cluster.kill_links(node, direction)) {
        let name = lossless::text_of(args.get(4));
        return Err(format!("ERR Unknown node {name}").into());
    }
    out.ok();
    Ok(())
}

/// `DEBUG DROP-CLUSTER-PACKET-FILTER packet-type`
pub(super) fn drop_packets(cx: &SessionCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let kind = args.integer(2)?;
    // In Redis a negative number means "none".
    cluster(cx)?.drop_packets(u16::try_from(kind).ok());
    out.ok();
    Ok(())
}

/// `DEBUG CLOSE-CLUSTER-LINK-ON-PACKET-DROP <0|1>`
pub(super) fn close_on_drop(cx: &SessionCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    cluster(cx)?.close_links_on_drop(leading_integer(args.get(2)) != 0);
    out.ok();
    Ok(())
}
