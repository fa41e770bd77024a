//! Who asks, and what is shown to that user.
//!
//! Figures are shown to everybody who may read the metrics. Names of keys and clients, lines of the log and values of
//! directives are shown where `metrics-key-names` says so, or to a user of the server whose rules allow the command
//! that would tell them, and each key only if the rules let it be read.
//!
//! What somebody may see holds for one look. An answer that goes on keeps what the request showed of who it is from
//! ([`Credentials`]), and asks anew for each look: a user who was deleted, a password or a right that was taken away,
//! count from the next one on.

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
use basalt_commands::command::table::registry;
use basalt_core::base::base64;

/// What somebody may want to see, by the command that tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sight {
    /// Keys that are used much.
    HotKeys,
    /// Keys with large values, and what memory is made of.
    BigKeys,
    /// Keys and clients in the slow log.
    SlowLog,
    /// Names and addresses of clients.
    Clients,
    /// Values of directives.
    Config,
    /// Lines of the log, which tell of everything.
    Log,
}

impl Sight {
    /// The command whose permission is asked for.
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

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Viewer {
    /// The user who has signed in.
    pub(super) user: Option<Arc<User>>,
    /// Names are for everybody.
    pub(super) names_for_all: bool,
}

/// Who asks, as a request says: kept for as long as it is answered.
#[derive(Clone, Debug)]
pub(super) struct Credentials(HeaderMap);

/// Why somebody sees nothing at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// The user, or the password, is wrong.
    Unknown,
    /// Nothing is shown without a user.
    Needed,
}

impl Refused {
    /// For people.
    pub(super) fn text(self) -> &'static str {
        match self {
            Refused::Unknown => "This user, or this password, is not known.\n",
            Refused::Needed => "A user and a password are needed.\n",
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

    /// Who looks at this moment: the one gate to everything that is shown.
    pub(super) fn look(&self, service: &dyn Observed) -> Result<Viewer, Refused> {
        let viewer = sign_in(service, &self.0)?;
        match viewer.user.is_some() || may_read(&self.0, &service.config().metrics_auth) {
            true => Ok(viewer),
            false => Err(Refused::Needed),
        }
    }
}

impl Viewer {
    /// Whether something is shown.
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

    /// Whether a key is named, among those of something that is shown; of which database it is may be unknown.
    pub(super) fn sees_key(&self, key: &[u8], db: Option<usize>) -> bool {
        let may = |user: &Arc<User>| user.reads_key(key, db);
        self.names_for_all || self.user.as_ref().is_some_and(may)
    }
}

/// Who a request is from: by user and password, or by a password alone that one user has (a token). A request that
/// shows the user of `metrics-auth`, or nothing, is from a visitor without a name.
pub(super) fn sign_in(service: &dyn Observed, headers: &HeaderMap) -> Result<Viewer, Refused> {
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
        None => Err(Refused::Unknown),
    }
}

/// Whether there is a user who can sign in: one that any password will do for has nothing to show.
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

/// The user who is named and whose password is shown. One whom any password will do for has not shown who it is.
fn by_password(service: &dyn Observed, coded: &[u8]) -> Option<Arc<User>> {
    let shown = base64::decode(coded)?;
    let at = shown.iter().position(|byte| *byte == b':')?;
    let user = service.users().find(&shown[..at])?.user();
    (!user.is_nopass() && user.signs_in(&shown[at + 1..])).then_some(user)
}

/// The user of whom this is a password. Users that any password will do for are not meant.
fn by_token(service: &dyn Observed, token: &[u8]) -> Option<Arc<User>> {
    let has = |user: &Arc<User>| !user.is_nopass() && user.signs_in(token);
    let mut found = service.users().all().into_iter().filter(has);
    match (found.next(), found.next()) {
        (Some(one), None) => Some(one),
        _ => None,
    }
}

/// Notes that somebody failed to sign in, as AUTH does; for how long the answer is put off.
pub(super) fn failed(service: &dyn Observed, headers: &HeaderMap, peer: IpAddr) -> Duration {
    let now_ms = clock::unix_ms();
    let shown = headers.get(AUTHORIZATION).map(HeaderValue::as_bytes);
    let decoded = shown
        .and_then(split_scheme)
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case(b"basic"))
        .and_then(|(_, coded)| base64::decode(coded))
        .unwrap_or_default();
    let user = decoded.split(|byte| *byte == b':').next();
    let entry = log::Entry {
        count: 1,
        denied: Denied::Auth,
        place: log::Place::TopLevel,
        object: b"console".to_vec(),
        user: user.unwrap_or_default().to_vec(),
        client: format!("addr={peer}"),
        id: 0,
        created_ms: now_ms,
        updated_ms: now_ms,
    };
    let entries_max = usize::try_from(service.config().acllog_max_len).unwrap_or(usize::MAX);
    service.users().note(entry, entries_max);
    let until_ms = service.users().failed(&peer.to_string(), now_ms);
    Duration::from_millis(until_ms.saturating_sub(now_ms))
}
