//! Roles of ACL users: SETROLE DELROLE GETROLE ROLES.

use super::{ADMIN, GROUP, opens_channels, selector_fields, show_selector, update_connections};
use crate::acl::role;
use crate::command::context::SessionCx;
use crate::command::declaration::{Command, CommandResult};
use crate::command::error::{CommandError, shown};
use crate::command::{Args, Out};
use basalt_core::base::lossless;

const SINCE: &str = "9.2.0";

/// `ACL SETROLE rolename [rule ...]`
pub(super) static SETROLE: Command = Command::sub("acl|setrole", "setrole", GROUP, -3)
    .flags(ADMIN)
    .doc(
        SINCE,
        "rolename [rule [rule ...]]",
        "Creates a role, or changes its rules.",
    )
    .complexity("O(N) with the number of rules and of users that have the role.")
    .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"])
    .on_session(setrole);

fn setrole(cx: &mut SessionCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let name = args.get(2);
    if let Some(error) = role::name_error(name) {
        return Err(format!("ERR {error}").into());
    }
    let words: Vec<&[u8]> = args.from(3).collect();
    let users = cx.server.users();
    let changes = users
        .change_role(name, opens_channels(cx), |role| {
            role.with(&words, users.catalogue())
        })
        .map_err(|text| {
            let text = lossless::text_of(&text).into_owned();
            CommandError::from(format!("ERR {text}"))
        })?;
    update_connections(cx, &changes);
    out.ok();
    Ok(())
}

/// `ACL DELROLE rolename [rolename ...]`
pub(super) static DELROLE: Command = Command::sub("acl|delrole", "delrole", GROUP, -3)
    .flags(ADMIN)
    .doc(
        SINCE,
        "rolename [rolename ...]",
        "Deletes roles that no user has.",
    )
    .complexity("O(N) with the number of users, for each role.")
    .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"])
    .on_session(|cx, args, out| {
        let names: Vec<&[u8]> = args.from(2).collect();
        let removed = cx.server.users().remove_roles(&names).map_err(|name| {
            let name = shown(name);
            CommandError::from(format!(
                "ERR Role '{name}' is assigned to one or more users"
            ))
        })?;
        out.integer(removed as i64);
        Ok(())
    });

/// `ACL GETROLE rolename`
pub(super) static GETROLE: Command = Command::sub("acl|getrole", "getrole", GROUP, 3)
    .flags(ADMIN)
    .doc(
        SINCE,
        "rolename",
        "Returns the rules of a role, and the users that have it.",
    )
    .complexity("O(N) with the number of its rules and of all users.")
    .repeatable()
    .on_session(getrole);

fn getrole(cx: &mut SessionCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let users = cx.server.users();
    let Some(role) = users.role(args.get(2)) else {
        out.null();
        return Ok(());
    };
    out.map(2 + selector_fields(role.root()));
    show_selector(role.root(), out);
    out.bulk(b"selectors");
    out.array(role.selectors().len());
    for selector in role.selectors() {
        out.map(selector_fields(selector));
        show_selector(selector, out);
    }
    let mut holders = users.all();
    holders.retain(|user| user.has_role(role.name()));
    out.bulk(b"users");
    out.array(holders.len());
    holders.iter().for_each(|user| out.bulk(user.name()));
    Ok(())
}

/// `ACL ROLES`
pub(super) static ROLES: Command = Command::sub("acl|roles", "roles", GROUP, 2)
    .flags(ADMIN)
    .doc(SINCE, "", "Lists the names of all roles.")
    .complexity("O(N) with the number of roles.")
    .repeatable()
    .on_session(|cx, _, out| {
        let roles = cx.server.users().roles();
        out.array(roles.len());
        roles.iter().for_each(|role| out.bulk(role.name()));
        Ok(())
    });
