//! One connection's state as commands see and change it. No socket.

use std::sync::Arc;

use super::fieldsets::{Fieldset, Fieldsets};
use super::shared::Shared;
use super::shared::tracking::Options;
use crate::acl::Handle;
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
    /// The command that runs now is not answered.
    SkipThis,
    /// The client is another node, which moves slots here: commands are not answered, and one that fails ends the move.
    Moves,
    /// As that, but the command that runs now is answered.
    MovesAnswered,
    /// No client is to be answered: what runs was admitted once and written down, and is being replayed.
    Nobody,
    /// No client is to be answered: a primary has run the command, and sends it to its replicas.
    Primary,
}

impl ReplyMode {
    /// Whether what runs was admitted, and run, elsewhere or before.
    #[inline]
    pub fn replays(self) -> bool {
        matches!(self, ReplyMode::Nobody | ReplyMode::Primary)
    }

    /// Whether what runs was run by another server, or by this one before.
    #[inline]
    pub fn is_server(self) -> bool {
        self.replays() || self.moves_slots()
    }

    /// Whether the client is another node, which moves slots here.
    #[inline]
    pub fn moves_slots(self) -> bool {
        matches!(self, ReplyMode::Moves | ReplyMode::MovesAnswered)
    }
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
    /// The user that it is; none where commands are replayed.
    pub user: Option<Arc<Handle>>,
    /// Whether AUTH succeeded or was not needed.
    pub authenticated: bool,
    /// CLIENT NO-TOUCH.
    pub no_touch: bool,
    /// CLIENT REPLY.
    pub reply_mode: ReplyMode,
    /// What it reads now is remembered, see [`Connection::set_tracking`].
    pub tracks: bool,
    /// CLIENT CACHING: the next command or transaction is an exception.
    pub is_caching: bool,
    /// CLIENT TRACKING.
    pub tracking: Options,
    /// A script of this client is running, and what runs now is what the script called.
    pub is_in_script: bool,
    /// Stamp of the last effect it knows of.
    pub stamp: u64,
    /// The position before which all has to be delivered to others when its replies leave (`pubsub::events`).
    pub position: u64,
    /// What READONLY and ASKING said, and whether the connection is encrypted, in the bits of `cluster::route::Manner`.
    pub manner: u8,
    /// What remains of that after RESET.
    pub own_manner: u8,
    /// What HIMPORT PREPARE put down; of a script while one runs.
    pub fieldsets: Option<Arc<Fieldsets>>,
    /// Who reads what its commands leave in the log, in bits: all, but for scripts that chose otherwise.
    pub log_audience: u8,
}

/// The file and the replicas read what commands leave in the log.
pub const ALL_READERS: u8 = 3;

impl Connection {
    /// A fresh connection.
    pub fn new(shared: Arc<Shared>, authenticated: bool) -> Connection {
        Connection {
            shared,
            user: None,
            db: 0,
            is_in_script: false,
            protocol: Protocol::Resp2,
            authenticated,
            no_touch: false,
            reply_mode: ReplyMode::On,
            tracks: false,
            is_caching: false,
            tracking: Options::OFF,
            stamp: 0,
            position: 0,
            manner: 0,
            own_manner: 0,
            fieldsets: None,
            log_audience: ALL_READERS,
        }
    }

    /// The client is this user, and has signed in or needs not.
    pub fn set_user(&mut self, user: &Arc<Handle>, authenticated: bool) {
        self.authenticated = authenticated;
        self.user = Some(Arc::clone(user));
        self.shared.set_user(user, authenticated);
    }

    /// As CLIENT ID says.
    pub fn id(&self) -> u64 {
        self.shared.id
    }

    /// Changes whether it is answered. What is replayed never is, and is not admitted as a client's commands are,
    /// whatever it asks for; a connection over which slots move stays one.
    pub fn set_reply_mode(&mut self, mode: ReplyMode) {
        let is_bound = self.reply_mode.moves_slots() && !mode.moves_slots();
        if !self.reply_mode.replays() && !is_bound {
            self.reply_mode = mode;
        }
    }

    /// Changes what CLIENT TRACKING and CLIENT CACHING said, and with it whether reads are remembered.
    pub fn set_tracking(&mut self, tracking: Options, is_caching: bool) {
        self.tracking = tracking;
        self.is_caching = is_caching;
        self.tracks = tracking.remembers(is_caching);
    }

    /// The fieldset that a command names.
    pub fn fieldset(&self, name: &[u8]) -> Option<Arc<Fieldset>> {
        self.fieldsets.as_ref()?.get(name).map(Arc::clone)
    }

    /// Whether what it is told of keys stands behind the reply of the very request that brought it about.
    #[inline]
    pub fn hears_between_replies(&self) -> bool {
        self.tracking != Options::OFF && self.protocol == Protocol::Resp3
    }

    /// RESET: back to the state of a fresh connection, which is the default user.
    pub fn reset(&mut self, default: &Arc<Handle>) {
        self.db = 0;
        self.protocol = Protocol::Resp2;
        self.set_user(default, default.user().needs_no_password());
        self.no_touch = false;
        self.fieldsets = None;
        self.manner = self.own_manner;
        self.set_reply_mode(ReplyMode::On);
        self.set_tracking(Options::OFF, false);
        self.shared.reset();
    }
}
