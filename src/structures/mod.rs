//! Bytes and numbers: tables, entries, wheels. With shard/ownership the only home of unsafe code.

pub mod account;
pub mod block;
pub mod byte_ring;
#[cfg(not(miri))]
pub mod crash;
pub mod deferred_free;
pub mod entry;
pub mod environment;
pub mod fifo;
pub mod filling;
pub mod frequent;
pub mod geohash;
pub mod ghost;
pub mod hyperloglog;
pub mod intset;
pub mod item;
#[cfg(not(miri))]
pub mod lua;
pub mod lzf;
pub mod murmur;
pub mod ordered;
pub mod pack;
pub mod prefetch;
pub mod quicklist;
pub mod reuse;
pub mod scoped_tls;
pub mod sketch;
pub mod slabs;
pub mod splice;
pub mod table;
pub mod undo_log;
pub mod watchdog;
pub mod wheel;
pub mod ziplist;
pub mod zipmap;
