//! Access control lists: users, their permissions, and denials.
//!
//! ```text
//! catalogue   commands, as named in rules
//! denied      kinds of denials
//! rules       the words of ACL SETUSER, of `user` lines and of ACL files: parsing and formatting
//! rule_error  errors in rules
//! selector    one set of permissions: commands, keys, channels
//! role        permissions that several users have
//! user        a user: passwords and selectors; permission checks
//! users       all users of a server, and their handles for connections
//! file        ACL files, which are read and written as a whole
//! attempts    slow replies after repeated failures to authenticate
//! log         ACL LOG: denials
//! ```
//!
//! This module knows no command: what it needs to know of commands comes from a [`Catalogue`], and commands are
//! represented by their IDs. An unrestricted user is never checked: connections keep a flag for that
//! (`client::Shared::is_checked`).

pub mod attempts;
pub mod catalogue;
pub mod denied;
pub mod file;
pub mod log;
pub mod role;
pub mod rule_error;
pub mod rules;
pub mod selector;
pub mod user;
pub mod users;

pub use catalogue::{Catalogue, Entry};
pub use denied::Denied;
pub use role::{Role, Roles};
pub use selector::KeyAccess;
pub use user::User;
pub use users::{Handle, Users};
