//! The open sockets: opened at the start, opened anew when CONFIG SET changes `port` or `bind`.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::runtime::Handle;

use super::accept::{self, Listener, Open, Owning};
use super::runtime::Spawner;
use crate::config::Config;
use crate::session::service::Service;

/// See the module.
pub(super) struct Listening {
    service: &'static Service,
    runtime: Handle,
    spawner: Spawner,
    owner: &'static Owning,
    tcp: Mutex<Vec<Arc<Open>>>,
}

impl Listening {
    pub(super) fn new(
        service: &'static Service,
        runtime: Handle,
        spawner: Spawner,
        owner: Owning,
    ) -> Listening {
        Listening {
            service,
            runtime,
            spawner,
            // For as long as the process lives, as each connection has a reference.
            owner: Box::leak(Box::new(owner)),
            tcp: Mutex::new(Vec::new()),
        }
    }

    /// Opens every socket of the configuration; the text says which failed.
    pub(super) fn start(&self, config: &Config) -> Result<(), String> {
        let _registers_here = self.runtime.enter();
        *self.tcp.lock() = self.accept_all(accept::open_tcp(config)?);
        self.accept_all(accept::open_unix(config)?);
        Ok(())
    }

    /// Ends accepting over TCP at once.
    pub(super) fn stop(&self) {
        self.tcp.lock().iter().for_each(|open| open.close());
    }

    /// Listens as `new` says instead of as `old` says; when that fails everything stays as it was.
    pub(super) fn replace(&self, old: &Config, new: &Config) -> Result<(), String> {
        let _registers_here = self.runtime.enter();
        let mut tcp = self.tcp.lock();
        if new.port != old.port {
            // Another port can be opened before the old one is given up.
            let opened = self.accept_all(accept::open_tcp(new)?);
            tcp.iter().for_each(|open| open.close());
            *tcp = opened;
            return Ok(());
        }
        tcp.iter().for_each(|open| open.close());
        match accept::open_tcp(new) {
            Ok(listeners) => {
                *tcp = self.accept_all(listeners);
                Ok(())
            }
            Err(text) => {
                *tcp = accept::open_tcp(old)
                    .map(|old| self.accept_all(old))
                    .unwrap_or_default();
                Err(text)
            }
        }
    }

    fn accept_all(&self, listeners: Vec<Listener>) -> Vec<Arc<Open>> {
        let accept = |listener| {
            let open = Arc::new(Open::new(listener));
            self.runtime.spawn(accept::accept(
                Arc::clone(&open),
                self.service,
                self.spawner.clone(),
                self.owner,
            ));
            open
        };
        listeners.into_iter().map(accept).collect()
    }
}
