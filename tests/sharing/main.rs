//! Memory that several threads write: the atomic read-modify-writes of commands, counted by Valgrind's
//! callgrind in a running server, in all code: this server's, tokio's, the allocator's, the C library's.
//!
//! ```text
//! driven       a server under Valgrind, and its clients
//! counting     the cost of a batch of requests, by location, under callgrind
//! lines        cache lines that move from thread to thread meanwhile, under lackey
//! place        functions and files to which counts are assigned
//! profile      the file that callgrind writes
//! code         which instructions are read-modify-writes, and which functions they are in
//! workloads    the commands that are counted
//! table        the counts of all commands, as docs/internals/sharing.md shows them
//! ```
//!
//! `cargo test --test sharing` checks GET, SET and reads of a hot key against their budgets.
//! `SHARING_TABLE=FILE` also makes the table of all commands, of the binary that `BASALT_BINARY` names;
//! `SHARING_LINES=1` names lines beside functions, `SHARING_ONLY=GET` counts one command.

use basalt_testing::{support, wire};

mod code;
mod counting;
mod driven;
mod lines;
mod place;
mod profile;
mod table;
mod workloads;

use counting::Counted;
use place::{Counts, Origin};

/// Batches of each connection that are counted.
const BATCHES: usize = 200;

/// Number of repetitions of a count above the budget: where Valgrind stops a thread within a shard, others
/// queue behind it and are woken, which adds to the count of that try.
const TRIES: usize = 10;

/// Commands in a batch.
const PIPELINE: usize = 16;

/// Read-modify-writes of a batch of 16: those of the shards' tokens, taken and released for the prefetch and
/// again for the command; those of the rest of this server's source; those of everything else (tokio's tasks,
/// its sleeping and waking).
const BUDGETS: &[(&str, [f64; 3])] = &[("GET", [66.0, 20.0, 60.0]), ("SET", [66.0, 20.0, 60.0])];

/// As [`BUDGETS`]: a deadline costs nothing more; a new key and its deletion are two requests, and what is freed goes
/// back to the allocator now and then.
const OTHER_BUDGETS: &[(&workloads::Workload, [f64; 3])] = &[
    (&workloads::WITH_DEADLINE, [66.0, 20.0, 60.0]),
    (&workloads::DELETES, [131.0, 24.0, 80.0]),
];

/// True if the test can run here. If not, it says so and passes, unless `BASALT_REQUIRE_ORACLE=1`.
fn can_run() -> bool {
    let Some(tool) = driven::missing_tool() else {
        return true;
    };
    let required = std::env::var("BASALT_REQUIRE_ORACLE").is_ok_and(|value| value == "1");
    assert!(!required, "BASALT_REQUIRE_ORACLE=1, but there is no {tool}");
    eprintln!("SKIPPED: there is no {tool}");
    false
}

/// Compares the counts of a batch with the budget.
fn verdict(counts: &Counts, budget: [f64; 3]) -> Result<(), String> {
    let found =
        [Origin::Token, Origin::Own, Origin::Foreign].map(|origin| place::of(counts, origin));
    if found[0] < 2.0 * PIPELINE as f64 {
        return Err(format!(
            "only {found:.1?} were counted, fewer than every command needs"
        ));
    }
    match found
        .iter()
        .zip(budget)
        .all(|(found, budget)| *found <= budget)
    {
        true => Ok(()),
        false => Err(format!(
            "{found:.1?} of tokens, our own and others', where {budget:.1?} may be"
        )),
    }
}

#[test]
fn a_batch_of_get_or_set_stays_within_its_budget_of_read_modify_writes() {
    if !can_run() {
        return;
    }
    for threads in [1, 4] {
        let mut counted = Counted::start(threads, &[]);
        counted.prepare(workloads::named("MSET of 10"));
        for (name, budget) in BUDGETS {
            let with = format!("with {threads} threads");
            within_budget(&mut counted, workloads::named(name), *budget, &with);
        }
        for (workload, budget) in OTHER_BUDGETS {
            within_budget(
                &mut counted,
                workload,
                *budget,
                &format!("with {threads} threads"),
            );
        }
    }
}

