//! Maps arguments to a configuration, to `start::run`, to an exit code; only this file may print and exit.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use basalt_commands::config::{self, Action, ConfigError, Startup};
use basalt_server::persist::aof::check;
use basalt_server::persist::rdb::check as check_snapshot;
use basalt_server::start;
use basalt_tools::report;
use basalt_tools::top;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os();
    let program = arguments.next().unwrap_or_default();
    let arguments: Vec<OsString> = arguments.collect();
    if let Some(code) = run_tool(&program, &arguments) {
        return code;
    }
    let startup = refuse_program_name(&program).and_then(|()| config::load(&program, &arguments));
    match startup {
        Ok(startup) => act(startup, &program),
        Err(error) => {
            // Redis separates its error block from earlier output.
            eprintln!("\n{error}");
            ExitCode::FAILURE
        }
    }
}

fn act(startup: Startup, program: &OsStr) -> ExitCode {
    match startup.action {
        Action::Version => print(&config::help::version()),
        Action::Help => print(&config::help::help()),
        Action::Check => {
            let checked = start::check(&startup);
            let advice = checked.as_deref().unwrap_or_default();
            for warning in startup.warnings.iter().chain(advice) {
                print(&format!("Warning: {warning}"));
            }
            if let Err(text) = checked {
                eprintln!("{text}");
                return ExitCode::FAILURE;
            }
            print("The configuration is valid");
        }
        Action::Run => {
            if let Err(error) = std::env::set_current_dir(&startup.config.dir) {
                eprintln!(
                    "\n{}",
                    config::error::directory_failure(&startup.config, &error)
                );
                return ExitCode::FAILURE;
            }
            let code = start::run(startup, program.to_string_lossy().into_owned());
            return ExitCode::from(u8::try_from(code).unwrap_or(1));
        }
    }
    ExitCode::SUCCESS
}

/// Runs the requested tool instead of the server, if any: selected by program name, as a link to this binary, or by the
/// first argument.
fn run_tool(program: &OsStr, arguments: &[OsString]) -> Option<ExitCode> {
    let name = Path::new(program).file_name().unwrap_or_default();
    let first = arguments.first().map(OsString::as_os_str);
    if name.to_string_lossy().ends_with("-check-rdb") {
        return Some(check_rdb(arguments));
    }
    if name.to_string_lossy().ends_with("-check-aof") {
        return Some(check_aof(arguments));
    }
    match first.and_then(OsStr::to_str) {
        Some("check-aof") => Some(check_aof(&arguments[1..])),
        Some("check-rdb") => Some(check_rdb(&arguments[1..])),
        Some("top") => Some(end(top::run(&arguments[1..]))),
        Some("report") => Some(end(report::run(&arguments[1..]).map(|text| print(&text)))),
        Some("completions") => {
            let shell = arguments.get(1).map(|shell| shell.to_string_lossy());
            let text = config::completions::of_shell(&shell.unwrap_or_default());
            Some(end(text.map(|text| print(&text))))
        }
        Some("help") => Some(end(help(&arguments[1..]).map(|text| print(&text)))),
        _ => None,
    }
}

/// Returns the help, or the help on the given names.
fn help(names: &[OsString]) -> Result<String, String> {
    let names: Vec<String> = names
        .iter()
        .map(|name| name.to_string_lossy().into_owned())
        .collect();
    match names.is_empty() {
        true => Ok(config::help::help()),
        false => config::help::help_on(&names),
    }
}

fn check_rdb(arguments: &[OsString]) -> ExitCode {
    let [path] = arguments else {
        eprintln!("Usage: basalt check-rdb <rdb-file-name>");
        return ExitCode::FAILURE;
    };
    match check_snapshot::check_file(Path::new(path), &mut std::io::stdout().lock()) {
        Ok(true) => ExitCode::SUCCESS,
        // A reader that has closed the pipe, as in `| head`, has not seen everything.
        Ok(false) | Err(_) => ExitCode::FAILURE,
    }
}

fn check_aof(arguments: &[OsString]) -> ExitCode {
    let (mut input, mut out) = (std::io::stdin().lock(), std::io::stdout().lock());
    match check::run(arguments, &mut input, &mut out) {
        Ok(true) => ExitCode::SUCCESS,
        // A reader that has closed the pipe, as in `| head`, has not seen everything.
        Ok(false) | Err(_) => ExitCode::FAILURE,
    }
}

/// Returns the exit code of a tool, and prints its error to standard error.
fn end(ended: Result<(), String>) -> ExitCode {
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            eprintln!("{}", text.trim_end());
            ExitCode::FAILURE
        }
    }
}

/// Prints a text. A reader that has closed the pipe, as in `basalt --help | head`, is not an error.
fn print(text: &str) {
    let _ = writeln!(std::io::stdout(), "{}", text.trim_end());
}

/// Refuses program names under which redis-server acts as another program.
fn refuse_program_name(program: &OsString) -> Result<(), ConfigError> {
    let name = Path::new(program)
        .file_name()
        .unwrap_or_default()
        .to_string_lossy();
    let what = match name.as_ref() {
        name if name.ends_with("-sentinel") => "act as a Sentinel",
        _ => return Ok(()),
    };
    Err(ConfigError::Argument(format!(
        "{name}: basalt does not {what}; use the Redis program of that name"
    )))
}
