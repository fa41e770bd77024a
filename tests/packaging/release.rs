//! What a release hands out, by the scripts of `packaging/`: the tarball, the apt repository and the image with
//! stand-ins; and the backup of a running server.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use crate::stand_ins::StandIns;
use crate::{root, server};

fn run(command: &mut Command) -> Output {
    command.output().expect("the program starts")
}

/// Returns the trimmed output of a command, which must succeed.
fn output(command: &mut Command) -> String {
    let done = run(command);
    let errors = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(done.status.success(), "{command:?}: {errors}");
    let text = String::from_utf8(done.stdout).expect("text");
    text.trim().to_owned()
}

fn script(name: &str) -> Command {
    Command::new(root().join("packaging").join(name))
}

fn is_there(program: &str) -> bool {
    Command::new(program)
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok()
}

#[test]
fn the_tarball_has_a_server_that_runs_where_it_is_unpacked() {
    let folder = tempfile::tempdir().expect("a folder");
    let made = output(script("build-tarball").arg(server()).arg(folder.path()));
    let name = Path::new(&made).file_name().expect("a name");
    let version = env!("CARGO_PKG_VERSION");
    let machine = std::env::consts::ARCH;
    assert_eq!(
        name.to_str(),
        Some(format!("basalt-{version}-linux-{machine}.tar.gz").as_str())
    );
    let listed = run(Command::new("tar").arg("-tvzf").arg(&made));
    let listed = String::from_utf8(listed.stdout).expect("text");
    for line in listed.lines() {
        let rights = line.split_whitespace().next().expect("a mode");
        assert!(line.contains(" 0/0 "), "root's: {line}");
        let is_open = rights[7..].starts_with('r') && rights.as_bytes()[8] == b'-';
        assert!(is_open, "all may read, and only root may write: {line}");
    }
    run(Command::new("tar")
        .args(["-xzf", &made, "-C"])
        .arg(folder.path()));
    let top = folder
        .path()
        .join(format!("basalt-{version}-linux-{machine}"));
    for file in [
        "LICENSE",
        "CHANGELOG.md",
        "docs/production.md",
        "config/basalt.conf",
    ] {
        assert!(top.join(file).exists(), "{file}");
    }
    let said = run(Command::new(top.join("basalt")).arg("--version"));
    assert!(String::from_utf8_lossy(&said.stdout).contains(&format!("v={version}")));
    // What is no program of a machine that we know is refused.
    let wrong = run(script("build-tarball")
        .arg("/bin/sh")
        .arg(folder.path())
        .env("VERSION", "1"));
    assert!(wrong.status.success(), "the shell is for this machine");
    let wrong = run(script("build-tarball")
        .arg(root().join("LICENSE"))
        .arg(folder.path()));
    assert!(!wrong.status.success());
}

/// A package with nothing in it.
fn small_package(folder: &Path, version: &str, architecture: &str) -> PathBuf {
    let tree = folder.join(format!("{version}-{architecture}"));
    std::fs::create_dir_all(tree.join("DEBIAN")).expect("a folder");
    let control = format!(
        "Package: basalt\nVersion: {version}\nArchitecture: {architecture}\nMaintainer: a <a@example.org>\n\
         Description: nothing\n"
    );
    std::fs::write(tree.join("DEBIAN/control"), control).expect("written");
    let package = folder.join(format!("basalt_{version}_{architecture}.deb"));
    let arguments = ["--root-owner-group", "-Znone", "--build"];
    let built = run(Command::new("dpkg-deb")
        .args(arguments)
        .arg(&tree)
        .arg(&package));
    assert!(built.status.success(), "{built:?}");
    package
}

