//! Finds other nodes: while a node knows too few, it looks at the addresses in `cluster-seeds`, and contacts
//! (CLUSTER MEET) the nodes there that it does not know. Host names are resolved again each time, because the
//! addresses of a service name change, on threads that serve no clients.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use super::Bus;
use crate::telemetry::log;
use basalt_commands::cluster::assembly::AssemblyState;
use basalt_commands::cluster::change::ClusterChange;
use basalt_commands::cluster::flags::NodeFlags;
use basalt_commands::cluster::map::ClusterMap;
use basalt_commands::config::Config;
use basalt_commands::config::seeds::Seed;

/// Interval between checks whether more nodes are needed.
const EVERY: Duration = Duration::from_secs(3);

/// Interval as long as this node is not part of a cluster that assembles itself.
const EVERY_UNASSEMBLED: Duration = Duration::from_secs(1);

/// Timeout of resolving a name.
const PATIENCE: Duration = Duration::from_secs(10);

/// Maximum number of addresses contacted at once: a host name may have any number of addresses.
const MET_TOGETHER: usize = 64;

impl Bus {
    /// Looks for other nodes as long as this node is linked to too few: to fewer than the number of addresses
    /// to which the seeds last resolved. Unreachable nodes do not count, so that a node finds the nodes of its
    /// nodes.conf again if all of them have new addresses. A node of a cluster that is yet to assemble itself always
    /// looks: names may lead to more nodes every moment.
    pub(super) async fn seek(&'static self) {
        let mut wanted = usize::MAX;
        let mut named = Vec::new();
        loop {
            let config = self.service.config.load_full();
            if config.cluster_seeds != named {
                named.clone_from(&config.cluster_seeds);
                wanted = usize::MAX;
            }
            let map = self.map_now();
            let is_unassembled = matches!(
                map.assembly.state,
                AssemblyState::Waiting | AssemblyState::Agreeing | AssemblyState::Joining
            );
            if !named.is_empty() && (is_unassembled || linked(&map) < wanted) {
                let places = resolve(&named).await;
                let is_other = |(address, _): &(SocketAddr, u16)| !is_own(*address, &config);
                let places: Vec<(SocketAddr, u16)> = places.into_iter().filter(is_other).collect();
                // If no name resolves to an address, keep trying.
                wanted = match places.len() {
                    0 => usize::MAX,
                    some => some,
                };
                self.meet_unknown(&places, config.tls_cluster);
            }
            tokio::time::sleep(match is_unassembled {
                true => EVERY_UNASSEMBLED,
                false => EVERY,
            })
            .await;
        }
    }

    /// Returns a map of the current nodes and links; the map for commands is not updated when only links
    /// change.
    fn map_now(&self) -> ClusterMap {
        self.core.lock().machine.map()
    }

    fn meet_unknown(&'static self, places: &[(SocketAddr, u16)], is_tls: bool) {
        let map = self.map_now();
        let unknown = places
            .iter()
            .filter(|(address, _)| !knows(&map, *address, is_tls));
        for (address, bus_port) in unknown.take(MET_TOGETHER) {
            let change = ClusterChange::Meet {
                ip: address.ip().to_string(),
                port: address.port(),
                bus_port: *bus_port,
                is_by_hand: false,
            };
            log::seldom(
                "cluster-seeds",
                format_args!("Meeting the node at {address} (from cluster-seeds)"),
                |text| tracing::info!("{text}"),
            );
            if let Err(why) = self.call(|core, now, here| core.machine.change(change, now, here)) {
                tracing::debug!("Can't meet the node at {address}: {why}");
            }
        }
    }
}

/// Returns how many other nodes this one is linked to.
fn linked(map: &ClusterMap) -> usize {
    let is_there = |flags: NodeFlags| !flags.any(NodeFlags::MYSELF.or(NodeFlags::HANDSHAKE));
    let nodes = map.nodes.iter();
    nodes
        .filter(|node| node.is_linked && is_there(node.flags))
        .count()
}

/// True if a known node has this address, reachable or not; the state machine itself tries to reach known
/// nodes.
fn knows(map: &ClusterMap, address: SocketAddr, is_tls: bool) -> bool {
    map.nodes.iter().any(|node| {
        let ip = node.ip.parse::<IpAddr>().ok();
        node.client_port(is_tls) == address.port()
            && ip.is_some_and(|ip| ip.to_canonical() == address.ip())
    })
}

