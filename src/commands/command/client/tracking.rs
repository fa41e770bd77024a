//! CLIENT TRACKING and related commands: the invalidation messages that a caching client requests.

use std::sync::Arc;

use super::list::redirection;
use super::{FLAGS, GROUP};
use crate::client::connection::ReplyMode;
use crate::client::shared::Shared;
use crate::client::shared::tracking::{Tracking, TrackingOptions};
use crate::command::context::SessionCx;
use crate::command::declaration::{Command, CommandResult};
use crate::command::error::{CommandError, shown};
use crate::command::pubsub::take_messages;
use crate::command::{Args, Out};

/// `CLIENT TRACKING <ON | OFF> [REDIRECT client-id] [PREFIX prefix [PREFIX prefix ...]] [BCAST] [OPTIN] [OPTOUT]
/// [NOLOOP]`
pub(super) static TRACKING: Command = Command::sub("client|tracking", "tracking", GROUP, -3)
    .flags(FLAGS)
    .doc(
        "6.0.0",
        "<ON | OFF> [REDIRECT client-id] [PREFIX prefix [PREFIX prefix ...]] [BCAST] [OPTIN] \
         [OPTOUT] [NOLOOP]",
        "Turns invalidation messages for client-side caching on or off.",
    )
    .complexity("O(1). Some options may introduce additional complexity.")
    .on_session(tracking);

/// The parsed parameters of CLIENT TRACKING.
struct TrackingRequest<'a> {
    options: TrackingOptions,
    redirect: Option<Arc<Shared>>,
    prefixes: Vec<&'a [u8]>,
}

impl<'a> TrackingRequest<'a> {
    fn read(cx: &SessionCx<'_>, args: &Args<'a>) -> Result<TrackingRequest<'a>, CommandError> {
        let mut wanted = TrackingRequest {
            options: TrackingOptions::OFF,
            redirect: None,
            prefixes: Vec::new(),
        };
        let flags = [
            ("bcast", TrackingOptions::BCAST),
            ("optin", TrackingOptions::OPTIN),
            ("optout", TrackingOptions::OPTOUT),
            ("noloop", TrackingOptions::NOLOOP),
        ];
        let mut at = 3;
        while at < args.len() {
            let has_value = at + 1 < args.len();
            if args.is(at, "redirect") && has_value {
                at += 1;
                if wanted.redirect.is_some() {
                    return Err("ERR A client can only redirect to a single other client".into());
                }
                let id = args.integer(at)?;
                let other = cx.server.clients().get(id as u64);
                wanted.redirect =
                    Some(other.ok_or("ERR The client ID you want redirect to does not exist")?);
            } else if args.is(at, "prefix") && has_value {
                at += 1;
                wanted.prefixes.push(args.get(at));
            } else if let Some((_, option)) = flags.iter().find(|(word, _)| args.is(at, word)) {
                wanted.options = wanted.options.or(*option);
            } else {
                return Err(CommandError::Syntax);
            }
            at += 1;
        }
        Ok(wanted)
    }

    /// Checks that the options agree with each other, and with the connection's current tracking.
    fn check(&self, now: TrackingOptions, shared: &Shared) -> CommandResult {
        let TrackingRequest {
            options, prefixes, ..
        } = self;
        let (bcast, optin, optout) = (
            TrackingOptions::BCAST,
            TrackingOptions::OPTIN,
            TrackingOptions::OPTOUT,
        );
        if !options.any(bcast) && !prefixes.is_empty() {
            return Err("ERR PREFIX option requires BCAST mode to be enabled".into());
        }
        if now.any(TrackingOptions::ON) && now.any(bcast) != options.any(bcast) {
            return Err(cannot_switch("BCAST mode on/off"));
        }
        if options.any(bcast) && options.any(optin.or(optout)) {
            return Err("ERR OPTIN and OPTOUT are not compatible with BCAST".into());
        }
        if options.any(optin) && options.any(optout) {
            return Err("ERR You can't specify both OPTIN mode and OPTOUT mode".into());
        }
        if options.any(optin) && now.any(optout) || options.any(optout) && now.any(optin) {
            return Err(cannot_switch("OPTIN/OPTOUT mode"));
        }
        let existing = shared
            .tracking()
            .map(Tracking::prefixes)
            .unwrap_or_default();
        check_prefixes(prefixes, &existing)
    }
}

fn cannot_switch(what: &str) -> CommandError {
    format!(
        "ERR You can't switch {what} before disabling tracking for this client, and then \
         re-enabling it with a different mode."
    )
    .into()
}

/// Checks that no prefix is a prefix of another one, as a key must not be reported twice. `existing` is sorted and
/// has no such pair.
fn check_prefixes(prefixes: &[&[u8]], existing: &[Box<[u8]>]) -> CommandResult {
    let refusal = |prefix: &[u8], kind: &str, other: &[u8]| {
        let prefix = shown(prefix);
        let other = shown(other);
        Err(format!(
            "ERR Prefix '{prefix}' overlaps with {kind} prefix '{other}'. Prefixes for a single \
             client must not overlap."
        )
        .into())
    };
    for prefix in prefixes {
        // In sorted order, a prefix of this one comes directly before it, and one that starts with it comes directly
        // after it.
        let at = existing.partition_point(|other| &**other < *prefix);
        let before = at.checked_sub(1).map(|at| &*existing[at]);
        if let Some(other) = before.filter(|other| prefix.starts_with(other)) {
            return refusal(prefix, "an existing", other);
        }
        let after = existing.get(at).map(|other| &**other);
        if let Some(other) = after.filter(|other| other.starts_with(prefix)) {
            return refusal(prefix, "an existing", other);
        }
    }
    let mut ordered: Vec<(&[u8], usize)> = prefixes.iter().copied().zip(0..).collect();
    ordered.sort_unstable();
    let overlapping = ordered
        .windows(2)
        .filter(|two| two[1].0.starts_with(two[0].0))
        .map(|two| (two[0].1.min(two[1].1), two[0].1.max(two[1].1)))
        .min();
    match overlapping {
        Some((first, second)) => refusal(prefixes[first], "another provided", prefixes[second]),
        None => Ok(()),
    }
}

