//! The format of snapshots, which is Redis's RDB: encoding and decoding, without files.
//!
//! ```text
//! file      "REDIS" version of four digits, or "VALKEY" and three | record … | 0xff
//!           | CRC-64 u64 little-endian; 0: no checksum
//! record    0xfa aux name, value              0xfe select database, number     0xfb sizes: keys, keys with a deadline
//!           0xf5 source of functions          0xf7 a module's data besides keys
//!           key: [ 0xfd u32 seconds | 0xfc u64 milliseconds ] [ 0xf8 idle seconds ] [ 0xf9 u8 frequency ]
//!                type u8 | key | value
//!           of Redis 8: 0xf2 template of fields: number, count, names      0xf3 module metadata of the next key
//! ```

pub mod check;
pub mod decode;
pub mod encode;
pub mod fault;
pub mod packed;
mod source;

/// CRC-64, the checksum at the end of a snapshot.
pub use basalt_core::base::checksum as crc64;

/// Length of the prefix that identifies a snapshot.
pub const MAGIC_BYTES: usize = 5;

/// True if a file with this beginning is a snapshot, of Redis or of Valkey, or a compressed one.
pub fn is_snapshot(begun: &[u8]) -> bool {
    begun.starts_with(b"REDIS") || begun.starts_with(b"VALKE") || begun.starts_with(packed::MAGIC)
}

/// Opcodes: first bytes of records that are not value types.
pub mod opcode {
    /// Field names shared by hashes, of Redis 8.10.
    pub const TEMPLATE: u8 = 242;
    /// Module metadata of the next key, of Redis 8.6; of Valkey 9, slots that were migrating to the saving server.
    pub const KEY_METADATA: u8 = 243;
    /// The number of a slot and its sizes, of cluster servers since 7.4.
    pub const SLOT_INFO: u8 = 244;
    /// A library of functions: its source.
    pub const FUNCTION: u8 = 245;
    /// A library of functions as written by release candidates of 7.0.
    pub const FUNCTION_PRE_GA: u8 = 246;
    /// A module's data besides keys.
    pub const MODULE_AUX: u8 = 247;
    /// Idle time of the next key in seconds.
    pub const IDLE: u8 = 248;
    /// Access frequency (LFU counter) of the next key.
    pub const FREQUENCY: u8 = 249;
    /// An aux field: a name and its value.
    pub const AUX: u8 = 250;
    /// Number of keys that follow in the database, and of those with a deadline.
    pub const RESIZE_DB: u8 = 251;
    /// The deadline of the next key in milliseconds.
    pub const DEADLINE_MS: u8 = 252;
    /// The deadline of the next key in seconds.
    pub const DEADLINE_S: u8 = 253;
    /// The database of the keys that follow.
    pub const SELECT_DB: u8 = 254;
    /// The end of the snapshot; the checksum follows.
    pub const END: u8 = 255;
}

/// Name of the auxiliary field that holds the basalt-only metadata of the next key: how long the key is served as stale
/// before it expires, and its tags. Other servers skip it.
///
/// ```text
/// milliseconds u32 | length u32 | tag | length u32 | tag | …          little-endian
/// ```
pub const MARKS: &[u8] = b"basalt-marks";