#[test]
fn apt_takes_packages_from_the_repository() {
    for program in ["apt-get", "dpkg-deb", "dpkg-scanpackages"] {
        if !is_there(program) {
            eprintln!("SKIPPED: there is no {program}, so there is no repository");
            return;
        }
    }
    let folder = tempfile::tempdir().expect("a folder");
    let place = folder.path();
    let repository = place.join("apt");
    let build = |packages: &[&PathBuf]| run(script("build-apt").arg(&repository).args(packages));
    let first = build(&[
        &small_package(place, "1.0", "all"),
        &small_package(place, "1.0", "amd64"),
    ]);
    assert!(first.status.success(), "{first:?}");
    // A later release adds to what is there, and one of a machine of another architecture.
    let newer = small_package(place, "1.1", "amd64");
    assert!(
        build(&[&newer, &small_package(place, "1.1", "arm64")])
            .status
            .success()
    );
    assert!(build(&[&newer]).status.success(), "the same once more");
    std::fs::write(&newer, "another").expect("written");
    assert!(
        !build(&[&newer]).status.success(),
        "a version has one content"
    );

    for inside in ["lists/partial", "cache/archives/partial"] {
        std::fs::create_dir_all(place.join(inside)).expect("a folder");
    }
    std::fs::write(place.join("status"), "").expect("written");
    let sources = format!(
        "deb [trusted=yes] file:{} stable main\n",
        repository.display()
    );
    std::fs::write(place.join("sources.list"), sources).expect("written");
    let apt = |architecture: &str, words: &[&str]| {
        let options = [
            ("Dir::Etc::SourceList", place.join("sources.list")),
            ("Dir::Etc::SourceParts", "/dev/null".into()),
            ("Dir::State::Lists", place.join("lists")),
            ("Dir::State::status", place.join("status")),
            ("Dir::Cache", place.join("cache")),
            ("APT::Sandbox::User", "root".into()),
            ("APT::Architecture", architecture.into()),
            ("APT::Architectures", architecture.into()),
        ];
        let mut command = Command::new("apt-get");
        for (name, value) in options {
            command.arg("-o").arg(format!("{name}={}", value.display()));
        }
        let done = run(command.args(words).current_dir(place.join("cache")));
        assert!(done.status.success(), "{words:?}: {done:?}");
    };
    for architecture in ["amd64", "arm64"] {
        apt(architecture, &["update"]);
        apt(architecture, &["download", "basalt"]);
        let newest = place.join(format!("cache/basalt_1.1_{architecture}.deb"));
        assert!(newest.exists(), "the newest for {architecture}");
    }
}

#[test]
fn the_image_is_built_for_two_architectures_and_pushed_only_if_told() {
    let stand_ins = StandIns::new(&["docker"]);
    let script = root().join("packaging/build-image");
    let version = env!("CARGO_PKG_VERSION");
    for (arguments, pushes) in [
        (&["registry.example/basalt"][..], false),
        (&["registry.example/basalt", "--push"], true),
    ] {
        assert!(stand_ins.run(&script, arguments, &[]).status.success());
        let calls = stand_ins.take_calls();
        assert_eq!(calls.len(), 1, "{calls:?}");
        let call = &calls[0];
        assert!(
            call.starts_with("docker buildx build --platform linux/amd64,linux/arm64 "),
            "{call}"
        );
        assert!(
            call.contains(&format!("--tag registry.example/basalt:{version} ")),
            "{call}"
        );
        assert_eq!(call.contains(" --push "), pushes, "{call}");
    }
    for wrong in [&[][..], &["name", "--pull"]] {
        assert_eq!(stand_ins.run(&script, wrong, &[]).status.code(), Some(2));
    }
    assert_eq!(stand_ins.take_calls(), [""; 0]);
}

/// A server of its own; it ends with its owner.
struct Server {
    child: Child,
    port: String,
    folder: tempfile::TempDir,
}

