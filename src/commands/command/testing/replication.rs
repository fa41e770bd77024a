//! The replication interfaces of a server that has no replicas and follows no primary, for tests.

use std::sync::Arc;

use super::server::done;
use crate::client::shared::Shared;
use crate::command::error::CommandError;
use crate::command::host::Awaited;
use crate::command::host::primary::{Acknowledged, HostPrimary, ReplicaFacts, StreamFacts};
use crate::command::host::replica::{FailoverRequest, Replica, Upstream};
use crate::config::Config;

/// Replication without replicas and primary, see the module.
pub(super) struct Alone;

impl HostPrimary for Alone {
    fn stream(&self) -> StreamFacts {
        StreamFacts::default()
    }
    fn goes_on(&self, _: &Arc<Shared>, _: &[u8], _: i64) -> bool {
        false
    }
    fn awaited(&self) -> usize {
        0
    }
    fn replicas(&self) -> Vec<ReplicaFacts> {
        Vec::new()
    }
    fn acknowledged(&self, _: u64, _: Option<&Arc<Shared>>) -> Acknowledged {
        Acknowledged::default()
    }
    fn lacks_replicas(&self, config: &Config) -> bool {
        config.wants_replicas()
    }
    fn ask_for_acknowledgements(&self, _: Option<u64>) {}
    fn wake_at_acknowledgement(&self, _: &std::task::Waker) {}

    fn replicate(&self, _: &[&[u8]]) -> u64 {
        0
    }
    fn lagging(&self) -> Vec<ReplicaFacts> {
        Vec::new()
    }
    fn change_id(&self) {}
}

impl Replica for Alone {
    fn upstream(&self) -> Option<Upstream> {
        None
    }
    fn follow(&'static self, _: Option<(String, u16)>) -> Result<Awaited, CommandError> {
        Ok(done("OK"))
    }
    fn refuses_replicas(&self) -> Option<CommandError> {
        None
    }
    fn acknowledge(&self) {}
    fn fail_over(&'static self, _: FailoverRequest) -> Result<(), CommandError> {
        Err("ERR FAILOVER requires connected replicas.".into())
    }
    fn abort_failover(&self) -> Result<(), CommandError> {
        Err("ERR No failover in progress.".into())
    }
    fn failover_state(&self) -> &'static str {
        "no-failover"
    }
    fn take_over(&self, _: &[u8]) -> Result<(), CommandError> {
        Err("ERR PSYNC FAILOVER can't be sent to a master.".into())
    }
}
