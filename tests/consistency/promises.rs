//! The promises of docs/guarantees.md, each for a second or a few; the example `consistency` does the same for hours.

use std::time::Duration;

use crate::rounds::{FAULTS, Fault, Make, POWER_CUT, Plan, Shown, Site, singles_beside};
use crate::support::{eventually, is_stand_in, variable};
use crate::{edn, list_append};

/// Threads and shards of the server; with four threads hot keys are read from copies.
const SIZES: [(usize, usize); 3] = [(1, 1), (2, 8), (4, 64)];

pub(crate) fn plan(fault: Fault) -> Plan {
    Plan {
        fault,
        time: Duration::from_secs(variable("CONSISTENCY_SECONDS", 1)),
        writes_min: 300,
        appenders: 5,
        singles: singles_beside(fault, 5),
        seed: variable("CONSISTENCY_SEED", 1),
    }
}

/// Runs a round with each size of the server, and returns the last one.
fn holds(fault: Fault, sizes: &[(usize, usize)]) -> Shown {
    let mut last = Shown::default();
    for &(threads, shards) in sizes {
        let plan = plan(fault);
        let make = Make::Basalt { threads, shards };
        let mut site = Site::start(make, &plan).expect("our server");
        last = site.round(&plan, None);
        report(
            &format!("{fault:?}, {threads} threads, {shards} shards"),
            &last,
        );
        assert_sound(
            &last,
            &format!("{fault:?} with {threads} threads, {shards} shards"),
        );
        assert!(last.transactions > 0 && last.operations > 0);
    }
    last
}

#[test]
fn each_fault_has_a_name_of_its_own() {
    let names: std::collections::BTreeSet<_> = FAULTS.iter().map(|(_, name)| name).collect();
    assert_eq!(names.len(), FAULTS.len());
}

#[track_caller]
fn assert_sound(shown: &Shown, what: &str) {
    assert!(shown.anomalies.is_empty(), "{what}: {:#?}", shown.anomalies);
    assert_eq!(shown.undecided, 0, "{what}: searches that were given up");
}

fn report(what: &str, shown: &Shown) {
    eprintln!(
        "{what}: {} transactions ({} of unknown outcome, {} lost), {} operations on {} keys, {} faults",
        shown.transactions, shown.unknown, shown.lost, shown.operations, shown.keys, shown.faults
    );
}

#[test]
fn one_server_keeps_its_promises() {
    holds(Fault::Nothing, &SIZES);
}

#[test]
fn copies_of_hot_keys_are_never_old() {
    let mut plan = plan(Fault::Nothing);
    (plan.appenders, plan.singles) = (0, 10);
    let make = Make::Basalt {
        threads: 4,
        shards: 8,
    };
    let mut site = Site::start(make, &plan).expect("our server");
    eventually("hot keys are read from copies", || {
        let shown = site.round(&plan, None);
        assert_sound(&shown, "hot keys");
        plan.seed += 1;
        eprintln!(
            "{} operations, {} from copies",
            shown.operations, shown.copy_reads
        );
        shown.copy_reads > 0 || is_stand_in()
    });
}

#[test]
fn saves_change_nothing() {
    holds(Fault::Saves, &SIZES[1..]);
}

#[test]
fn settings_change_nothing() {
    let plan = plan(Fault::Settings);
    let make = Make::Basalt {
        threads: 4,
        shards: 8,
    };
    let mut site = Site::start(make, &plan).expect("our server");
    assert_sound(&site.round(&plan, None), "settings");
}

#[test]
fn a_stopped_server_goes_on_where_it_was() {
    holds(Fault::Stops, &SIZES[1..2]);
}

#[test]
fn with_always_a_kill_loses_nothing() {
    holds(Fault::KillsAlways, &SIZES[1..]);
}

#[test]
fn with_everysec_a_kill_takes_the_end_alone() {
    holds(Fault::KillEverysec, &SIZES[1..2]);
    let plan = plan(Fault::KillEverysec);
    let make = Make::Basalt {
        threads: 2,
        shards: 8,
    };
    let mut site = Site::start(make, &plan).expect("our server");
    // The machine fails, not the process alone.
    site.disk_loses = POWER_CUT;
    let shown = site.round(&plan, None);
    report("KillEverysec, with the end of the log", &shown);
    assert_sound(&shown, "loss of power");
    assert!(shown.lost > 0);
}

#[test]
fn a_planned_failover_loses_nothing() {
    let plan = plan(Fault::Failovers);
    let make = Make::Basalt {
        threads: 2,
        shards: 8,
    };
    let mut site = Site::start(make, &plan).expect("our server");
    assert_sound(&site.round(&plan, None), "FAILOVER");
}

#[test]
fn what_a_replica_has_confirmed_survives_its_primary() {
    let mut plan = plan(Fault::Confirmed);
    let make = Make::Basalt {
        threads: 2,
        shards: 8,
    };
    for singles in [0, 4] {
        plan.singles = singles;
        let mut site = Site::start(make, &plan).expect("our server");
        let shown = site.round(&plan, None);
        report("Confirmed", &shown);
        assert_sound(&shown, "min-sync-replicas 1");
    }
}

#[test]
fn a_failover_without_confirmation_takes_the_end_alone() {
    holds(Fault::Unconfirmed, &SIZES[1..2]);
}

#[test]
fn other_servers_keep_the_same_promises() {
    for make in [Make::Redis, Make::NewerRedis, Make::Valkey] {
        let plan = plan(Fault::Nothing);
        if let Some(mut site) = Site::start(make, &plan) {
            let shown = site.round(&plan, None);
            report(&format!("{make:?}"), &shown);
            assert_sound(&shown, &format!("{make:?}"));
        }
    }
}

#[test]
fn a_history_that_was_written_as_edn_is_read_back() {
    let mut plan = plan(Fault::KillsAlways);
    plan.singles = 0;
    let make = Make::Basalt {
        threads: 2,
        shards: 8,
    };
    let mut site = Site::start(make, &plan).expect("our server");
    let shown = site.round(&plan, None);
    let text = edn::write(&shown.history);
    let read = edn::read(&text).expect("a history");
    assert_eq!(edn::write(&read), text);
    assert_eq!(read.len(), shown.history.len());
    assert_eq!(list_append::judge(&read).count, 0);
}
