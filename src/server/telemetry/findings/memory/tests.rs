//! Tests of `memory`.

use super::*;

fn quiet() -> MemoryEvidence {
    let used = 100 << 20;
    MemoryEvidence {
        report: MemoryReport {
            used,
            peak: used,
            allocator_allocated: used,
            allocator_active: used,
            allocator_resident: used,
            rss: used,
            ..MemoryReport::default()
        },
        clients: 1,
        machine_bytes: 16 << 30,
        ..MemoryEvidence::default()
    }
}

fn remedies(situation: &MemoryEvidence) -> Vec<&'static str> {
    let findings = findings(situation);
    findings.iter().map(|finding| finding.remedy).collect()
}

#[test]
fn the_doctor_names_what_stands_out_and_nothing_else() {
    let mut situation = quiet();
    situation.report.used = 1 << 20;
    assert!(text(&situation).contains("too little") && findings(&situation).is_empty());
    situation.config = Arc::new(Config {
        maxmemory: 1 << 20,
        ..Config::default()
    });
    assert_eq!(
        remedies(&situation),
        ["maxmemory-policy"],
        "a small limit is one"
    );
    assert!(text(&situation).contains("commands that need memory are refused"));
    // The memory of the program itself must not be reported as fragmentation when there is little data.
    let mut situation = quiet();
    situation.report.used = 8 << 20;
    situation.report.peak = situation.report.used;
    situation.report.allocator_resident = 8 << 20;
    situation.report.rss = 40 << 20;
    assert!(findings(&situation).is_empty());
    // A peak whose memory was given back is not reported either.
    situation.report.peak = 56 << 20;
    situation.report.rss = 32 << 20;
    assert!(findings(&situation).is_empty());
    let mut situation = quiet();
    assert_eq!(text(&situation), "No memory problems found.\n");
    situation.report.dataset = 50 << 20;
    situation.report.largest = vec![("string", 20_000), ("list", 20 << 20)];
    assert!(text(&situation).contains("One list alone takes 20.00M of the 50.00M"));
    situation.report.largest = vec![("string", 20_000)];
    situation.report.peak *= 2;
    assert!(
        !text(&situation).contains("at its peak"),
        "nothing is left of it"
    );
    situation.report.rss = situation.report.used * 2;
    situation.report.allocator_resident = situation.report.rss;
    situation.report.allocator_active = situation.report.rss;
    situation.report.allocator_allocated = situation.report.rss;
    situation.report.clients = 1 << 20;
    situation.clients = 2;
    let shown = text(&situation);
    assert!(shown.contains("at its peak") && shown.contains("on average"));
    assert_eq!(shown.matches(" * ").count(), 2);
    assert_eq!(remedies(&situation), ["MEMORY PURGE", "maxmemory-clients"]);
}

#[test]
fn a_limit_that_is_missing_or_reached_names_the_directive_that_mends_it() {
    let mut situation = quiet();
    situation.machine_bytes = 120 << 20;
    assert_eq!(remedies(&situation), ["maxmemory"]);
    let full = Config {
        maxmemory: 101 << 20,
        ..Config::default()
    };
    situation.config = Arc::new(full);
    assert_eq!(remedies(&situation), ["maxmemory-policy"]);
    let shown = text(&situation);
    assert!(
        shown.contains("100.00M of 101.00M (maxmemory) are used"),
        "{shown}"
    );
    situation.config = Arc::default();
    situation.machine_bytes = 16 << 30;
    situation.eviction.exceeded_ms = 2_500;
    situation.eviction.debt_bytes = 3 << 20;
    let shown = text(&situation);
    assert!(
        shown.contains("above maxmemory for 2.5 s, and 3.00M"),
        "{shown}"
    );
}

#[test]
fn the_curve_says_when_more_memory_is_worth_it_and_when_less_would_do() {
    let mut situation = quiet();
    situation.evicted = 7;
    situation.curve = CurveFigures {
        measured: Some(0.60),
        corrected: Some([0.40, 0.52, 0.60, 0.685, 0.70]),
        memory_bytes: 500 << 20,
        reads: 200_000,
        ..CurveFigures::default()
    };
    let shown = text(&situation);
    assert!(
        shown.contains("by 8.5 points") && shown.contains("68.5 % instead of 60.0 %"),
        "{shown}"
    );
    situation.curve.corrected = Some([0.50, 0.599, 0.60, 0.605, 0.61]);
    assert!(findings(&situation).is_empty());
    situation.config = Arc::new(Config {
        maxmemory: 1 << 30,
        ..Config::default()
    });
    let shown = text(&situation);
    assert!(
        shown.contains("250.00M instead of 500.00M lower the hit ratio by 0.1 points"),
        "{shown}"
    );
}

#[test]
fn pages_that_are_filled_unevenly_lead_to_activedefrag() {
    let mut situation = quiet();
    let report = &mut situation.report;
    report.allocator_active = report.used + (40 << 20);
    report.allocator_resident = report.allocator_active;
    report.rss = report.allocator_active;
    assert_eq!(remedies(&situation), ["activedefrag"]);
    assert!(text(&situation).contains("140.00M of allocator pages hold 100.00M"));
    situation.config = Arc::new(Config {
        activedefrag: true,
        ..Config::default()
    });
    assert!(text(&situation).contains("below active-defrag-ignore-bytes (100.00M)"));
}
