//! ACL: creates, changes, shows and saves users; shows the log of denials.
//!
//! ```text
//! mod        SETUSER GETUSER DELUSER LIST USERS WHOAMI CAT GENPASS DRYRUN LOG LOAD SAVE HELP
//! roles      SETROLE GETROLE DELROLE ROLES
//! check      permission checks for the user of a connection
//! ```

pub mod check;
mod roles;

use std::collections::HashMap;
use std::sync::Arc;

use super::context::{After, SessionCx};
use super::declaration::{Categories, Command, CommandResult, Flags, Group};
use super::error::{CommandError, shown};
use super::host::DryRun;
use super::{Args, Out};
use crate::acl::selector::Selector;
use crate::acl::users::UserChange;
use crate::acl::{Handle, Roles, User, file, rules};
use crate::config::values::AclPubsubDefault;
use basalt_core::base::{lossless, random};

pub(super) static TABLE: &[&Command] = &[&ACL];

const GROUP: Group = Group::Server;
const FLAGS: Flags = Flags::NOSCRIPT.or(Flags::LOADING).or(Flags::STALE);
const ADMIN: Flags = FLAGS.or(Flags::ADMIN);

/// `ACL subcommand`
static ACL: Command = Command::new("acl", GROUP, -2)
    .doc("6.0.0", "", "Groups the commands that manage ACL users.")
    .complexity("Depends on subcommand.")
    .container(&[
        &CAT,
        &roles::DELROLE,
        &DELUSER,
        &DRYRUN,
        &GENPASS,
        &roles::GETROLE,
        &GETUSER,
        &HELP,
        &LIST,
        &LOAD,
        &LOG,
        &roles::ROLES,
        &SAVE,
        &roles::SETROLE,
        &SETUSER,
        &USERS,
        &WHOAMI,
    ]);

/// `ACL CAT [category]`
static CAT: Command = Command::sub("acl|cat", "cat", GROUP, -2)
    .flags(FLAGS)
    .doc(
        "6.0.0",
        "[category]",
        "Lists the command categories, or the commands of one category.",
    )
    .complexity("O(1), since their number is fixed.")
    .repeatable()
    .on_session(cat);

fn cat(cx: &mut SessionCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    match args.len() {
        2 => {
            let names: Vec<_> = Categories::all_names().collect();
            out.array(names.len());
            names.iter().for_each(|name| out.bulk(name.as_bytes()));
        }
        3 => {
            let name = args.get(2).to_ascii_lowercase();
            let catalogue = cx.server.users().catalogue();
            let found = std::str::from_utf8(&name).ok();
            let Some(found) = found.and_then(|name| catalogue.category(name)) else {
                let name = shown(args.get(2));
                return Err(format!("ERR Unknown category '{name}'").into());
            };
            out.array(found.len());
            for entry in found {
                out.bulk(entry.full_name.as_bytes());
            }
        }
        _ => return Err(unknown_subcommand(args)),
    }
    Ok(())
}

fn unknown_subcommand(args: &Args<'_>) -> CommandError {
    let name = shown(args.get(1));
    format!("ERR unknown subcommand or wrong number of arguments for '{name}'. Try ACL HELP.")
        .into()
}

/// `ACL DELUSER username [username ...]`
static DELUSER: Command = Command::sub("acl|deluser", "deluser", GROUP, -3)
    .flags(ADMIN)
    .doc(
        "6.0.0",
        "username [username ...]",
        "Deletes users and closes their connections.",
    )
    .complexity("O(1) for each user, plus the number of connections.")
    .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"])
    .on_session(deluser);

fn deluser(cx: &mut SessionCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    if args.from(2).any(|name| name == b"default") {
        return Err("ERR The 'default' user cannot be removed".into());
    }
    let users = cx.server.users();
    let gone: Vec<_> = args.from(2).filter_map(|name| users.remove(name)).collect();
    out.integer(gone.len() as i64);
    close_connections(cx, &gone);
    Ok(())
}

/// Closes the connections of deleted users; the requesting connection only after its reply.
fn close_connections(cx: &mut SessionCx<'_>, gone: &[Arc<Handle>]) {
    if gone.is_empty() {
        return;
    }
    let clients = cx.server.clients();
    for client in clients.all() {
        let user = client.user();
        let is_theirs = user.is_some_and(|user| gone.iter().any(|one| Arc::ptr_eq(one, &user)));
        if is_theirs && client.id == cx.client.id() {
            cx.after = After::Close;
        } else if is_theirs {
            clients.kill(&client);
        }
    }
}

