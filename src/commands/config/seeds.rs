//! `cluster-seeds`: addresses of other nodes of the cluster.

use std::fmt;

use crate::config::parameter::Special;

/// One seed: a host name or an address, and the ports there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seed {
    /// Host name, or address without brackets.
    pub host: String,
    /// Port for clients.
    pub port: u16,
    /// Port of the cluster bus.
    pub bus_port: u16,
}

/// Distance of the bus port from the port for clients, unless the bus port is given.
const BUS_PORT_ABOVE: u16 = 10_000;

/// Parses `host:port` or `host:port@bus-port`, with an IPv6 address in brackets.
fn read_one(word: &str) -> Option<Seed> {
    let (host, ports) = match word.strip_prefix('[') {
        Some(rest) => rest.split_once("]:")?,
        None => word.rsplit_once(':')?,
    };
    if host.is_empty() || (host.contains(':') && !word.starts_with('[')) {
        return None;
    }
    let (port, bus_port) = match ports.split_once('@') {
        Some((port, bus_port)) => (port.parse().ok()?, bus_port.parse().ok()?),
        None => {
            let port: u16 = ports.parse().ok()?;
            (port, port.checked_add(BUS_PORT_ABOVE)?)
        }
    };
    (port != 0 && bus_port != 0).then(|| Seed {
        host: host.to_owned(),
        port,
        bus_port,
    })
}

impl fmt::Display for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Seed {
            host,
            port,
            bus_port,
        } = self;
        match host.contains(':') {
            true => write!(f, "[{host}]:{port}")?,
            false => write!(f, "{host}:{port}")?,
        }
        match port.checked_add(BUS_PORT_ABOVE) == Some(*bus_port) {
            true => Ok(()),
            false => write!(f, "@{bus_port}"),
        }
    }
}

fn show(seeds: &[Seed]) -> String {
    let texts: Vec<String> = seeds.iter().map(Seed::to_string).collect();
    texts.join(" ")
}

/// Parses one seed per word; a single empty word means none.
pub fn read(words: &[String]) -> Result<Vec<Seed>, String> {
    if matches!(words, [one] if one.is_empty()) {
        return Ok(Vec::new());
    }
    let seeds: Option<Vec<Seed>> = words.iter().map(|word| read_one(word)).collect();
    seeds.ok_or_else(|| {
        "cluster-seeds must be a list of host:port or host:port@bus-port, separated by spaces"
            .to_owned()
    })
}

/// `cluster-seeds`.
pub const SEEDS: Special = Special {
    default: &[""],
    many: true,
    set: |config, words, _| {
        config.cluster_seeds = read(words)?;
        Ok(())
    },
    show: |config| show(&config.cluster_seeds),
    lines: |config| match config.cluster_seeds.as_slice() {
        [] => vec![],
        some => vec![show(some)],
    },
    always_written: false,
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_have_a_host_and_a_port_and_may_name_that_of_the_bus() {
        let seed = |host: &str, port, bus_port| Seed {
            host: host.to_owned(),
            port,
            bus_port,
        };
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<String>>();
        let text = "cache.default.svc:6379 10.0.0.1:7000@9 [::1]:7001";
        let seeds = read(&words(text)).expect("they are good");
        assert_eq!(
            seeds,
            [
                seed("cache.default.svc", 6379, 16379),
                seed("10.0.0.1", 7000, 9),
                seed("::1", 7001, 17001),
            ]
        );
        assert_eq!(show(&seeds), text);
        assert_eq!(read(&words("")), Ok(vec![]));
        for wrong in [
            "cache",
            "cache:",
            ":1",
            "cache:0",
            "cache:x",
            "cache:60000",
            "cache:65536@1",
            "cache:1@0",
            "::1:7000",
            "[::1]7000",
            "cache:1,other:2",
        ] {
            assert!(read(&words(wrong)).is_err(), "{wrong}");
        }
    }
}
