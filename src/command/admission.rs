//! Which commands may run now: one ordered list of rules, for requests, for what MULTI queues, for EXEC and for scripts.
//!
//! A rule names the commands that it concerns by their flags, where it applies, and the error. Whether a shard has room for a
//! command is asked with the shard in hand, where it runs.

use super::declaration::{Command, Flags};
use super::error::CommandError;

/// What rules look at.
pub trait Facts {
    /// Whether the configuration lets this client use DEBUG and the like.
    fn may_debug(&self) -> bool;
    /// Whether the client has yet to authenticate.
    fn needs_auth(&self) -> bool;
    /// Whether the client speaks RESP2 and has subscriptions, so that it could not tell a reply from a message.
    fn is_subscribed(&self) -> bool;
    /// Whether data are being loaded.
    fn is_loading(&self) -> bool;
    /// Whether fewer replicas follow than `min-replicas-to-write` asks for.
    fn lacks_replicas(&self) -> bool;
    /// Whether memory is full and nothing can be evicted.
    fn is_out_of_memory(&self) -> bool;
    /// The error of commands that need no shard while a script runs for too long.
    fn busy_text(&self) -> Option<&'static str>;
}

/// Where a command is to be admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stage(u8);

impl Stage {
    /// A request, wherever it runs.
    pub const REQUEST: Stage = Stage(1);
    /// A request that runs on no shard.
    pub const SHARDLESS: Stage = Stage(2);
    /// A request that MULTI queues.
    pub const QUEUED: Stage = Stage(4);
    /// All queued commands together, at EXEC.
    pub const EXEC: Stage = Stage(8);
    /// A command that a script calls.
    pub const SCRIPT: Stage = Stage(16);

    /// Both.
    pub const fn or(self, other: Stage) -> Stage {
        Stage(self.0 | other.0)
    }

    const fn meets(self, other: Stage) -> bool {
        self.0 & other.0 != 0
    }
}

/// The commands that a rule concerns.
enum Concerns {
    /// Those with any of these flags.
    Having(Flags),
    /// Those without this flag.
    Lacking(Flags),
}

/// One rule.
struct Rule {
    concerns: Concerns,
    at: Stage,
    /// The error, if the rule refuses.
    refuses: fn(&dyn Facts, Option<&Command>) -> Option<CommandError>,
}

/// The rules, in the order in which Redis checks them.
static RULES: &[Rule] = &[
    // enable-debug-command
    Rule {
        concerns: Concerns::Having(Flags::PROTECTED),
        at: Stage::REQUEST,
        refuses: |facts, _| {
            let text = "ERR DEBUG command not allowed. If the enable-debug-command option is set to \"local\", \
                        you can run it from a local connection, otherwise you need to set this option in the \
                        configuration file, and then restart the server.";
            (!facts.may_debug()).then(|| text.into())
        },
    },
    // requirepass
    Rule {
        concerns: Concerns::Lacking(Flags::NO_AUTH),
        at: Stage::REQUEST,
        refuses: |facts, _| {
            let text = "NOAUTH Authentication required.";
            facts.needs_auth().then(|| text.into())
        },
    },
    // inside MULTI
    Rule {
        concerns: Concerns::Having(Flags::NO_MULTI),
        at: Stage::QUEUED,
        refuses: |_, _| Some("ERR Command not allowed inside a transaction".into()),
    },
    // maxmemory: what is queued takes memory, whatever it does later
    Rule {
        concerns: Concerns::Lacking(Flags::TRANSACTIONAL),
        at: Stage::QUEUED,
        refuses: |facts, _| {
            facts
                .is_out_of_memory()
                .then_some(CommandError::OutOfMemory)
        },
    },
    // maxmemory
    Rule {
        concerns: Concerns::Having(Flags::DENYOOM),
        at: Stage::SHARDLESS,
        refuses: |facts, _| {
            facts
                .is_out_of_memory()
                .then_some(CommandError::OutOfMemory)
        },
    },
    // min-replicas-to-write
    Rule {
        concerns: Concerns::Having(Flags::WRITE),
        at: Stage::REQUEST.or(Stage::EXEC).or(Stage::SCRIPT),
        refuses: |facts, _| facts.lacks_replicas().then_some(CommandError::NoReplicas),
    },
    // RESP2 with subscriptions
    Rule {
        concerns: Concerns::Lacking(Flags::SUBSCRIBER),
        at: Stage::REQUEST,
        refuses: |facts, command| {
            let name = command.map_or("", |command| command.full_name);
            facts.is_subscribed().then(|| {
                let text = format!(
                    "ERR Can't execute '{name}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are \
                     allowed in this context"
                );
                text.into()
            })
        },
    },
    // loading
    Rule {
        concerns: Concerns::Lacking(Flags::LOADING),
        at: Stage::REQUEST,
        refuses: |facts, _| facts.is_loading().then_some(CommandError::Loading),
    },
    // loading, of what was queued before it began
    Rule {
        concerns: Concerns::Having(Flags::READONLY.or(Flags::WRITE)),
        at: Stage::EXEC,
        refuses: |facts, _| facts.is_loading().then_some(CommandError::Loading),
    },
    // busy-reply-threshold
    Rule {
        concerns: Concerns::Lacking(Flags::ALLOW_BUSY),
        at: Stage::QUEUED.or(Stage::SHARDLESS),
        refuses: |facts, _| facts.busy_text().map(CommandError::from),
    },
];

