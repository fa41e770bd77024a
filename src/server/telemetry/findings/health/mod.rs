//! Findings about current failures: writes refused because of the disk, a broken link to the primary,
//! certificates, the cluster. A failed slot migration is reported for the same number of minutes as other
//! recent events.

use std::sync::Arc;

use super::Finding;
use super::recent::MINUTES;
use crate::telemetry::clock;
use crate::telemetry::observed::Observed;
use crate::telemetry::persistence::WriteRefusal;
use crate::tls::contexts::OwnCertificate;
use basalt_commands::cluster::assembly::{AssemblyState, AssemblyView};
use basalt_commands::cluster::flags::NodeFlags;
use basalt_commands::cluster::map::ClusterMap;
use basalt_commands::command::host::cluster::SlotMove;
use basalt_commands::command::host::replica::{LinkState, Upstream};
use basalt_commands::config::Config;
use basalt_commands::config::values::system_text;
use basalt_core::base::text::visible;

/// A certificate is reported from this many days before its expiry. ACME certificates are renewed thirty days
/// before.
const CERTIFICATE_DAYS: i64 = 14;

const DAY_S: i64 = 24 * 60 * 60;

/// The state to be diagnosed.
#[derive(Clone, Debug, Default)]
pub struct Situation {
    pub(super) config: Arc<Config>,
    pub(super) now_s: u64,
    /// Why clients' writes are refused, if the disk is the cause.
    pub(super) refusal: Option<WriteRefusal>,
    /// Consecutive failed rewrites of the append-only file.
    pub(super) failed_rewrites: u64,
    /// Whether the last background snapshot failed.
    pub(super) has_failed_save: bool,
    pub(super) upstream: Option<Upstream>,
    /// Replicas that count for `min-sync-replicas`.
    pub(super) sync_replicas: u64,
    /// Whether these did not confirm a write in time, and have not since.
    pub(super) is_confirmation_overdue: bool,
    pub(super) certificates: Vec<OwnCertificate>,
    pub(super) tls_failure: Option<String>,
    pub(super) cluster: Option<ClusterSeen>,
}

/// The cluster as this node sees it.
#[derive(Clone, Debug)]
pub(super) struct ClusterSeen {
    pub(super) map: ClusterMap,
    /// Why nodes.conf could not be written, if so.
    pub(super) unsaved: Option<String>,
    pub(super) moves: Vec<SlotMove>,
}

impl Situation {
    /// Captures the current state.
    pub fn of(service: &dyn Observed) -> Situation {
        use std::sync::atomic::Ordering::Relaxed;
        let (config, telemetry) = (service.config(), service.telemetry());
        let persistence = &telemetry.persistence;
        let tls = service.tls();
        Situation {
            now_s: clock::unix_ms() / 1_000,
            refusal: persistence.refusal(&config),
            failed_rewrites: persistence.aof.rewrite_failures.load(Relaxed),
            has_failed_save: !persistence.rdb.last_ok.load(Relaxed),
            upstream: service.replication().upstream,
            sync_replicas: telemetry.replication.sync_replicas.load(Relaxed),
            is_confirmation_overdue: telemetry.replication.is_confirmation_overdue.load(Relaxed),
            certificates: tls.map(|contexts| contexts.own.clone()).unwrap_or_default(),
            tls_failure: service.tls_failure(),
            cluster: service.cluster().map(|cluster| ClusterSeen {
                map: cluster.view(),
                unsaved: cluster.unsaved(),
                moves: cluster.moves(),
            }),
            config,
        }
    }
}

/// Returns the first part of MEMORY DOCTOR's text: current failures, because operators consult it when
/// something is wrong.
pub fn text(situation: &Situation) -> String {
    let mut text = String::new();
    for (_, finding) in findings(situation) {
        text.push_str(&format!(" * {}\n\n", finding.text));
    }
    match text.is_empty() {
        true => text,
        false => format!("Problems of the server:\n\n{text}"),
    }
}

/// Returns the findings, each with the name of its subject.
pub fn findings(situation: &Situation) -> Vec<(&'static str, Finding)> {
    let mut all = Vec::new();
    let mut add = |about, judge: fn(&Situation, &mut Vec<Finding>)| {
        let mut findings = Vec::new();
        judge(situation, &mut findings);
        all.extend(findings.into_iter().map(|finding| (about, finding)));
    };
    add("persistence", persistence);
    add("replication", replication);
    add("tls", tls);
    add("cluster", cluster);
    all
}

