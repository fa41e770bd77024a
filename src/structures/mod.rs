//! Bytes and numbers: tables, entries, wheels. A home of unsafe code, as alloc, sys and shard/ownership are.

pub mod block;
pub mod byte_ring;
pub mod entry;
pub mod fifo;
pub mod filling;
pub mod geohash;
pub mod ghost;
pub mod hyperloglog;
pub mod intset;
pub mod item;
pub mod listpack;
pub mod lzf;
pub mod murmur;
pub mod ordered;
pub mod prefetch;
pub mod quicklist;
pub mod reuse_distance;
pub mod scoped_tls;
pub mod sketch;
pub mod space_saving;
pub mod splice;
pub mod table;
pub mod undo_log;
pub mod wheel;
pub mod ziplist;
pub mod zipmap;
