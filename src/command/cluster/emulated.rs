//! A cluster that is this server and its replicas (`cluster-enabled emulated`): one primary has all hash slots. Clients
//! of a cluster so use one large machine; no slot moves, and no node is added or voted for.

use sha2::{Digest, Sha256};

use super::super::context::SessionCx;
use super::super::host::primary::ReplicaState;
use super::super::host::replica::LinkState;
use crate::config::Config;
use crate::config::values::EndpointType;

/// Where a node is reached.
pub(super) struct Address {
    pub(super) ip: String,
    pub(super) port: u16,
    /// Empty if it has none.
    pub(super) hostname: String,
}

/// One server of the cluster.
pub(super) struct Node {
    /// 40 hexadecimal digits.
    pub(super) id: String,
    pub(super) address: Address,
    pub(super) is_primary: bool,
    pub(super) is_myself: bool,
    /// Whether the link between it and its primary is up.
    pub(super) is_linked: bool,
    /// Offset of the stream that it has.
    pub(super) offset: u64,
}

/// All servers: the primary first, then its replicas as far as this server knows them.
pub(super) fn nodes(cx: &SessionCx<'_>) -> Vec<Node> {
    let mut myself = Node {
        id: cx.server.run_id().to_owned(),
        address: own_address(cx),
        is_primary: true,
        is_myself: true,
        is_linked: true,
        offset: cx.server.primary().stream().offset,
    };
    if let Some(upstream) = cx.server.replica().upstream() {
        myself.is_primary = false;
        myself.is_linked = upstream.state == LinkState::Connected;
        let primary = Node {
            id: id_of(&upstream.host, upstream.port),
            is_linked: myself.is_linked,
            offset: u64::try_from(upstream.offset).unwrap_or(0),
            address: Address {
                ip: upstream.host,
                port: upstream.port,
                hostname: String::new(),
            },
            is_primary: true,
            is_myself: false,
        };
        return vec![primary, myself];
    }
    let replicas = cx.server.primary().replicas();
    let replicas = replicas.into_iter().filter(|replica| replica.port != 0);
    let replicas = replicas.map(|replica| Node {
        id: id_of(&replica.ip, replica.port),
        is_primary: false,
        is_myself: false,
        is_linked: replica.state == ReplicaState::Online,
        offset: replica.offset,
        address: Address {
            ip: replica.ip,
            port: replica.port,
            hostname: String::new(),
        },
    });
    std::iter::once(myself).chain(replicas).collect()
}

/// Where this server is reached: as the configuration announces it, else where the client has reached it.
fn own_address(cx: &SessionCx<'_>) -> Address {
    let config: &Config = cx.config;
    let local = &*cx.client.shared.local_address;
    let (ip, port) = local.rsplit_once(':').unwrap_or(("", ""));
    let is_tcp = !ip.contains('/');
    let ip = ip.trim_start_matches('[').trim_end_matches(']');
    let port = port.parse().ok().filter(|port| is_tcp && *port != 0);
    let port = port.unwrap_or(config.port);
    let is_tls = port == config.tls_port && port != config.port;
    let announced = match is_tls {
        true => config.cluster_announce_tls_port,
        false => config.cluster_announce_port,
    };
    Address {
        ip: match &*config.cluster_announce_ip {
            "" if is_tcp && !ip.is_empty() => ip.to_owned(),
            "" => "127.0.0.1".to_owned(),
            announced => announced.to_owned(),
        },
        port: if announced == 0 { port } else { announced },
        hostname: config.cluster_announce_hostname.clone(),
    }
}

/// The id of another server, the same whenever it is seen at the same place.
fn id_of(host: &str, port: u16) -> String {
    let hash = Sha256::digest(format!("{host}:{port}"));
    hash[..20]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

impl Address {
    /// What clients are told to connect to; nothing: the address that they know already.
    pub(super) fn endpoint(&self, wanted: EndpointType) -> Option<&str> {
        match wanted {
            EndpointType::Ip => Some(&self.ip),
            EndpointType::Hostname if self.hostname.is_empty() => Some("?"),
            EndpointType::Hostname => Some(&self.hostname),
            EndpointType::UnknownEndpoint => None,
        }
    }
}

impl Node {
    /// The line of CLUSTER NODES. There is no bus, so its port is 0.
    pub(super) fn line(&self, primary_id: &str) -> String {
        let Address { ip, port, hostname } = &self.address;
        let comma = if hostname.is_empty() { "" } else { "," };
        let (role, primary, slots) = match self.is_primary {
            true => ("master", "-", " 0-16383"),
            false => ("slave", primary_id, ""),
        };
        let myself = if self.is_myself { "myself," } else { "" };
        let link = if self.is_linked {
            "connected"
        } else {
            "disconnected"
        };
        let id = &self.id;
        format!("{id} {ip}:{port}@0{comma}{hostname} {myself}{role} {primary} 0 0 1 {link}{slots}")
    }
}
