//! The allocator as the server uses it: who owes how many bytes, what is freed later, how full the slabs are.

pub mod account;
pub mod counting;
pub mod deferred_free;
pub mod slabs;
