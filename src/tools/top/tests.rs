//! Tests of the screens for canned replies, and of the arguments.

use std::time::{Duration, Instant};

use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::figures::ServerSample;
use super::screen::{ScreenState, TopSortOrder, draw};
use super::{command, place};
use basalt_core::base::info::InfoText;

pub(super) fn figures(at: Instant, calls: u64, server: &str) -> ServerSample {
    let text = format!(
        "# Server\r\nredis_version:7.4.0\r\nuptime_in_seconds:90061\r\n# Memory\r\nused_memory:1048576\r\n\
         maxmemory:2097152\r\n# Stats\r\ntotal_commands_processed:{calls}\r\nkeyspace_hits:{calls}\r\nkeyspace_misses:0\r\n\
         # Replication\r\nrole:master\r\nconnected_slaves:2\r\n# Commandstats\r\n\
         cmdstat_get:calls={calls},usec={},usec_per_call=1.00,rejected_calls=0,failed_calls=0\r\n\
         cmdstat_config|get:calls=3,usec=9,usec_per_call=3.00,rejected_calls=0,failed_calls=0\r\n\
         # Latencystats\r\nlatency_percentiles_usec_get:p50=1.003,p99=12.031\r\n{server}\
         # Keyspace\r\ndb0:keys=1500,expires=4,avg_ttl=0\r\ndb3:keys=500,expires=0\r\n",
        2 * calls
    );
    ServerSample::new(at, InfoText::parse(&text), Vec::new())
}

fn drawn(state: &ScreenState, columns: u16, rows: u16) -> String {
    let Ok(mut terminal) = Terminal::new(TestBackend::new(columns, rows));
    let Ok(frame) = terminal.draw(|frame| draw(frame, state));
    let cells = frame.buffer.content().chunks(usize::from(columns));
    let lines = cells.map(|row| row.iter().map(|cell| cell.symbol()).collect::<String>());
    lines.collect::<Vec<_>>().join("\n")
}

fn state(server: &str) -> ScreenState {
    let (mut state, now) = (ScreenState::new("cache:6379".to_owned()), Instant::now());
    state.add(figures(now, 1_000, server));
    state.add(figures(now + Duration::from_secs(2), 5_000, server));
    state
}

#[test]
fn rates_are_those_of_the_time_between_two_answers() {
    let screen = drawn(&state(""), 110, 38);
    for wanted in [
        "Redis 7.4.0",
        "cache:6379  primary  up 1 d 1 h",
        "2.00k/s",
        "100.0 %",
        "1.00 MiB",
        "50%",
        "Replicas        2",
    ] {
        assert!(screen.contains(wanted), "{wanted}:\n{screen}");
    }
    let get = screen
        .lines()
        .find(|line| line.contains("GET "))
        .expect("a row");
    let get = get.replace('│', " ");
    let words: Vec<&str> = get.split_whitespace().collect();
    assert_eq!(words[..7], ["GET", "2.00k", "2.0", "1", "12", "100.0", "%"]);
    // A command that was not called meanwhile is omitted.
    assert!(!screen.contains("CONFIG GET"), "{screen}");
}

#[test]
fn each_server_is_called_by_its_name() {
    assert!(drawn(&state("# Basalt\r\nshards:8\r\n"), 110, 38).contains("basalt (as Redis 7.4.0)"));
    let valkey = "# Other\r\nvalkey_version:9.1.2\r\n";
    assert!(drawn(&state(valkey), 110, 38).contains("Valkey 9.1.2"));
    let evil = "# Other\r\nvalkey_version:9\u{1b}]0;x\u{7}\r\n";
    assert!(!drawn(&state(evil), 110, 38).contains('\u{1b}'));
}

#[test]
fn a_terminal_of_any_size_is_drawn_on() {
    for (columns, rows) in [(1, 1), (10, 3), (40, 12), (80, 24), (300, 90)] {
        drawn(&state(""), columns, rows);
    }
}

/// Many terminals have 80 columns.
#[test]
fn no_number_is_cut_where_there_is_little_room() {
    let server = "# Basalt\r\nshards:8\r\n# Big\r\nmaster_repl_offset:123456789012345\r\naof_enabled:1\r\n\
                  aof_last_write_status:ok\r\naof_current_size:1234567890\r\nused_memory_peak:1234567890123\r\n\
                  mem_fragmentation_ratio:1.07\r\n";
    let mut state = state(server);
    let hot = ("k".repeat(100), 12.5);
    for figures in [&mut state.before, &mut state.now].into_iter().flatten() {
        figures.hot_keys = vec![hot.clone()];
    }
    for rows in [24, 30, 40] {
        let screen = drawn(&state, 80, rows);
        for whole in [
            "123456789012345",
            "ok 1.15 GiB",
            "1.12 TiB",
            "100.0 %",
            "1.07",
        ] {
            assert!(screen.contains(whole), "{whole}:\n{screen}");
        }
    }
    // Columns that do not fit are omitted as a whole, with their titles.
    let narrow = drawn(&state, 50, 30);
    assert!(
        narrow.contains("calls/s") && !narrow.contains("p50"),
        "{narrow}"
    );
    assert!(narrow.contains("2.00k"), "{narrow}");
    // Hot keys are shown if there is room for them, and truncated ones end with an ellipsis.
    let low = drawn(&state, 80, 24);
    assert!(!low.contains("Hot keys"), "{low}");
    let high = drawn(&state, 80, 40);
    assert!(high.contains("Hot keys") && high.contains("kk…"), "{high}");
}

#[test]
fn nothing_is_drawn_over_something_else_on_a_low_terminal() {
    for rows in 8..24 {
        let screen = drawn(&state(""), 80, rows);
        let boxes = screen.contains("Memory");
        for line in ["Fragmentation", "Limit", "50%"] {
            assert_eq!(
                screen.contains(line),
                boxes,
                "{rows} rows, {line}:\n{screen}"
            );
        }
        assert!(screen.contains("Hit ratio"), "{rows} rows:\n{screen}");
        assert_eq!(
            screen.matches('┌').count(),
            screen.matches('└').count(),
            "{rows}:\n{screen}"
        );
    }
}

#[test]
fn orders_follow_one_another_in_a_circle() {
    let mut order = TopSortOrder::default();
    for _ in 0..4 {
        assert_eq!(order.next().before(), order);
        order = order.next();
    }
    assert_eq!(order, TopSortOrder::default());
}

#[test]
fn arguments_are_those_of_redis_cli() {
    let given = |arguments: &[&str]| {
        let name = ["basalt top"];
        command().try_get_matches_from(name.iter().chain(arguments))
    };
    let all = given(&[
        "-h", "cache", "-p", "7000", "-a", "secret", "--user", "me", "-i", "0.5", "--once",
    ]);
    let place = place(&all.expect("good arguments")).expect("a place");
    assert_eq!(
        (place.shown().as_str(), place.user.as_deref()),
        ("cache:7000", Some("me"))
    );
    assert_eq!(place.password.as_deref(), Some("secret"));
    for wrong in [
        &["-p", "70000"][..],
        &["-i", "x"],
        &["--unknown"],
        &["extra"],
    ] {
        assert!(given(wrong).is_err(), "{wrong:?}");
    }
    let help = given(&["--help"]).expect_err("help is printed");
    assert!(!help.use_stderr() && help.to_string().contains("--port"));
}