fn persistence(situation: &Situation, findings: &mut Vec<Finding>) {
    match situation.refusal {
        Some(WriteRefusal::Log(errno)) => {
            let why = system_text(&std::io::Error::from_raw_os_error(errno));
            findings.push(Finding::new(
                "appendonly",
                format!(
                    "Writes are refused because the append-only file cannot be written: {why}. Free space on the disk \
                     of `dir`, or make it writable: the server retries by itself and accepts writes once the file is \
                     written. CONFIG SET appendonly no turns the file off."
                ),
            ));
        }
        Some(WriteRefusal::Snapshot) => findings.push(Finding::new(
            "stop-writes-on-bgsave-error",
            "Writes are refused because the last BGSAVE failed and stop-writes-on-bgsave-error is yes. The log gives \
             the reason, usually a full disk or missing permissions on `dir`. The server retries by itself and \
             accepts writes after a successful save; BGSAVE retries at once. CONFIG SET stop-writes-on-bgsave-error \
             no accepts writes in the meantime.",
        )),
        None if situation.has_failed_save => findings.push(Finding::new(
            "BGSAVE",
            "The last BGSAVE failed: changes since the last successful snapshot would be lost if the server stopped \
             now, unless they are in an append-only file. The log gives the reason; BGSAVE retries.",
        )),
        None => {}
    }
    if situation.failed_rewrites > 0 {
        let times = match situation.failed_rewrites {
            1 => "The last rewrite of the append-only file".to_owned(),
            count => format!("The last {count} rewrites of the append-only file"),
        };
        findings.push(Finding::new(
            "BGREWRITEAOF",
            format!(
                "{times} failed, so the file keeps growing. The log gives the reason, usually too little disk space \
                 for a second file. The server retries by itself; BGREWRITEAOF retries at once."
            ),
        ));
    }
}

fn replication(situation: &Situation, findings: &mut Vec<Finding>) {
    let wanted = situation.config.min_sync_replicas;
    let is_short = situation.sync_replicas < u64::from(wanted);
    if situation.upstream.is_none() && (is_short || situation.is_confirmation_overdue) {
        findings.push(Finding::new(
            "min-sync-replicas",
            format!(
                "Writes are refused because fewer than {wanted} replicas confirm them (min-sync-replicas): {} follow. INFO \
                 replication shows how far each is. CONFIG SET min-sync-replicas accepts a smaller number.",
                situation.sync_replicas
            ),
        ));
    }
    let Some(upstream) = &situation.upstream else {
        return;
    };
    // While the replica receives a snapshot, the link to the primary is up.
    if matches!(upstream.state, LinkState::Connected | LinkState::Sync) {
        return;
    }
    let mut facts = upstream.info.iter();
    let down_s = facts.find(|(name, _)| *name == "master_link_down_since_seconds");
    let since = match down_s.and_then(|(_, seconds)| seconds.parse::<i64>().ok()) {
        // The link to the primary was never up.
        None | Some(..0) => String::new(),
        Some(seconds) => format!(" (for {seconds} s)"),
    };
    let stale = match situation.config.replica_serve_stale_data {
        true => "clients read stale data",
        false => "clients get the error MASTERDOWN",
    };
    let text = |whom: &str| {
        format!(
            "The link to the primary{whom} is down{since}; meanwhile {stale}. Check that the primary is running and \
             can be reached from here, and that masteruser and masterauth (with tls-replication: the certificates) \
             are correct; the log shows the attempts. If the primary is lost for good, REPLICAOF NO ONE makes this \
             server a primary."
        )
    };
    let mut finding = Finding::new(
        "REPLICAOF",
        text(&format!(
            " {}:{}",
            visible(upstream.host.as_bytes()),
            upstream.port
        )),
    );
    finding.unnamed = Some(text(""));
    findings.push(finding);
}

fn tls(situation: &Situation, findings: &mut Vec<Finding>) {
    if let Some(why) = &situation.tls_failure {
        findings.push(Finding::new(
            "tls-cert-file",
            format!(
                "The TLS files have changed but cannot be loaded, so the previous ones are still in use: {}. The \
                 server reads them again when they change.",
                visible(why.as_bytes())
            ),
        ));
    }
    for certificate in &situation.certificates {
        let Some(ends_s) = certificate.ends_s else {
            continue;
        };
        let left_s = ends_s - situation.now_s.cast_signed();
        let file = visible(certificate.file.as_bytes());
        let directive = certificate.directive;
        let reload = "Replace the file: the server reloads it within tls-auto-reload-interval, or at once after CONFIG \
                      SET of the same directive.";
        if left_s <= 0 {
            let ago = human_days(-left_s);
            findings.push(Finding::new(
                directive,
                format!(
                    "The certificate {file} ({directive}) expired {ago} ago, so peers reject it. {reload}"
                ),
            ));
        } else if left_s < CERTIFICATE_DAYS * DAY_S {
            let left = human_days(left_s);
            findings.push(Finding::new(
                directive,
                format!("The certificate {file} ({directive}) expires in {left}. {reload}"),
            ));
        }
    }
}

