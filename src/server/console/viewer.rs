//! Authentication of viewers, and what they may see.
//!
//! Figures are shown to everyone who may read the metrics. Names of keys and clients, log lines and values of
//! directives are shown if `metrics-key-names` allows it, or to a user whose rules allow the command that would
//! reveal them; and each key only if the rules allow reading it.
//!
//! Permissions are valid for one rendering. A streaming response keeps the request's credentials
//! ([`Credentials`]) and authenticates again before each event: deleting a user, changing a password or
//! revoking a permission takes effect with the next event.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::header::{AUTHORIZATION, HeaderMap, HeaderValue};

use crate::telemetry::clock;
use crate::telemetry::exporter::answers::{may_read, shows_auth};
use crate::telemetry::observed::Observed;
use basalt_commands::acl::log;
use basalt_commands::acl::selector::Wanted;
use basalt_commands::acl::{Denied, User};
use basalt_commands::command::registry::registry;
use basalt_core::base::base64;

/// Contents that need permission, by the command that reveals them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sight {
    /// Names of frequently used keys.
    HotKeys,
    /// Keys with large values, and the composition of memory.
    BigKeys,
    /// Keys and clients in the slow log.
    SlowLog,
    /// Names and addresses of clients.
    Clients,
    /// Values of directives.
    Config,
    /// Log lines, which may reveal anything.
    Log,
}

impl Sight {
    /// Returns the command whose permission is required.
    fn command(self) -> &'static str {
        match self {
            Sight::HotKeys => "hotkeys|top",
            Sight::BigKeys => "memory|bigkeys",
            Sight::SlowLog => "slowlog|get",
            Sight::Clients => "client|list",
            Sight::Config => "config|get",
            Sight::Log => "monitor",
        }
    }
}

/// A viewer; see the module.
#[derive(Clone, Debug)]
pub(super) struct Viewer {
    /// The user, if logged in.
    pub(super) user: Option<Arc<User>>,
    /// Whether names are shown to everyone.
    pub(super) names_for_all: bool,
}

/// The credentials of a request, kept for as long as its response is being sent.
#[derive(Clone, Debug)]
pub(super) struct Credentials(HeaderMap);

/// Why a viewer may see nothing at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConsoleDenial {
    /// The user or the password is wrong.
    Unknown,
    /// No credentials were given, but authentication is required.
    Needed,
}

impl ConsoleDenial {
    /// Returns the message for the viewer.
    pub(super) fn text(self) -> &'static str {
        match self {
            ConsoleDenial::Unknown => "Wrong user name or password.\n",
            ConsoleDenial::Needed => "A user name and a password are required.\n",
        }
    }
}

impl Credentials {
    pub(super) fn of(headers: &HeaderMap) -> Credentials {
        let shown = headers.get(AUTHORIZATION).cloned();
        Credentials(
            shown
                .map(|shown| (AUTHORIZATION, shown))
                .into_iter()
                .collect(),
        )
    }

    /// Authenticates the viewer for the present moment: the single gate to all contents.
    pub(super) fn look(&self, service: &dyn Observed) -> Result<Viewer, ConsoleDenial> {
        let viewer = sign_in(service, &self.0)?;
        match viewer.user.is_some() || may_read(&self.0, &service.config().metrics_auth) {
            true => Ok(viewer),
            false => Err(ConsoleDenial::Needed),
        }
    }
}

impl Viewer {
    /// Whether the viewer may see a kind of contents.
    pub(super) fn sees(&self, sight: Sight) -> bool {
        let may = |user: &Arc<User>| {
            let command = registry().by_full_name(sight.command());
            command.is_some_and(|command| {
                let wanted = Wanted {
                    id: command.rule_id(),
                    is_free: false,
                    first_argument: None,
                    keys: &[],
                    channels: &[],
                    are_patterns: false,
                    databases: &[],
                };
                user.refusal(&wanted).is_none()
            })
        };
        self.names_for_all || self.user.as_ref().is_some_and(may)
    }