/// `ACL DRYRUN username command [arg ...]`
static DRYRUN: Command = Command::sub("acl|dryrun", "dryrun", GROUP, -4)
    .flags(ADMIN)
    .doc(
        "7.0.0",
        "username command [arg [arg ...]]",
        "Checks whether a user may run a command, without running it.",
    )
    .repeatable()
    .on_session(dryrun);

fn dryrun(cx: &mut SessionCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let Some(handle) = cx.server.users().find(args.get(2)) else {
        let name = shown(args.get(2));
        return Err(format!("ERR User '{name}' not found").into());
    };
    let request: Vec<Vec<u8>> = args.from(3).map(<[u8]>::to_vec).collect();
    match cx.server.dry_run(&handle.user(), &request, cx.client.db) {
        DryRun::Allowed => out.ok(),
        DryRun::Refused(text) => out.bulk(&lossless::bytes_of(&text)),
        DryRun::WrongArity(name) => return Err(CommandError::Arity(name)),
        DryRun::NoCommand => {
            let name = shown(args.get(3));
            return Err(format!("ERR Command '{name}' not found").into());
        }
    }
    Ok(())
}

/// `ACL GENPASS [bits]`
static GENPASS: Command = Command::sub("acl|genpass", "genpass", GROUP, -2)
    .flags(FLAGS)
    .doc("6.0.0", "[bits:integer]", "Generates a random password.")
    .repeatable()
    .on_session(genpass);

fn genpass(_: &mut SessionCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    const BITS_MAX: i64 = 4096;
    let bits = match args.len() {
        2 => 256,
        3 => args.integer(2)?,
        _ => return Err(unknown_subcommand(args)),
    };
    if !(1..=BITS_MAX).contains(&bits) {
        return Err(format!(
            "ERR ACL GENPASS argument must be the number of bits for the output password, a positive number up to \
             {BITS_MAX}"
        )
        .into());
    }
    let digits = random::hex_from_system((bits as usize).div_ceil(4));
    out.bulk(digits.as_bytes());
    Ok(())
}

/// `ACL GETUSER username`
static GETUSER: Command = Command::sub("acl|getuser", "getuser", GROUP, 3)
    .flags(ADMIN)
    .doc("6.0.0", "username", "Returns the rules of a user.")
    .complexity("O(N) with the number of its passwords and rules.")
    .history(&[
        ("6.2.0", "The reply includes channels."),
        (
            "7.0.0",
            "The reply includes selectors; rules are shown as words.",
        ),
    ])
    .repeatable()
    .on_session(getuser);

fn getuser(cx: &mut SessionCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let Some(handle) = cx.server.users().find(args.get(2)) else {
        out.null();
        return Ok(());
    };
    let user = handle.user();
    // Redis has no roles, and its clients see none unless they are used.
    let has_roles = !user.roles().is_empty();
    out.map(3 + usize::from(has_roles) + selector_fields(user.root()));
    out.bulk(b"flags");
    let flags: Vec<_> = user.flags().collect();
    out.set(flags.len());
    flags.iter().for_each(|flag| out.bulk(flag.as_bytes()));
    out.bulk(b"passwords");
    let hashes: Vec<_> = user.password_hashes().collect();
    out.array(hashes.len());
    hashes.iter().for_each(|hash| out.bulk(hash.as_bytes()));
    show_selector(user.root(), out);
    out.bulk(b"selectors");
    out.array(user.selectors().len());
    for selector in user.selectors() {
        out.map(selector_fields(selector));
        show_selector(selector, out);
    }
    if has_roles {
        out.bulk(b"roles");
        out.array(user.roles().len());
        user.roles().iter().for_each(|role| out.bulk(role.name()));
    }
    Ok(())
}

fn show_selector(selector: &Selector, out: &mut Out) {
    out.bulk(b"commands");
    out.bulk(selector.command_words().as_bytes());
    out.bulk(b"keys");
    out.bulk(&selector.key_words());
    out.bulk(b"channels");
    out.bulk(&selector.channel_words());
    if !selector.database_words().is_empty() {
        out.bulk(b"databases");
        out.bulk(selector.database_words().as_bytes());
    }
}

/// Returns the number of fields that `show_selector` writes; databases are among them only if there are rules for
/// them, which Redis lacks.
fn selector_fields(selector: &Selector) -> usize {
    match selector.database_words().is_empty() {
        true => 3,
        false => 4,
    }
}

/// `ACL LIST`
static LIST: Command = Command::sub("acl|list", "list", GROUP, 2)
    .flags(ADMIN)
    .doc(
        "6.0.0",
        "",
        "Lists all roles and users as the ACL rules that define them.",
    )
    .complexity("O(N) with the number of users.")
    .repeatable()
    .on_session(|cx, _, out| {
        let (roles, users) = (cx.server.users().roles(), cx.server.users().all());
        out.array(roles.len() + users.len());
        roles.iter().for_each(|role| out.bulk(&role.line()));
        users.iter().for_each(|user| out.bulk(&user.line()));
        Ok(())
    });