fn tracking(cx: &mut SessionCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let wanted = TrackingRequest::read(cx, args)?;
    let is_on = args.is(2, "on");
    if !is_on && !args.is(2, "off") {
        return Err(CommandError::Syntax);
    }
    let shared = Arc::clone(&cx.client.shared);
    if is_on {
        wanted.check(cx.client.tracking, &shared)?;
        let options = wanted.options.or(TrackingOptions::ON);
        cx.server
            .pubsub()
            .start_tracking(&shared, options, wanted.redirect, &wanted.prefixes);
        let is_caching = cx.client.is_caching;
        cx.client.set_tracking(options, is_caching);
    } else {
        cx.server.pubsub().stop_tracking(&shared);
        cx.client.set_tracking(TrackingOptions::OFF, false);
        // Earlier messages precede the confirmation, unless the reply is going to be suppressed.
        if cx.client.reply_mode == ReplyMode::On {
            take_messages(cx, out);
        }
    }
    out.ok();
    Ok(())
}

/// `CLIENT CACHING <YES | NO>`
pub(super) static CACHING: Command = Command::sub("client|caching", "caching", GROUP, 3)
    .flags(FLAGS)
    .doc(
        "6.0.0",
        "<YES | NO>",
        "Sets whether the keys of the next command are tracked.",
    )
    .complexity("O(1)")
    .on_session(caching);

fn caching(cx: &mut SessionCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let now = cx.client.tracking;
    if !now.any(TrackingOptions::ON) {
        return Err(
            "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN \
             or OPTOUT mode enabled"
                .into(),
        );
    }
    let (word, mode, needed) = if args.is(2, "yes") {
        ("YES", "OPTIN", TrackingOptions::OPTIN)
    } else if args.is(2, "no") {
        ("NO", "OPTOUT", TrackingOptions::OPTOUT)
    } else {
        return Err(CommandError::Syntax);
    };
    if !now.any(needed) {
        return Err(format!(
            "ERR CLIENT CACHING {word} is only valid when tracking is enabled in {mode} mode."
        )
        .into());
    }
    cx.client.set_tracking(now, true);
    out.ok();
    Ok(())
}

/// `CLIENT GETREDIR`
pub(super) static GETREDIR: Command = Command::sub("client|getredir", "getredir", GROUP, 2)
    .flags(FLAGS)
    .doc(
        "6.0.0",
        "",
        "Returns the connection to which this one's invalidations are redirected.",
    )
    .complexity("O(1)")
    .repeatable()
    .on_session(|cx, _, out| {
        out.integer(redirection(&cx.client.shared));
        Ok(())
    });

/// `CLIENT TRACKINGINFO`
pub(super) static TRACKINGINFO: Command =
    Command::sub("client|trackinginfo", "trackinginfo", GROUP, 2)
        .flags(FLAGS)
        .doc(
            "6.2.0",
            "",
            "Returns how keys are tracked for this connection.",
        )
        .complexity("O(1)")
        .repeatable()
        .on_session(tracking_info);

fn tracking_info(cx: &mut SessionCx<'_>, _: &Args<'_>, out: &mut Out) -> CommandResult {
    let (now, is_caching) = (cx.client.tracking, cx.client.is_caching);
    let state = cx.client.shared.tracking();
    let flags = [
        ("off", !now.any(TrackingOptions::ON)),
        ("on", now.any(TrackingOptions::ON)),
        ("bcast", now.any(TrackingOptions::BCAST)),
        ("optin", now.any(TrackingOptions::OPTIN)),
        ("caching-yes", is_caching && now.any(TrackingOptions::OPTIN)),
        ("optout", now.any(TrackingOptions::OPTOUT)),
        ("caching-no", is_caching && now.any(TrackingOptions::OPTOUT)),
        ("noloop", now.any(TrackingOptions::NOLOOP)),
        ("broken_redirect", state.is_some_and(Tracking::is_broken)),
    ];
    let flags: Vec<&str> = flags
        .iter()
        .filter(|(_, is_set)| *is_set)
        .map(|(word, _)| *word)
        .collect();
    out.map(3);
    out.bulk(b"flags");
    out.set(flags.len());
    for flag in flags {
        out.bulk(flag.as_bytes());
    }
    out.bulk(b"redirect");
    out.integer(redirection(&cx.client.shared));
    out.bulk(b"prefixes");
    let prefixes = state.map(Tracking::prefixes).unwrap_or_default();
    out.array(prefixes.len());
    for prefix in prefixes {
        out.bulk(&prefix);
    }
    Ok(())
}
