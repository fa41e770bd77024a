//! One connection's state as seen and changed by commands, without its socket.

use std::sync::Arc;

use super::fieldsets::{Fieldset, Fieldsets};
use super::shared::Shared;
use super::shared::tracking::TrackingOptions;
use crate::acl::Handle;
use crate::cluster::route::RoutingFlags;
use basalt_core::resp::reply::Protocol;
use basalt_engine::record::Audience;

/// The origin of a connection's commands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Origin {
    /// A client sends the commands over the connection.
    #[default]
    Client,
    /// A file that is loaded: the commands have already been admitted and logged.
    File,
    /// The primary, which has run the commands and sends them to its replicas.
    Primary,
    /// Another node, which moves slots to this one. A failed command ends the migration.
    SlotImport,
}

impl Origin {
    /// Whether the commands were admitted before, so that nothing is refused for lack of permissions, memory or
    /// replicas.
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

/// Whether commands have replies (CLIENT REPLY). `Off` for origins other than clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReplyMode {
    /// Every command has a reply.
    #[default]
    On,
    /// No command has a reply.
    Off,
    /// The next command has no reply.
    SkipNext,
    /// The current command has no reply, later ones have.
    SkipThis,
    /// The current command has a reply, later ones have none.
    OnlyThis,
}

/// One connection's state, see the module.
#[derive(Clone)]
pub struct Connection {
    /// The state that other connections can see and change.
    pub shared: Arc<Shared>,
    /// Index of the selected database.
    pub db: usize,
    /// The protocol of replies: RESP2 or RESP3.
    pub protocol: Protocol,
    /// The connection's user; None for replayed commands.
    pub user: Option<Arc<Handle>>,
    /// Whether AUTH succeeded or was not needed.
    pub authenticated: bool,
    /// Whether reads leave the access bits unchanged (CLIENT NO-TOUCH).
    pub no_touch: bool,
    /// The origin of the connection's commands.
    pub origin: Origin,
    /// Which commands have replies (CLIENT REPLY).
    pub reply_mode: ReplyMode,
    /// Whether keys that are read are remembered for invalidations, see [`Connection::set_tracking`].
    pub tracks: bool,
    /// Whether the next command or transaction is an exception, by CLIENT CACHING.
    pub is_caching: bool,
    /// The options of CLIENT TRACKING.
    pub tracking: TrackingOptions,
    /// Whether a script of this client is running and has called the current command.
    pub is_in_script: bool,
    /// Stamp of the last effect that the connection has seen.
    pub stamp: u64,
    /// The position up to which all events must be delivered to other connections before this connection's replies
    /// are sent (`pubsub::events`).
    pub position: u64,
    /// The state set by READONLY and ASKING, and whether the connection uses TLS.
    pub routing: RoutingFlags,
    /// The part of `routing` that remains after RESET.
    pub own_routing: RoutingFlags,
    /// Fieldsets registered by HIMPORT PREPARE; those of a script while one runs.
    pub fieldsets: Option<Arc<Fieldsets>>,
    /// The audience of the commands' log records: all readers, except while a script has chosen others.
    pub log_audience: Audience,
}

impl Connection {
    /// Creates the state of a fresh connection.
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
            tracking: TrackingOptions::OFF,
            stamp: 0,
            position: 0,
            routing: RoutingFlags::default(),
            own_routing: RoutingFlags::default(),
            fieldsets: None,
            log_audience: Audience::BOTH,
        }
    }

    /// Sets the user, who has authenticated or need not do so.
    pub fn set_user(&mut self, user: &Arc<Handle>, authenticated: bool) {
        self.authenticated = authenticated;
        self.user = Some(Arc::clone(user));
        self.shared.set_user(user, authenticated);
    }

    /// Returns the ID of CLIENT ID.
    pub fn id(&self) -> u64 {
        self.shared.id
    }

    /// Sets an origin other than a client: no command has a reply.
    pub fn of(mut self, origin: Origin) -> Connection {
        self.origin = origin;
        self.reply_mode = ReplyMode::Off;
        self
    }

    /// Changes the reply mode at a client's request; does nothing for other origins.
    pub fn set_reply_mode(&mut self, mode: ReplyMode) {
        if self.origin == Origin::Client {
            self.reply_mode = mode;
        }
    }

    /// Marks the client permanently as a node that moves slots to this one. The current command still has a reply.
    pub fn begin_slot_import(&mut self) {
        self.origin = Origin::SlotImport;
        self.reply_mode = ReplyMode::OnlyThis;
    }

    /// Applies CLIENT TRACKING and CLIENT CACHING, and derives whether reads are remembered.
    pub fn set_tracking(&mut self, tracking: TrackingOptions, is_caching: bool) {
        self.tracking = tracking;
        self.is_caching = is_caching;
        self.tracks = tracking.remembers(is_caching);
    }

    /// Returns the fieldset of this name, if it is registered.
    pub fn fieldset(&self, name: &[u8]) -> Option<Arc<Fieldset>> {
        self.fieldsets.as_ref()?.get(name).map(Arc::clone)
    }

    /// Whether invalidations are sent directly after the reply to the request that caused them.
    #[inline]
    pub fn hears_between_replies(&self) -> bool {
        self.tracking != TrackingOptions::OFF && self.protocol == Protocol::Resp3
    }

    /// RESET: restores the state of a fresh connection, with the default user.
    pub fn reset(&mut self, default: &Arc<Handle>) {
        self.db = 0;
        self.protocol = Protocol::Resp2;
        self.set_user(default, default.user().needs_no_password());
        self.no_touch = false;
        self.fieldsets = None;
        self.routing = self.own_routing;
        self.set_reply_mode(ReplyMode::On);
        self.set_tracking(TrackingOptions::OFF, false);
        self.shared.reset();
    }
}
