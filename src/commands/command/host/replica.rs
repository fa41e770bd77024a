//! The interface of commands and telemetry to the part of replication that follows a primary.

use crate::command::error::CommandError;
use crate::command::host::Awaited;

/// The state of the link to the primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkState {
    /// The link is about to be opened.
    Connect,
    /// The link is being opened.
    Connecting,
    /// Both servers identify themselves.
    Handshake,
    /// The snapshot is being received.
    Sync,
    /// The stream is being received.
    Connected,
}

impl LinkState {
    /// Returns the name in ROLE.
    pub fn name(self) -> &'static str {
        match self {
            LinkState::Connect => "connect",
            LinkState::Connecting => "connecting",
            LinkState::Handshake => "handshake",
            LinkState::Sync => "sync",
            LinkState::Connected => "connected",
        }
    }
}

/// The primary that this server follows, and the state of the link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upstream {
    /// Host of the primary.
    pub host: String,
    /// Port of the primary.
    pub port: u16,
    /// State of the link.
    pub state: LinkState,
    /// The offset up to which the primary's stream was received; -1 if none ever was.
    pub offset: i64,
    /// Further fields for INFO, in order.
    pub info: Vec<(&'static str, String)>,
}

/// The parameters of FAILOVER.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FailoverRequest {
    /// The replica to promote; None: the first replica that has the whole stream.
    pub target: Option<(String, u16)>,
    /// Whether the target is promoted on timeout although it does not have the whole stream.
    pub is_forced: bool,
    /// Milliseconds that replicas have to catch up; None: no limit.
    pub timeout_ms: Option<u64>,
}

/// The part of replication that follows a primary, see the module.
pub trait Replica: Send + Sync {
    /// Returns the primary that this server follows; None if this server is a primary.
    fn upstream(&self) -> Option<Upstream>;
    /// Makes the server follow a primary; None makes it a primary. The result is ready when the role has changed.
    fn follow(&'static self, target: Option<(String, u16)>) -> Result<Awaited, CommandError>;
    /// Returns the error if replicas of this server cannot synchronize now.
    fn refuses_replicas(&self) -> Option<CommandError>;
    /// Acknowledges the current offset (REPLCONF GETACK of the primary).
    fn acknowledge(&self);
    /// Promotes a replica to primary, and makes this server its replica.
    fn fail_over(&'static self, failover: FailoverRequest) -> Result<(), CommandError>;
    /// Aborts the failover: this server stays the primary.
    fn abort_failover(&self) -> Result<(), CommandError>;
    /// Returns the state of a failover, as INFO names it.
    fn failover_state(&self) -> &'static str;
    /// Promotes this server at the primary's request (PSYNC … FAILOVER), if the stream ID is that of this server.
    fn take_over(&self, id: &[u8]) -> Result<(), CommandError>;
}
