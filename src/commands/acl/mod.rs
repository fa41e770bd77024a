//! Access control lists: users, what each may do, and what was refused.
//!
//! ```text
//! catalogue   commands as rules name them
//! denied      what can be refused
//! rules       the words of ACL SETUSER, of `user` lines and of ACL files; what a user is like in such words again
//! rule_error  what can be wrong with them
//! selector    one set of permissions: commands, keys, channels
//! user        a user: passwords and selectors; what it is refused
//! users       all users of a server, and which of them a connection is
//! file        ACL files, which are read and written whole
//! attempts    who fails to sign in again and again is answered slowly
//! log         ACL LOG: what was refused to whom
//! ```
//!
//! Knows no command: what it needs of them it asks of a [`Catalogue`], and commands are their numbers. A user who may
//! do everything is never asked for: connections keep a flag for that (`client::Shared::is_checked`).

pub mod attempts;
pub mod catalogue;
pub mod denied;
pub mod file;
pub mod log;
pub mod rule_error;
pub mod rules;
pub mod selector;
pub mod user;
pub mod users;

pub use catalogue::{Catalogue, Entry};
pub use denied::Denied;
pub use selector::Access;
pub use user::User;
pub use users::{Handle, Users};
