//! The Debian package: what packaging/build-deb makes of the server that was built with the tests, and the package's
//! scripts with stand-ins for the programs that change users and services.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::stand_ins::StandIns;
use crate::{check_config, read, root, server};

/// Returns the output of a command, which must succeed.
fn output(command: &mut Command) -> String {
    let done = command.output().expect("the program starts");
    assert!(
        done.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&done.stderr)
    );
    String::from_utf8(done.stdout).expect("text")
}

fn is_there(program: &str) -> bool {
    Command::new(program)
        .arg("--version")
        .output()
        .is_ok_and(|done| done.status.success())
}

/// The package, made of the debug build, or none with a line about what is missing.
fn build(folder: &Path) -> Option<PathBuf> {
    for program in ["dpkg-deb", "dpkg-shlibdeps", "strip"] {
        if !is_there(program) {
            eprintln!("SKIPPED: there is no {program}, so no package is built");
            return None;
        }
    }
    let printed = output(
        Command::new(root().join("packaging/build-deb"))
            .args([server().as_path(), folder])
            .env("COMPRESSION", "none"),
    );
    Some(PathBuf::from(printed.trim()))
}

/// Mode and owner of each file of a package, and where links lead.
fn list(package: &Path) -> BTreeMap<String, String> {
    let listed = output(Command::new("dpkg-deb").arg("--contents").arg(package));
    let line = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let path = words[5].trim_start_matches('.').to_owned();
        let link = words
            .get(7)
            .map_or(String::new(), |target| format!(" -> {target}"));
        (path, format!("{} {}{link}", words[0], words[1]))
    };
    listed.lines().map(line).collect()
}

#[test]
fn the_package_has_what_a_server_needs_with_the_right_permissions() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(package) = build(folder.path()) else {
        return;
    };
    let files = list(&package);
    let expect = [
        ("/etc/basalt/basalt.conf", "-rw-r----- root/root"),
        ("/etc/logrotate.d/basalt", "-rw-r--r-- root/root"),
        ("/usr/bin/basalt", "-rwxr-xr-x root/root"),
        (
            "/usr/bin/basalt-check-aof",
            "lrwxrwxrwx root/root -> basalt",
        ),
        (
            "/usr/bin/basalt-check-rdb",
            "lrwxrwxrwx root/root -> basalt",
        ),
        (
            "/usr/lib/systemd/system/basalt.service",
            "-rw-r--r-- root/root",
        ),
        (
            "/usr/lib/systemd/system/basalt@.service",
            "-rw-r--r-- root/root",
        ),
        ("/usr/share/doc/basalt/changelog.gz", "-rw-r--r-- root/root"),
        ("/usr/share/doc/basalt/copyright", "-rw-r--r-- root/root"),
        (
            "/usr/share/doc/basalt/examples/basalt.conf",
            "-rw-r--r-- root/root",
        ),
        (
            "/usr/share/doc/basalt/examples/basalt.toml",
            "-rw-r--r-- root/root",
        ),
        (
            "/usr/share/lintian/overrides/basalt",
            "-rw-r--r-- root/root",
        ),
        (
            "/usr/share/man/man1/basalt-check-aof.1.gz",
            "lrwxrwxrwx root/root -> basalt.1.gz",
        ),
        (
            "/usr/share/man/man1/basalt-check-rdb.1.gz",
            "lrwxrwxrwx root/root -> basalt.1.gz",
        ),
        ("/usr/share/man/man1/basalt.1.gz", "-rw-r--r-- root/root"),
        ("/var/lib/basalt/", "drwxr-x--- root/root"),
        ("/var/log/basalt/", "drwxr-x--- root/root"),
    ];
    let pages = std::fs::read_dir(root().join("docs")).expect("the pages");
    let pages = pages.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let pages = pages.filter(|name| name.ends_with(".md"));
    let pages: Vec<String> = pages
        .map(|name| format!("/usr/share/doc/basalt/docs/{name}"))
        .collect();
    assert!(pages.len() > 5, "{pages:?}");
    let plain = [
        "/usr/share/basalt/grafana/basalt.json",
        "/usr/share/basalt/prometheus/rules.yml",
        "/usr/share/bash-completion/completions/basalt",
        "/usr/share/fish/vendor_completions.d/basalt.fish",
        "/usr/share/zsh/vendor-completions/_basalt",
        "/usr/share/doc/basalt/README.md",
        "/usr/share/doc/basalt/SECURITY.md",
    ];
    let plain = plain.into_iter().chain(pages.iter().map(String::as_str));
    let plain = plain.map(|path| (path, "-rw-r--r-- root/root"));
    let expect: BTreeMap<&str, &str> = expect.into_iter().chain(plain).collect();
    let is_own =
        |path: &str| !path.ends_with('/') || path.starts_with("/var/l") && path.contains("basalt");
    let found: BTreeMap<&str, &str> = files
        .iter()
        .map(|(path, facts)| (path.as_str(), facts.as_str()))
        .filter(|(path, _)| is_own(path))
        .collect();
    assert_eq!(found, expect);

    let field = |name: &str| {
        output(
            Command::new("dpkg-deb")
                .arg("--field")
                .arg(&package)
                .arg(name),
        )
    };
    assert_eq!(field("Version").trim(), env!("CARGO_PKG_VERSION"));
    assert_eq!(
        field("Architecture"),
        output(Command::new("dpkg").arg("--print-architecture"))
    );
    let depends = field("Depends");
    for needed in ["libc6 (>= 2.", "adduser", "init-system-helpers"] {
        assert!(depends.contains(needed), "{depends}");
    }

    let control = folder.path().join("control");
    output(
        Command::new("dpkg-deb")
            .arg("--control")
            .arg(&package)
            .arg(&control),
    );
    let conffiles = std::fs::read_to_string(control.join("conffiles")).expect("conffiles");
    assert_eq!(
        conffiles,
        "/etc/basalt/basalt.conf\n/etc/logrotate.d/basalt\n"
    );
    let unpacked = folder.path().join("unpacked");
    output(
        Command::new("dpkg-deb")
            .arg("--extract")
            .arg(&package)
            .arg(&unpacked),
    );
    output(
        Command::new("md5sum")
            .args(["--check", "--quiet", "../control/md5sums"])
            .current_dir(&unpacked),
    );
    let installed = unpacked.join("usr/bin/basalt-check-rdb");
    let tool = Command::new(installed).output().expect("the tool starts");
    assert!(
        String::from_utf8_lossy(&tool.stderr).contains("check-rdb"),
        "{tool:?}"
    );
}

