//! The layers of a configuration: defaults, then the file, the environment and the arguments, each overriding the
//! previous one.
//!
//! Each layer appends its directives to those of the layers below instead of replacing them, because in Redis the
//! command line continues the file: `save` given in both accumulates, and for anything else the last mention wins. The
//! collected directives are then applied in order to the table. Refusals check the final value, so that an argument can
//! correct what a file requests. The `config` crate reads the files that are TOML.
//!
//! This module knows nothing of a parameter's effect. The module reads files and the environment, and changes
//! nothing.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use config::{FileFormat, Format};

use crate::config::error::{ConfigError, DirectiveLocation};
use crate::config::parameter::{Mode, Parameter, ParameterKind, Support};
use crate::config::redis_conf::{self, Directive};
use crate::config::table::{Config, PARAMETERS};
use crate::config::{files, find, foreign, shares, similar, values, words};
use basalt_core::base::{lossless, text};

/// The parsed command line, with the configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct Startup {
    /// The configuration from all layers merged.
    pub config: Config,
    /// The absolute path of the configuration file, which CONFIG REWRITE rewrites.
    pub file: Option<PathBuf>,
    /// Warnings about the configuration, to be logged once there is a log.
    pub warnings: Vec<String>,
    /// The action that the command line requests.
    pub action: Action,
}

/// The action that the command line requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Runs the server.
    Run,
    /// Prints the version.
    Version,
    /// Prints the help.
    Help,
    /// Only checks the configuration.
    Check,
}

impl Config {
    /// The default of `metrics-port` where the server is called by a name of Redis's or Valkey's.
    pub const METRICS_PORT_BESIDE_EXPORTER: u16 = 9122;
}

/// Merges all layers. `program` and `arguments` are the words of the command line.
pub fn load(program: &OsStr, arguments: &[OsString]) -> Result<Startup, ConfigError> {
    let environment = std::env::vars_os().collect();
    load_from(
        program,
        arguments,
        environment,
        &mut std::io::stdin().lock(),
    )
}

/// Like [`load`], with all external inputs as arguments.
pub fn load_from(
    program: &OsStr,
    arguments: &[OsString],
    environment: Vec<(OsString, OsString)>,
    standard_input: &mut dyn Read,
) -> Result<Startup, ConfigError> {
    let request = CommandLine::read(arguments)?;
    if matches!(request.action, Action::Version | Action::Help) {
        let CommandLine { action, .. } = request;
        return Ok(Startup {
            config: Config::default(),
            file: None,
            warnings: vec![],
            action,
        });
    }

    let mut texts = Vec::new();
    let file = request.file.as_deref().map(absolute);
    if let Some(path) = &file {
        let text = files::read(path).map_err(|error| question(error, request.file.as_deref()))?;
        texts.push((path.clone(), text));
    }
    if request.standard_input {
        let path = PathBuf::from("-");
        let mut bytes = Vec::new();
        standard_input
            .read_to_end(&mut bytes)
            .map_err(|error| ConfigError::Unreadable {
                path: path.clone(),
                reason: values::system_text(&error),
            })?;
        texts.push((path, lossless::text_of(&bytes).into_owned()));
    }
    let (environment, mut warnings) = of_environment(environment)?;

    let mut directives = of_program(program)?;
    for (path, text) in &texts {
        expand(path, text, 0, &mut directives)?;
    }
    directives.extend(environment);
    of_arguments(&request.lines, &mut directives)?;
    let applied = apply(&directives, &mut warnings);
    let mut config = applied.map_err(|errors| match request.action {
        Action::Check => ConfigError::all(errors),
        // Reports only the first error, as redis-server does and as tools that look for its block of text expect.
        _ => ConfigError::all(errors.into_iter().take(1).collect()),
    })?;
    if config.cluster_enabled == values::ClusterMode::Yes {
        // In a cluster `cluster-databases` counts instead: slots are moved with their keys in all databases.
        config.databases = config.cluster_databases;
        if config.replicaof.is_some() {
            let text = "replicaof directive not allowed in cluster mode";
            return Err(ConfigError::Whole(text.to_owned()));
        }
    }
    if request.action == Action::Run {
        check_log_file(&config)?;
    }
    Ok(Startup {
        config,
        file,
        warnings,
        action: request.action,
    })
}

