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
    availability(map, &situation.config, findings);
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
mod tests {
    use super::*;
    use basalt_commands::cluster::node_id::NodeId;
    use basalt_commands::cluster::testing::{OTHER, THIRD, map};

    const NOW_S: u64 = 1_800_000_000;

    fn quiet() -> Situation {
        Situation {
            now_s: NOW_S,
            ..Situation::default()
        }
    }

    fn found(situation: &Situation) -> Vec<(&'static str, &'static str)> {
        let findings = findings(situation);
        let named = findings.iter();
        named
            .map(|(about, finding)| (*about, finding.remedy))
            .collect()
    }

    #[test]
    fn a_disk_that_takes_nothing_is_told_of_with_what_refuses_writes() {
        let mut situation = quiet();
        assert_eq!(
            (found(&situation), text(&situation)),
            (vec![], String::new())
        );
        situation.refusal = Some(WriteRefusal::Log(28));
        assert_eq!(found(&situation), [("persistence", "appendonly")]);
        assert!(text(&situation).contains("cannot be written: No space left on device."));
        situation.refusal = Some(WriteRefusal::Snapshot);
        situation.has_failed_save = true;
        situation.failed_rewrites = 3;
        assert_eq!(
            found(&situation),
            [
                ("persistence", "stop-writes-on-bgsave-error"),
                ("persistence", "BGREWRITEAOF")
            ]
        );
        situation.refusal = None;
        situation.failed_rewrites = 0;
        assert_eq!(found(&situation), [("persistence", "BGSAVE")]);
    }

    #[test]
    fn a_replica_tells_of_its_link_unless_it_is_up_or_a_snapshot_comes() {
        let mut situation = quiet();
        let link = |state| {
            Some(Upstream {
                host: "cache\u{1b}".to_owned(),
                port: 7001,
                state,
                offset: 5,
                info: vec![("master_link_down_since_seconds", "42".to_owned())],
            })
        };
        for state in [LinkState::Connected, LinkState::Sync] {
            situation.upstream = link(state);
            assert!(found(&situation).is_empty(), "{state:?}");
        }
        situation.upstream = link(LinkState::Connecting);
        let findings = findings(&situation);
        let finding = &findings[0].1;
        assert!(
            finding
                .shown(true)
                .starts_with("The link to the primary cache\\u{1b}:7001 is down (for 42 s);")
        );
        assert!(
            finding
                .shown(false)
                .starts_with("The link to the primary is down")
        );
    }

    #[test]
    fn certificates_are_told_of_before_they_end_and_when_they_can_not_be_read_anew() {
        let mut situation = quiet();
        let ends = |days: i64| {
            vec![OwnCertificate {
                directive: "tls-cert-file",
                file: "/etc/a.crt".to_owned(),
                ends_s: Some(NOW_S.cast_signed() + days * DAY_S),
            }]
        };
        for (days, said) in [
            (30, None),
            (13, Some("expires in 13 days")),
            (1, Some("expires in 24 hours")),
            (-3, Some("expired 3 days ago")),
        ] {
            situation.certificates = ends(days);
            let text = text(&situation);
            match said {
                None => assert_eq!(text, ""),
                Some(said) => assert!(text.contains(said), "{text}"),
            }
        }
        situation.certificates = ends(300);
        situation.tls_failure = Some("Failed to load certificate".to_owned());
        assert_eq!(found(&situation), [("tls", "tls-cert-file")]);
    }

    fn of_cluster(map: ClusterMap) -> Situation {
        Situation {
            cluster: Some(ClusterSeen {
                map,
                unsaved: None,
                moves: Vec::new(),
            }),
            ..quiet()
        }
    }

    #[test]
    fn a_cluster_that_does_not_serve_is_told_of_with_what_is_missing() {
        let remedies = |situation: &Situation| -> Vec<&'static str> {
            found(situation).iter().map(|(_, remedy)| *remedy).collect()
        };
        // Of three primaries, the first and the third have no replica.
        let situation = of_cluster(map());
        assert_eq!(remedies(&situation), ["CLUSTER REPLICATE"]);
        assert!(text(&situation).contains("Each of the primaries 00000000, 03030303 has no"));
        let mut broken = map();
        broken.is_up = false;
        broken.nodes[usize::from(THIRD)]
            .flags
            .set(NodeFlags::FAILED);
        broken.slots_failed = broken.nodes[usize::from(THIRD)].slots.len();
        let situation = of_cluster(broken.clone());
        assert_eq!(
            remedies(&situation),
            ["CLUSTER FAILOVER", "CLUSTER REPLICATE"]
        );
        assert!(
            text(&situation).contains("Primaries that own 5461 slots do not respond (03030303)")
        );
        let other = &mut broken.nodes[usize::from(OTHER)];
        other.flags.set(NodeFlags::MAYBE_FAILED);
        broken.slots_maybe_failed = other.slots.len();
        let situation = of_cluster(broken);
        assert_eq!(
            remedies(&situation)[..2],
            ["CLUSTER NODES", "CLUSTER FAILOVER"]
        );
        assert!(text(&situation).contains("it reaches 1 of 3 primaries"));
        let mut holes = map();
        holes.nodes[0].slots.remove(7);
        let mut situation = of_cluster(holes);
        assert_eq!(remedies(&situation)[0], "CLUSTER ADDSLOTSRANGE");
        situation.cluster.as_mut().expect("one").unsaved = Some("No space left".to_owned());
        assert_eq!(remedies(&situation)[0], "cluster-config-file");
    }

    #[test]
    fn a_move_that_failed_of_late_is_told_of_until_it_was_repeated_well() {
        let moved = |name, updated_s, state: &'static str| SlotMove {
            name: NodeId::from_random([name; 20]),
            is_export: true,
            slots: (3..=4).collect(),
            source: NodeId::from_random([0; 20]),
            target: NodeId::from_random([1; 20]),
            created_s: 1,
            updated_s,
            acked_s: 3,
            state,
            message: "the link broke".to_owned(),
            waiting_bytes: 4,
            paused_ms: 5,
        };
        let mut all_with_replicas = map();
        for at in [0, THIRD] {
            let mut replica = all_with_replicas.nodes[2].clone();
            replica.primary = Some(at);
            all_with_replicas.nodes.push(replica);
        }
        let mut situation = of_cluster(all_with_replicas);
        assert!(found(&situation).is_empty());
        let mut set = |moves| {
            situation.cluster.as_mut().expect("one").moves = moves;
            found(&situation)
        };
        assert_eq!(
            set(vec![moved(9, NOW_S - 5, "failed")]),
            [("cluster", "CLUSTER GETSLOTMIGRATIONS")]
        );
        let later = moved(8, NOW_S - 1, "success");
        assert!(set(vec![later, moved(9, NOW_S - 5, "failed")]).is_empty());
        assert!(set(vec![moved(9, NOW_S - 3_600, "failed")]).is_empty());
    }
}
