//! Which messages there are.

use crate::cluster::packet::Body;

/// Kinds of messages; each one's number is its place on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// [`Body::Ping`].
    Ping,
    /// [`Body::Pong`].
    Pong,
    /// [`Body::Meet`].
    Meet,
    /// [`Body::Fail`].
    Fail,
    /// [`Body::Publish`].
    Publish,
    /// [`Body::VoteRequest`].
    VoteRequest,
    /// [`Body::Vote`].
    Vote,
    /// [`Body::Update`].
    Update,
    /// [`Body::ManualFailoverStart`].
    ManualFailoverStart,
    /// [`Body::Module`].
    Module,
    /// [`Body::PublishShard`].
    PublishShard,
}

/// How many kinds there are.
pub const KINDS: usize = 11;

impl Kind {
    /// All, by their numbers.
    pub const ALL: [Kind; KINDS] = [
        Kind::Ping,
        Kind::Pong,
        Kind::Meet,
        Kind::Fail,
        Kind::Publish,
        Kind::VoteRequest,
        Kind::Vote,
        Kind::Update,
        Kind::ManualFailoverStart,
        Kind::Module,
        Kind::PublishShard,
    ];

    /// The kind of a number, if there is one.
    #[must_use]
    pub fn from_number(number: u16) -> Option<Kind> {
        Kind::ALL.get(usize::from(number)).copied()
    }

    /// The number of it on the wire.
    #[must_use]
    pub fn number(self) -> u16 {
        self as u16
    }

    /// The words that CLUSTER INFO has for all, by their numbers.
    pub const NAMES: [&str; KINDS] = [
        "ping",
        "pong",
        "meet",
        "fail",
        "publish",
        "auth-req",
        "auth-ack",
        "update",
        "mfstart",
        "module",
        "publishshard",
    ];

    /// The word that CLUSTER INFO has for it.
    #[must_use]
    pub fn name(self) -> &'static str {
        Kind::NAMES[self as usize]
    }
}

impl Body {
    /// The kind of it.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Body::Ping(_) => Kind::Ping,
            Body::Pong(_) => Kind::Pong,
            Body::Meet(_) => Kind::Meet,
            Body::Fail(_) => Kind::Fail,
            Body::Publish(_) => Kind::Publish,
            Body::PublishShard(_) => Kind::PublishShard,
            Body::VoteRequest => Kind::VoteRequest,
            Body::Vote => Kind::Vote,
            Body::Update { .. } => Kind::Update,
            Body::ManualFailoverStart => Kind::ManualFailoverStart,
            Body::Module => Kind::Module,
        }
    }
}
