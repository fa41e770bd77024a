//! One connection's state as commands see and change it. No socket.

use std::sync::Arc;

use super::fieldsets::{Fieldset, Fieldsets};
use super::shared::Shared;
use super::shared::tracking::Options;
use crate::acl::Handle;
use basalt_core::resp::reply::Protocol;

/// The sender of a connection's commands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Origin {
    /// A client.
    #[default]
    Client,
    /// A file that is loaded: the commands were admitted and logged once.
    File,
    /// The primary, which has run the commands and sends them to its replicas.
    Primary,
    /// Another node, which moves slots here. A command that fails ends the move.
    SlotImport,
}

impl Origin {
    /// Whether the commands were admitted before, so that nothing is refused for want of rights, memory or replicas.
    #[inline]
    pub fn replays(self) -> bool {
        matches!(self, Origin::File | Origin::Primary)
    }

    /// Whether the commands have run before, on another server or on this one.
    #[inline]
    pub fn has_run_before(self) -> bool {
        self != Origin::Client
    }
}

/// CLIENT REPLY. Where no client is to be answered, it is off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReplyMode {
    /// Every command is answered.
    #[default]
    On,
    /// None is.
    Off,
    /// The next one is not.
    SkipNext,
    /// The command that runs now is not answered, those behind it are.
    SkipThis,
    /// The command that runs now is answered, those behind it are not.
    OnlyThis,
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
    /// The sender of its commands.
    pub origin: Origin,
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
            origin: Origin::Client,
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

    /// Changes who sends the commands to something else than a client: none of them is answered.
    pub fn of(mut self, origin: Origin) -> Connection {
        self.origin = origin;
        self.reply_mode = ReplyMode::Off;
        self
    }

    /// Changes which commands are answered, as a client asks for; no other source may.
    pub fn set_reply_mode(&mut self, mode: ReplyMode) {
        if self.origin == Origin::Client {
            self.reply_mode = mode;
        }
    }

    /// The client is a node that moves slots here, and stays one. The command that runs now is answered.
    pub fn begin_slot_import(&mut self) {
        self.origin = Origin::SlotImport;
        self.reply_mode = ReplyMode::OnlyThis;
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