/// Why a command is not admitted, if it is not.
pub fn refusal(facts: &dyn Facts, command: &Command, stage: Stage) -> Option<CommandError> {
    RULES
        .iter()
        .filter(|rule| rule.at.meets(stage))
        .filter(|rule| match rule.concerns {
            Concerns::Having(flags) => command.flags.any(flags),
            Concerns::Lacking(flag) => !command.flags.has(flag),
        })
        .find_map(|rule| (rule.refuses)(facts, Some(command)))
}

/// Why commands that have these flags together are not admitted, if they are not.
pub fn refusal_of_all(facts: &dyn Facts, flags: Flags, stage: Stage) -> Option<CommandError> {
    RULES
        .iter()
        .filter(|rule| rule.at.meets(stage))
        .filter(|rule| matches!(rule.concerns, Concerns::Having(concerned) if flags.any(concerned)))
        .find_map(|rule| (rule.refuses)(facts, None))
}

/// The requests that some rule may refuse, as things stand: all others are admitted without a look at the list.
#[derive(Clone, Copy)]
pub struct Suspects {
    having: Flags,
    all: bool,
}

impl Suspects {
    /// As things stand. What is dear to find out is taken for given.
    #[inline]
    pub fn now(facts: &impl Facts) -> Suspects {
        Suspects {
            having: match facts.lacks_replicas() {
                true => Flags::PROTECTED.or(Flags::WRITE),
                false => Flags::PROTECTED,
            },
            all: facts.needs_auth() || facts.is_subscribed() || facts.is_loading(),
        }
    }

    /// Whether a command is one of them, if it runs on shards at once.
    #[inline]
    pub fn has(&self, command: &Command) -> bool {
        self.all || command.flags.any(self.having)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::table::registry;

    #[derive(Default)]
    struct Some {
        open: bool,
        needs_auth: bool,
        is_subscribed: bool,
        lacks_replicas: bool,
        is_loading: bool,
        is_full: bool,
        is_busy: bool,
    }

    impl Facts for Some {
        fn may_debug(&self) -> bool {
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
        fn lacks_replicas(&self) -> bool {
            self.lacks_replicas
        }
        fn is_out_of_memory(&self) -> bool {
            self.is_full
        }
        fn busy_text(&self) -> Option<&'static str> {
            self.is_busy.then_some("BUSY")
        }
    }

    fn names_refused(facts: &Some, stage: Stage) -> Vec<&'static str> {
        let names = [
            "get",
            "set",
            "ping",
            "auth",
            "exec",
            "multi",
            "debug",
            "subscribe",
        ];
        let is_refused = |name: &&&str| {
            let command = registry().find(name.as_bytes()).expect("a command");
            let refused = refusal(facts, command, stage).is_some();
            assert!(
                !refused || stage != Stage::REQUEST || Suspects::now(facts).has(command),
                "{name} is refused without being suspected"
            );
            refused
        };
        names.iter().filter(is_refused).copied().collect()
    }

    #[test]
    fn each_rule_refuses_what_it_concerns_and_where_it_applies() {
        let open = || Some {
            open: true,
            ..Some::default()
        };
        let (request, queued) = (Stage::REQUEST, Stage::REQUEST.or(Stage::QUEUED));
        let shardless = Stage::REQUEST.or(Stage::SHARDLESS);
        assert_eq!(names_refused(&open(), request), [""; 0]);
        let facts = Some {
            needs_auth: true,
            ..open()
        };
        let refused = names_refused(&facts, request);
        assert!(refused.contains(&"get") && !refused.contains(&"auth"));
        let facts = Some {
            lacks_replicas: true,
            ..open()
        };
        assert_eq!(names_refused(&facts, request), ["set"]);
        assert!(refusal_of_all(&facts, Flags::WRITE, Stage::EXEC).is_some());
        assert!(refusal_of_all(&facts, Flags::READONLY, Stage::EXEC).is_none());
        let facts = Some {
            is_loading: true,
            ..open()
        };
        let refused = names_refused(&facts, request);
        assert!(refused.contains(&"get") && refused.contains(&"ping"));
        assert!(!refused.contains(&"exec") && !refused.contains(&"auth"));
        assert!(refusal_of_all(&facts, Flags::READONLY, Stage::EXEC).is_some());
        let facts = Some {
            is_full: true,
            ..open()
        };
        assert_eq!(names_refused(&facts, request), [""; 0]);
        let refused = names_refused(&facts, queued);
        assert!(refused.contains(&"get") && !refused.contains(&"exec"));
        let facts = Some {
            is_busy: true,
            ..open()
        };
        assert_eq!(names_refused(&facts, request), [""; 0]);
        assert!(!names_refused(&facts, shardless).contains(&"multi"));
        assert!(names_refused(&facts, shardless).contains(&"exec"));
        let facts = Some {
            is_subscribed: true,
            ..open()
        };
        let refused = names_refused(&facts, request);
        assert!(refused.contains(&"get") && !refused.contains(&"ping"));
    }
}
