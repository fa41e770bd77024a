//! The Dockerfile, and the entrypoint of the image with stand-ins: what it makes of the arguments of `docker run`.

use std::path::PathBuf;

use crate::stand_ins::StandIns;
use crate::{check_config, read, root};

/// The instructions of the Dockerfile, continued lines as one.
fn instructions() -> Vec<String> {
    let text = read("Dockerfile").replace("\\\n", " ");
    let lines = text
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(str::to_owned).collect()
}

#[test]
fn what_the_dockerfile_copies_is_there_and_its_bases_have_versions() {
    let mut copied = 0;
    for line in instructions() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[0] {
            "FROM" => {
                let (_, tag) = words[1].split_once(':').expect("a version of the base");
                assert!(
                    tag.contains(|c: char| c.is_ascii_alphanumeric()) && tag != "latest",
                    "{line}"
                );
            }
            "COPY" if !words[1].starts_with("--from") => {
                for source in &words[1..words.len() - 1] {
                    assert!(
                        root().join(source).exists(),
                        "{source} is copied, and is not there"
                    );
                    copied += 1;
                }
            }
            _ => {}
        }
    }
    assert!(copied >= 8, "only {copied} copied");
    assert!(instructions().iter().any(|line| line == "VOLUME /data"));
    assert!(
        instructions()
            .iter()
            .any(|line| line.starts_with("HEALTHCHECK "))
    );
    // Arguments of `docker run` replace CMD, so what has to stay must not stand there.
    assert!(!instructions().iter().any(|line| line.starts_with("CMD")));
    // The build needs all of the source that Cargo looks at; the folder of the repository is not sent.
    assert_eq!(
        read(".dockerignore").lines().collect::<Vec<_>>(),
        ["target", ".git", "out"]
    );
}

/// Returns the command that the entrypoint executes, one word per line, as the user with this ID.
struct Entrypoint {
    stand_ins: StandIns,
}

impl Entrypoint {
    fn of_user(id: &str) -> Entrypoint {
        let stand_ins = StandIns::new(&["find"]);
        for program in ["basalt", "bash", "redis-cli"] {
            stand_ins.set(program, &format!("printf '%s\\n' {program} \"$@\""));
        }
        stand_ins.set("id", &format!("echo {id}"));
        stand_ins.set(
            "setpriv",
            "while [ \"$1\" != -- ]; do shift; done; shift; \"$@\"",
        );
        Entrypoint { stand_ins }
    }

    fn runs(&self, arguments: &[&str], environment: &[(&str, &str)]) -> Vec<String> {
        let script = root().join("packaging/docker/entrypoint");
        let output = self.stand_ins.run(&script, arguments, environment);
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        let text = String::from_utf8(output.stdout).expect("text");
        text.lines().map(str::to_owned).collect()
    }
}

/// Returns the arguments that the image adds to those of the server.
const OWN: [&str; 7] = [
    "--bind",
    "*",
    "-::*",
    "--protected-mode",
    "no",
    "--dir",
    "/data",
];

fn with(first: &[&str], last: &[&str]) -> Vec<String> {
    let all = first.iter().chain(&OWN).chain(last);
    all.map(|word| (*word).to_owned()).collect()
}

#[test]
fn arguments_of_the_server_go_over_those_of_the_image_and_do_not_replace_them() {
    let entrypoint = Entrypoint::of_user("1000");
    for arguments in [
        &[][..],
        &["--maxmemory", "1gb"],
        &["--save", "", "--bind", "127.0.0.1"],
    ] {
        assert_eq!(
            entrypoint.runs(arguments, &[]),
            with(&["basalt"], arguments)
        );
        for name in ["basalt", "redis-server", "valkey-server"] {
            let named = [&[name], arguments].concat();
            assert_eq!(entrypoint.runs(&named, &[]), with(&["basalt"], arguments));
        }
    }
    // The server takes what the image gives it, but for a folder that is not here.
    assert_eq!(check_config(&OWN[..5]), Ok(()));
    assert_eq!(
        check_config(&[&OWN[..5], &["--bind", "127.0.0.1"]].concat()),
        Ok(())
    );
}

