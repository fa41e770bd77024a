//! Offsets and lengths of the fields of a packet; see the table in the module head of `wire`.

/// First bytes of every packet.
pub(super) const SIGNATURE: &[u8; 4] = b"RCmb";
/// The only version of the protocol.
pub(super) const VERSION: u16 = 1;

pub(super) const LENGTH: usize = 4;
pub(super) const PROTOCOL: usize = 8;
pub(super) const MAIN_PORT: usize = 10;
pub(super) const KIND: usize = 12;
pub(super) const COUNT: usize = 14;
pub(super) const CURRENT_EPOCH: usize = 16;
pub(super) const CONFIG_EPOCH: usize = 24;
pub(super) const OFFSET: usize = 32;
pub(super) const SENDER: usize = 40;
pub(super) const SLOTS: usize = 80;
pub(super) const PRIMARY: usize = 2128;
pub(super) const ADDRESS: usize = 2168;
pub(super) const EXTENSIONS: usize = 2214;
pub(super) const OTHER_PORT: usize = 2246;
pub(super) const BUS_PORT: usize = 2248;
pub(super) const FLAGS: usize = 2250;
pub(super) const STATE: usize = 2252;
pub(super) const MESSAGE_FLAGS: usize = 2253;
/// Bytes of a header.
pub(super) const HEADER_BYTES: usize = 2256;

/// Bytes of the field for an address, with the zero at its end.
pub(super) const ADDRESS_BYTES: usize = 46;

/// Message flag: the sender has paused its clients.
pub(super) const PAUSED: u8 = 1;
/// Message flag: a vote is requested although the primary is up.
pub(super) const FORCED: u8 = 2;
/// Message flag: the sender supports extensions, and the packet may contain some.
pub(super) const EXTENDED: u8 = 4;

pub(super) const GOSSIP_PING_SENT: usize = 40;
pub(super) const GOSSIP_PONG_RECEIVED: usize = 44;
pub(super) const GOSSIP_ADDRESS: usize = 48;
pub(super) const GOSSIP_MAIN_PORT: usize = 94;
pub(super) const GOSSIP_BUS_PORT: usize = 96;
pub(super) const GOSSIP_FLAGS: usize = 98;
pub(super) const GOSSIP_OTHER_PORT: usize = 100;
/// Bytes of an entry of gossip.
pub(super) const GOSSIP_BYTES: usize = 104;

/// Bytes before the content of an extension.
pub(super) const EXTENSION_HEAD_BYTES: usize = 8;
pub(super) const HOSTNAME: u16 = 0;
pub(super) const HUMAN_NAME: u16 = 1;
pub(super) const FORGOTTEN: u16 = 2;
pub(super) const SHARD_ID: u16 = 3;
/// Valkey 9.1's number; the numbers between are properties of Valkey that are not used here.
pub(super) const ZONE: u16 = 8;
/// A property of nodes of this server alone, far from the numbers of Redis and Valkey.
pub(super) const ASSEMBLY: u16 = 0xBA5A;

/// Bytes of an UPDATE after the header.
pub(super) const UPDATE_BYTES: usize = 8 + 40 + 2048;
/// Bytes of the two lengths of a published message.
pub(super) const MESSAGE_HEAD_BYTES: usize = 8;
/// Bytes of a module's message without its content.
pub(super) const MODULE_HEAD_BYTES: usize = 13;

const _: () = assert!(SLOTS + 2048 == PRIMARY && PRIMARY + 40 == ADDRESS);
const _: () = assert!(ADDRESS + ADDRESS_BYTES == EXTENSIONS);
const _: () = assert!(MESSAGE_FLAGS + 3 == HEADER_BYTES);
const _: () = assert!(GOSSIP_ADDRESS + ADDRESS_BYTES == GOSSIP_MAIN_PORT);
