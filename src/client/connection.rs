//! One connection's state as commands see and change it. No socket.

use std::sync::Arc;

use super::registry::Shared;
use crate::resp::reply::Protocol;

/// CLIENT REPLY.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReplyMode {
    /// Every command is answered.
    #[default]
    On,
    /// None is.
    Off,
    /// The next one is not.
    SkipNext,
    /// This one is not.
    SkipThis,
}

/// See the module.
#[derive(Clone)]
pub struct Connection {
    /// What others may see and ask of it.
    pub shared: Arc<Shared>,
    /// Selected database.
    pub db: usize,
    /// RESP2 or RESP3.
    pub protocol: Protocol,
    /// Whether AUTH succeeded or was not needed.
    pub authenticated: bool,
    /// CLIENT NO-TOUCH.
    pub no_touch: bool,
    /// CLIENT REPLY.
    pub reply_mode: ReplyMode,
    /// Stamp of the last effect it knows of.
    pub stamp: u64,
}

impl Connection {
    /// A fresh connection.
    pub fn new(shared: Arc<Shared>, authenticated: bool) -> Connection {
        Connection {
            shared,
            db: 0,
            protocol: Protocol::Resp2,
            authenticated,
            no_touch: false,
            reply_mode: ReplyMode::On,
            stamp: 0,
        }
    }

    /// As CLIENT ID says.
    pub fn id(&self) -> u64 {
        self.shared.id
    }

    /// RESET: back to the state of a fresh connection.
    pub fn reset(&mut self, authenticated: bool) {
        self.db = 0;
        self.protocol = Protocol::Resp2;
        self.authenticated = authenticated;
        self.no_touch = false;
        self.reply_mode = ReplyMode::On;
        self.shared.reset();
    }
}