impl Server {
    fn start(folder: tempfile::TempDir, arguments: &[&str]) -> Server {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener
            .local_addr()
            .expect("an address")
            .port()
            .to_string();
        drop(listener);
        let mut child = Command::new(server())
            .args([
                "--port",
                &port,
                "--metrics-port",
                "0",
                "--repl-diskless-sync-delay",
                "0",
                "--dir",
            ])
            .arg(folder.path())
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the server starts");
        let log = BufReader::new(child.stdout.take().expect("a log"));
        let mut lines = log.lines().map_while(Result::ok);
        assert!(
            lines.any(|line| line.contains("Ready to accept connections")),
            "it serves"
        );
        // What it says later is read, so that it never waits for a reader.
        std::thread::spawn(move || lines.count());
        Server {
            child,
            port,
            folder,
        }
    }

    fn says(&self, words: &[&str]) -> String {
        output(
            Command::new("redis-cli")
                .args(["-p", &self.port])
                .args(words),
        )
    }

    fn stop(mut self) -> tempfile::TempDir {
        run(Command::new("redis-cli").args(["-p", &self.port, "SHUTDOWN", "NOSAVE"]));
        self.child.wait().expect("it ends");
        std::mem::replace(&mut self.folder, tempfile::tempdir().expect("a folder"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The steps of docs/backup.md: a snapshot over the port, and a server that is given it and then begins a log.
#[test]
fn a_backup_is_taken_checked_kept_and_restored() {
    if !is_there("redis-cli") {
        eprintln!("SKIPPED: there is no redis-cli, so no backup is taken");
        return;
    }
    let first = Server::start(
        tempfile::tempdir().expect("a folder"),
        &["--appendonly", "yes"],
    );
    let fill = "for i = 1, 1000 do redis.call('SET', 'key:' .. i, i) end";
    first.says(&["EVAL", fill, "0"]);
    first.says(&["SET", "tagged", "v", "TAGS", "1", "shop:3"]);
    let place = tempfile::tempdir().expect("a folder");
    let backups = place.path().join("backups");
    let take = |port: &str| {
        run(script("backup")
            .arg(&backups)
            .args(["-p", port])
            .env("BASALT", server())
            .env("KEEP", "2"))
    };
    std::fs::create_dir(&backups).expect("a folder");
    for other in [
        "basalt-20000101T000000Z.rdb",
        "basalt-20000102T000000Z.rdb",
        "dump.rdb",
    ] {
        std::fs::write(backups.join(other), "").expect("written");
    }
    let taken = take(&first.port);
    assert!(taken.status.success(), "{taken:?}");
    let file = String::from_utf8(taken.stdout).expect("text");
    let mut kept: Vec<_> = std::fs::read_dir(&backups)
        .expect("a folder")
        .flatten()
        .collect();
    kept.sort_by_key(std::fs::DirEntry::file_name);
    let kept: Vec<_> = kept.iter().map(|entry| entry.file_name()).collect();
    assert_eq!(
        kept.len(),
        3,
        "the two newest, and what is no backup: {kept:?}"
    );
    assert_eq!(kept[0], "basalt-20000102T000000Z.rdb");
    drop(first);

    let restored = tempfile::tempdir().expect("a folder");
    std::fs::copy(file.trim(), restored.path().join("dump.rdb")).expect("copied");
    let second = Server::start(restored, &["--appendonly", "no"]);
    assert_eq!(second.says(&["DBSIZE"]), "1001");
    assert_eq!(second.says(&["TAG", "COUNT", "shop:3"]), "1");
    assert_eq!(second.says(&["CONFIG", "SET", "appendonly", "yes"]), "OK");
    while !second
        .says(&["INFO", "persistence"])
        .contains("aof_rewrite_in_progress:0")
    {}
    second.says(&["SET", "later", "v"]);
    let port = second.port.clone();
    let third = Server::start(second.stop(), &["--appendonly", "yes"]);
    assert_eq!(third.says(&["DBSIZE"]), "1002");

    // No server, no backup: what is there stays.
    let failed = take(&port);
    assert!(!failed.status.success());
    assert_eq!(std::fs::read_dir(&backups).expect("a folder").count(), 3);
}
