//! Connections from other nodes.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};

use super::Bus;
use super::links::{self, ClusterLinkPeer};
use crate::net::listener;
use crate::net::stream::ClientSocket;
use crate::telemetry::log;
use crate::tls::handshake;
use basalt_commands::config::Config;

/// Timeout of a TLS handshake.
const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(10);
/// Pause after `accept` has failed, for example because file descriptors have run out.
const REST: Duration = Duration::from_millis(10);

/// Opens the sockets of the cluster bus, at each address of `bind`; the error names the address that failed.
pub(super) fn open(config: &Config, port: u16) -> Result<Vec<TcpListener>, String> {
    if config.bind.is_empty() {
        let text = "No bind address is configured, but it is required for the Cluster bus.";
        return Err(text.to_owned());
    }
    let mut opened = Vec::new();
    for address in &config.bind {
        let (name, optional) = match address.strip_prefix('-') {
            Some(name) => (name, true),
            None => (address.as_str(), false),
        };
        match listener::tcp(name, port, config.tcp_backlog as i32) {
            Ok(socket) => opened.push(socket),
            Err(error) if optional && error.kind() != io::ErrorKind::AddrInUse => {}
            Err(error) => {
                log::refusal(&format!(
                    "Warning: Could not create server TCP listening socket {name}:{port}: {error}"
                ));
                return Err(format!(
                    "Failed listening on port {port} (cluster), aborting."
                ));
            }
        }
    }
    Ok(opened)
}

/// Accepts connections until the process ends.
pub(super) async fn accept(bus: &'static Bus, listener: TcpListener) {
    loop {
        match listener.accept().await {
            Ok((socket, peer)) => {
                bus.awake().await;
                admit(bus, socket, peer);
            }
            Err(_) => tokio::time::sleep(REST).await,
        }
    }
}

fn admit(bus: &'static Bus, socket: TcpStream, peer: SocketAddr) {
    let config = bus.service.config.load();
    let default = bus.service.users.default().user();
    if config.protected_mode && default.is_nopass() && !peer.ip().to_canonical().is_loopback() {
        return log::warn_seldom(
            "cluster-bus-protected",
            format_args!(
                "Refused a connection to the cluster bus from {peer}: protected mode is on and the default user has \
                 no password"
            ),
        );
    }
    let Some(permit) = bus.admit_one() else {
        return log::warn_seldom(
            "cluster-bus-full",
            format_args!(
                "Refused a connection to the cluster bus from {peer}: too many connections"
            ),
        );
    };
    let Ok(local) = socket.local_addr() else {
        return;
    };
    let _ = listener::prepare(&socket, bus.keepalive_s());
    tracing::debug!("Accepting cluster node connection from {peer}");
    let context = match config.tls_cluster {
        true => {
            let current = bus.service.tls.current();
            match current.and_then(|contexts| contexts.peers.clone()) {
                Some(context) => Some(context),
                None => return,
            }
        }
        false => None,
    };
    bus.runtime.spawn(async move {
        let _permit = permit;
        let proof = match context {
            Some(_) => ClusterLinkPeer::Proven,
            None => ClusterLinkPeer::Anybody,
        };
        let stream = match context {
            None => ClientSocket::Tcp(socket),
            Some(context) => {
                let shaking = handshake::accept(socket, context);
                let shaken = tokio::time::timeout(HANDSHAKE_TIME_MAX, shaking).await;
                let opened = match shaken {
                    Ok(Ok(done)) => done.open().map_err(|error| error.to_string()),
                    Ok(Err(failure)) => Err(failure.to_string()),
                    Err(_) => Err("timed out".to_owned()),
                };
                match opened {
                    Ok(channel) => ClientSocket::Tls(Box::new(channel)),
                    Err(why) => {
                        return log::warn_seldom(
                            "cluster-bus-tls",
                            format_args!(
                                "Error accepting cluster node connection from {peer}: {why}"
                            ),
                        );
                    }
                }
            }
        };
        let (peer_ip, local_ip) = (links::ip_of(peer), links::ip_of(local));
        let (id, queue) = bus.accepted(&peer_ip, &local_ip);
        links::serve(bus, id, stream, queue, peer, proof).await;
    });
}
