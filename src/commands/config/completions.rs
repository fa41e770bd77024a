//! `basalt completions SHELL`: prints the script with which a shell completes command lines of this program: its
//! tools, and directives as arguments. The script is generated from the table of parameters, so that it includes new
//! directives.

use std::fmt::Write;

use crate::config::table::PARAMETERS;

/// The tools of this program, with descriptions.
const TOOLS: [(&str, &str); 6] = [
    ("check-rdb", "Check a snapshot and show what it contains"),
    ("check-aof", "Check an append-only file"),
    ("top", "Show live statistics of a server"),
    ("report", "Write an HTML report of a server"),
    ("help", "Print help on directives"),
    ("completions", "Print a shell completion script"),
];

/// Options of the server other than directives.
const OPTIONS: [(&str, &str); 3] = [
    ("check-config", "Check the configuration and exit"),
    ("version", "Print the version"),
    ("help", "Print the help"),
];

/// Returns the script for a shell; or an error that lists the supported shells.
pub fn of_shell(shell: &str) -> Result<String, String> {
    match shell {
        "bash" => Ok(bash()),
        "zsh" => Ok(zsh()),
        "fish" => Ok(fish()),
        _ => Err("Usage: basalt completions bash|zsh|fish".to_owned()),
    }
}

/// Returns options and directives, and their purpose.
fn options() -> impl Iterator<Item = (&'static str, &'static str)> {
    let shown = PARAMETERS.iter().filter(|each| !each.traits.hidden);
    let directives = shown.map(|parameter| (parameter.name, parameter.summary));
    OPTIONS.into_iter().chain(directives)
}

fn bash() -> String {
    let tools: Vec<&str> = TOOLS.iter().map(|(name, _)| *name).collect();
    let options: Vec<String> = options().map(|(name, _)| format!("--{name}")).collect();
    let (tools, options) = (tools.join(" "), options.join(" "));
    format!(
        r#"_basalt() {{
  local word=${{COMP_WORDS[COMP_CWORD]}}
  if [[ $word == -* ]]; then
    COMPREPLY=($(compgen -W "{options}" -- "$word"))
  elif [[ ${{COMP_WORDS[1]}} == help && $COMP_CWORD -gt 1 ]]; then
    local names="{options}"
    COMPREPLY=($(compgen -W "${{names//--/}}" -- "$word"))
  else
    COMPREPLY=($(compgen -f -- "$word"))
    [[ $COMP_CWORD -gt 1 ]] || COMPREPLY+=($(compgen -W "{tools}" -- "$word"))
  fi
}}
complete -o filenames -F _basalt basalt
"#
    )
}

fn zsh() -> String {
    let described =
        |name: &str, about: &str| format!("  '{name}:{}'\n", about.replace('\'', r"'\''"));
    let tools: String = TOOLS
        .iter()
        .map(|(name, about)| described(name, about))
        .collect();
    let options: String = options()
        .map(|(name, about)| described(&format!("--{name}"), about))
        .collect();
    format!(
        "#compdef basalt\nlocal -a tools options\ntools=(\n{tools})\noptions=(\n{options})\n\
         if [[ $PREFIX == -* ]]; then\n  _describe option options\n\
         else\n  (( CURRENT > 2 )) || _describe tool tools\n  _files\nfi\n"
    )
}

fn fish() -> String {
    let mut text = String::new();
    let quoted = |about: &str| about.replace('\\', r"\\").replace('\'', r"\'");
    for (name, about) in TOOLS {
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "complete -c basalt -n __fish_use_subcommand -a {name} -d '{}'",
            quoted(about)
        );
    }
    for (name, about) in options() {
        let _ = writeln!(text, "complete -c basalt -l {name} -d '{}'", quoted(about));
    }
    text
}