/// A file with this text, in a folder that lasts as long as the first value.
fn file(name: &str, text: &str) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let path: PathBuf = folder.path().join(name);
    std::fs::write(&path, text).expect("a file");
    let path = path.to_string_lossy().into_owned();
    (folder, path)
}

#[test]
fn a_file_goes_over_what_the_image_says() {
    let entrypoint = Entrypoint::of_user("1000");
    for (name, text, kept) in [
        ("a.conf", "maxmemory 1gb\n", &OWN[..]),
        ("a.conf", "# protected-mode yes\nprotected-mode-x 1\n", &OWN),
        (
            "a.conf",
            "  Protected-Mode yes\n",
            &["--bind", "*", "-::*", "--dir", "/data"],
        ),
        (
            "a.conf",
            "bind 10.0.0.1\ndir /srv\n",
            &["--protected-mode", "no"],
        ),
        (
            "a.toml",
            "bind = \"10.0.0.1\"\n\"dir\"=\"/srv\"\n",
            &["--protected-mode", "no"],
        ),
        ("a.conf", "include other.conf\n", &[]),
    ] {
        let (_folder, path) = file(name, text);
        let expect = [&["basalt", &path][..], kept, &["--port", "7000"]].concat();
        assert_eq!(
            entrypoint.runs(&[&path, "--port", "7000"], &[]),
            expect,
            "{text}"
        );
    }
    // Standard input is not looked into.
    assert_eq!(
        entrypoint.runs(&["-", "--port", "1"], &[]),
        with(&["basalt", "-"], &["--port", "1"])
    );
}

#[test]
fn the_environment_goes_over_what_the_image_says() {
    let entrypoint = Entrypoint::of_user("1000");
    assert_eq!(
        entrypoint.runs(
            &[],
            &[("BASALT_PROTECTED_MODE", "yes"), ("BASALT_BIND", "")]
        ),
        ["basalt", "--dir", "/data"]
    );
}

#[test]
fn other_programs_and_tools_run_as_they_stand() {
    let entrypoint = Entrypoint::of_user("0");
    for words in [
        &["bash"][..],
        &["bash", "-c", "echo  a"],
        &["redis-cli", "--version"],
    ] {
        assert_eq!(entrypoint.runs(words, &[]), words);
        let calls = entrypoint.stand_ins.take_calls();
        assert_eq!(
            calls.len(),
            1,
            "nothing but the program is called: {calls:?}"
        );
    }
    for words in [
        &["check-rdb", "dump.rdb"][..],
        &["check-aof", "--fix", "x"],
        &["top", "-p", "6380"],
        &["report", "page.html"],
        &["help"],
        &["--version"],
        &["-h"],
    ] {
        assert_eq!(entrypoint.runs(words, &[]), [&["basalt"], words].concat());
        assert_eq!(
            entrypoint.runs(&[&["basalt"], words].concat(), &[]),
            [&["basalt"], words].concat()
        );
    }
}

#[test]
fn root_gives_the_data_to_the_user_of_the_server_and_becomes_it() {
    let drop = "setpriv --reuid=basalt --regid=basalt --clear-groups --no-new-privs --";
    let entrypoint = Entrypoint::of_user("0");
    assert_eq!(
        entrypoint.runs(&["--port", "1"], &[]),
        with(&["basalt"], &["--port", "1"])
    );
    let server = with(&["basalt"], &["--port", "1"]).join(" ");
    let expect = [
        "id -u",
        &format!("{drop} true"),
        "find /data ! -user basalt -exec chown basalt {} +",
        &format!("{drop} {server}"),
        &server,
    ];
    assert_eq!(entrypoint.stand_ins.take_calls(), expect);

    // A container without the right to change its user.
    entrypoint.stand_ins.set("setpriv", "exit 1");
    assert_eq!(entrypoint.runs(&[], &[]), with(&["basalt"], &[]));
    // Any other user is left alone.
    let entrypoint = Entrypoint::of_user("12345");
    entrypoint.runs(&[], &[]);
    let calls = entrypoint.stand_ins.take_calls();
    assert_eq!(calls, ["id -u", &with(&["basalt"], &[]).join(" ")]);
}