#[test]
fn the_configuration_of_the_package_is_the_example_with_its_folders() {
    let folder = tempfile::tempdir().expect("a folder");
    let example = root().join("config/basalt.conf");
    let text = output(Command::new(root().join("packaging/debian/conf")).arg(&example));
    let example = read("config/basalt.conf");
    let added: Vec<&str> = text
        .lines()
        .filter(|line| !example.lines().any(|other| other == *line))
        .collect();
    assert_eq!(
        added,
        [
            "unixsocket /run/basalt/basalt.sock",
            "unixsocketperm 770",
            "logfile /var/log/basalt/basalt.log",
            "# Directory of the data files.",
            "dir /var/lib/basalt",
        ]
    );
    // Good as it stands, but for folders that are not here.
    let local = text
        .replace("/var/lib/basalt", "/tmp")
        .replace("/var/log/basalt", "/tmp");
    let path = folder.path().join("basalt.conf");
    std::fs::write(&path, local).expect("a file");
    assert_eq!(check_config(&[&path.to_string_lossy()]), Ok(()));

    // An example that has changed is not taken half.
    std::fs::write(&path, example.replace("#dir ./", "#dir /tmp")).expect("a file");
    let refused = Command::new(root().join("packaging/debian/conf"))
        .arg(&path)
        .output()
        .expect("it starts");
    assert!(!refused.status.success());
}

/// The value of a key of a unit, which stands there once.
fn of_unit(name: &str, key: &str) -> String {
    let text = read(&format!("packaging/debian/{name}"));
    let start = format!("{key}=");
    let found: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix(&start))
        .collect();
    assert_eq!(found.len(), 1, "{name}: {key}");
    found[0].to_owned()
}

#[test]
fn both_units_keep_the_server_in_its_folders() {
    for (unit, part) in [("basalt.service", ""), ("basalt@.service", "/%i")] {
        let writable = format!("/var/lib/basalt{part} /var/log/basalt{part}");
        assert_eq!(of_unit(unit, "ReadWritePaths"), writable);
        assert_eq!(of_unit(unit, "StateDirectory"), format!("basalt{part}"));
        assert_eq!(
            of_unit(unit, "WorkingDirectory"),
            format!("/var/lib/basalt{part}")
        );
        // A stop waits for replicas and saves; 10 s are the default of shutdown-timeout.
        let stop: u32 = of_unit(unit, "TimeoutStopSec").parse().expect("seconds");
        assert!(stop > 10);
        let command = of_unit(unit, "ExecStart");
        let words: Vec<&str> = command.split_whitespace().collect();
        assert_eq!(words[0], "/usr/bin/basalt");
        assert_eq!(check_config(&words[2..]), Ok(()));
        // The unit checks the arguments that it starts with.
        let checked = of_unit(unit, "ExecStartPre");
        let start = words[1..].join(" ");
        assert_eq!(checked, format!("{} --check-config {start}", words[0]));
    }
    // Everything else is alike.
    let plain = |text: &str| {
        let keys = text
            .lines()
            .filter(|line| !line.starts_with('#') && !line.starts_with("Description"));
        keys.collect::<Vec<_>>().join("\n")
    };
    let (one, many) = (
        read("packaging/debian/basalt.service"),
        read("packaging/debian/basalt@.service"),
    );
    let as_one = many
        .replace("basalt-%i", "basalt")
        .replace("/%i.conf", "/basalt.conf")
        .replace("/%i", "");
    assert_eq!(plain(&as_one), plain(&one));
}