/// Adds a suggestion to the error for an unreadable file, if the file's name resembles that of a tool.
fn question(error: ConfigError, named: Option<&Path>) -> ConfigError {
    match (error, named.and_then(Path::to_str)) {
        (ConfigError::Unreadable { path, mut reason }, Some(name)) => {
            reason.push_str(&similar::question_about_tool(name));
            ConfigError::Unreadable { path, reason }
        }
        (error, _) => error,
    }
}

/// The parsed arguments, before any lookup.
struct CommandLine {
    action: Action,
    file: Option<PathBuf>,
    standard_input: bool,
    /// A line in redis.conf syntax for each directive.
    lines: Vec<String>,
}

impl CommandLine {
    /// Parses arguments as redis-server does: a file first unless it begins with a dash, then directives, each with
    /// everything up to the next `--`; the argument right after a directive's name is always its value, even if it
    /// looks like a directive, except that `--save` may be without one for "no save points".
    fn read(arguments: &[OsString]) -> Result<Self, ConfigError> {
        let mut request = Self {
            action: Action::Run,
            file: None,
            standard_input: false,
            lines: Vec::new(),
        };
        let first = arguments.first().map(|first| first.as_bytes());
        match first {
            Some(b"-v" | b"--version") => {
                return Ok(Self {
                    action: Action::Version,
                    ..request
                });
            }
            Some(b"-h" | b"--help") => {
                return Ok(Self {
                    action: Action::Help,
                    ..request
                });
            }
            _ => {}
        }
        let check = |argument: &OsString| argument.as_bytes() == b"--check-config";
        let mut rest = arguments;
        if rest.first().is_some_and(check) {
            request.action = Action::Check;
            rest = &rest[1..];
        }
        if let Some(path) = rest
            .first()
            .filter(|first| !first.as_bytes().starts_with(b"-"))
        {
            request.file = Some(PathBuf::from(path));
            rest = &rest[1..];
        }

        let mut value_due = false;
        for (index, argument) in rest.iter().enumerate() {
            let bytes = argument.as_bytes();
            let is_last = index + 1 == rest.len();
            if bytes == b"-" && (index == 0 || is_last) {
                request.standard_input = true;
            } else if let (false, Some(option)) = (value_due, bytes.strip_prefix(b"--")) {
                if check(argument) {
                    request.action = Action::Check;
                    continue;
                }
                let text = lossless::text_of(option).into_owned();
                let lower = text.trim().to_ascii_lowercase();
                refuse_option(&lower)?;
                let is_alone = is_last
                    || rest[index + 1].as_bytes().starts_with(b"--")
                    || rest[index + 1] == "-";
                let has_value = words::split(option).is_none_or(|words| words.len() != 1);
                if lower == "save" && is_alone {
                    request.lines.push("save \"\"".to_owned());
                } else {
                    request.lines.push(text);
                    value_due = !has_value;
                }
            } else {
                let value = text::quoted(bytes);
                match request.lines.last_mut() {
                    Some(line) => {
                        line.push(' ');
                        line.push_str(&value);
                    }
                    None => request.lines.push(value),
                }
                value_due = false;
            }
        }
        Ok(request)
    }
}

