//! Which connections CLIENT LIST shows, and CLIENT KILL closes: those for which all filters hold. Redis's, and of
//! Valkey's those that ask for what a line of CLIENT LIST tells.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::kind::{self, ClientType};
use crate::acl::{Handle, Users};
use crate::base::number;
use crate::client::shared::Shared;
use crate::command::Args;
use crate::command::error::{CommandError, shown};

/// For whom filters are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// CLIENT LIST, which shows the asking connection too.
    List,
    /// CLIENT KILL, which spares the asking connection.
    Kill,
}

/// See the module. What was not asked for is none, or empty.
#[derive(Default)]
pub(super) struct Filters<'a> {
    ids: Vec<u64>,
    address: Option<&'a [u8]>,
    local_address: Option<&'a [u8]>,
    /// An address without its port.
    host: Option<&'a [u8]>,
    client_type: Option<ClientType>,
    name: Option<&'a [u8]>,
    lib_name: Option<&'a [u8]>,
    lib_version: Option<&'a [u8]>,
    /// A user, and whether it is the default one.
    user: Option<(Arc<Handle>, bool)>,
    /// Letters that all are to be among the flags.
    flags: Option<&'a [u8]>,
    db: Option<u64>,
    age_s_min: Option<u64>,
    idle_s_min: Option<u64>,
    spares_self: bool,
}

impl<'a> Filters<'a> {
    /// The old form of CLIENT KILL: one address, which may be one's own.
    pub(super) fn of_address(address: &'a [u8]) -> Filters<'a> {
        Filters {
            address: Some(address),
            ..Filters::default()
        }
    }

    /// Reads the filters behind the name of the subcommand.
    pub(super) fn read(
        args: &Args<'a>,
        users: &Users,
        target: Target,
    ) -> Result<Filters<'a>, CommandError> {
        let mut filters = Filters {
            spares_self: target == Target::Kill,
            ..Filters::default()
        };
        let mut at = 2;
        while at < args.len() {
            if at + 1 >= args.len() {
                return Err(CommandError::Syntax);
            }
            if args.is(at, "id") {
                at = filters.read_ids(args, at + 1, target)?;
                continue;
            }
            filters.read_one(args, users, at)?;
            at += 2;
        }
        Ok(filters)
    }

    /// Reads IDs from an argument on, at least one; where the next filter stands.
    fn read_ids(
        &mut self,
        args: &Args<'a>,
        from: usize,
        target: Target,
    ) -> Result<usize, CommandError> {
        let mut at = from;
        while at < args.len() {
            match number::parse_i64(args.get(at)) {
                Some(id) if id > 0 || target == Target::List => self.ids.push(id as u64),
                None if at > from => break,
                _ if target == Target::List => return Err("ERR Invalid client ID".into()),
                _ => return Err("ERR client-id should be greater than 0".into()),
            }
            at += 1;
        }
        Ok(at)
    }

    fn read_one(&mut self, args: &Args<'a>, users: &Users, at: usize) -> Result<(), CommandError> {
        let value = args.get(at + 1);
        let seconds = |name: &str| match number::parse_i64(value) {
            None => Err(format!("ERR {name} is not an integer or out of range")),
            Some(..=0) => Err(format!("ERR {name} should be greater than 0")),
            Some(seconds) => Ok(Some(seconds as u64)),
        };
        match () {
            () if args.is(at, "maxage") => self.age_s_min = seconds("maxage")?,
            () if args.is(at, "idle") => self.idle_s_min = seconds("idle")?,
            () if args.is(at, "type") => self.client_type = Some(ClientType::named(value)?),
            () if args.is(at, "addr") => self.address = Some(value),
            () if args.is(at, "laddr") => self.local_address = Some(value),
            () if args.is(at, "ip") => self.host = Some(value),
            () if args.is(at, "name") => self.name = Some(value),
            () if args.is(at, "lib-name") => self.lib_name = Some(value),
            () if args.is(at, "lib-ver") => self.lib_version = Some(value),
            () if args.is(at, "flags") => self.flags = Some(value),
            () if args.is(at, "db") => {
                let db = number::parse_i64(value).and_then(|db| u64::try_from(db).ok());
                self.db = Some(db.ok_or(CommandError::DbIndex)?);
            }
            () if args.is(at, "user") => {
                let user = users.find(value);
                let unknown = || format!("ERR No such user '{}'", shown(value));
                let user = user.ok_or_else(unknown)?;
                let is_default = Arc::ptr_eq(&user, users.default());
                self.user = Some((user, is_default));
            }
            () if args.is(at, "skipme") => {
                self.spares_self = args.is(at + 1, "yes");
                if !self.spares_self && !args.is(at + 1, "no") {
                    return Err(CommandError::Syntax);
                }
            }
            () => return Err(CommandError::Syntax),
        }
        Ok(())
    }

    /// Whether all of them hold.
    pub(super) fn hold(&self, client: &Shared, self_id: u64, now_ms: u64) -> bool {
        let seconds = |since_ms: u64| (now_ms / 1000).saturating_sub(since_ms / 1000);
        let is = |wanted: Option<&[u8]>, found: &[u8]| wanted.is_none_or(|wanted| wanted == found);
        let address = client.address.as_bytes();
        let host = match address.iter().rposition(|byte| *byte == b':') {
            Some(colon) => &address[..colon],
            None => address,
        };
        let has_letters = |wanted: &[u8]| {
            let flags = kind::flags(client);
            wanted
                .iter()
                .all(|letter| flags.as_bytes().contains(letter))
        };
        let are_labels_wanted =
            self.name.is_some() || self.lib_name.is_some() || self.lib_version.is_some();
        let is_user = |(wanted, is_default): &(Arc<Handle>, bool)| match client.user() {
            Some(user) => Arc::ptr_eq(&user, wanted),
            None => *is_default,
        };
        (self.ids.is_empty() || self.ids.contains(&client.id))
            && self.user.as_ref().is_none_or(is_user)
            && is(self.address, address)
            && is(self.local_address, client.local_address.as_bytes())
            && is(self.host, host)
            && self
                .client_type
                .is_none_or(|wanted| wanted == ClientType::of(client))
            && self.flags.is_none_or(has_letters)
            && self
                .db
                .is_none_or(|db| db == u64::from(client.db.load(Relaxed)))
            && self
                .age_s_min
                .is_none_or(|min| seconds(client.created_ms) >= min)
            && self
                .idle_s_min
                .is_none_or(|min| seconds(client.active_ms.load(Relaxed)) >= min)
            && !(self.spares_self && client.id == self_id)
            && (!are_labels_wanted || {
                let labels = client.labels();
                is(self.name, &labels.name)
                    && is(self.lib_name, &labels.lib_name)
                    && is(self.lib_version, &labels.lib_ver)
            })
    }
}