/// The scripts of the package in a folder of their own, as dpkg runs them from outside of the root that it fills.
struct Installed {
    stand_ins: StandIns,
    root: tempfile::TempDir,
}

impl Installed {
    /// A root with what the package unpacks, and users that are not there yet.
    fn unpacked() -> Installed {
        let names = [
            "adduser",
            "deluser",
            "delgroup",
            "chown",
            "chmod",
            "systemctl",
            "update-alternatives",
        ];
        let stand_ins = StandIns::new(&names);
        for name in ["deb-systemd-helper", "deb-systemd-invoke"] {
            stand_ins.set(name, "");
        }
        stand_ins.set("dpkg-statoverride", "exit 1");
        stand_ins.set("getent", "exit 2");
        let all = Installed {
            stand_ins,
            root: tempfile::tempdir().expect("a folder"),
        };
        for folder in [
            "var/lib/basalt",
            "var/log/basalt",
            "run/basalt",
            "etc/basalt",
            "run/systemd/system",
        ] {
            std::fs::create_dir_all(all.root.path().join(folder)).expect("a folder");
        }
        std::fs::write(all.root.path().join("etc/basalt/basalt.conf"), "").expect("a file");
        all
    }

    /// What a script calls, without the paths of the root.
    fn calls(&self, script: &str, arguments: &[&str]) -> Vec<String> {
        let prefix = self.root.path().to_string_lossy().into_owned();
        let path = root().join("packaging/debian").join(script);
        let done = self
            .stand_ins
            .run(&path, arguments, &[("DPKG_ROOT", &prefix)]);
        assert!(done.status.success(), "{script} {arguments:?}: {done:?}");
        assert!(
            done.stdout.is_empty(),
            "a script of a package is silent: {done:?}"
        );
        let calls = self.stand_ins.take_calls();
        calls
            .into_iter()
            .map(|call| call.replace(&prefix, ""))
            .collect()
    }
}

#[test]
fn the_first_installation_makes_user_and_folders_and_starts_the_service() {
    let installed = Installed::unpacked();
    let calls = installed.calls("postinst", &["configure", ""]);
    let expect = [
        "getent passwd basalt",
        "adduser --quiet --system --group --no-create-home --home /var/lib/basalt --shell /usr/sbin/nologin basalt",
        "dpkg-statoverride --list /var/lib/basalt",
        "chown basalt:basalt /var/lib/basalt",
        "chmod 750 /var/lib/basalt",
        "dpkg-statoverride --list /var/log/basalt",
        "chown basalt:basalt /var/log/basalt",
        "chmod 750 /var/log/basalt",
        "update-alternatives --quiet --install /usr/bin/redis-server redis-server /usr/bin/basalt 10",
        "update-alternatives --quiet --install /usr/bin/valkey-server valkey-server /usr/bin/basalt 10",
        "dpkg-statoverride --list /etc/basalt/basalt.conf",
        "chown root:basalt /etc/basalt/basalt.conf",
        "chmod 640 /etc/basalt/basalt.conf",
        "deb-systemd-helper unmask basalt.service",
        "deb-systemd-helper --quiet was-enabled basalt.service",
        "deb-systemd-helper enable basalt.service",
        "systemctl --system daemon-reload",
        "deb-systemd-invoke start basalt.service",
    ];
    assert_eq!(calls, expect);

    // Owners and permissions that an administrator wants are left as they are, and so is a user that is there.
    installed.stand_ins.set("dpkg-statoverride", "");
    installed.stand_ins.set("getent", "");
    let calls = installed.calls("postinst", &["configure", ""]);
    let changes = |call: &String| {
        ["chown", "chmod", "adduser"]
            .iter()
            .any(|name| call.starts_with(name))
    };
    assert!(!calls.iter().any(changes), "{calls:?}");
}

