//! The texts of `--help` and `--version`: the usage by clap, the directives from the table.

use clap::{Arg, ArgAction, Command};

use crate::config::parameter::Support;
use crate::config::table::PARAMETERS;

/// What `--version` prints.
pub fn version() -> String {
    let bits = usize::BITS;
    format!("basalt v={} bits={bits}", env!("CARGO_PKG_VERSION"))
}

/// What `--help` prints.
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
             basalt help",
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
  help             Print this
";

const EXAMPLES: &str = "\
A directive takes all that follows up to the next --, and goes over what the file says:
  basalt /etc/basalt.toml --port 6380 --save '' --bind 127.0.0.1 ::1
  echo 'maxmemory 128mb' | basalt - --loglevel verbose
Between the two stands the environment: BASALT_MAXCLIENTS=1000 is `maxclients 1000`.
";

fn directives() -> String {
    let mut text = String::from("Directives (values; default; * when CONFIG SET may change it):\n");
    for parameter in PARAMETERS
        .iter()
        .filter(|parameter| !parameter.traits.hidden)
    {
        let star = if parameter.traits.mutable { "*" } else { "" };
        let default = match parameter.default_text() {
            empty if empty.is_empty() => "\"\"".to_owned(),
            value => value,
        };
        text.push_str(&format!(
            "  --{}{star} ({}; {default})\n",
            parameter.name,
            parameter.values()
        ));
        text.push_str(&format!("      {}", parameter.summary));
        match parameter.traits.support {
            Support::Works => {}
            Support::NoEffect(why) => text.push_str(&format!(" No effect: {why}.")),
            Support::Warned(why) => text.push_str(&format!(" Accepted, but {why}.")),
            Support::Refused(why) => text.push_str(&format!(" Only the default: {why}.")),
        }
        text.push('\n');
    }
    text
}