/// Refuses options of redis-server's command line that this server does not support.
fn refuse_option(option: &str) -> Result<(), ConfigError> {
    let reason = match option {
        "test-memory" => "basalt does not test memory: use a memory tester such as memtest86+",
        "check-system" => "basalt does not check the system",
        "sentinel" => "basalt is not a Sentinel: run redis-sentinel",
        _ => return Ok(()),
    };
    Err(ConfigError::Argument(format!(
        "--{option} is not supported: {reason}"
    )))
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// Maximum depth of nested includes, which ends cycles.
const INCLUDE_DEPTH_MAX: usize = 16;

/// Adds the directives of a text to `found`, each `include` replaced by the contents of the named files.
fn expand(
    path: &Path,
    text: &str,
    depth: usize,
    found: &mut Vec<Directive>,
) -> Result<(), ConfigError> {
    for directive in parse(path, text)? {
        let [pattern] = directive.words.as_slice() else {
            found.push(directive);
            continue;
        };
        if directive.name != "include" {
            found.push(directive);
            continue;
        }
        if depth == INCLUDE_DEPTH_MAX {
            return Err(ConfigError::Directive {
                reason: format!("files include each other more than {INCLUDE_DEPTH_MAX} deep"),
                text: directive.text,
                place: directive.place,
            });
        }
        // A pattern that matches nothing is allowed, so that a conf.d directory may be empty; a plain name must
        // exist.
        for included in files::matching(pattern) {
            let text = files::read(&included)?;
            expand(&included, &text, depth + 1, found)?;
        }
    }
    Ok(())
}

/// Parses the directives of one text, in order; as TOML if its extension or content says so, otherwise as redis.conf.
fn parse(path: &Path, text: &str) -> Result<Vec<Directive>, ConfigError> {
    if files::is_toml(path, text) {
        let parsed = FileFormat::Toml.parse(Some(&path.display().to_string()), text);
        let table = parsed.map_err(|error| files::toml_error(path, text, &*error))?;
        return files::toml_directives(path, text, table);
    }
    redis_conf::parse(path, text)
}

/// Returns the directives of the variables `BASALT_…`, one per directive: `BASALT_MAXCLIENTS=100`. With the suffix
/// `_FILE` a variable names a file that contains the value, as orchestrators provide secrets:
/// `BASALT_REQUIREPASS_FILE=/run/secrets/password`. The warnings name variables that look like a directive's.
/// Kubernetes sets `BASALT_PORT=tcp://…` and similar ones for a service called basalt: such variables are ignored.
fn of_environment(
    variables: Vec<(OsString, OsString)>,
) -> Result<(Vec<Directive>, Vec<String>), ConfigError> {
    let mut directives = Vec::new();
    let mut warnings = Vec::new();
    for (key, value) in variables {
        let Some(name) = key.to_str().and_then(|key| key.strip_prefix("BASALT_")) else {
            continue;
        };
        let called = |name: &str| {
            let mut parameters = PARAMETERS.iter();
            parameters.find(|parameter| environment_name(parameter) == name)
        };
        // A directive's own name may end in `_FILE`, such as that of tls-cert-file.
        let direct = called(name).map(|parameter| (parameter, false));
        let of_file = || Some((called(name.strip_suffix("_FILE")?)?, true));
        let Some((parameter, is_file)) = direct.or_else(of_file) else {
            warnings.push(format!(
                "the environment variable BASALT_{name} does not match any directive"
            ));
            continue;
        };
        let text = format!("BASALT_{name}={}", value.to_string_lossy());
        let place = DirectiveLocation::Environment;
        let value = lossless::text_of(value.as_bytes()).into_owned();
        if value.starts_with("tcp://") {
            warnings.push(format!(
                "the environment variable {text} is ignored: it seems to be set by the orchestrator"
            ));
            continue;
        }
        let failure = |reason: String| ConfigError::Directive {
            place: place.clone(),
            text: text.clone(),
            reason,
        };
        let value = match is_file {
            true => files::secret(Path::new(&value)).map_err(failure)?,
            false => value,
        };
        let name = parameter.name.to_owned();
        if directives
            .iter()
            .any(|known: &Directive| known.name == name)
        {
            let variable = environment_name(parameter);
            return Err(failure(format!(
                "BASALT_{variable} and BASALT_{variable}_FILE are both set: set only one of them"
            )));
        }
        directives.push(Directive {
            name,
            words: vec![value],
            text,
            place,
        });
    }
    directives.sort_by(|one, other| one.name.cmp(&other.name));
    warnings.sort();
    Ok((directives, warnings))
}

/// Returns the variable for a parameter, without `BASALT_`.
pub fn environment_name(parameter: &Parameter) -> String {
    parameter.name.to_ascii_uppercase().replace('-', "_")
}

/// Adds the directives on the command line to `found`.
/// Returns the defaults of a program that is called by a name of Redis's or Valkey's server: pods of their charts have
/// an exporter on port 9121, so the server's own metrics begin at the next port.
fn of_program(program: &OsStr) -> Result<Vec<Directive>, ConfigError> {
    let name = Path::new(program).file_name().unwrap_or_default();
    if name != "redis-server" && name != "valkey-server" {
        return Ok(Vec::new());
    }
    let line = format!("metrics-port {}", Config::METRICS_PORT_BESIDE_EXPORTER);
    let directive = redis_conf::parse_line(&line, DirectiveLocation::Arguments)?;
    Ok(directive.into_iter().collect())
}

fn of_arguments(lines: &[String], found: &mut Vec<Directive>) -> Result<(), ConfigError> {
    for line in lines {
        let directive = redis_conf::parse_line(line, DirectiveLocation::Arguments)?;
        let Some(directive) = directive else { continue };
        match (directive.name.as_str(), directive.words.as_slice()) {
            ("include", [pattern]) => {
                for included in files::matching(pattern) {
                    let text = files::read(&included)?;
                    expand(&included, &text, 1, found)?;
                }
            }
            _ => found.push(directive),
        }
    }
    Ok(())
}

/// Applies the directives in order, then checks the result; returns all errors.
fn apply(directives: &[Directive], warnings: &mut Vec<String>) -> Result<Config, Vec<ConfigError>> {
    let mut errors = Vec::new();
    // If the start directory does not exist any more, directives with absolute paths still work.
    let here = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
    let mut config = Config {
        dir: here,
        ..Config::default()
    };
    let mut last_mention: HashMap<&'static str, &Directive> = HashMap::new();
    for directive in directives {
        let failure = |reason: String| ConfigError::Directive {
            place: directive.place.clone(),
            text: directive.text.clone(),
            reason,
        };
        let Some(parameter) = find(&directive.name) else {
            if let Some(why) = foreign::reason(&directive.name)
                && !directive.words.is_empty()
            {
                warnings.push(format!("'{}' has no effect: {why}", directive.name));
                continue;
            }
            let taken = files::only_in_files(&mut config, directive);
            errors.extend(taken.map_err(failure).err());
            continue;
        };
        let mode = match last_mention.insert(parameter.name, directive) {
            None => Mode::Replace,
            Some(_) => Mode::Append,
        };
        let set = match directive.words.as_slice() {
            // One word that contains several words, as in `--save "60 1 300 10"`.
            [one] if parameter.takes_many() && !one.is_empty() => words::split_text(one)
                .map_err(str::to_owned)
                .and_then(|words| parameter.set(&mut config, &words, mode)),
            words => parameter.set(&mut config, words, mode),
        };
        errors.extend(set.map_err(failure).err());
    }

    config.hz = config.hz.clamp(1, 500);
    let default = Config::default();
    for parameter in PARAMETERS {
        let Some(directive) = last_mention.get(parameter.name) else {
            continue;
        };
        let support = parameter.traits.support;
        let is_default = parameter.is_default(&config, &default);
        let refusal = match support.refusal(is_default) {
            Some(reason) => Some(format!("'{}' is not supported: {reason}", parameter.name)),
            None => refusal_together(parameter, &config),
        };
        if let Some(reason) = refusal {
            errors.push(ConfigError::Directive {
                place: directive.place.clone(),
                text: directive.text.clone(),
                reason,
            });
            continue;
        }
        match support {
            Support::Warned(reason) if asks_for_something(parameter, &config, &default) => {
                let value = parameter.show(&config);
                warnings.push(format!(
                    "{} {value} is accepted, but {reason}",
                    parameter.name
                ));
            }
            Support::NoEffect(reason) if !parameter.is_default(&config, &default) => {
                warnings.push(format!("'{}' has no effect: {reason}", parameter.name));
            }
            _ => {}
        }
    }
    match errors.is_empty() {
        true => Ok(config),
        false => Err(errors),
    }
}

/// Returns the reason why a parameter's value conflicts with those of others.
fn refusal_together(parameter: &Parameter, config: &Config) -> Option<String> {
    let is_node = config.cluster_enabled == values::ClusterMode::Yes;
    match parameter.name {
        "replicaof" if is_node && config.replicaof.is_some() => {
            Some("replicaof directive not allowed in cluster mode".to_owned())
        }
        "maxmemory-db" => shares::refusal(config),
        _ => None,
    }
}

/// Whether a directive that was given requests something. Save points do even if they are the default ones, because
/// the operator who wrote them down relies on them.
fn asks_for_something(parameter: &Parameter, config: &Config, default: &Config) -> bool {
    let shown = parameter.show(config);
    let is_off = match parameter.kind {
        // Core 0 is a valid core, so only an empty text requests nothing.
        ParameterKind::Text { .. } => shown.is_empty(),
        _ => matches!(shown.as_str(), "" | "no" | "0"),
    };
    !is_off
        && (matches!(parameter.kind, ParameterKind::Special(_))
            || !parameter.is_default(config, default))
}

/// Checks at the start that the log file can be opened, so that the error is not noticed only when the first line is
/// lost.
fn check_log_file(config: &Config) -> Result<(), ConfigError> {
    if config.logfile.is_empty() {
        return Ok(());
    }
    let opened = std::fs::OpenOptions::new()
        .append(true)
        .create(true)
        .mode(config.file_mode)
        .open(config.dir.join(lossless::path_of(&config.logfile)));
    opened.map(drop).map_err(|error| {
        ConfigError::Whole(format!(
            "Can't open the log file: {}",
            values::system_text(&error)
        ))
    })
}