/// Resolves all seeds to addresses, each with its bus port. Names without any address are skipped.
async fn resolve(places: &[Seed]) -> Vec<(SocketAddr, u16)> {
    let mut found: Vec<(SocketAddr, u16)> = Vec::new();
    for place in places {
        let looking = tokio::net::lookup_host((place.host.as_str(), place.port));
        let addresses = match tokio::time::timeout(PATIENCE, looking).await {
            Ok(Ok(addresses)) => addresses,
            failed => {
                let why = match failed {
                    Ok(Err(error)) => error.to_string(),
                    _ => "timed out".to_owned(),
                };
                let host = &place.host;
                log::warn_seldom(
                    "cluster-seeds-name",
                    format_args!("Can't resolve {host} (from cluster-seeds): {why}"),
                );
                continue;
            }
        };
        for address in addresses {
            let address = SocketAddr::new(address.ip().to_canonical(), address.port());
            if !found.iter().any(|(known, _)| *known == address) {
                found.push((address, place.bus_port));
            }
        }
    }
    found
}

/// True if an address leads to this node: the port is this node's, and the address belongs to this machine. If several
/// addresses of a machine have a node each, as those of the loopback interface, `bind` tells which is this node's.
fn is_own(address: SocketAddr, config: &Config) -> bool {
    let (own, announced) = match config.tls_cluster {
        true => (config.tls_port, config.cluster_announce_tls_port),
        false => (config.port, config.cluster_announce_port),
    };
    let ip = config.cluster_announce_ip.parse::<IpAddr>().ok();
    let is_announced = ip.is_some_and(|ip| ip.to_canonical() == address.ip());
    let is_announced_port = address.port() == if announced == 0 { own } else { announced };
    let bound = config.bind.iter();
    let is_bound = bound
        .filter_map(|bound| bound.trim_start_matches('-').parse::<IpAddr>().ok())
        .any(|bound| bound.to_canonical() == address.ip());
    (is_announced && is_announced_port)
        || (address.port() == own && (is_bound || is_of_this_machine(address)))
}

/// True if an address belongs to this machine, that is, the system would send from the same address. No packet
/// is sent.
fn is_of_this_machine(address: SocketAddr) -> bool {
    let any: IpAddr = match address {
        SocketAddr::V4(_) => std::net::Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let local = UdpSocket::bind((any, 0)).and_then(|socket| {
        socket.connect(address)?;
        socket.local_addr()
    });
    local.is_ok_and(|local| local.ip().to_canonical() == address.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_knows_its_own_addresses() {
        let mut config = Config {
            port: 7000,
            ..Config::default()
        };
        let own = |text: &str, config: &Config| is_own(text.parse().expect("an address"), config);
        assert!(own("127.0.0.1:7000", &config));
        assert!(!own("127.0.0.1:7001", &config));
        // An address reserved for documentation, which no machine has.
        assert!(!own("192.0.2.1:7000", &config));
        config.cluster_announce_ip = "192.0.2.1".to_owned();
        assert!(own("192.0.2.1:7000", &config));
        config.bind = vec!["127.7.0.2".to_owned()];
        assert!(own("127.7.0.2:7000", &config) && !own("127.7.0.3:7000", &config));
        config.cluster_announce_port = 9;
        assert!(own("192.0.2.1:9", &config) && !own("192.0.2.1:7000", &config));
    }

    #[test]
    fn names_lead_to_all_their_addresses_and_those_without_are_left_out() {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_all().build().expect("a runtime");
        let places = [
            ("localhost", 17000),
            ("name.invalid", 17000),
            ("127.0.0.1", 9),
        ];
        let places = places.map(|(host, bus_port)| Seed {
            host: host.to_owned(),
            port: 7000,
            bus_port,
        });
        let found = runtime.block_on(resolve(&places));
        let local: SocketAddr = "127.0.0.1:7000".parse().expect("an address");
        assert!(found.contains(&(local, 17000)), "{found:?}");
        let all = found.iter().filter(|(address, _)| *address == local);
        assert_eq!(all.count(), 1, "each once");
    }
}
