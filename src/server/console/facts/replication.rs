//! The replication topology.

use serde_json::{Value, json};

use super::super::view::View;
use super::super::viewer::Sight;
use super::{HIDDEN, name};
use crate::telemetry::replication::ReplicationFacts;

/// A replica of this server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReplicaSummary {
    pub(crate) address: String,
    pub(crate) state: &'static str,
    pub(crate) lag_s: u64,
    pub(crate) behind: u64,
    pub(crate) offset: u64,
}

/// The server and its neighbors in the replication stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Picture {
    pub(crate) role: &'static str,
    pub(crate) offset: u64,
    /// The primary's address, and the state of the link to it.
    pub(crate) primary: Option<(String, &'static str)>,
    pub(crate) replicas: Vec<ReplicaSummary>,
}

/// Returns the current topology.
pub(crate) fn picture(view: &View<'_>) -> Picture {
    let facts: ReplicationFacts = view.service.replication();
    let sees = view.viewer.sees(Sight::Clients);
    let address = |host: &str, port: u16| match sees {
        true => format!("{}:{port}", name(host.as_bytes())),
        false => HIDDEN.to_owned(),
    };
    let replicas = facts.replicas.iter().map(|replica| ReplicaSummary {
        address: address(&replica.ip, replica.port),
        state: replica.state.name(),
        lag_s: replica.lag_s,
        behind: replica.behind_bytes,
        offset: replica.offset,
    });
    let primary = facts.upstream.as_ref();
    Picture {
        role: match primary {
            Some(_) => "replica",
            None => "primary",
        },
        offset: facts.stream.offset,
        primary: primary
            .map(|primary| (address(&primary.host, primary.port), primary.state.name())),
        replicas: replicas.collect(),
    }
}

impl Picture {
    /// Formats the topology as JSON.
    pub(crate) fn json(&self) -> Value {
        let replica = |replica: &ReplicaSummary| {
            json!({
                "address": replica.address,
                "state": replica.state,
                "lag": replica.lag_s,
                "behind": replica.behind,
                "offset": replica.offset,
            })
        };
        json!({
            "role": self.role,
            "offset": self.offset,
            "primary": self.primary.as_ref().map(|(address, state)| json!({ "address": address, "link": state })),
            "replicas": self.replicas.iter().map(replica).collect::<Vec<_>>(),
        })
    }
}