    /// Whether the viewer may see a key's name within permitted contents; `db` is `None` if the key's database
    /// is unknown.
    pub(super) fn sees_key(&self, key: &[u8], db: Option<usize>) -> bool {
        let may = |user: &Arc<User>| user.reads_key(key, db);
        self.names_for_all || self.user.as_ref().is_some_and(may)
    }
}

/// Authenticates a request: by user and password, or by a token: a password alone that exactly one user has. A
/// request with the user of `metrics-auth`, or without credentials, comes from an anonymous visitor.
pub(super) fn sign_in(
    service: &dyn Observed,
    headers: &HeaderMap,
) -> Result<Viewer, ConsoleDenial> {
    let config = service.config();
    let visitor = Viewer {
        user: None,
        names_for_all: config.metrics_key_names,
    };
    let Some(shown) = headers.get(AUTHORIZATION) else {
        return Ok(visitor);
    };
    let found = match split_scheme(shown.as_bytes()) {
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case(b"basic") => by_password(service, rest),
        Some((scheme, token)) if scheme.eq_ignore_ascii_case(b"bearer") => by_token(service, token),
        _ => None,
    };
    match found {
        Some(user) => Ok(Viewer {
            user: Some(user),
            ..visitor
        }),
        None if shows_auth(headers, &config.metrics_auth) => Ok(visitor),
        None => Err(ConsoleDenial::Unknown),
    }
}

/// Whether any user can log in. A user for whom any password works does not count.
pub(super) fn any_can_sign_in(service: &dyn Observed) -> bool {
    let can = |user: &Arc<User>| {
        user.is_on() && !user.is_nopass() && user.password_hashes().next().is_some()
    };
    service.users().all().iter().any(can)
}

fn split_scheme(shown: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = shown.iter().position(|byte| *byte == b' ')?;
    Some((&shown[..at], shown[at + 1..].trim_ascii()))
}

/// Returns the user with this name and password. If any password works, the password proves no identity.
fn by_password(service: &dyn Observed, coded: &[u8]) -> Option<Arc<User>> {
    let shown = base64::decode(coded)?;
    let at = shown.iter().position(|byte| *byte == b':')?;
    let user = service.users().find(&shown[..at])?.user();
    (!user.is_nopass() && user.signs_in(&shown[at + 1..])).then_some(user)
}

/// Returns the only user with this password, except users for whom any password works.
fn by_token(service: &dyn Observed, token: &[u8]) -> Option<Arc<User>> {
    let has = |user: &Arc<User>| !user.is_nopass() && user.signs_in(token);
    let mut found = service.users().all().into_iter().filter(has);
    match (found.next(), found.next()) {
        (Some(one), None) => Some(one),
        _ => None,
    }
}

/// Records a failed login, as AUTH does. Returns how long the response is delayed.
pub(super) fn failed(service: &dyn Observed, headers: &HeaderMap, peer: IpAddr) -> Duration {
    let now_ms = clock::unix_ms();
    let shown = headers.get(AUTHORIZATION).map(HeaderValue::as_bytes);
    let decoded = shown
        .and_then(split_scheme)
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case(b"basic"))
        .and_then(|(_, coded)| base64::decode(coded))
        .unwrap_or_default();
    let user = decoded.split(|byte| *byte == b':').next();
    let entry = log::AclLogEntry {
        count: 1,
        denied: Denied::Auth,
        place: log::AclLogContext::TopLevel,
        object: b"console".to_vec(),
        user: user.unwrap_or_default().to_vec(),
        client: format!("addr={peer}"),
        id: 0,
        created_ms: now_ms,
        updated_ms: now_ms,
    };
    let entries_max = usize::try_from(service.config().acllog_max_len).unwrap_or(usize::MAX);
    service.users().note(entry, entries_max);
    let until_ms = service.users().note_failed_login(&peer.to_string(), now_ms);
    Duration::from_millis(until_ms.saturating_sub(now_ms))
}
