//! The maintenance notifications that a connection asked for (CLIENT MAINT_NOTIFICATIONS).
//!
//! The module knows no notification and no address: `pubsub::maintenance` sends them.

use std::sync::atomic::Ordering::{Acquire, Release};

use super::Shared;
use basalt_core::bit_set;

bit_set! {
    /// The options that a connection gave to CLIENT MAINT_NOTIFICATIONS.
    #[derive(Debug, Default)]
    pub struct MaintenanceOptions(u8) {
        /// Notifications are on.
        ON;
        /// The client wants host names of servers, not their addresses.
        NAMES;
        /// The client wants no endpoints: it reconnects to the one that it has.
        NO_ENDPOINT;
        /// The connection uses TLS.
        TLS;
    }
}

impl MaintenanceOptions {
    /// Notifications are off.
    pub const OFF: MaintenanceOptions = MaintenanceOptions::NONE;
}

impl Shared {
    /// Returns what the client asked for.
    pub fn maintenance(&self) -> MaintenanceOptions {
        MaintenanceOptions(self.maintenance.load(Acquire))
    }

    /// Sets what the client asked for; only for the registry of these clients.
    pub(crate) fn set_maintenance(&self, options: MaintenanceOptions) {
        self.maintenance.store(options.0, Release);
    }
}
