//! Controls: with a broken promise each judge finds an anomaly of the kind that is expected, or it is worth nothing.

use std::time::{Duration, Instant};

use crate::fronts::{Break, Front};
use crate::promises::plan;
use crate::rounds::{Fault, Make, Plan, Site};

const MAKE: Make = Make::Basalt {
    threads: 2,
    shards: 8,
};

/// Each control is found by then.
const FOUND_WITHIN: Duration = Duration::from_secs(60);

/// Runs rounds until one shows an anomaly that is expected.
#[track_caller]
fn is_found(site: &mut Site, mut plan: Plan, kind: Option<Break>, expected: &[&str]) {
    plan.time = Duration::from_millis(400);
    let front = kind.map(|kind| Front::start(site.port(), kind));
    let began = Instant::now();
    loop {
        let shown = site.round(&plan, front.as_ref().map(|front| front.port));
        let found: Vec<&str> = shown.anomalies.keys().map(String::as_str).collect();
        eprintln!("{kind:?}: {found:?} after {:?}", began.elapsed());
        if expected.iter().any(|name| found.contains(name)) {
            return;
        }
        assert!(
            began.elapsed() < FOUND_WITHIN,
            "{kind:?} shows {found:?}, not {expected:?}"
        );
        plan.seed += 1;
    }
}

fn finds(kind: Break, appenders: u64, singles: u64, expected: &[&str]) {
    let mut plan = plan(Fault::Nothing);
    (plan.appenders, plan.singles) = (appenders, singles);
    let mut site = Site::start(MAKE, &plan).expect("our server");
    is_found(&mut site, plan, Some(kind), expected);
}

const NOT_LINEARIZABLE: &[&str] = &["not-linearizable"];

#[test]
fn transactions_that_are_sent_by_halves_are_found() {
    let expected = ["G0", "G1b", "G1c", "G-single", "G2"];
    finds(Break::SplitsTransactions, 5, 0, &expected);
}

#[test]
fn lists_that_are_read_from_an_old_copy_are_found() {
    let expected = ["G-single-realtime", "G2-realtime", "G-single", "G2"];
    finds(Break::AnswersFromOldCopies, 5, 0, &expected);
}

#[test]
fn strings_that_are_read_from_an_old_copy_are_found() {
    finds(Break::AnswersFromOldCopies, 0, 5, NOT_LINEARIZABLE);
}

#[test]
fn appends_that_are_answered_before_they_are_sent_are_found() {
    let expected = [
        "lost-append",
        "G-single-realtime",
        "G2-realtime",
        "G0-realtime",
    ];
    finds(Break::AnswersBeforeSending, 5, 0, &expected);
}

#[test]
fn sets_that_are_answered_before_they_are_sent_are_found() {
    finds(Break::AnswersBeforeSending, 0, 5, NOT_LINEARIZABLE);
}

#[test]
fn appends_that_are_answered_and_forgotten_are_found() {
    finds(Break::ForgetsWrites, 5, 0, &["lost-append"]);
}

#[test]
fn sets_that_are_answered_and_forgotten_are_found() {
    finds(Break::ForgetsWrites, 0, 5, NOT_LINEARIZABLE);
}

#[test]
fn fences_that_do_not_grow_are_found() {
    finds(Break::RepeatsFences, 0, 5, NOT_LINEARIZABLE);
}

#[test]
fn fills_without_a_lease_are_found() {
    finds(Break::FillsWithoutLease, 0, 5, NOT_LINEARIZABLE);
}

#[test]
fn a_disk_that_loses_what_was_synced_is_found() {
    let mut plan = plan(Fault::KillsAlways);
    plan.singles = 0;
    let mut site = Site::start(MAKE, &plan).expect("our server");
    site.disk_loses = 2_000;
    is_found(
        &mut site,
        plan,
        None,
        &["lost-append", "incompatible-order"],
    );
}

#[test]
fn replies_that_no_replica_has_confirmed_are_found() {
    let mut plan = plan(Fault::Confirmed);
    plan.singles = 0;
    let mut site = Site::start(MAKE, &plan).expect("our server");
    site.confirm_writes(false);
    is_found(
        &mut site,
        plan,
        None,
        &["lost-append", "incompatible-order"],
    );
}
