//! Queries about users and connections that leases need.

use std::sync::Arc;

use basalt_commands::acl::Handle;
use basalt_commands::client::registry::Registry;
use basalt_commands::command::lease::may_load;
use basalt_core::base::hash::digest;
use basalt_engine::holders::Connections;

/// The server's connections, as queried by leases. They are queried only when a lease is granted, so that other
/// requests need not pass their users.
#[derive(Default)]
pub struct LeaseConnections(pub Arc<Registry>);

impl LeaseConnections {
    fn user(&self, connection: u64) -> Option<Arc<Handle>> {
        self.0.get(connection).and_then(|client| client.user())
    }
}

impl Connections for LeaseConnections {
    fn user_of(&self, connection: u64) -> u64 {
        let user = self.user(connection);
        user.map_or(0, |handle| digest(handle.peek().name()))
    }

    fn is_open(&self, connection: u64) -> bool {
        self.0.get(connection).is_some()
    }

    fn may_load(&self, connection: u64, db: usize, key: &[u8]) -> bool {
        let restricted = self.user(connection).filter(|user| user.is_restricted());
        restricted.is_none_or(|handle| may_load(&handle.peek(), db, key))
    }
}
