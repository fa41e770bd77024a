//! Kinds of bus messages.

use crate::cluster::packet::Body;

/// Kinds of bus messages; the discriminant is the kind's number on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "`Body` describes them under the same names")]
pub enum Kind {
    Ping,
    Pong,
    Meet,
    Fail,
    Publish,
    VoteRequest,
    Vote,
    Update,
    ManualFailoverStart,
    Module,
    PublishShard,
}

/// Number of kinds.
pub const KINDS: usize = 11;

impl Kind {
    /// All kinds, ordered by number.
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

    /// Returns the kind with a number; None for an unknown number.
    #[must_use]
    pub fn from_number(number: u16) -> Option<Kind> {
        Kind::ALL.get(usize::from(number)).copied()
    }

    /// Returns the number of the kind on the wire.
    #[must_use]
    pub fn number(self) -> u16 {
        self as u16
    }

    /// The words of CLUSTER INFO for all kinds, ordered by number.
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

    /// Returns the kind's word in CLUSTER INFO.
    #[must_use]
    pub fn name(self) -> &'static str {
        Kind::NAMES[self as usize]
    }
}

impl Body {
    /// Returns the kind of the message.
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
