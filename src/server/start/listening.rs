//! The listening sockets: opened at startup, and reopened when CONFIG SET changes `port`, `tls-port` or `bind`.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::runtime::Handle;

use super::accept::{self, ConnectionOwner, Listener, OpenListener};
use super::runtime::Spawner;
use crate::net::event_loops::EventLoops;
use crate::state::Service;
use basalt_commands::config::Config;

/// The listening sockets; see the module.
pub(super) struct Listening {
    service: &'static Service,
    runtime: Handle,
    spawner: Spawner,
    owner: &'static ConnectionOwner,
    sockets: Mutex<Sockets>,
}

/// Open sockets on the plain port, and on the TLS port.
#[derive(Default)]
struct Sockets {
    tcp: Vec<Arc<OpenListener>>,
    tls: Vec<Arc<OpenListener>>,
}

impl Sockets {
    fn close(&self) {
        self.tcp
            .iter()
            .chain(&self.tls)
            .for_each(|open| open.close());
    }
}

impl Listening {
    pub(super) fn new(
        service: &'static Service,
        runtime: Handle,
        spawner: Spawner,
        owner: ConnectionOwner,
    ) -> Listening {
        Listening {
            service,
            runtime,
            spawner,
            // Leaked, because each connection has a reference.
            owner: Box::leak(Box::new(owner)),
            sockets: Mutex::default(),
        }
    }

    /// Opens every configured socket. The error text states which socket failed.
    pub(super) fn start(&self, config: &Config) -> Result<(), String> {
        let _registers_here = self.runtime.enter();
        *self.sockets.lock() = self.open(config)?;
        self.accept_all(accept::open_unix(config)?);
        Ok(())
    }

    /// Returns the event loops that serve the accepted connections.
    pub(super) fn loops(&self) -> EventLoops {
        self.spawner.loops()
    }

    /// Stops accepting over TCP at once.
    pub(super) fn stop(&self) {
        self.sockets.lock().close();
    }

    /// Switches from the addresses in the configuration `old` to those in `new`; on failure all sockets stay as
    /// they were.
    pub(super) fn replace(&self, old: &Config, new: &Config) -> Result<(), String> {
        let _registers_here = self.runtime.enter();
        let mut sockets = self.sockets.lock();
        if new.bind == old.bind {
            // Another port can be opened before the old one is closed.
            let tcp =
                (new.port != old.port).then(|| accept::open_tcp(new, new.port, Listener::Tcp));
            let tcp = tcp.transpose()?;
            let tls = (new.tls_port != old.tls_port)
                .then(|| accept::open_tcp(new, new.tls_port, Listener::Tls));
            let tls = tls.transpose()?;
            let Sockets {
                tcp: old_tcp,
                tls: old_tls,
            } = &mut *sockets;
            for (opened, open) in [(tcp, old_tcp), (tls, old_tls)] {
                if let Some(opened) = opened {
                    open.iter().for_each(|open| open.close());
                    *open = self.accept_all(opened);
                }
            }
            return Ok(());
        }
        sockets.close();
        match self.open(new) {
            Ok(opened) => {
                *sockets = opened;
                Ok(())
            }
            Err(text) => {
                *sockets = self.open(old).unwrap_or_default();
                Err(text)
            }
        }
    }

    fn open(&self, config: &Config) -> Result<Sockets, String> {
        let tcp = accept::open_tcp(config, config.port, Listener::Tcp)?;
        let tls = accept::open_tcp(config, config.tls_port, Listener::Tls)?;
        Ok(Sockets {
            tcp: self.accept_all(tcp),
            tls: self.accept_all(tls),
        })
    }

    fn accept_all(&self, listeners: Vec<Listener>) -> Vec<Arc<OpenListener>> {
        let accept = |listener| {
            let open = Arc::new(OpenListener::new(listener));
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
