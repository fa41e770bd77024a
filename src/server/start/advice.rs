//! Advice on unsafe or unwise settings in an otherwise valid configuration: for `--check-config`, and for the log
//! at startup.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::{accept, users};
use crate::net::listener;
use crate::tls::contexts::{self, Contexts};
use basalt_commands::acl::Users;
use basalt_commands::config::Config;
use basalt_commands::config::machine;
use basalt_commands::config::values::{ClusterMode, MaxmemoryPolicy, Protected, TlsAuthClients};
use basalt_core::base::lossless;

/// Mode bits that make a file readable by every user of the machine.
const READ_BY_ALL: u32 = 0o004;

/// Mode bits that let every user of the machine connect to a socket.
const WRITTEN_BY_ALL: u32 = 0o002;

/// Returns the initial users of a server with this configuration. The error says why the server would not start, as far
/// as that can be determined without starting it. The current working directory must be `dir`.
pub(super) fn try_out(config: &Config) -> Result<Users, String> {
    if contexts::is_wanted(config) {
        Contexts::make(config).map_err(|text| format!("Failed to configure TLS: {text}"))?;
    }
    users::of(config)
}

/// Returns advice on a configuration; `file` is the configuration file, if any.
pub(super) fn of(config: &Config, file: Option<&Path>, users: &Users) -> Vec<String> {
    let mut advice = Vec::new();
    advice.extend(open_to_all(config, users));
    advice.extend(readable_by_all(config, file));
    advice.extend(about_memory(config));
    advice.extend(about_the_rest(config));
    advice
}

/// Returns the addresses that other machines can reach.
fn public(addresses: &[String]) -> Vec<&str> {
    let names = addresses
        .iter()
        .map(|name| name.strip_prefix('-').unwrap_or(name));
    let is_public = |name: &&str| {
        listener::resolve(name, 1).is_some_and(|address| !address.ip().to_canonical().is_loopback())
    };
    names.filter(is_public).collect()
}

/// Reports access to the data, and to the metrics, without a password.
fn open_to_all(config: &Config, users: &Users) -> Vec<String> {
    let mut advice = Vec::new();
    let reachable = public(&config.bind);
    let asks_for_certificate = config.tls_auth_clients == TlsAuthClients::Yes;
    let is_open = config.port != 0 || (config.tls_port != 0 && !asks_for_certificate);
    let default = users.default().user();
    let all = users.all();
    let open: Vec<_> = all
        .iter()
        .filter(|user| user.needs_no_password())
        .map(|user| lossless::text_of(user.name()))
        .collect();
    let is_let_in = !config.protected_mode || !default.is_nopass();
    if !reachable.is_empty() && is_open && is_let_in && !open.is_empty() {
        advice.push(format!(
            "clients that can reach {} have access without a password, as user {}: set requirepass, give users \
             passwords, or bind to 127.0.0.1",
            reachable.join(", "),
            open.join(", ")
        ));
    }
    if !config.unixsocket.is_empty()
        && config.unixsocketperm & WRITTEN_BY_ALL != 0
        && default.needs_no_password()
    {
        advice.push(format!(
            "every user of this machine has access without a password: unixsocketperm {:o} lets everyone connect",
            config.unixsocketperm
        ));
    }
    let reachable = public(&config.bind);
    if config.cluster_enabled == ClusterMode::Yes && !config.tls_cluster && !reachable.is_empty() {
        advice.push(format!(
            "every host that can reach the cluster bus at {} can join the cluster and take over slots, because the \
             bus has no passwords: set tls-cluster yes, or block the bus port in a firewall",
            reachable.join(", ")
        ));
    }
    let reachable = public(accept::metrics_addresses(config));
    if !reachable.is_empty() && config.metrics_auth.is_empty() {
        advice.push(format!(
            "clients that can reach {} can read the metrics: set metrics-auth, or metrics-bind 127.0.0.1",
            reachable.join(", ")
        ));
    }
    advice
}

/// Reports files with secrets that every user of the machine may read.
fn readable_by_all(config: &Config, file: Option<&Path>) -> Vec<String> {
    let mut files = Vec::new();
    let is_secret = |text: &String| !text.is_empty();
    let secrets = [
        &config.requirepass,
        &config.masterauth,
        &config.tls_key_file_pass,
        &config.tls_client_key_file_pass,
        &config.metrics_auth,
    ];
    if secrets.into_iter().any(is_secret) || !config.users.is_empty() {
        files.extend(file.map(|file| (file.to_owned(), "the passwords in it")));
    }
    if !config.aclfile.is_empty() {
        files.push((users::path(config), "the password hashes in it"));
    }
    for key in [&config.tls_key_file, &config.tls_client_key_file] {
        if contexts::is_wanted(config) && !key.is_empty() {
            files.push((lossless::path_of(key), "the private key in it"));
        }
    }
    let is_readable = |path: &Path| {
        let mode = std::fs::metadata(path).map(|found| found.permissions().mode());
        mode.is_ok_and(|mode| mode & READ_BY_ALL != 0)
    };
    let readable = files.iter().filter(|(path, _)| is_readable(path));
    readable
        .map(|(path, what)| {
            format!(
                "every user of this machine can read {} and {what}: run chmod o-r {0}",
                path.display()
            )
        })
        .collect()
}

fn about_memory(config: &Config) -> Vec<String> {
    let mut advice = Vec::new();
    let memory = machine::memory();
    let whose = match memory.is_limited {
        true => "the container",
        false => "the machine",
    };
    if config.maxmemory > memory.bytes {
        advice.push(format!(
            "maxmemory is {} bytes, but {whose} has {}: the kernel will kill the server before it evicts keys",
            config.maxmemory, memory.bytes
        ));
    }
    let keeps_nothing = config.save.is_empty() && !config.appendonly;
    if config.maxmemory > 0
        && config.maxmemory_policy == MaxmemoryPolicy::Noeviction
        && keeps_nothing
        && config.replicaof.is_none()
    {
        advice.push(
            "maxmemory is set and nothing is saved, as in a cache, but maxmemory-policy is noeviction: once memory is \
             full, every write fails; use allkeys-lru or allkeys-lfu to evict keys"
                .to_owned(),
        );
    }
    advice
}

fn about_the_rest(config: &Config) -> Vec<String> {
    let mut advice = Vec::new();
    for (directive, value, what) in [
        (
            "enable-debug-command",
            config.enable_debug_command,
            "stop the server and read its memory with DEBUG",
        ),
        (
            "enable-protected-configs",
            config.enable_protected_configs,
            "make the server write files anywhere, with CONFIG SET dir",
        ),
    ] {
        if value == Protected::Yes {
            advice.push(format!(
                "{directive} yes lets every client {what}: `local` limits this to clients on this machine"
            ));
        }
    }
    if config.daemonize && config.logfile.is_empty() && !config.syslog_enabled {
        advice.push("daemonize yes without a logfile: the log is discarded".to_owned());
    }
    advice
}
