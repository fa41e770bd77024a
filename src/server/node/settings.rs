//! The machine's settings, from the configuration.

use basalt_commands::cluster::settings::ClusterSettings;
use basalt_commands::cluster::text::is_human_name;
use basalt_commands::config::Config;

/// Distance between the client port and the bus port, unless the bus port is configured.
const BUS_PORT_DISTANCE: u16 = 10_000;

/// Returns the port of the bus; the error says why it is invalid.
pub(super) fn bus_port(config: &Config) -> Result<u16, String> {
    if config.cluster_port != 0 {
        return Ok(config.cluster_port);
    }
    client_port(config).checked_add(BUS_PORT_DISTANCE).ok_or_else(|| {
        "Redis port number too high. Cluster communication port is 10,000 port numbers higher than your Redis port. \
         Your Redis port number must be 55535 or less."
            .to_owned()
    })
}

/// Returns the client port from which the bus port is derived.
fn client_port(config: &Config) -> u16 {
    match config.tls_cluster {
        true => config.tls_port,
        false => config.port,
    }
}

/// Returns the settings, with the announced ports.
pub(super) fn of(config: &Config) -> ClusterSettings {
    let announced = |announced: u16, own: u16| if announced == 0 { own } else { announced };
    let own_bus_port = bus_port(config).unwrap_or(0);
    ClusterSettings {
        node_timeout: config.cluster_node_timeout.unsigned_abs(),
        ping_interval: config.cluster_ping_interval.unsigned_abs(),
        migration_barrier: config.cluster_migration_barrier,
        allow_replica_migration: config.cluster_allow_replica_migration,
        replica_validity_factor: config.cluster_replica_validity_factor,
        replica_no_failover: config.cluster_replica_no_failover,
        require_full_coverage: config.cluster_require_full_coverage,
        forgotten_for: u64::from(config.cluster_blacklist_ttl) * 1000,
        manual_failover_timeout: u64::from(config.cluster_manual_failover_timeout),
        gossip_percent: config.cluster_message_gossip_perc,
        replica_ping_period: u64::from(config.repl_ping_replica_period) * 1000,
        announce_ip: config.cluster_announce_ip.clone(),
        port: announced(config.cluster_announce_port, config.port),
        tls_port: announced(config.cluster_announce_tls_port, config.tls_port),
        bus_port: announced(config.cluster_announce_bus_port, own_bus_port),
        tls_cluster: config.tls_cluster,
        tls_replication: config.tls_replication,
        hostname: config.cluster_announce_hostname.clone(),
        human_name: config.cluster_announce_human_nodename.clone(),
        cluster_size: config.cluster_size,
        cluster_replicas: config.cluster_replicas,
        zone: match is_human_name(&config.availability_zone) {
            true => config.availability_zone.clone(),
            false => String::new(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bus_is_ten_thousand_ports_above_the_clients_unless_it_is_told() {
        let mut config = Config {
            port: 55_535,
            tls_port: 7000,
            ..Config::default()
        };
        assert_eq!(bus_port(&config), Ok(65_535));
        config.tls_cluster = true;
        assert_eq!(bus_port(&config), Ok(17_000));
        config.tls_cluster = false;
        config.port = 55_536;
        assert!(bus_port(&config).is_err_and(|text| text.contains("must be 55535 or less")));
        config.cluster_port = 9;
        assert_eq!(bus_port(&config), Ok(9));
    }

    #[test]
    fn announced_ports_are_told_in_place_of_own_ones() {
        let mut config = Config {
            port: 1,
            tls_port: 2,
            cluster_port: 3,
            ..Config::default()
        };
        let ports = |config: &Config| {
            let told = of(config);
            (told.port, told.tls_port, told.bus_port)
        };
        assert_eq!(ports(&config), (1, 2, 3));
        config.cluster_announce_port = 4;
        config.cluster_announce_tls_port = 5;
        config.cluster_announce_bus_port = 6;
        assert_eq!(ports(&config), (4, 5, 6));
    }
}
