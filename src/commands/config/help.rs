//! The texts of `--help` and `--version`: clap formats the usage, and the table of parameters provides the
//! directives.

use clap::{Arg, ArgAction, Command};

use crate::config::layers::environment_name;
use crate::config::parameter::{Parameter, Support};
use crate::config::table::PARAMETERS;
use crate::config::{find, similar};

/// Returns the output of `--version`.
pub fn version() -> String {
    let bits = usize::BITS;
    format!("basalt v={} bits={bits}", env!("CARGO_PKG_VERSION"))
}

/// Returns the output of `--help`.
pub fn help() -> String {
    let option = |name: &'static str, about: &'static str| {
        Arg::new(name)
            .long(name)
            .action(ArgAction::SetTrue)
            .help(about)
    };
    let mut command = Command::new("basalt")
        .about(env!("CARGO_PKG_DESCRIPTION"))
        .override_usage(
            "basalt [FILE | -] [--directive value …]\n       basalt check-rdb FILE\n       basalt check-aof [--fix | \
             --truncate-to-timestamp SECONDS] FILE\n       basalt top [-h HOST] [-p PORT] [--tls]\n       basalt report [--tls] FILE\n       \
             basalt help [DIRECTIVE …]",
        )
        .disable_help_flag(true)
        .arg(
            Arg::new("FILE")
                .help("Configuration in redis.conf syntax or TOML; - reads standard input"),
        )
        .arg(option(
            "check-config",
            "Check the configuration, report what is invalid or unsafe, and exit",
        ))
        .arg(option("version", "Print the version").short('v'))
        .arg(option("help", "Print this help").short('h'));
    let usage = command.render_help().to_string();
    format!("{usage}\n{TOOLS}\n{EXAMPLES}\n{}", directives())
}

const TOOLS: &str = "\
Tools:
  check-rdb FILE   Check a snapshot and show what it contains
  check-aof FILE   Check an append-only file or its manifest; --fix truncates it at the first error
  top              Show live statistics of a basalt, Redis or Valkey server (top --help)
  report FILE      Write an HTML report of a server, to attach to an incident (report --help)
  completions      Print a completion script for bash, zsh or fish
  help [NAME …]    Print this help, or help on directives
";

const EXAMPLES: &str = "\
A directive takes all values up to the next --, and overrides the configuration file:
  basalt /etc/basalt.toml --port 6380 --save '' --bind 127.0.0.1 ::1
  echo 'maxmemory 128mb' | basalt - --loglevel verbose
Environment variables override the file, and arguments override both: BASALT_MAXCLIENTS=1000 is `maxclients 1000`. If
the name ends with _FILE, the value is read from that file: BASALT_REQUIREPASS_FILE=/run/secrets/password.
";

/// Returns the output of `help WORD …`: the directives of these names. Other words are errors.
pub fn help_on(words: &[String]) -> Result<String, String> {
    let mut text = DIRECTIVES.to_owned();
    for word in words {
        let name = word.trim_start_matches('-').to_ascii_lowercase();
        let Some(parameter) = find(&name) else {
            let question = similar::question(&name);
            return Err(format!("Unknown directive '{name}'{question}"));
        };
        text.push_str(&describe(parameter));
        if parameter.traits.mutable {
            text.push_str(&format!(
                "      Can be changed at runtime: CONFIG SET {}.\n",
                parameter.name
            ));
        }
        text.push_str(&format!(
            "      Environment variable: BASALT_{}.\n",
            environment_name(parameter)
        ));
    }
    Ok(text)
}

const DIRECTIVES: &str = "Directives (values; default; *: CONFIG SET can change it):\n";

fn directives() -> String {
    let shown = PARAMETERS.iter().filter(|each| !each.traits.hidden);
    DIRECTIVES.to_owned() + &shown.map(describe).collect::<String>()
}

fn describe(parameter: &Parameter) -> String {
    let star = if parameter.traits.mutable { "*" } else { "" };
    let default = match parameter.default_text() {
        empty if empty.is_empty() => "\"\"".to_owned(),
        value => value,
    };
    let (name, values, summary) = (parameter.name, parameter.values(), parameter.summary);
    let support = match parameter.traits.support {
        Support::Works => String::new(),
        Support::NoEffect(why) => format!(" No effect: {why}."),
        Support::Warned(why) => format!(" Accepted, but {why}."),
        Support::Refused(why) => format!(" Only the default is accepted: {why}."),
    };
    format!("  --{name}{star} ({values}; {default})\n      {summary}{support}\n")
}
