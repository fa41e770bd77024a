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
pub mod geohash;
pub mod ghost;
pub mod hyperloglog;
pub mod intset;
pub mod item;
pub mod listpack;
#[cfg(not(miri))]
pub mod lua;
pub mod lzf;
pub mod murmur;
pub mod ordered;
pub mod prefetch;
pub mod quicklist;
pub mod reuse_distance;
pub mod scoped_tls;
pub mod sketch;
pub mod slabs;
pub mod space_saving;
pub mod splice;
pub mod table;
pub mod undo_log;
pub mod watchdog;
pub mod wheel;
pub mod ziplist;
pub mod zipmap;
