//! Selection of the connections that CLIENT LIST shows and CLIENT KILL closes: those for which all filters hold, and
//! none of the negated ones of Valkey 9. Filters are those of Redis and Valkey.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::kind::{self, ClientType};
use crate::acl::{Handle, Users};
use crate::client::shared::Shared;
use crate::command::Args;
use crate::command::error::{CommandError, shown};
use basalt_core::base::number;

/// The command whose filters are parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClientFilterTarget {
    /// CLIENT LIST, which includes the requesting connection.
    List,
    /// CLIENT KILL, which spares the requesting connection by default.
    Kill,
}

/// The condition of a filter.
enum ClientFilterCondition<'a> {
    Ids(Vec<u64>),
    Address(&'a [u8]),
    LocalAddress(&'a [u8]),
    /// A host address, without a port.
    Host(&'a [u8]),
    Type(ClientType),
    Name(&'a [u8]),
    LibName(&'a [u8]),
    LibVersion(&'a [u8]),
    /// A user, and whether it is the default one.
    User(Arc<Handle>, bool),
    /// Letters that must all be among the connection's flags.
    Flags(&'a [u8]),
    /// Letters of the capabilities that the client must have declared.
    Capabilities(&'a [u8]),
    Db(u64),
    AgeMin(u64),
    IdleMin(u64),
}

impl ClientFilterCondition<'_> {
    fn holds(&self, client: &Shared, now_ms: u64) -> bool {
        let seconds = |since_ms: u64| (now_ms / 1000).saturating_sub(since_ms / 1000);
        let has_letters = |text: &str, wanted: &[u8]| {
            let text = text.as_bytes();
            wanted.iter().all(|letter| text.contains(letter))
        };
        let address = client.address.as_bytes();
        match self {
            ClientFilterCondition::Ids(ids) => ids.contains(&client.id),
            ClientFilterCondition::Address(wanted) => *wanted == address,
            ClientFilterCondition::LocalAddress(wanted) => {
                *wanted == client.local_address.as_bytes()
            }
            ClientFilterCondition::Host(wanted) => {
                let colon = address.iter().rposition(|byte| *byte == b':');
                *wanted == &address[..colon.unwrap_or(address.len())]
            }
            ClientFilterCondition::Type(wanted) => *wanted == ClientType::of(client),
            ClientFilterCondition::Name(wanted) => *wanted == client.labels().name,
            ClientFilterCondition::LibName(wanted) => *wanted == client.labels().lib_name,
            ClientFilterCondition::LibVersion(wanted) => *wanted == client.labels().lib_ver,
            ClientFilterCondition::User(wanted, is_default) => match client.user() {
                Some(user) => Arc::ptr_eq(&user, wanted),
                None => *is_default,
            },
            ClientFilterCondition::Flags(wanted) => has_letters(&kind::flags(client), wanted),
            ClientFilterCondition::Capabilities(wanted) => {
                has_letters(kind::capabilities(client), wanted)
            }
            ClientFilterCondition::Db(wanted) => *wanted == u64::from(client.db.load(Relaxed)),
            ClientFilterCondition::AgeMin(least) => seconds(client.created_ms) >= *least,
            ClientFilterCondition::IdleMin(least) => {
                seconds(client.active_ms.load(Relaxed)) >= *least
            }
        }
    }
}

/// A selection of connections, see the module.
#[derive(Default)]
pub(super) struct Filters<'a> {
    /// The conditions that must all hold, or must not if they are negated.
    conditions: Vec<(ClientFilterCondition<'a>, Negated)>,
    spares_self: bool,
}

type Negated = bool;

/// Flags that CLIENT LIST may show for a connection, in Redis, Valkey and here.
const KNOWN_FLAGS: &[u8] = b"bcdeirtuxABCEIMNOPRSTU";

impl<'a> Filters<'a> {
    /// Parses the old form of CLIENT KILL: one address, which may be the client's own.
    pub(super) fn of_address(address: &'a [u8]) -> Filters<'a> {
        Filters {
            conditions: vec![(ClientFilterCondition::Address(address), false)],
            spares_self: false,
        }
    }

    /// Parses the filters after the name of the subcommand.
    pub(super) fn read(
        args: &Args<'a>,
        users: &Users,
        databases: u64,
        target: ClientFilterTarget,
    ) -> Result<Filters<'a>, CommandError> {
        let mut filters = Filters {
            spares_self: target == ClientFilterTarget::Kill,
            ..Filters::default()
        };
        let mut at = 2;
        while at < args.len() {
            if at + 1 >= args.len() {
                return Err(CommandError::Syntax);
            }
            let word = args.get(at);
            let (name, is_negated) = match word.split_at_checked(4) {
                Some((not, rest)) if not.eq_ignore_ascii_case(b"not-") => (rest, true),
                _ => (word, false),
            };
            let is = |wanted: &str| name.eq_ignore_ascii_case(wanted.as_bytes());
            if is("skipme") && !is_negated {
                filters.spares_self = args.is(at + 1, "yes");
                if !filters.spares_self && !args.is(at + 1, "no") {
                    return Err(CommandError::Syntax);
                }
                at += 2;
                continue;
            }
            let (condition, next) = match is("id") {
                true => read_ids(args, at + 1, target, is_negated)?,
                false => (
                    read_one(name, args.get(at + 1), users, databases, is_negated)?,
                    at + 2,
                ),
            };
            filters.add(condition, is_negated);
            at = next;
        }
        Ok(filters)
    }

    /// Adds a filter. Of several filters of the same kind the last counts, except that IDs add up.
    fn add(&mut self, condition: ClientFilterCondition<'a>, is_negated: bool) {
        let same_kind = self.conditions.iter_mut().find(|(known, negated)| {
            *negated == is_negated
                && std::mem::discriminant(known) == std::mem::discriminant(&condition)
        });
        match (same_kind, condition) {
            (Some((ClientFilterCondition::Ids(known), _)), ClientFilterCondition::Ids(more)) => {
                known.extend(more)
            }
            (Some((known, _)), condition) => *known = condition,
            (None, condition) => self.conditions.push((condition, is_negated)),
        }
    }

    /// Whether a client passes all filters.
    pub(super) fn hold(&self, client: &Shared, self_id: u64, now_ms: u64) -> bool {
        let mut conditions = self.conditions.iter();
        !(self.spares_self && client.id == self_id)
            && conditions.all(|(one, is_negated)| one.holds(client, now_ms) != *is_negated)
    }
}

/// Parses one or more IDs, starting at an argument. Returns them and the position of the next filter.
fn read_ids<'a>(
    args: &Args<'a>,
    from: usize,
    target: ClientFilterTarget,
    is_negated: bool,
) -> Result<(ClientFilterCondition<'a>, usize), CommandError> {
    let mut at = from;
    let mut ids = Vec::new();
    while at < args.len() {
        let id = number::parse_i64(args.get(at));
        match id {
            Some(id) if id > 0 || target == ClientFilterTarget::List && !is_negated => {
                ids.push(id as u64)
            }
            None if at > from => break,
            None if is_negated => return Err(CommandError::Syntax),
            _ if target == ClientFilterTarget::List && !is_negated => {
                return Err("ERR Invalid client ID".into());
            }
            _ => return Err("ERR client-id should be greater than 0".into()),
        }
        at += 1;
    }
    Ok((ClientFilterCondition::Ids(ids), at))
}

fn read_one<'a>(
    name: &[u8],
    value: &'a [u8],
    users: &Users,
    databases: u64,
    is_negated: bool,
) -> Result<ClientFilterCondition<'a>, CommandError> {
    let is = |wanted: &str| name.eq_ignore_ascii_case(wanted.as_bytes());
    let seconds = |name: &str| match number::parse_i64(value) {
        None => Err(format!("ERR {name} is not an integer or out of range")),
        Some(..=0) => Err(format!("ERR {name} should be greater than 0")),
        Some(seconds) => Ok(seconds as u64),
    };
    let letters = |known: &[u8], what: &str| match value.iter().all(|one| known.contains(one)) {
        true => Ok(value),
        false => {
            let value = shown(value);
            Err(format!(
                "ERR Unknown {what} found in the provided filter: {value}"
            ))
        }
    };
    Ok(match () {
        () if is("maxage") && !is_negated => ClientFilterCondition::AgeMin(seconds("maxage")?),
        () if is("idle") && !is_negated => ClientFilterCondition::IdleMin(seconds("idle")?),
        () if is("type") => ClientFilterCondition::Type(ClientType::named(value)?),
        () if is("addr") => ClientFilterCondition::Address(value),
        () if is("laddr") => ClientFilterCondition::LocalAddress(value),
        () if is("ip") => ClientFilterCondition::Host(value),
        () if is("name") => ClientFilterCondition::Name(value),
        () if is("lib-name") => ClientFilterCondition::LibName(value),
        () if is("lib-ver") => ClientFilterCondition::LibVersion(value),
        () if is("flags") => ClientFilterCondition::Flags(letters(KNOWN_FLAGS, "flags")?),
        () if is("capa") => ClientFilterCondition::Capabilities(letters(b"rm", "capa")?),
        () if is("db") => {
            let no_number = match is_negated {
                true => "ERR NOT-DB is not an integer or out of range",
                false => "ERR DB is not an integer or out of range",
            };
            let db = number::parse_i64(value).ok_or(no_number)?;
            let db = u64::try_from(db).ok().filter(|db| *db < databases);
            ClientFilterCondition::Db(db.ok_or_else(|| {
                let last = databases.saturating_sub(1);
                format!("ERR DB number should be between 0 and {last}")
            })?)
        }
        () if is("user") => {
            let unknown = || format!("ERR No such user '{}'", shown(value));
            let user = users.find(value).ok_or_else(unknown)?;
            let is_default = Arc::ptr_eq(&user, users.default());
            ClientFilterCondition::User(user, is_default)
        }
        () => return Err(CommandError::Syntax),
    })
}
