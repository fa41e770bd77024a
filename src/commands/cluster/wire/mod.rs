//! The wire format of the bus, as in Redis 7.2. Numbers are big-endian; IDs and slots are bytes.
//!
//! ```text
//! header, 2256 bytes
//!    0 "RCmb"     4 length of all   8 version, 1   10 main port   12 kind        14 entries of gossip
//!   16 current epoch    24 epoch of the slots    32 offset        40 sender, 40  80 slots, 2048
//! 2128 primary, 40   2168 address, 46   2214 extensions   2216 nothing, 30
//! 2246 other port    2248 port of the bus    2250 flags   2252 state, 0 is up    2253 flags of the message, 3
//!
//! after it, by kind
//!   ping, pong, meet   entries of gossip, 104 bytes each; extensions, each a multiple of 8 bytes
//!   fail               name, 40
//!   publish[shard]     length of the channel, 4; of the message, 4; both
//!   update             epoch, 8; name, 40; slots, 2048
//!   module             id, 8; length, 4; type, 1; bytes
//!   auth-req, auth-ack, mfstart   nothing
//!
//! gossip      0 name, 40   40 ping sent, 4   44 pong received, 4   48 address, 46   94 main port   96 port of the bus
//!            98 flags    100 other port     102 nothing, 2
//! extension   0 length with these eight, 4    4 kind, 2    6 nothing, 2    8 content, then zeros to 8 bytes
//! ```
//!
//! Each length is checked before it is used. An inconsistent packet is refused as a whole, and nothing of it is used.
//! Two things are skipped instead, so that a peer that received invalid data can still communicate: a gossip entry
//! with an invalid ID or address, and an extension of an unknown kind or with a text that nodes.conf could not store.
//!
//! ```text
//! layout    the offsets above
//! encode    encodes packets
//! decode    decodes packets
//! reader    splits a stream into packets
//! ```

pub mod decode;
pub mod encode;
mod layout;
pub mod reader;

#[cfg(test)]
mod tests;
