//! Figures about slot moves in INFO and among the metrics.

use super::{SLOT, await_end, figure, fill, latest, migrate, pair, start};
use crate::clustered::{id, options, unite};
use crate::support::{self, Server, check, eventually, free_port, http};

#[test]
fn both_ends_count_what_was_moved() {
    if support::is_stand_in() {
        return;
    }
    let port = free_port();
    let (one, two) = pair(&options().with("metrics-port", &port.to_string()));
    let keys = 1_000;
    fill(&one, keys);
    migrate(&one, &two);
    await_end(&one, "success");
    let sent = figure(&one, "total_net_cluster_slot_export_bytes");
    for (server, name, value) in [
        (&one, "slot_exports_in_progress", 0),
        (&one, "slot_exports_finished", 1),
        (&one, "slot_exports_failed", 0),
        (&one, "slot_exports_keys", keys as u64),
        (&one, "slot_imports_finished", 0),
        (&one, "mem_cluster_slot_export", 0),
        (&one, "slot_migration_fork_in_progress", 0),
        (&two, "slot_imports_finished", 1),
        (&two, "slot_imports_failed", 0),
        (&two, "slot_exports_finished", 0),
        (&two, "mem_cluster_slot_import", 0),
    ] {
        assert_eq!(figure(server, name), value, "{name}");
    }
    assert!(figure(&one, "slot_exports_last_pause_usec") > 0);
    eventually("the keys are counted", || {
        figure(&two, "slot_imports_keys") == keys as u64
    });
    // All but the request by which it began, with which the other node has not begun to count.
    let establish = format!(
        "*10\r\n$7\r\nCLUSTER\r\n$9\r\nSYNCSLOTS\r\n$9\r\nESTABLISH\r\n$6\r\nSOURCE\r\n$40\r\n{}\r\n$4\r\nNAME\r\n\
         $40\r\n{}\r\n$10\r\nSLOTSRANGE\r\n$4\r\n{SLOT}\r\n$4\r\n{SLOT}\r\n",
        id(&one),
        latest(&one, "name")
    );
    let received = figure(&two, "total_net_cluster_slot_import_bytes");
    assert_eq!(received + establish.len() as u64, sent);
    let page = http(port, "/metrics");
    for line in [
        "basalt_slot_moves_total{direction=\"in\",outcome=\"finished\"} 1",
        "basalt_slot_moves_total{direction=\"out\",outcome=\"finished\"} 0",
        "basalt_slot_moves_keys_total{direction=\"in\"} 1000",
        "basalt_slot_moves_in_progress{direction=\"in\"} 0",
        "basalt_slot_moves_last_pause_seconds 0",
    ] {
        assert!(page.lines().any(|found| found == line), "{line}: {page}");
    }
    check(&mut one.raw(), "CONFIG RESETSTAT", "OK");
    for name in [
        "slot_exports_finished",
        "slot_exports_keys",
        "total_net_cluster_slot_export_bytes",
    ] {
        assert_eq!(figure(&one, name), 0, "{name}");
    }
}

#[test]
fn a_move_under_way_is_counted_at_either_end() {
    if support::is_stand_in() {
        return;
    }
    let (one, two): (Server, Server) = (start(), start());
    unite(&[&one, &two]);
    fill(&one, 100);
    let mut source = two.raw();
    let name = "a".repeat(40);
    let establish = format!(
        "CLUSTER SYNCSLOTS ESTABLISH SOURCE {} NAME {name} SLOTSRANGE {SLOT} {SLOT}",
        id(&one)
    );
    check(&mut source, &establish, "OK");
    assert_eq!(figure(&two, "slot_imports_in_progress"), 1);
    assert!(figure(&two, "mem_cluster_slot_import") > 0);
    drop(source);
    eventually("it has ended", || {
        figure(&two, "slot_imports_in_progress") == 0
    });
    assert_eq!(figure(&two, "slot_imports_failed"), 1);
    // A target that does not answer leaves the move where it is.
    let line = format!(
        "CLUSTER MIGRATESLOTS SLOTSRANGE {SLOT} {SLOT} NODE {}",
        id(&two)
    );
    two.signal("STOP");
    check(&mut one.raw(), &line, "OK");
    assert_eq!(figure(&one, "slot_exports_in_progress"), 1);
    two.signal("CONT");
    await_end(&one, "success");
    assert_eq!(figure(&one, "slot_exports_in_progress"), 0);
}