/// Counts batches until one is within the budget; fails if none is.
fn within_budget(
    counted: &mut Counted,
    workload: &workloads::Workload,
    budget: [f64; 3],
    with: &str,
) {
    let mut tries = 0;
    let (counts, judged) = loop {
        let counts = counted.batch(workload, PIPELINE, BATCHES);
        let judged = verdict(&counts, budget);
        tries += 1;
        // Occasional work of the server only adds to a count.
        if judged.is_ok() || tries == TRIES {
            break (counts, judged);
        }
    };
    let (name, shown) = (workload.name, table::list(&counts));
    if let Err(why) = judged {
        panic!("{name} {with}, {tries} times: {why}\n{shown}");
    }
    let of = [Origin::Token, Origin::Own, Origin::Foreign].map(|of| place::of(&counts, of));
    eprintln!("{name} {with}, a batch of {PIPELINE}: {of:.2?}\n{shown}");
}

/// Read-modify-writes of shards' tokens in a batch of 16 reads of one key, which each thread answers from its copy.
/// Some reads go the ordinary way, and under Valgrind more of them than one in 256, as 100 ms are soon over.
const HOT_KEY_TOKENS: f64 = 3.0;

#[test]
fn threads_read_a_hot_key_without_the_token_of_its_shard() {
    if !can_run() {
        return;
    }
    for threads in [1, 4] {
        let mut counted = Counted::start(threads, &[("hot-keys-sample", "4")]);
        counted.prepare(workloads::named("MSET of 10"));
        let workload = &workloads::HOT_KEY;
        let mut tries = 0;
        let counts = loop {
            let mut counts = counted.batch(workload, PIPELINE, BATCHES);
            // One command in four is sampled here, so that the key is found to be hot soon.
            counts.retain(|place, _| !place.text.starts_with("telemetry/"));
            tries += 1;
            if place::of(&counts, Origin::Token) <= HOT_KEY_TOKENS || tries == TRIES {
                break counts;
            }
        };
        let of = [Origin::Token, Origin::Own, Origin::Foreign].map(|of| place::of(&counts, of));
        let shown = table::list(&counts);
        eprintln!(
            "{} with {threads} threads, a batch of {PIPELINE}: {of:.2?}\n{shown}",
            workload.name
        );
        assert!(
            of[0] <= HOT_KEY_TOKENS,
            "{threads} threads: {of:.2?}\n{shown}"
        );
        assert!(
            of[1] <= BUDGETS[0].1[1],
            "{threads} threads: {of:.2?}\n{shown}"
        );
    }
}

#[test]
fn a_write_more_for_each_command_is_noticed() {
    let counts = |token: f64, own: f64| {
        let place = |origin, text: &str| place::Place {
            origin,
            text: text.to_owned(),
        };
        Counts::from([
            (place(Origin::Token, "a"), token),
            (place(Origin::Own, "b"), own),
        ])
    };
    let (_, budget) = BUDGETS[0];
    assert!(verdict(&counts(64.0, 12.0), budget).is_ok());
    assert!(verdict(&counts(64.0, 12.0 + PIPELINE as f64), budget).is_err());
    assert!(verdict(&counts(80.0, 12.0), budget).is_err());
    assert!(verdict(&counts(0.0, 0.0), budget).is_err());
}

#[test]
fn the_table_of_all_commands() {
    if let Some(file) = std::env::var_os("SHARING_TABLE") {
        let text = table::of_all();
        eprintln!("{text}");
        std::fs::write(file, text).expect("the table can be written");
    }
}

#[test]
fn the_table_of_lines() {
    if let Some(file) = std::env::var_os("SHARING_LINES_TABLE") {
        let text = table::of_lines();
        eprintln!("{text}");
        std::fs::write(file, text).expect("the table can be written");
    }
}
