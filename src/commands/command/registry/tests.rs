//! Tests of `registry`.

use super::super::declaration::{Ahead, Channels, Command, Databases, Flags, Group, KeyFlags, Run};
use super::super::testing::Terminal;
use super::super::{keys, syntax};
use super::{registry, resolve};
use basalt_core::structures::block::{Content, SharedBlock};

fn all() -> impl Iterator<Item = &'static Command> {
    registry().all().iter().copied()
}

#[test]
fn names_are_lower_case_short_and_unique() {
    let mut seen = std::collections::HashSet::new();
    for command in all() {
        let name = command.full_name;
        assert_eq!(name, name.to_ascii_lowercase());
        assert!(seen.insert(name), "{name} is there twice");
    }
}

#[test]
fn names_are_found_in_any_case_and_nothing_else_is() {
    for command in registry().top_level() {
        let name = command.name.as_bytes();
        let found = |name: &[u8]| {
            registry()
                .find(name)
                .is_some_and(|it| std::ptr::eq(it, command))
        };
        assert!(found(name) && found(&name.to_ascii_uppercase()));
        for at in 0..name.len() {
            let mut other = name.to_vec();
            other[at] = other[at].to_ascii_uppercase();
            assert!(found(&other));
            for bit in 0..8 {
                let mut other = name.to_vec();
                other[at] ^= 1 << bit;
                assert_eq!(found(&other), other.eq_ignore_ascii_case(name));
            }
        }
        assert!(!found(&name[1..]) && !found(&[name, b"\0"].concat()));
    }
    for word in 0..=u8::MAX {
        let bytes = [word; 8];
        let lower = u64::from_le_bytes(bytes.map(|byte: u8| byte.to_ascii_lowercase()));
        assert_eq!(super::lower(u64::from_le_bytes(bytes)), lower);
    }
    assert!(registry().find(b"").is_none());
}

#[test]
fn subcommands_carry_the_name_of_their_container() {
    for command in registry().top_level() {
        for child in command.children() {
            let expected = format!("{}|{}", command.name, child.name);
            assert_eq!(child.full_name, expected);
            assert!(child.children().is_empty(), "{expected} has no subcommands");
        }
        if matches!(command.run, Run::Container(_)) {
            assert!(!command.children().is_empty(), "{}", command.name);
        }
    }
}

#[test]
fn every_command_says_since_when_and_what_for() {
    for command in all() {
        let name = command.full_name;
        assert_eq!(command.since.split('.').count(), 3, "{name} has a version");
        assert!(command.summary.ends_with('.'), "{name} has a sentence");
        assert!(!command.complexity.is_empty(), "{name} has a cost");
    }
}

#[test]
fn an_element_that_is_fetched_ahead_is_in_every_call() {
    for command in all() {
        let Ahead::Element(element) = command.ahead else {
            continue;
        };
        let name = command.full_name;
        assert!((0..=element).all(|count| !command.accepts(count)), "{name}");
        assert_eq!(command.keys.len(), 1, "{name} has one key");
    }
}

/// A request of each command that keeps long arguments as blocks, `@` being such an argument, after the commands
/// that make it keep them.
const KEEPS_BLOCKS: &[(&[&str], &str)] = &[
    (&[], "SET k @"),
    (&["SET k short"], "SET k @ EX 100"),
    (&["RPUSH k x"], "SET k @ KEEPTTL"),
    (&[], "SETNX k @"),
    (&[], "SETEX k 100 @"),
    (&["SET k 1 EX 7"], "PSETEX k 100000 @"),
    (&["SET k short"], "GETSET k @"),
    (&["SET k short"], "MSET k @ j @ k @"),
    (&[], "MSETNX k @ j short"),
    (&[], "MSETEX 2 k @ j @ EX 100"),
    (&[], "APPEND k @"),
    (&[], "HSET k f @ g short h @"),
    (&["HSET k f short g short"], "HSET k f @ g @"),
    (&["HSET k f short"], "HMSET k f @"),
    (&["HSET k f short"], "HSETNX k g @"),
    (&["HSET k f short"], "HSETEX k FIELDS 2 f @ g @"),
    (&[], "HSETEX k EX 100 FIELDS 1 f @"),
    (&["HIMPORT PREPARE s f g"], "HIMPORT SET k s @ short"),
    (
        &["HIMPORT PREPARE s f g", "HSET k f v"],
        "HIMPORT SET k s short @",
    ),
    (&[], "RPUSH k @"),
    (&["RPUSH k x"], "LPUSH k @ short @"),
    (&["RPUSH k x"], "RPUSHX k short @"),
    (&["RPUSH k x"], "LPUSHX k @"),
    (&["RPUSH k x y z"], "LINSERT k AFTER y @"),
    (&["RPUSH k x y z"], "LINSERT k BEFORE x @"),
    (&["RPUSH k x y z"], "LSET k 1 @"),
    (&["RPUSH k x"], "LSET k 0 @"),
    (&["LGET k LEASE 1000"], "LFILL k {token} @"),
];

