//! The server as a new operator meets it: the messages of daemon mode, the config check, help, the shell and
//! files.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::operating::{Killed, output, prepared};
use crate::support::{self, check, eventually, free_port, is_listening, is_stand_in};
use crate::wire::Raw;

#[test]
fn a_server_in_the_background_that_can_not_load_its_data_fails_on_the_terminal() {
    if is_stand_in() {
        return;
    }
    for (is_log, name, bytes, why) in [
        (
            false,
            "dump.rdb",
            &b"no snapshot at all"[..],
            "Wrong signature",
        ),
        (
            true,
            "appendonly.aof",
            b"*1\r\n$4\r\nPING\r\ngarbage",
            "Bad file format",
        ),
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join(name), bytes).expect("a file");
        let mut command = prepared(free_port(), folder.path());
        command
            .args(["--daemonize", "yes", "--logfile"])
            .arg(folder.path().join("log"))
            .args(["--appendonly", if is_log { "yes" } else { "no" }]);
        let (is_good, _, stderr) = output(&mut command);
        assert!(!is_good, "{name}: {stderr}");
        assert!(stderr.contains(why), "{name}: {stderr}");
        let names_tool = stderr.contains("basalt check-aof --fix /");
        assert_eq!(names_tool, is_log, "{name}: {stderr}");
    }
}

#[test]
fn the_check_of_a_configuration_names_all_that_is_wrong() {
    if is_stand_in() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("basalt.conf");
    let text =
        "maxmemry 1gb\nport x\nmaxclients 10\nappendfsync sometimes\nuser a on\nuser a off\n";
    fs::write(&file, text).expect("a file");
    let mut command = support::command();
    command.arg("--check-config").arg(&file);
    let (is_good, _, stderr) = output(&mut command);
    assert!(!is_good);
    for wrong in [
        "maxmemry 1gb",
        "port x",
        "appendfsync sometimes",
        "user a off",
    ] {
        assert!(stderr.contains(&format!(">>> '{wrong}'")), "{stderr}");
    }
    assert!(!stderr.contains("maxclients"), "{stderr}");
    // A start stops at the first, in the one block that tools look for.
    let mut command = support::command();
    let (is_good, _, stderr) = output(command.arg(&file));
    assert!(!is_good && stderr.matches(">>> '").count() == 1, "{stderr}");
}

#[test]
fn a_secret_comes_from_a_file_that_a_variable_names() {
    if is_stand_in() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let secret = folder.path().join("password");
    fs::write(&secret, "open sesame\n").expect("a file");
    let port = free_port();
    let mut command = prepared(port, folder.path());
    command.env("BASALT_REQUIREPASS_FILE", &secret);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let _server = Killed(command.spawn().expect("the server"));
    eventually("it listens", || is_listening(port));
    let mut raw = Raw::connect(port);
    assert!(raw.call("PING").show().contains("NOAUTH"));
    check(&mut raw, "AUTH \"open sesame\"", "OK");

    let refused = |name: &str, value: &Path, why: &str| {
        let mut command = support::command();
        command.arg("--check-config").env(name, value);
        if why.contains("both") {
            command.env("BASALT_REQUIREPASS", "x");
        }
        let (is_good, _, stderr) = output(&mut command);
        assert!(!is_good && stderr.contains(why), "{name}: {stderr}");
        assert!(!stderr.contains("sesame"), "{stderr}");
    };
    refused("BASALT_REQUIREPASS_FILE", &secret, "are both set");
    let gone = folder.path().join("gone");
    refused("BASALT_REQUIREPASS_FILE", &gone, "No such file");
    let empty = folder.path().join("empty");
    fs::write(&empty, "\n").expect("a file");
    refused("BASALT_MASTERAUTH_FILE", &empty, "is empty");
}

#[test]
fn help_tells_of_one_directive_and_asks_where_it_is_misspelt() {
    if is_stand_in() {
        return;
    }
    let help = |word: &str| output(support::command().args(["help", word]));
    let (is_good, text, _) = help("maxmemory");
    assert!(is_good && text.contains("--maxmemory*"), "{text}");
    assert!(
        text.contains("BASALT_MAXMEMORY") && text.lines().count() < 8,
        "{text}"
    );
    let (is_good, _, stderr) = help("maxmemry");
    assert!(
        !is_good && stderr.contains("did you mean 'maxmemory'?"),
        "{stderr}"
    );
}

#[test]
fn a_file_in_toml_gets_no_lines_that_only_say_defaults() {
    if is_stand_in() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("basalt.toml");
    let port = free_port();
    let text = format!(
        "bind = \"127.0.0.1\"\nport = {port}\nmetrics-port = 0\ndir = {:?}\n",
        folder.path()
    );
    fs::write(&file, &text).expect("a file");
    let mut command = support::command();
    command
        .arg(&file)
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let _server = Killed(command.spawn().expect("the server"));
    eventually("it listens", || is_listening(port));
    check(&mut Raw::connect(port), "CONFIG REWRITE", "OK");
    assert_eq!(fs::read_to_string(&file).expect("a file"), text);
}

#[test]
fn shells_complete_tools_and_directives() {
    if is_stand_in() {
        return;
    }
    for shell in ["bash", "zsh", "fish"] {
        let (is_good, text, stderr) = output(support::command().args(["completions", shell]));
        assert!(is_good && text.contains("maxmemory-policy"), "{stderr}");
    }
    let script = "source <(\"$0\" completions bash); COMP_WORDS=(basalt --maxmemory-p); COMP_CWORD=1; _basalt; \
                  echo \"${COMPREPLY[@]}\"; COMP_WORDS=(basalt check-r); _basalt; echo \"${COMPREPLY[@]}\"";
    let mut bash = Command::new("bash");
    bash.arg("-c").arg(script).arg(support::basalt());
    let (_, text, stderr) = output(&mut bash);
    assert_eq!(text, "--maxmemory-policy\ncheck-rdb\n", "{stderr}");
    assert!(!output(support::command().args(["completions", "csh"])).0);
}
