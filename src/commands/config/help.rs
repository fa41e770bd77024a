//! The texts of `--help` and `--version`: the usage by clap, the directives from the table.

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
            "Only say whether the configuration is good, and what is unsafe in it",
        ))
        .arg(option("version", "Print the version").short('v'))
        .arg(option("help", "Print this").short('h'));
    let usage = command.render_help().to_string();
    format!("{usage}\n{TOOLS}\n{EXAMPLES}\n{}", directives())
}

const TOOLS: &str = "\
Tools:
  check-rdb FILE   Say what is in a snapshot and whether it is good
  check-aof FILE   Say whether an append-only file, or its manifest, is good; --fix cuts off what is not
  top              Show how a server is, second by second: basalt, Redis or Valkey (top --help)
  report FILE      Write one page of how a server is and was, to attach to an incident (report --help)
  completions      Print what bash, zsh or fish completes words by
  help [NAME …]    Print this, or what directives are for
";

const EXAMPLES: &str = "\
A directive takes all that follows up to the next --, and goes over what the file says:
  basalt /etc/basalt.toml --port 6380 --save '' --bind 127.0.0.1 ::1
  echo 'maxmemory 128mb' | basalt - --loglevel verbose
Between the two stands the environment: BASALT_MAXCLIENTS=1000 is `maxclients 1000`. With _FILE behind the name a file
has the value, as orchestrators hand secrets out: BASALT_REQUIREPASS_FILE=/run/secrets/password.
";

/// Returns the output of `help WORD …`: the directives of these names, or an error for a word that is not a
/// directive.
pub fn help_on(words: &[String]) -> Result<String, String> {
    let mut text = DIRECTIVES.to_owned();
    for word in words {
        let name = word.trim_start_matches('-').to_ascii_lowercase();
        let Some(parameter) = find(&name) else {
            let question = similar::question(&name);
            return Err(format!("There is no directive '{name}'{question}"));
        };
        text.push_str(&describe(parameter));
        if parameter.traits.mutable {
            text.push_str(&format!(
                "      CONFIG SET {} changes it.\n",
                parameter.name
            ));
        }
        text.push_str(&format!(
            "      In the environment: BASALT_{}.\n",
            environment_name(parameter)
        ));
    }
    Ok(text)
}

const DIRECTIVES: &str = "Directives (values; default; * when CONFIG SET may change it):\n";

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
        Support::Refused(why) => format!(" Only the default: {why}."),
    };
    format!("  --{name}{star} ({values}; {default})\n      {summary}{support}\n")
}
