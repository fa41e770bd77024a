//! CLIENT MAINT_NOTIFICATIONS: notifications of failovers and of slots that move.

use super::{FLAGS, GROUP};
use crate::client::shared::maintenance::MaintenanceOptions;
use crate::cluster::route::RoutingFlags;
use crate::command::context::SessionCx;
use crate::command::declaration::{Command, CommandResult};
use crate::command::error::{CommandError, shown};
use crate::command::{Args, Out};

/// `CLIENT MAINT_NOTIFICATIONS <ON | OFF> [MOVING-ENDPOINT-TYPE <INTERNAL-IP | INTERNAL-FQDN | EXTERNAL-IP |
/// EXTERNAL-FQDN | NONE>]`
pub(super) static MAINT_NOTIFICATIONS: Command = Command::sub(
    "client|maint_notifications",
    "maint_notifications",
    GROUP,
    -3,
)
.flags(FLAGS)
.doc(
    Command::OWN,
    "<ON | OFF> [MOVING-ENDPOINT-TYPE <INTERNAL-IP | INTERNAL-FQDN | EXTERNAL-IP | \
             EXTERNAL-FQDN | NONE>]",
    "Sets whether the connection is told of failovers and of slots that move.",
)
.complexity("O(1)")
.on_session(maint_notifications);

/// The types of endpoints that a client can ask for. The server knows one endpoint of each other server, so internal
/// and external ones are the same.
const ENDPOINT_TYPES: [(&str, MaintenanceOptions); 5] = [
    ("internal-ip", MaintenanceOptions::NONE),
    ("external-ip", MaintenanceOptions::NONE),
    ("internal-fqdn", MaintenanceOptions::NAMES),
    ("external-fqdn", MaintenanceOptions::NAMES),
    ("none", MaintenanceOptions::NO_ENDPOINT),
];

/// Returns the options of a request after `ON`.
fn options(args: &Args<'_>) -> Result<MaintenanceOptions, CommandError> {
    match args.len() {
        3 => Ok(MaintenanceOptions::NONE),
        5 if args.is(3, "moving-endpoint-type") => {
            let mut known = ENDPOINT_TYPES.iter();
            let known = known.find(|(word, _)| args.is(4, word));
            known.map(|(_, options)| *options).ok_or_else(|| {
                let word = shown(args.get(4));
                format!("ERR Unknown moving-endpoint-type '{word}'").into()
            })
        }
        _ => Err(CommandError::Syntax),
    }
}

fn maint_notifications(cx: &mut SessionCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let (pubsub, shared) = (cx.server.pubsub(), &cx.client.shared);
    if args.is(2, "off") && args.len() == 3 {
        pubsub.stop_maintenance(shared);
        out.ok();
        return Ok(());
    }
    if !args.is(2, "on") {
        return Err(CommandError::Syntax);
    }
    let mut options = options(args)?;
    if !out.is_resp3() {
        return Err("ERR Maintenance notifications are only available with RESP3 (HELLO 3)".into());
    }
    if pubsub.is_maintenance_silent() {
        return Err("ERR Maintenance notifications are disabled (maint-notifications)".into());
    }
    if cx.client.routing.any(RoutingFlags::TLS) {
        options = options.or(MaintenanceOptions::TLS);
    }
    pubsub.start_maintenance(shared, options, cx.now.unix_ms);
    out.ok();
    Ok(())
}
