//! Deadlines of members: setting, reading and removing them.

use super::{SREM_EVENT, at, event, limits, took_out};
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
use basalt_engine::value::set::{self, SetLimits};
use basalt_engine::value::{DataType, Object};

impl ElementRules for SetLimits {
    const DATA_TYPE: DataType = DataType::Set;
    const GROUP: Group = Group::Set;
    const SINCE: &'static str = "8.12.0";
    const COMPLEXITY: &'static str = "O(N), N being the count of members named.";
    const NAMES: CountedNames = CountedNames {
        word: "MEMBERS",
        missing: "ERR Mandatory argument MEMBERS is missing or not at the right position",
        mismatch: "ERR The `nummembers` parameter must match the number of arguments",
        bad_count: "ERR Number of members must be a positive integer",
        bad_count_for_expiry: "ERR Parameter `numMembers` should be greater than 0",
    };
    const EXPIRE_EVENT: Event = event("sexpire");
    const PERSIST_EVENT: Event = event("spersist");
    const EXPIRE: &'static [u8] = b"SPEXPIREAT";
    const REMOVE: &'static [u8] = b"SREM";
    const LOGS_CONDITION: bool = false;

    fn of(cx: &ShardCx<'_>) -> SetLimits {
        limits(cx)
    }

    fn now_ms(&self) -> u64 {
        self.now_ms
    }

    fn deadline(keyspace: &Keyspace<'_>, place: EntrySlot, name: &[u8]) -> Option<Option<u64>> {
        at(keyspace, place).deadline(name)
    }

    fn set_deadline(&self, entry: &mut Entry<Object>, name: &[u8], deadline: Option<u64>) -> bool {
        set::set_deadline(entry, name, deadline, self)
    }

    fn remove(&self, entry: &mut Entry<Object>, name: &[u8]) -> bool {
        set::remove(entry, name, self.now_ms)
    }

    fn wrote(keyspace: &mut Keyspace<'_>, key: &[u8], event: Event, _: &[&[u8]]) {
        keyspace.wrote(key, event);
    }

    fn removed(keyspace: &mut Keyspace<'_>, key: &Key<'_>, place: EntrySlot, _: &[&[u8]]) {
        took_out(keyspace, key, place, SREM_EVENT);
    }
}

/// `SEXPIRE key seconds [NX | XX | GT | LT] MEMBERS nummembers member [member ...]`
pub(super) static SEXPIRE: Command = expire_row::<SetLimits>(
    "sexpire",
    "key seconds [NX | XX | GT | LT] MEMBERS <nummembers:integer member [member ...]>",
    "Sets the time to live of set members in seconds.",
)
.on_keys(|cx, args, out| expire::<SetLimits>(cx, args, out, TimeForm::Seconds));

/// `SPEXPIRE key milliseconds [NX | XX | GT | LT] MEMBERS nummembers member [member ...]`
pub(super) static SPEXPIRE: Command = expire_row::<SetLimits>(
    "spexpire",
    "key milliseconds [NX | XX | GT | LT] MEMBERS <nummembers:integer member [member ...]>",
    "Sets the time to live of set members in milliseconds.",
)
.on_keys(|cx, args, out| expire::<SetLimits>(cx, args, out, TimeForm::Millis));

/// `SEXPIREAT key unix-time-seconds [NX | XX | GT | LT] MEMBERS nummembers member [member ...]`
pub(super) static SEXPIREAT: Command = expire_row::<SetLimits>(
    "sexpireat",
    "key unix-time-seconds [NX | XX | GT | LT] MEMBERS <nummembers:integer member [member ...]>",
    "Sets the expiration of set members to a Unix time in seconds.",
)
.on_keys(|cx, args, out| expire::<SetLimits>(cx, args, out, TimeForm::UnixSeconds));

/// `SPEXPIREAT key unix-time-milliseconds [NX | XX | GT | LT] MEMBERS nummembers member [member ...]`
pub(super) static SPEXPIREAT: Command = expire_row::<SetLimits>(
    "spexpireat",
    "key unix-time-milliseconds [NX | XX | GT | LT] MEMBERS <nummembers:integer member [member ...]>",
    "Sets the expiration of set members to a Unix time in milliseconds.",
)
.on_keys(|cx, args, out| expire::<SetLimits>(cx, args, out, TimeForm::UnixMillis));

/// `SPERSIST key MEMBERS nummembers member [member ...]`
pub(super) static SPERSIST: Command = persist_row::<SetLimits>(
    "spersist",
    "key MEMBERS <nummembers:integer member [member ...]>",
    "Removes the expiration of set members.",
);

/// `STTL key MEMBERS nummembers member [member ...]`
pub(super) static STTL: Command = time_row::<SetLimits>(
    "sttl",
    "key MEMBERS <nummembers:integer member [member ...]>",
    "Returns the remaining time to live of set members in seconds.",
)
.tips(&["nondeterministic_output"])
.on_keys(|cx, args, out| time::<SetLimits>(cx, args, out, TimeForm::Seconds));

/// `SPTTL key MEMBERS nummembers member [member ...]`
pub(super) static SPTTL: Command = time_row::<SetLimits>(
    "spttl",
    "key MEMBERS <nummembers:integer member [member ...]>",
    "Returns the remaining time to live of set members in milliseconds.",
)
.tips(&["nondeterministic_output"])
.on_keys(|cx, args, out| time::<SetLimits>(cx, args, out, TimeForm::Millis));

/// `SEXPIRETIME key MEMBERS nummembers member [member ...]`
pub(super) static SEXPIRETIME: Command = time_row::<SetLimits>(
    "sexpiretime",
    "key MEMBERS <nummembers:integer member [member ...]>",
    "Returns the Unix times in seconds at which members of a set expire.",
)
.on_keys(|cx, args, out| time::<SetLimits>(cx, args, out, TimeForm::UnixSeconds));

/// `SPEXPIRETIME key MEMBERS nummembers member [member ...]`
pub(super) static SPEXPIRETIME: Command = time_row::<SetLimits>(
    "spexpiretime",
    "key MEMBERS <nummembers:integer member [member ...]>",
    "Returns the Unix times in milliseconds at which members of a set expire.",
)
.on_keys(|cx, args, out| time::<SetLimits>(cx, args, out, TimeForm::UnixMillis));
