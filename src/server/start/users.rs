//! Users: loaded from the configuration or a file at startup, and changes to both.

use std::convert::Infallible;
use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::state::Service;
use basalt_commands::acl::user::DEFAULT;
use basalt_commands::acl::{Handle, User, Users, file, role, rules};
use basalt_commands::command::acl::check;
use basalt_commands::command::catalogue::Commands;
use basalt_commands::command::declaration::Command;
use basalt_commands::command::host::DryRun;
use basalt_commands::command::owned::OwnedArgs;
use basalt_commands::command::registry::{registry, resolve};
use basalt_commands::config::Config;
use basalt_commands::config::values::{self, AclPubsubDefault};
use basalt_core::base::{lossless, text};

const BOTH: &str = "Configuring the server with users defined in its configuration file and at the same setting an ACL \
file path is invalid. This setup is very likely to lead to configuration errors and security holes, please define \
either an ACL file or declare users directly in the configuration file, but not both.";

fn opens_channels(config: &Config) -> bool {
    config.acl_pubsub_default == AclPubsubDefault::Allchannels
}

/// Creates the users defined by the configuration and the ACL file.
pub(super) fn load(service: &Service, config: &Config) -> Result<(), String> {
    follow_requirepass(service, config);
    fill(&service.users, config)
}

/// Returns the initial users of a server with this configuration, from the configuration or the ACL file.
pub(super) fn of(config: &Config) -> Result<Users, String> {
    let users = Users::new(&Commands);
    set_password(&users, config);
    fill(&users, config)?;
    Ok(users)
}

fn fill(users: &Users, config: &Config) -> Result<(), String> {
    if config.aclfile.is_empty() {
        for (name, rules) in &config.roles {
            declare_role(users, config, name, rules)?;
        }
        return config.users.iter().try_for_each(|user| {
            let (name, rules) = user;
            declare(users, config, name, rules)
        });
    }
    if !config.users.is_empty() || !config.roles.is_empty() {
        return Err(BOTH.to_owned());
    }
    let name = &config.aclfile;
    let text = read(config)
        .map_err(|error| format!("Error loading ACLs, opening file '{name}': {error}"))?;
    let (parsed, roles) = file::parse(name, &text, opens_channels(config), &Commands)
        .map_err(|error| format!("Aborting the start because of ACL errors: {error}"))?;
    let _ = users.replace(parsed, roles);
    Ok(())
}

fn bytes_of(words: &[String]) -> Vec<Vec<u8>> {
    let words = words
        .iter()
        .map(|word| lossless::bytes_of(word).into_owned());
    words.collect()
}

/// Adds the role of a `role` line in the configuration file.
fn declare_role(
    users: &Users,
    config: &Config,
    name: &str,
    words: &[String],
) -> Result<(), String> {
    let bytes = lossless::bytes_of(name);
    if let Some(error) = role::name_error(&bytes) {
        return Err(error.to_owned());
    }
    let words = bytes_of(words);
    let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
    let made = users.change_role(&bytes, opens_channels(config), |role| {
        role.with(&words, &Commands)
    });
    made.map(drop).map_err(|text| {
        let text = lossless::text_of(&text);
        format!("Error in role declaration of '{name}': {text}")
    })
}

/// Adds the user of a `user` line in the configuration file.
fn declare(users: &Users, config: &Config, name: &str, words: &[String]) -> Result<(), String> {
    let bytes = lossless::bytes_of(name);
    if rules::has_blanks(&bytes) {
        return Err("Spaces not allowed in ACL usernames".to_owned());
    }
    let words = bytes_of(words);
    let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
    let opens_channels = opens_channels(config);
    let fresh = User::new(&bytes, opens_channels);
    let made = users.change(&bytes, opens_channels, |_, roles| {
        fresh.with(&words, &Commands, roles).map_err(|text| {
            let text = lossless::text_of(&text);
            format!("Error in user declaration of '{name}': {text}")
        })
    })?;
    if !made.handle.user().is_on() {
        tracing::info!(
            "The user '{name}' is disabled (there is no 'on' modifier in the user description). Make sure this is not a \
             configuration error."
        );
    }
    Ok(())
}

