//! The state of one connection, as plain data, and the registry behind CLIENT LIST and KILL.

pub mod announced;
pub mod connection;
pub mod fieldsets;
pub mod memory;
pub mod registry;
pub mod shared;
pub mod under_way;
