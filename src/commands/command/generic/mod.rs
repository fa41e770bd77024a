//! Keys as such, regardless of their values.
//!
//! ```text
//! presence   DEL UNLINK EXISTS TOUCH TYPE
//! walk       KEYS SCAN RANDOMKEY
//! transfer   RENAME RENAMENX COPY MOVE
//! expire     EXPIRE PEXPIRE EXPIREAT PEXPIREAT TTL PTTL EXPIRETIME PEXPIRETIME PERSIST
//! object     OBJECT
//! sort       SORT SORT_RO
//! dump       DUMP RESTORE RESTORE-ASKING
//! migrate    MIGRATE
//! ```
//!
//! Except for SORT and DUMP, nothing here knows the representation of a value; copying one is done by the engine.

#[cfg(test)]
mod all_types;
#[cfg(test)]
mod copied;
pub mod dump;
mod expire;
pub mod migrate;
pub mod object;
mod presence;
#[cfg(test)]
mod saved;
mod sort;
#[cfg(test)]
mod tests;
mod transfer;
#[cfg(test)]
mod undone;
#[cfg(test)]
mod undone_large;
mod walk;

use super::declaration::Command;

pub(super) static TABLE: &[&Command] = &[
    &transfer::COPY,
    &presence::DEL,
    &dump::DUMP,
    &presence::EXISTS,
    &expire::EXPIRE,
    &expire::EXPIREAT,
    &expire::EXPIRETIME,
    &walk::KEYS,
    &migrate::MIGRATE,
    &transfer::MOVE,
    &object::OBJECT,
    &expire::PERSIST,
    &expire::PEXPIRE,
    &expire::PEXPIREAT,
    &expire::PEXPIRETIME,
    &expire::PTTL,
    &walk::RANDOMKEY,
    &transfer::RENAME,
    &transfer::RENAMENX,
    &dump::RESTORE,
    &dump::RESTORE_ASKING,
    &walk::SCAN,
    &sort::SORT,
    &sort::SORT_RO,
    &presence::TOUCH,
    &expire::TTL,
    &presence::TYPE,
    &presence::UNLINK,
];