#[test]
fn an_upgrade_restarts_the_service_and_leaves_the_configuration_alone() {
    let installed = Installed::unpacked();
    assert_eq!(installed.calls("prerm", &["upgrade", "0.2"]), [""; 0]);
    assert_eq!(installed.calls("postrm", &["upgrade", "0.2"]), [""; 0]);
    // A service that was disabled stays so.
    installed
        .stand_ins
        .set("deb-systemd-helper", "[ \"$2\" != was-enabled ]");
    let calls = installed.calls("postinst", &["configure", "0.1"]);
    assert!(
        !calls.iter().any(|call| call.contains("basalt.conf")),
        "{calls:?}"
    );
    let last = calls.len() - 2;
    assert_eq!(
        calls[last..],
        [
            "systemctl --system daemon-reload",
            "deb-systemd-invoke restart basalt.service"
        ]
    );
    assert_eq!(
        calls[last - 1],
        "deb-systemd-helper update-state basalt.service"
    );
}

#[test]
fn a_removal_stops_all_instances_and_a_purge_leaves_nothing() {
    let installed = Installed::unpacked();
    let there = |path: &str| installed.root.path().join(path).exists();
    assert_eq!(
        installed.calls("prerm", &["remove"]),
        [
            "deb-systemd-invoke stop basalt.service",
            "systemctl --system stop basalt@*.service",
            "update-alternatives --quiet --remove redis-server /usr/bin/basalt",
            "update-alternatives --quiet --remove valkey-server /usr/bin/basalt",
        ]
    );
    assert_eq!(
        installed.calls("postrm", &["remove"]),
        [
            "systemctl --system daemon-reload",
            "deb-systemd-helper mask basalt.service"
        ]
    );
    assert!(there("var/lib/basalt") && there("var/log/basalt"));
    installed.stand_ins.set("getent", "");
    for _ in 0..2 {
        assert_eq!(
            installed.calls("postrm", &["purge"]),
            [
                "systemctl --system daemon-reload",
                "deb-systemd-helper purge basalt.service",
                "deb-systemd-helper unmask basalt.service",
                "getent passwd basalt",
                "deluser --quiet --system basalt",
                "getent group basalt",
                "delgroup --quiet --system basalt",
            ]
        );
        assert!(!there("var/lib/basalt") && !there("var/log/basalt") && !there("run/basalt"));
        assert!(
            there("var/lib") && there("etc/basalt/basalt.conf"),
            "conffiles are for dpkg to remove"
        );
    }
}

#[test]
fn without_systemd_no_service_is_touched() {
    let installed = Installed::unpacked();
    std::fs::remove_dir(installed.root.path().join("run/systemd/system")).expect("it was there");
    let mut calls = installed.calls("postinst", &["configure", ""]);
    calls.extend(installed.calls("prerm", &["remove"]));
    calls.extend(installed.calls("postrm", &["remove"]));
    let touches =
        |call: &String| call.starts_with("systemctl") || call.starts_with("deb-systemd-invoke");
    assert!(!calls.iter().any(touches), "{calls:?}");
}

#[test]
fn a_call_that_dpkg_does_not_make_is_refused() {
    let installed = Installed::unpacked();
    let path = root().join("packaging/debian/postinst");
    assert!(
        !installed
            .stand_ins
            .run(&path, &["nonsense"], &[])
            .status
            .success()
    );
}

/// The words of these sections that are arguments: options, with their dashes, and the names of tools.
fn arguments<'t>(sections: impl Iterator<Item = &'t str>) -> BTreeSet<String> {
    let words = sections.flat_map(|text| {
        text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '-')
    });
    let tools = ["check-rdb", "check-aof", "top", "report", "help"];
    let is_argument = |word: &&str| {
        let name = word.trim_start_matches('-');
        tools.contains(word) || !name.is_empty() && name.len() < word.len()
    };
    words.filter(is_argument).map(str::to_owned).collect()
}

#[test]
fn the_manual_has_the_arguments_and_tools_that_help_has() {
    let help = output(Command::new(server()).arg("--help"));
    let directives = help.find("\nA directive takes").expect("they follow");
    let mut arguments_of_help = arguments([&help[..directives]].into_iter());
    // What stands for any of them.
    arguments_of_help.remove("--directive");
    let page = read("packaging/debian/basalt.1").replace('\\', "");
    let sections = page.split("\n.SH ").filter(|section| {
        let wanted = ["SYNOPSIS", "TOOLS", "OPTIONS"];
        wanted.iter().any(|name| section.starts_with(name))
    });
    assert_eq!(arguments(sections), arguments_of_help);
    for expected in ["help", "check-aof", "top", "--fix", "--check-config", "-h"] {
        assert!(arguments_of_help.contains(expected), "{expected}");
    }
}
