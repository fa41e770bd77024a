//! Deadlines of fields: setting, reading and removing them.

use super::{HDEL_EVENT, at, delete_if_empty, rules};
use crate::command::context::ShardCx;
use crate::command::declaration::{Command, Group};
use crate::command::element_deadline::{
    CountedNames, ElementRules, expire, expire_row, persist_row, time, time_row,
};
use crate::command::options::TimeForm;
use basalt_core::structures::entry::Entry;
use basalt_core::structures::table::EntrySlot;
use basalt_engine::Key;
use basalt_engine::effect::Event;
use basalt_engine::keyspace::Keyspace;
use basalt_engine::value::hash::{HashMut, HashRules};
use basalt_engine::value::{DataType, Object};

impl ElementRules for HashRules {
    const DATA_TYPE: DataType = DataType::Hash;
    const GROUP: Group = Group::Hash;
    const SINCE: &'static str = "7.4.0";
    const COMPLEXITY: &'static str = "O(N), N being the count of fields named.";
    const NAMES: CountedNames = CountedNames {
        word: "FIELDS",
        missing: "ERR Mandatory argument FIELDS is missing or not at the right position",
        mismatch: "ERR The `numfields` parameter must match the number of arguments",
        bad_count: "ERR Number of fields must be a positive integer",
        bad_count_for_expiry: "ERR Parameter `numFields` should be greater than 0",
    };
    const EXPIRE_EVENT: Event = Event::new(b'h', "hexpire");
    const PERSIST_EVENT: Event = Event::new(b'h', "hpersist");
    const EXPIRE: &'static [u8] = b"HPEXPIREAT";
    const REMOVE: &'static [u8] = b"HDEL";
    const LOGS_CONDITION: bool = true;

    fn of(cx: &ShardCx<'_>) -> HashRules {
        rules(cx)
    }

    fn now_ms(&self) -> u64 {
        self.now_ms
    }

    fn deadline(keyspace: &Keyspace<'_>, place: EntrySlot, name: &[u8]) -> Option<Option<u64>> {
        Some(at(keyspace, place)?.get(name)?.deadline)
    }

    fn set_deadline(&self, entry: &mut Entry<Object>, name: &[u8], deadline: Option<u64>) -> bool {
        HashMut::new(entry, self).set_deadline(name, deadline)
    }

    fn remove(&self, entry: &mut Entry<Object>, name: &[u8]) -> bool {
        HashMut::new(entry, self).remove(name)
    }

    fn wrote(keyspace: &mut Keyspace<'_>, key: &[u8], event: Event, names: &[&[u8]]) {
        keyspace.wrote_fields(key, event, names.iter().copied());
    }

    fn removed(keyspace: &mut Keyspace<'_>, key: &Key<'_>, place: EntrySlot, names: &[&[u8]]) {
        keyspace.wrote_fields(key.bytes, HDEL_EVENT, names.iter().copied());
        delete_if_empty(keyspace, key, place);
    }
}

/// `HEXPIRE key seconds [NX | XX | GT | LT] FIELDS numfields field [field ...]`
pub(super) static HEXPIRE: Command = expire_row::<HashRules>(
    "hexpire",
    "key seconds [NX | XX | GT | LT] FIELDS <numfields:integer field [field ...]>",
    "Sets the time to live of hash fields in seconds.",
)
.on_keys(|cx, args, out| expire::<HashRules>(cx, args, out, TimeForm::Seconds));

/// `HPEXPIRE key milliseconds [NX | XX | GT | LT] FIELDS numfields field [field ...]`
pub(super) static HPEXPIRE: Command = expire_row::<HashRules>(
    "hpexpire",
    "key milliseconds [NX | XX | GT | LT] FIELDS <numfields:integer field [field ...]>",
    "Sets the time to live of hash fields in milliseconds.",
)
.on_keys(|cx, args, out| expire::<HashRules>(cx, args, out, TimeForm::Millis));

/// `HEXPIREAT key unix-time-seconds [NX | XX | GT | LT] FIELDS numfields field [field ...]`
pub(super) static HEXPIREAT: Command = expire_row::<HashRules>(
    "hexpireat",
    "key unix-time-seconds [NX | XX | GT | LT] FIELDS <numfields:integer field [field ...]>",
    "Sets the expiration of hash fields to a Unix time in seconds.",
)
.on_keys(|cx, args, out| expire::<HashRules>(cx, args, out, TimeForm::UnixSeconds));

/// `HPEXPIREAT key unix-time-milliseconds [NX | XX | GT | LT] FIELDS numfields field [field ...]`
pub(super) static HPEXPIREAT: Command = expire_row::<HashRules>(
    "hpexpireat",
    "key unix-time-milliseconds [NX | XX | GT | LT] FIELDS <numfields:integer field [field ...]>",
    "Sets the expiration of hash fields to a Unix time in milliseconds.",
)
.on_keys(|cx, args, out| expire::<HashRules>(cx, args, out, TimeForm::UnixMillis));

/// `HPERSIST key FIELDS numfields field [field ...]`
pub(super) static HPERSIST: Command = persist_row::<HashRules>(
    "hpersist",
    "key FIELDS <numfields:integer field [field ...]>",
    "Removes the expiration of hash fields.",
);

/// `HTTL key FIELDS numfields field [field ...]`
pub(super) static HTTL: Command = time_row::<HashRules>(
    "httl",
    "key FIELDS <numfields:integer field [field ...]>",
    "Returns the remaining time to live of hash fields in seconds.",
)
.tips(&["nondeterministic_output"])
.on_keys(|cx, args, out| time::<HashRules>(cx, args, out, TimeForm::Seconds));

/// `HPTTL key FIELDS numfields field [field ...]`
pub(super) static HPTTL: Command = time_row::<HashRules>(
    "hpttl",
    "key FIELDS <numfields:integer field [field ...]>",
    "Returns the remaining time to live of hash fields in milliseconds.",
)
.tips(&["nondeterministic_output"])
.on_keys(|cx, args, out| time::<HashRules>(cx, args, out, TimeForm::Millis));

/// `HEXPIRETIME key FIELDS numfields field [field ...]`
pub(super) static HEXPIRETIME: Command = time_row::<HashRules>(
    "hexpiretime",
    "key FIELDS <numfields:integer field [field ...]>",
    "Returns the Unix times in seconds at which fields expire.",
)
.on_keys(|cx, args, out| time::<HashRules>(cx, args, out, TimeForm::UnixSeconds));

/// `HPEXPIRETIME key FIELDS numfields field [field ...]`
pub(super) static HPEXPIRETIME: Command = time_row::<HashRules>(
    "hpexpiretime",
    "key FIELDS <numfields:integer field [field ...]>",
    "Returns the Unix times in milliseconds at which fields expire.",
)
.on_keys(|cx, args, out| time::<HashRules>(cx, args, out, TimeForm::UnixMillis));