fn human_days(seconds: i64) -> String {
    match seconds {
        ..7_200 => format!("{} minutes", seconds / 60),
        7_200..172_800 => format!("{} hours", seconds / 3_600),
        _ => format!("{} days", seconds / DAY_S),
    }
}

fn cluster(situation: &Situation, findings: &mut Vec<Finding>) {
    let Some(ClusterSeen {
        map,
        unsaved,
        moves,
    }) = &situation.cluster
    else {
        return;
    };
    if let Some(why) = unsaved {
        findings.push(Finding::new(
            "cluster-config-file",
            format!(
                "The cluster configuration file (cluster-config-file) cannot be written: {why}. Until it can, this \
                 node sends nothing on the cluster bus, and the other nodes consider it failed. Free space on the \
                 disk of `dir`, or make it writable: the server retries by itself."
            ),
        ));
    }
    match map.assembly.state {
        AssemblyState::Off | AssemblyState::ByHand | AssemblyState::Assembled => {
            availability(map, &situation.config, findings);
        }
        _ => {}
    }
    assembly(&map.assembly, &situation.config, findings);
    lonely_primaries(map, findings);
    let since_s = situation.now_s.saturating_sub(60 * MINUTES as u64);
    let failed = |each: &&SlotMove| each.state == "failed" && each.updated_s >= since_s;
    // The latest migration comes first. Ignore a failure if a later attempt moved the same slots.
    let mended = |each: &SlotMove| {
        let mut later = moves.iter().take_while(|other| other.name != each.name);
        later.any(|other| other.state == "success" && other.slots == each.slots)
    };
    if let Some(last) = moves.iter().filter(failed).find(|each| !mended(each)) {
        let (way, other) = match last.is_export {
            true => ("to", last.target),
            false => ("from", last.source),
        };
        findings.push(Finding::new(
            "CLUSTER GETSLOTMIGRATIONS",
            format!(
                "A migration of {} slots {way} node {} failed in the last {MINUTES} minutes: {}. The slots stayed at \
                 their source. CLUSTER GETSLOTMIGRATIONS shows the details; CLUSTER MIGRATESLOTS starts it again.",
                last.slots.len(),
                &other.as_str()[..8],
                visible(last.message.as_bytes())
            ),
        ));
    }
}

/// Checks how far a cluster is that its nodes assemble (`cluster-size`), and which nodes are kept out of it.
fn assembly(assembly: &AssemblyView, config: &Config, findings: &mut Vec<Finding>) {
    let (here, needed) = (assembly.here, assembly.needed);
    let why: String = assembly
        .hindrances
        .iter()
        .map(|why| format!(" {why}."))
        .collect();
    let why = visible(why.as_bytes());
    match assembly.state {
        AssemblyState::Waiting => {
            let look = match config.cluster_seeds.is_empty() {
                true => "cluster-seeds is empty, so this node does not look for the others.",
                false => {
                    "Check that cluster-seeds names them, that they have the same cluster-size and cluster-replicas, \
                     and that all nodes reach each other on the bus port."
                }
            };
            findings.push(Finding::new(
                "cluster-size",
                format!(
                    "This node waits for the nodes of a new cluster: {here} of {needed} are there. They assemble it by \
                     themselves when all are there.{why} {look}"
                ),
            ));
        }
        AssemblyState::Agreeing if !assembly.hindrances.is_empty() => {
            findings.push(Finding::new(
                "CLUSTER FORGET",
                format!(
                    "The nodes of a new cluster are assembling it: {here} of {needed} have agreed.{why} It goes on when \
                     that node is back. If it is gone for good, with its folder, CLUSTER FORGET of it on this node lets \
                     the others begin again with a node in its place."
                ),
            ));
        }
        AssemblyState::Assembled if !assembly.hindrances.is_empty() => {
            findings.push(Finding::new(
                "cluster-seeds",
                format!(
                    "Nodes that this node was led to are kept out of the cluster.{why} Remove them from the names in \
                     cluster-seeds, or their data folder if they should join as new nodes."
                ),
            ));
        }
        _ => {}
    }
}

