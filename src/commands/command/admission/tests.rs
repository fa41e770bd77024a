//! Tests of `admission`.

use super::*;
use crate::command::registry::registry;

struct Facing {
    config: Config,
    open: bool,
    needs_auth: bool,
    is_subscribed: bool,
    is_loading: bool,
    is_exempt: bool,
    is_full: bool,
    is_busy: bool,
    is_read_only: bool,
}

impl World for Facing {
    fn config(&self) -> &Config {
        &self.config
    }
    fn may_debug(&self) -> bool {
        self.open
    }
    fn may_load_modules(&self) -> bool {
        self.open
    }
    fn needs_auth(&self) -> bool {
        self.needs_auth
    }
    fn is_subscribed(&self) -> bool {
        self.is_subscribed
    }
    fn is_loading(&self) -> bool {
        self.is_loading
    }
    fn is_exempt(&self) -> bool {
        self.is_exempt
    }
    fn lacks_replicas(&self) -> bool {
        true
    }
    fn out_of_memory(&mut self) -> Option<CommandError> {
        self.is_full.then_some(CommandError::OutOfMemory)
    }
    fn busy_text(&self) -> Option<&'static str> {
        self.is_busy.then_some("BUSY")
    }
    fn is_read_only(&self) -> bool {
        self.is_read_only
    }
    fn lifts_noscript(&self) -> bool {
        self.open
    }
}

/// The facts of a server in which nothing is wrong.
fn facing() -> Facing {
    Facing {
        config: Config::default(),
        open: true,
        needs_auth: false,
        is_subscribed: false,
        is_loading: false,
        is_exempt: false,
        is_full: false,
        is_busy: false,
        is_read_only: false,
    }
}

/// Lists which of some commands are refused under the given facts.
fn refused(stage: Stage, set: impl Fn(&mut Facing)) -> String {
    let mut facts = facing();
    set(&mut facts);
    let names = "get set del ping publish auth exec multi debug subscribe wait";
    let is_refused = |name: &&str| {
        let command = registry().find(name.as_bytes()).expect("a command");
        judge(&mut facts, command, stage).is_err()
    };
    let refused: Vec<&str> = names.split(' ').filter(is_refused).collect();
    refused.join(" ")
}

#[test]
fn nodes_are_told_of_while_data_are_loaded() {
    let cluster = registry().find(b"cluster").expect("a command");
    let is_refused = |name: &str| {
        let rows = cluster.children().iter();
        let row = rows.copied().find(|row| row.full_name == name);
        let mut facts = Facing {
            is_loading: true,
            ..facing()
        };
        judge(&mut facts, row.expect("a row"), Stage::REQUEST).is_err()
    };
    for name in ["cluster|nodes", "cluster|info", "cluster|myid"] {
        assert!(!is_refused(name), "{name}");
    }
    for name in ["cluster|replicate", "cluster|countkeysinslot"] {
        assert!(is_refused(name), "{name}");
    }
}

#[test]
fn a_script_that_a_load_waits_for_can_be_killed() {
    let is_refused = |name: &str, is_busy| {
        let (container, _) = name.split_once('|').unwrap_or((name, ""));
        let command = registry().find(container.as_bytes()).expect("a command");
        let mut rows = command.children().iter().copied();
        let command = rows.find(|row| row.full_name == name).unwrap_or(command);
        let mut facts = Facing {
            is_loading: true,
            is_busy,
            ..facing()
        };
        judge(&mut facts, command, Stage::REQUEST).is_err()
    };
    for name in ["script|kill", "function|kill"] {
        assert!(is_refused(name, false) && !is_refused(name, true), "{name}");
    }
    assert!(is_refused("get", true));
}

#[test]
fn each_rule_refuses_what_it_concerns_and_where_it_applies() {
    let (request, queued) = (Stage::REQUEST, Stage::REQUEST.or(Stage::QUEUED));
    let shardless = Stage::REQUEST.or(Stage::SHARDLESS);
    let lacks_replicas = |facts: &mut Facing| facts.config.min_replicas_to_write = 1;
    for (stage, set, names) in [
        (request, (|_| ()) as fn(&mut Facing), ""),
        (request, |facts| facts.open = false, "debug"),
        (
            request,
            |facts| facts.needs_auth = true,
            "get set del ping publish exec multi debug subscribe wait",
        ),
        (request, lacks_replicas, "set del"),
        (request, |facts| facts.is_full = true, ""),
        (request, |facts| facts.is_busy = true, ""),
        (
            request,
            |facts| facts.is_subscribed = true,
            "get set del publish auth exec multi debug wait",
        ),
        (
            request,
            |facts| facts.is_loading = true,
            "get set del ping wait",
        ),
        (
            Stage::EXEC,
            |facts| facts.is_loading = true,
            "get set del ping wait",
        ),
        (
            queued,
            |facts| facts.is_full = true,
            "get set del ping publish auth debug subscribe wait",
        ),
        (
            shardless,
            |facts| facts.is_busy = true,
            "get set del ping publish exec debug subscribe wait",
        ),
        (Stage::CALL, |_| (), "exec multi"),
        (
            Stage::CALL,
            |facts| facts.open = false,
            "auth exec multi debug subscribe",
        ),
        (
            Stage::CALL,
            |facts| facts.is_read_only = true,
            "set del publish exec multi",
        ),
        (Stage::CALL, lacks_replicas, "set del exec multi"),
        (Stage::CALL, |facts| facts.is_full = true, "set exec multi"),
        (
            Stage::CALL,
            |facts| (facts.is_full, facts.is_exempt) = (true, true),
            "exec multi",
        ),
    ] {
        assert_eq!(refused(stage, set), names, "{stage:?}");
    }
    assert_eq!(
        refused(request, |facts| {
            lacks_replicas(facts);
            facts.is_exempt = true;
        }),
        ""
    );
}

#[test]
fn several_commands_are_refused_for_any_of_them() {
    let together = Candidate::together([Flags::WRITE.or(Flags::ALLOW_BUSY), Flags::READONLY]);
    assert!(together.having(Flags::WRITE) && together.having(Flags::READONLY));
    assert!(together.lacking(Flags::ALLOW_BUSY) && !together.having(Flags::DENYOOM));
    let none = Candidate::together([]);
    assert!(!none.having(Flags::WRITE) && none.lacking(Flags::WRITE));
}