/// Sets the default user's password to `requirepass`, or removes it.
pub(super) fn follow_requirepass(service: &Service, config: &Config) {
    let default = service.users.default();
    let changed = set_password(&service.users, config);
    follow(service, &changed, default);
}

fn set_password(users: &Users, config: &Config) -> Arc<Handle> {
    let password = lossless::bytes_of(&config.requirepass);
    let changed = users.change(DEFAULT, opens_channels(config), |user, _| {
        Ok::<_, Infallible>(user.with_password(&password))
    });
    match changed {
        Ok(change) => change.handle,
        Err(never) => match never {},
    }
}

fn follow(service: &Service, changed: &Arc<Handle>, default: &Arc<Handle>) {
    if Arc::ptr_eq(changed, default) {
        for client in service.clients.all() {
            client.follow_user(default);
        }
    }
}

/// Returns the configuration for writing it to its file: with the current users, unless users are kept in an
/// ACL file.
pub(super) fn noted(service: &Service) -> Config {
    let mut config = Config::clone(&service.config.load());
    if config.aclfile.is_empty() {
        let (roles, users) = (service.users.roles(), service.users.all());
        let lines = roles.iter().map(|role| role.line());
        let lines = lines.chain(users.iter().map(|user| user.line()));
        config.user_lines = Some(lines.map(|line| configuration_line(&line)).collect());
    }
    config
}

/// Formats a user for the configuration file, where quotes and backslashes are special, unlike in an ACL file.
fn configuration_line(line: &[u8]) -> String {
    let is_plain = |byte: &u8| !matches!(byte, b'"' | b'\'' | b'\\') && !byte.is_ascii_control();
    let words = line.split(|byte| *byte == b' ').map(|word| {
        match !word.is_empty() && word.iter().all(is_plain) {
            true => lossless::text_of(word).into_owned(),
            false => text::quoted(word),
        }
    });
    words.collect::<Vec<_>>().join(" ")
}

/// Returns the path of the ACL file, which is relative to the server's directory.
pub(super) fn path(config: &Config) -> PathBuf {
    config.dir.join(lossless::path_of(&config.aclfile))
}

/// Reads the ACL file.
pub(super) fn read(config: &Config) -> Result<Vec<u8>, String> {
    fs::read(path(config)).map_err(|error| values::system_text(&error))
}

/// Replaces the ACL file: writes a temporary file, syncs it, and renames it.
pub(super) fn write(config: &Config, text: &[u8]) -> Result<(), String> {
    let path = path(config);
    let aside = path.with_extension(format!("tmp-{}", std::process::id()));
    let put = || -> std::io::Result<()> {
        // The file contains password hashes.
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&aside)?;
        file.write_all(text)?;
        file.sync_all()?;
        fs::rename(&aside, &path)?;
        let folder = path
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty());
        fs::File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
    };
    put().map_err(|error| {
        let _ = fs::remove_file(&aside);
        values::system_text(&error)
    })
}

/// Returns whether a user could run a request.
pub(super) fn dry_run(user: &User, request: &[Vec<u8>], db: usize) -> DryRun {
    let named = request.first().and_then(|name| registry().find(name));
    let command = named.map(|named| resolve(named, request.get(1).map(Vec::as_slice)));
    // A container command with an unknown subcommand is not a command.
    let is_command = |found: &&'static Command| {
        let mut children = found.children().iter();
        request.len() == 1 || children.all(|child| child.is_first_argument())
    };
    let Some(command) = command.filter(is_command) else {
        return DryRun::NoCommand;
    };
    if !command.accepts(request.len()) {
        return DryRun::WrongArity(command.full_name);
    }
    let owned = OwnedArgs::of(request);
    let args = owned.args();
    match check::refused(user, command, &args, db) {
        Some(refused @ check::AclDenial::Denied(..)) => {
            DryRun::Refused(refused.text(user, command, &args, true))
        }
        _ => DryRun::Allowed,
    }
}
