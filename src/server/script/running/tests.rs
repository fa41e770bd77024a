//! Tests of `running`.

use super::*;
use basalt_commands::command::registry::registry;

fn begin(running: &RunningUnits, words: &[&str], client: u64) -> Arc<RunningUnit> {
    let command = registry().find(words[0].as_bytes()).expect("a command");
    let arguments = words.iter().map(|word| word.as_bytes().to_vec()).collect();
    running.begin(command, arguments, client)
}

fn text(result: Result<(), CommandError>) -> String {
    match result {
        Ok(()) => "OK".to_owned(),
        Err(error) => error
            .text()
            .into_owned()
            .split(' ')
            .next()
            .unwrap_or("")
            .to_owned(),
    }
}

#[test]
fn a_kill_ends_all_scripts_that_have_changed_nothing() {
    let running = RunningUnits::default();
    assert_eq!(text(running.kill(ExecutionKind::Script)), "NOTBUSY");
    let scripts: Vec<_> = (1..4)
        .map(|client| begin(&running, &["eval", "while true do end", "0"], client))
        .collect();
    let function = begin(&running, &["fcall", "f", "0"], 9);
    assert!(scripts[1].note_write() && scripts[1].note_write());
    assert_eq!(text(running.kill(ExecutionKind::Script)), "OK");
    let killed: Vec<bool> = scripts.iter().map(|unit| unit.is_killed()).collect();
    assert_eq!(killed, [true, false, true]);
    assert!(!function.is_killed());
    assert!(!scripts[0].note_write() && scripts[1].note_write());
    // The killed scripts are about to end.
    assert_eq!(text(running.kill(ExecutionKind::Script)), "OK");
    running.end(&scripts[0]);
    running.end(&scripts[2]);
    // The script that is left has written. (Redis would reply about the function here.)
    assert_eq!(text(running.kill(ExecutionKind::Script)), "BUSY");
    assert_eq!(text(running.kill(ExecutionKind::Function)), "OK");
    running.end(&function);
    assert_eq!(text(running.kill(ExecutionKind::Script)), "UNKILLABLE");
    assert_eq!(text(running.kill(ExecutionKind::Function)), "UNKILLABLE");
    running.end(&scripts[1]);
    assert_eq!(text(running.kill(ExecutionKind::Script)), "NOTBUSY");
}

#[test]
fn of_a_kill_and_a_first_write_that_meet_one_wins() {
    for _ in 0..if cfg!(miri) { 5 } else { 2_000 } {
        let running = RunningUnits::default();
        let unit = begin(&running, &["eval", "x", "0"], 1);
        let (wrote, killed) = std::thread::scope(|scope| {
            let writer = scope.spawn(|| unit.note_write());
            let killed = text(running.kill(ExecutionKind::Script)) == "OK";
            (writer.join().expect("no panic"), killed)
        });
        assert_ne!(wrote, killed, "one of both");
        assert_eq!(unit.is_killed(), killed);
    }
}

#[test]
fn a_kill_holds_for_a_run_that_was_about_to_be_rolled_back() {
    let running = RunningUnits::default();
    let unit = begin(&running, &["eval", "x", "0"], 1);
    assert_eq!(text(running.kill(ExecutionKind::Script)), "OK");
    assert!(!unit.note_rollback(), "it would run again");
    running.end(&unit);
    let unit = begin(&running, &["eval", "x", "0"], 1);
    assert!(unit.note_rollback());
    assert_eq!(text(running.kill(ExecutionKind::Script)), "NOTBUSY");
    assert!(!unit.is_killed());
    // After a rollback, the unit's earlier writes no longer count, so it can be killed.
    let unit = begin(&running, &["eval", "x", "0"], 1);
    assert!(unit.note_write() && unit.note_rollback());
}

#[test]
fn a_transaction_is_shown_and_busy_and_can_not_be_killed() {
    let running = RunningUnits::default();
    let unit = begin(&running, &["exec"], 7);
    unit.set_shards(&[1, 2]);
    assert!(running.note_busy(&unit) && !running.note_busy(&unit));
    assert_eq!(running.busy_text(), Some(BUSY_SCRIPT));
    for what in [ExecutionKind::Script, ExecutionKind::Function] {
        assert_eq!(text(running.kill(what)), "UNKILLABLE");
    }
    assert!(unit.note_write());
    let views = running.views();
    let [view] = views.as_slice() else {
        panic!("one runs: {views:?}");
    };
    assert_eq!((view.kind, view.client), (ExecutionKind::Transaction, 7));
    assert_eq!(
        (&view.shards[..], &view.name[..]),
        (&[1, 2][..], &b"exec"[..])
    );
    running.end(&unit);
    assert!(!running.is_busy() && running.views().is_empty());
}

#[test]
fn a_script_is_named_by_its_sha1_and_a_function_by_its_name() {
    let running = RunningUnits::default();
    let sha = "e0e1f9fabfc9d4800c877a703b823ac0578ff8db";
    let upper = sha.to_ascii_uppercase();
    for words in [
        ["eval", "return 1", "0"],
        ["eval_ro", "return 1", "0"],
        ["evalsha", &upper, "0"],
        ["fcall", "Count", "0"],
    ] {
        begin(&running, &words, 1);
    }
    let views = running.views();
    let names: Vec<_> = views.iter().map(|view| &view.name[..]).collect();
    let sha = sha.as_bytes();
    assert_eq!(names, [sha, sha, sha, b"Count"]);
    let function = running.function().expect("one runs");
    assert_eq!((&*function.name, function.command.len()), ("Count", 3));
}