/// `ACL USERS`
static USERS: Command = Command::sub("acl|users", "users", GROUP, 2)
    .flags(ADMIN)
    .doc("6.0.0", "", "Lists the names of all users.")
    .complexity("O(N) with the number of users.")
    .repeatable()
    .on_session(|cx, _, out| {
        let users = cx.server.users().all();
        out.array(users.len());
        users.iter().for_each(|user| out.bulk(user.name()));
        Ok(())
    });

/// `ACL WHOAMI`
static WHOAMI: Command = Command::sub("acl|whoami", "whoami", GROUP, 2)
    .flags(FLAGS)
    .doc("6.0.0", "", "Returns the user name of the connection.")
    .repeatable()
    .on_session(|cx, _, out| {
        out.bulk(cx.user().user().name());
        Ok(())
    });

/// `ACL LOAD`
static LOAD: Command = Command::sub("acl|load", "load", GROUP, 2)
    .flags(ADMIN)
    .doc("6.0.0", "", "Reloads users from the ACL file.")
    .complexity("O(N) with the number of users.")
    .on_session(load);

const NO_FILE: &str = "ERR This Redis instance is not configured to use an ACL file. You may want to specify users via \
the ACL SETUSER command and then issue a CONFIG REWRITE (assuming you have a Redis configuration file set) in order to \
store users in the Redis configuration.";

fn load(cx: &mut SessionCx<'_>, _: &Args<'_>, out: &mut Out) -> CommandResult {
    let name = &cx.config.aclfile;
    if name.is_empty() {
        return Err(NO_FILE.into());
    }
    let text = cx
        .server
        .read_users()
        .map_err(|error| format!("ERR Error loading ACLs, opening file '{name}': {error}"))?;
    let (users, roles) = file::parse(
        name,
        &text,
        opens_channels(cx),
        cx.server.users().catalogue(),
    )
    .map_err(|error| format!("ERR {error}"))?;
    let replaced = cx.server.users().replace(users, roles);
    update_connections(cx, &replaced.changed);
    close_connections(cx, &replaced.deleted);
    out.ok();
    Ok(())
}

/// `ACL SAVE`
static SAVE: Command = Command::sub("acl|save", "save", GROUP, 2)
    .flags(ADMIN)
    .doc("6.0.0", "", "Saves all users to the ACL file.")
    .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"])
    .complexity("O(N) with the number of users.")
    .on_session(save);

fn save(cx: &mut SessionCx<'_>, _: &Args<'_>, out: &mut Out) -> CommandResult {
    if cx.config.aclfile.is_empty() {
        return Err(NO_FILE.into());
    }
    let users = cx.server.users();
    let text = file::text(&users.roles(), &users.all());
    if let Err(error) = cx.server.write_users(&text) {
        cx.server.log(&format!("ACL SAVE: {error}"));
        return Err(
            "ERR There was an error trying to save the ACLs. Please check the server logs for more information".into(),
        );
    }
    out.ok();
    Ok(())
}

/// `ACL LOG [count | RESET]`
static LOG: Command = Command::sub("acl|log", "log", GROUP, -2)
    .flags(ADMIN)
    .doc(
        "6.0.0",
        "[count | RESET]",
        "Lists or clears the log of denied commands and logins, newest first.",
    )
    .complexity("O(N) with the number of entries shown.")
    .history(&[("7.2.0", "The reply includes entry IDs and timestamps.")])
    .on_session(log);

fn log(cx: &mut SessionCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let users = cx.server.users();
    let count = match args.len() {
        2 => 10,
        3 if args.is(2, "reset") => {
            users.clear_log();
            out.ok();
            return Ok(());
        }
        3 => args.integer(2)?,
        _ => return Err(unknown_subcommand(args)),
    };
    let entries = users.latest_denials(usize::try_from(count).unwrap_or(0));
    out.array(entries.len());
    for entry in entries {
        out.map(10);
        out.bulk(b"count");
        out.integer(entry.count as i64);
        out.bulk(b"reason");
        out.bulk(entry.denied.name().as_bytes());
        out.bulk(b"context");
        out.bulk(entry.place.name().as_bytes());
        out.bulk(b"object");
        out.bulk(&entry.object);
        out.bulk(b"username");
        out.bulk(&entry.user);
        out.bulk(b"age-seconds");
        let age_ms = cx.now.unix_ms.saturating_sub(entry.updated_ms);
        out.double(age_ms as f64 / 1000.0);
        out.bulk(b"client-info");
        out.bulk(entry.client.as_bytes());
        out.bulk(b"entry-id");
        out.integer(entry.id as i64);
        out.bulk(b"timestamp-created");
        out.integer(entry.created_ms as i64);
        out.bulk(b"timestamp-last-updated");
        out.integer(entry.updated_ms as i64);
    }
    Ok(())
}

