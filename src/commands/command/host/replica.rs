//! What commands, and telemetry, may ask of the half of replication that follows a primary.

use crate::command::error::CommandError;
use crate::command::host::Awaited;

/// How the link to the primary is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkState {
    /// The link is to be made.
    Connect,
    /// The link is being made.
    Connecting,
    /// Both sides tell each other who they are.
    Handshake,
    /// The snapshot comes.
    Sync,
    /// The stream comes.
    Connected,
}

impl LinkState {
    /// As ROLE says.
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

/// Whom this server follows, and how that goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upstream {
    /// Where the primary is.
    pub host: String,
    /// Port of the primary.
    pub port: u16,
    /// How the link is.
    pub state: LinkState,
    /// The offset up to which its stream has come; -1 if none ever did.
    pub offset: i64,
    /// What INFO has to say of it beside that, in order.
    pub info: Vec<(&'static str, String)>,
}

/// What FAILOVER asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Failover {
    /// The replica that is to become the primary; none: the first that has everything.
    pub target: Option<(String, u16)>,
    /// Whether the target becomes it without having everything, when the time is over.
    pub is_forced: bool,
    /// For how long replicas may take to have everything.
    pub timeout_ms: Option<u64>,
}

/// See the module.
pub trait Replica: Send + Sync {
    /// Whom this server follows; none: it is a primary.
    fn upstream(&self) -> Option<Upstream>;
    /// Has it follow a primary, or none. The answer comes when the role has changed.
    fn follow(&'static self, target: Option<(String, u16)>) -> Result<Awaited, CommandError>;
    /// Why no replica of its own can synchronize now, if that is so.
    fn refuses_replicas(&self) -> Option<CommandError>;
    /// The primary asks how far this server is (REPLCONF GETACK).
    fn acknowledge(&self);
    /// Has a replica become the primary, and this server its replica.
    fn fail_over(&'static self, failover: Failover) -> Result<(), CommandError>;
    /// Goes back to being the primary.
    fn abort_failover(&self) -> Result<(), CommandError>;
    /// How far a failover is, as INFO says.
    fn failover_state(&self) -> &'static str;
    /// The primary gives its place to this server (PSYNC … FAILOVER), if the stream that it names is this server's.
    fn take_over(&self, id: &[u8]) -> Result<(), CommandError>;
}
