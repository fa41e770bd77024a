//! The format of snapshots, which is Redis's RDB: encoding and decoding, without files.
//!
//! ```text
//! file      "REDIS" version of four digits, or "VALKEY" and three | record … | 0xff
//!           | CRC-64 u64 little-endian, 0 without one
//! record    0xfa aux name, value              0xfe select database, number     0xfb sizes: keys, keys with a deadline
//!           0xf5 source of functions          0xf7 what a module keeps beside keys
//!           key: [ 0xfd u32 seconds | 0xfc u64 milliseconds ] [ 0xf8 idle seconds ] [ 0xf9 u8 frequency ]
//!                type u8 | key | value
//!           of Redis 8: 0xf2 template of fields: number, count, names      0xf3 what modules keep with the next key
//! ```

pub mod check;
pub mod decode;
pub mod encode;
pub mod fault;
mod source;

/// The checksum at the end, also of stretches that are summed side by side.
pub use basalt_core::base::checksum as crc64;

/// Bytes that tell a snapshot from other files.
pub const MAGIC_BYTES: usize = 5;

/// Whether a file that begins so is a snapshot, of Redis or of Valkey.
pub fn is_snapshot(begun: &[u8]) -> bool {
    begun.starts_with(b"REDIS") || begun.starts_with(b"VALKE")
}

/// Opcodes: first bytes of records that are no types of values.
pub mod opcode {
    /// The names of fields that hashes share, of Redis 8.10.
    pub const TEMPLATE: u8 = 242;
    /// What modules keep with the next key, of Redis 8.6; of Valkey 9, slots that were on their way to who saved.
    pub const KEY_METADATA: u8 = 243;
    /// The number of a slot and what is in it, of servers of a cluster since 7.4.
    pub const SLOT_INFO: u8 = 244;
    /// A library of functions: its source.
    pub const FUNCTION: u8 = 245;
    /// A library of functions as release candidates of 7.0 wrote it.
    pub const FUNCTION_PRE_GA: u8 = 246;
    /// What a module keeps beside keys.
    pub const MODULE_AUX: u8 = 247;
    /// For how many seconds the next key was not used.
    pub const IDLE: u8 = 248;
    /// How often the next key was used.
    pub const FREQUENCY: u8 = 249;
    /// A name and its value.
    pub const AUX: u8 = 250;
    /// How many keys follow, and how many of them have a deadline.
    pub const RESIZE_DB: u8 = 251;
    /// The deadline of the next key in milliseconds.
    pub const DEADLINE_MS: u8 = 252;
    /// The deadline of the next key in seconds.
    pub const DEADLINE_S: u8 = 253;
    /// The database of the keys that follow.
    pub const SELECT_DB: u8 = 254;
    /// The end.
    pub const END: u8 = 255;
}

/// The name of the auxiliary field that says what other servers do not know of the key behind it: how long it counts as
/// stale before its time is over, and its tags.
///
/// ```text
/// milliseconds u32 | length u32 | tag | length u32 | tag | …          little-endian
/// ```
pub const MARKS: &[u8] = b"basalt-marks";