/// `ACL SETUSER username [rule ...]`
static SETUSER: Command = Command::sub("acl|setuser", "setuser", GROUP, -3)
    .flags(ADMIN)
    .hides(|_, argument| argument >= 2)
    .doc(
        "6.0.0",
        "username [rule [rule ...]]",
        "Creates a user, or changes its rules.",
    )
    .complexity("O(N) with the number of rules.")
    .history(&[
        ("6.2.0", "Accepts channel patterns."),
        (
            "7.0.0",
            "Accepts selectors and key patterns with read or write permission only.",
        ),
    ])
    .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"])
    .on_session(setuser);

fn setuser(cx: &mut SessionCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let name = args.get(2);
    if rules::has_blanks(name) {
        return Err("ERR Usernames can't contain spaces or null characters".into());
    }
    let words: Vec<&[u8]> = args.from(3).collect();
    change_user(cx, name, |user, roles| {
        user.with(&words, cx.server.users().catalogue(), roles)
    })
    .map_err(|text| {
        let text = lossless::text_of(&text).into_owned();
        CommandError::from(format!("ERR {text}"))
    })?;
    out.ok();
    Ok(())
}

fn opens_channels(cx: &SessionCx<'_>) -> bool {
    cx.config.acl_pubsub_default == AclPubsubDefault::Allchannels
}

/// Changes or creates a user, and updates its connections.
fn change_user<E>(
    cx: &SessionCx<'_>,
    name: &[u8],
    change: impl FnOnce(&User, &Roles) -> Result<User, E>,
) -> Result<(), E> {
    let users = cx.server.users();
    let change = users.change(name, opens_channels(cx), change)?;
    update_connections(cx, &[change]);
    Ok(())
}

/// Updates the connections of changed users, and closes those with subscriptions that are not permitted any more.
fn update_connections(cx: &SessionCx<'_>, changes: &[UserChange]) {
    struct Followed {
        now: Arc<User>,
        loses_channels: bool,
    }
    let users = cx.server.users();
    let mut followed = HashMap::new();
    for UserChange { handle, before } in changes {
        let Some(before) = before else { continue };
        let now = handle.user();
        let loses_channels = now.loses_channels_of(before);
        let change = Followed {
            now,
            loses_channels,
        };
        followed.insert(Arc::as_ptr(handle), change);
    }
    if followed.is_empty() {
        return;
    }
    let clients = cx.server.clients();
    for client in clients.all() {
        let user = client.user();
        let user = user.as_ref().unwrap_or(users.default());
        let Some(change) = followed.get(&Arc::as_ptr(user)) else {
            continue;
        };
        client.follow_user(users.default());
        let may_have = |name: &[u8], is_pattern| change.now.has_channel(name, is_pattern);
        if change.loses_channels && client.has_lost_channels(may_have) {
            clients.kill(&client);
        }
    }
}

/// `ACL HELP`
static HELP: Command = Command::sub("acl|help", "help", GROUP, 2)
    .doc("6.0.0", "", "Explains the subcommands of ACL.")
    .on_help(&[
        "CAT [<category>]",
        "    List all categories of commands, or all commands of one.",
        "DELROLE <rolename> [<rolename> ...]",
        "    Delete roles that no user has.",
        "DELUSER <username> [<username> ...]",
        "    Delete users.",
        "DRYRUN <username> <command> [<arg> ...]",
        "    Check whether a user may run a command, without running it.",
        "GETROLE <rolename>",
        "    Return the rules of a role, and the users that have it.",
        "GETUSER <username>",
        "    Return the rules of a user.",
        "GENPASS [<bits>]",
        "    Generate a random password of 256 or <bits> bits, in hexadecimal digits.",
        "LIST",
        "    List all roles and users as the ACL rules that define them.",
        "LOAD",
        "    Reload the users from the ACL file.",
        "LOG [<count> | RESET]",
        "    List or clear the log of denied commands and logins, newest first.",
        "ROLES",
        "    List the names of all roles.",
        "SAVE",
        "    Save all users to the ACL file.",
        "SETROLE <rolename> <rule> [<rule> ...]",
        "    Create a role, or change its rules.",
        "SETUSER <username> <rule> [<rule> ...]",
        "    Create a user, or change its rules.",
        "USERS",
        "    List the names of all users.",
        "WHOAMI",
        "    Return the user of this connection.",
    ]);