/// Returns the memory used by the keys, before and after the request.
fn used_by(setup: &[&str], request: &[Content<'_>]) -> (i64, i64) {
    let mut cli = Terminal::new();
    cli.run("SET warm v");
    let before = cli.engines[0].used_bytes();
    setup.iter().for_each(|line| drop(cli.run(line)));
    let reply = cli.reply_to(request);
    assert_ne!(reply[0], b'-', "{}", reply.escape_ascii());
    let used = cli.engines[0].used_bytes() - before;
    for key in ["k", "j"] {
        cli.run_args(&["DEL", key]);
    }
    (used, cli.engines[0].used_bytes() - before)
}

/// Splits a line into words, with a long argument in place of each `@`.
fn request<'a>(line: &'a str, long: Content<'a>) -> Vec<Content<'a>> {
    let words = line.split(' ').map(|word| match word {
        "@" => long,
        word => Content::from(word.as_bytes()),
    });
    words.collect()
}

/// Fills in the token of the lease that the setup grants: the randomness is the same each time.
fn with_token(setup: &[&str], line: &str) -> String {
    let mut cli = Terminal::new();
    cli.run("SET warm v");
    let replies = setup.iter().map(|line| cli.run(line));
    let last = replies.last().unwrap_or_default();
    let (_, token) = last.rsplit_once(' ').unwrap_or_default();
    line.replace("{token}", token)
}

#[test]
fn long_arguments_are_kept_as_they_came_and_charged_as_copies_are() {
    let bytes = vec![b'v'; 20_000];
    for (setup, line) in KEEPS_BLOCKS {
        let block = SharedBlock::new(&bytes);
        let line = &with_token(setup, line);
        let kept = request(line, Content::from(&block));
        let copied = request(line, Content::from(&bytes));
        assert_eq!(used_by(setup, &kept), used_by(setup, &copied), "{line}");
        assert!(block.is_unique(), "{line}: all is given back");
        let mut cli = Terminal::new();
        setup.iter().for_each(|line| drop(cli.run(line)));
        cli.reply_to(&kept);
        assert!(!block.is_unique(), "{line}");
        let command = registry().find(&kept[0]).expect("a command");
        let command = resolve(command, kept.get(1).map(|word| &**word));
        for (at, argument) in kept.iter().enumerate() {
            assert!(argument.block().is_none() || command.keeps(at), "{line}");
        }
    }
}

#[test]
fn every_command_that_says_it_keeps_blocks_is_tried() {
    for command in all().filter(|command| (0..10).any(|at| command.keeps(at))) {
        let is_tried = |(_, line): &(&[&str], &str)| {
            let words = command.full_name.replace('|', " ");
            let name = line.get(..words.len()).unwrap_or_default();
            name.eq_ignore_ascii_case(&words) && line[words.len()..].starts_with(' ')
        };
        assert!(KEEPS_BLOCKS.iter().any(is_tried), "{}", command.full_name);
    }
}

#[test]
fn a_command_writes_or_reads_but_not_both() {
    for command in all() {
        let both = Flags::WRITE.or(Flags::READONLY);
        assert!(!command.flags.has(both), "{}", command.full_name);
    }
}

/// Commands that write without naming the keys that they write. They change whole databases, or the library of
/// functions.
const WRITES_WITHOUT_KEYS: &[&str] = &[
    "flushall",
    "flushdb",
    "swapdb",
    "tag|invalidate",
    "function|delete",
    "function|flush",
    "function|load",
    "function|restore",
];

#[test]
fn a_write_names_a_key_that_it_writes() {
    let writes = KeyFlags::RW.or(KeyFlags::OW).or(KeyFlags::RM);
    for command in all().filter(|command| command.is_write()) {
        // XREADGROUP changes the group, which Redis does not treat as a write to the key.
        if command.full_name == "xreadgroup" {
            continue;
        }
        let names_one = command.keys.iter().any(|spec| spec.flags.any(writes));
        let is_keyless = WRITES_WITHOUT_KEYS.contains(&command.full_name);
        assert!(names_one != is_keyless, "{}", command.full_name);
    }
}

#[test]
fn a_read_names_no_key_that_it_writes() {
    let writes = KeyFlags::RW.or(KeyFlags::OW).or(KeyFlags::RM);
    for command in all().filter(|command| command.flags.has(Flags::READONLY)) {
        if command.flags.has(Flags::MAY_REPLICATE) {
            // PFCOUNT has this flag because it caches its result inside the value.
            continue;
        }
        for spec in command.keys {
            assert!(!spec.flags.any(writes), "{}", command.full_name);
        }
    }
}

/// Commands whose syntax names a database in which they neither read nor change a key. MIGRATE names one of
/// another server; DEBUG HTSTATS shows only sizes of tables.
const TOUCHES_NO_KEY_THERE: &[&str] = &["migrate", "debug|htstats"];

#[test]
fn a_command_that_takes_a_database_says_so() {
    let is_word = |word: &str| {
        let word = word.trim_matches(|letter: char| !letter.is_ascii_alphanumeric());
        word == "db" || word.starts_with("db-") || word.ends_with("-db") || word == "dbid"
    };
    for command in all().filter(|command| !matches!(command.run, Run::Container(_))) {
        let name = command.full_name;
        if TOUCHES_NO_KEY_THERE.contains(&name) {
            continue;
        }
        let names_one = command.syntax.split(' ').any(is_word);
        let says_so = matches!(
            command.databases,
            Databases::Numbered(_) | Databases::SelectedAnd(_)
        );
        assert!(!names_one || says_so, "{name} takes a database");
        // SELECT and SWAPDB call the database an index.
        assert!(
            names_one || !says_so || command.syntax.contains("index"),
            "{name}"
        );
    }
}

/// Commands that read or write something other than keys: the libraries of functions, or nothing at all.
const IN_NO_DATABASE: &[&str] = &[
    "function|delete",
    "function|flush",
    "function|load",
    "function|restore",
    "lolwut",
];

#[test]
fn a_command_that_reads_or_writes_data_says_in_which_database() {
    let mut wrong = Vec::new();
    for command in all() {
        let touches = command.flags.any(Flags::WRITE.or(Flags::READONLY));
        let says_so =
            command.is_in_selected_database() || !matches!(command.databases, Databases::Selected);
        if touches && says_so == IN_NO_DATABASE.contains(&command.full_name) {
            wrong.push(command.full_name);
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[test]
fn a_command_that_takes_channels_says_so() {
    /// Commands that end subscriptions, or count subscribers, which any user may.
    const FREE: &[&str] = &["pubsub|numsub", "pubsub|shardnumsub"];
    let mut wrong = Vec::new();
    let is_judged = |command: &&Command| {
        !command.name.contains("unsubscribe") && !FREE.contains(&command.full_name)
    };
    for command in all().filter(is_judged) {
        let is_word = |word: &str| {
            let word = word.trim_matches(|letter: char| !letter.is_ascii_alphanumeric());
            ["channel", "shardchannel"].contains(&word)
        };
        let is_subscription = command.name.ends_with("subscribe");
        let takes = is_subscription || command.syntax.split(' ').any(is_word);
        if takes != (command.channels != Channels::None) {
            wrong.push(command.full_name);
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[test]
fn flags_that_vary_are_those_of_a_function() {
    for command in all() {
        let mut keys = command.keys.iter();
        let vary = keys.any(|spec| spec.flags.has(KeyFlags::VARIABLE_FLAGS));
        assert_eq!(
            vary,
            command.key_flags_of.is_some(),
            "{}",
            command.full_name
        );
    }
}

/// Commands whose arity admits more or fewer arguments than their syntax; the handler refuses them, as in Redis.
const LOOSE: &[&str] = &[
    "geosearch",
    "geosearchstore",
    "client|kill",
    "cluster|migrateslots",
    "command",
    "debug",
    "psync",
    "quit",
    "replconf",
    // RedisJSON gives the arity of JSON.SET.
    "json.merge",
];

#[test]
fn the_syntax_can_be_read_and_agrees_with_the_arity() {
    let mut wrong = Vec::new();
    for command in all().filter(|command| !command.flags.has(Flags::UNLISTED)) {
        let name = command.full_name;
        let arguments = syntax::arguments(command).unwrap_or_else(|why| panic!("{name}: {why}"));
        if matches!(command.run, Run::Container(_)) {
            assert!(
                arguments.is_empty(),
                "{name} takes what its subcommands take"
            );
            continue;
        }
        let words = name.split('|').count();
        let (least, most) = syntax::arity_range(&arguments);
        let (least, most) = (least + words, most.map(|most| most + words));
        let wanted = command.arity.unsigned_abs() as usize;
        let fits = match command.arity {
            0.. => most == Some(wanted) && least == wanted,
            _ => least == wanted && most != Some(wanted),
        };
        if fits == LOOSE.contains(&name) {
            wrong.push(format!(
                "{name}: arity {}, {least}..{most:?}",
                command.arity
            ));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn keys_are_found_among_as_few_arguments_as_the_arity_allows() {
    for command in all().filter(|command| !command.keys.is_empty()) {
        let count = command.arity.unsigned_abs() as usize;
        // Scripts may have no keys, and give their number at this position.
        let number: &[u8] = match command.group {
            Group::Scripting => b"0",
            _ => b"1",
        };
        let found = keys::positions(
            command,
            count,
            |_| number,
            |at, _| {
                assert!(at < count, "{} finds a key at {at}", command.full_name);
            },
        );
        assert!(found.is_ok(), "{}", command.full_name);
    }
}