/// Checks whether the cluster serves requests, and what is missing if not.
fn availability(map: &ClusterMap, config: &Config, findings: &mut Vec<Finding>) {
    let assigned: u16 = map.nodes.iter().map(|node| node.slots.len()).sum();
    let unassigned = basalt_core::base::hash::SLOTS.saturating_sub(assigned);
    let voters = || {
        let nodes = map.nodes.iter();
        nodes.filter(|node| node.is_primary() && !node.slots.is_empty())
    };
    let is_lost = NodeFlags::FAILED.or(NodeFlags::MAYBE_FAILED);
    let reachable = voters().filter(|node| !node.flags.any(is_lost)).count();
    let all = voters().count();
    let is_minority = all > 0 && reachable < all / 2 + 1;
    if is_minority {
        findings.push(Finding::new(
            "CLUSTER NODES",
            format!(
                "This node is in a minority: it reaches {reachable} of {all} primaries and replies CLUSTERDOWN. Check \
                 the network between the nodes, including the bus port (cluster-port, by default the port + 10000), \
                 and restart the nodes that are down: this node then serves again by itself."
            ),
        ));
    }
    let lost = map.slots_failed + map.slots_maybe_failed;
    if lost > 0 {
        let nodes: Vec<&str> = voters()
            .filter(|node| node.flags.any(is_lost))
            .map(|node| &node.id.as_str()[..8])
            .collect();
        findings.push(Finding::new(
            "CLUSTER FAILOVER",
            format!(
                "Primaries that own {lost} slots do not respond ({}). A replica takes over by itself after a few \
                 times cluster-node-timeout, if there is one and the majority of primaries agrees. To fail over \
                 without them, run CLUSTER FAILOVER FORCE or TAKEOVER on a replica; otherwise restart the primaries.",
                nodes.join(", ")
            ),
        ));
    }
    if unassigned > 0 {
        let effect = match config.cluster_require_full_coverage {
            true => "cluster-require-full-coverage is yes, so requests for any key get CLUSTERDOWN",
            false => "requests for their keys get CLUSTERDOWN",
        };
        findings.push(Finding::new(
            "CLUSTER ADDSLOTSRANGE",
            format!(
                "{unassigned} slots are not assigned to any node: {effect}. Assign them with redis-cli --cluster fix \
                 or CLUSTER ADDSLOTSRANGE."
            ),
        ));
    }
    if !map.is_up && !is_minority && lost == 0 && unassigned == 0 {
        findings.push(Finding::new(
            "CLUSTER INFO",
            "This node sees the cluster as down (cluster_state:fail) and replies CLUSTERDOWN, although every slot has \
             a node that responds: a primary that was partitioned, or has just started, waits a moment before it \
             serves. If this persists, see the log.",
        ));
    }
}

/// Checks for primaries with slots that no replica could take over.
fn lonely_primaries(map: &ClusterMap, findings: &mut Vec<Finding>) {
    let has_replica = |at: usize| {
        let mut nodes = map.nodes.iter();
        nodes.any(|node| {
            node.primary.map(usize::from) == Some(at) && !node.flags.any(NodeFlags::FAILED)
        })
    };
    let primaries = map.nodes.iter().enumerate();
    let primaries = primaries.filter(|(_, node)| node.is_primary() && !node.slots.is_empty());
    let lonely: Vec<&str> = primaries
        .filter(|(at, node)| !node.flags.any(NodeFlags::FAILED) && !has_replica(*at))
        .map(|(_, node)| &node.id.as_str()[..8])
        .collect();
    // Assume that a cluster without any replica was set up that way on purpose.
    let has_any = map.nodes.iter().any(|node| !node.is_primary());
    if !lonely.is_empty() && has_any {
        findings.push(Finding::new(
            "CLUSTER REPLICATE",
            format!(
                "{} has no replica that responds: if it fails, its slots become unavailable. CLUSTER REPLICATE makes \
                 a node its replica; with cluster-allow-replica-migration one moves over from a primary that has \
                 several.",
                match &lonely[..] {
                    [one] => format!("The primary {one}"),
                    several => format!("Each of the primaries {}", several.join(", ")),
                }
            ),
        ));
    }
}

#[cfg(test)]
mod tests;
