//! Creates a folder for measuring on another machine, without cargo, internet or root: this program, basalt, the
//! available peers, the libraries that they need beyond the C library, and a script. It requires Linux on x86-64 with
//! glibc of this machine's version or newer, and a shell.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::rows::find;
use super::support::arguments::Arguments;
use super::support::peers;

/// Libraries of glibc, which comes with its own loader and must not be mixed with another version.
const OF_GLIBC: [&str; 8] = [
    "linux-vdso",
    "ld-linux",
    "libc.so",
    "libm.so",
    "libdl.so",
    "librt.so",
    "libpthread.so",
    "libresolv.so",
];

const SCRIPT: &str = r#"#!/bin/sh
# Measures throughput over threads on this machine and prints a table and the same as JSON, which lie in results/
# afterwards: ./run, less than 8 minutes; ./run --short, less than 4. Arguments go to the bench.
case $0 in */*) here=$(cd "${0%/*}" && pwd) ;; *) here=$PWD ;; esac
LD_LIBRARY_PATH=$here/lib
export LD_LIBRARY_PATH
own=
for peer in redis:redis-server valkey:valkey-server memcached:memcached; do
  name=${peer%%:*} file=$here/bin/${peer#*:}
  if [ -x "$file" ]; then own="$own --$name $file"; else own="$own --no-$name"; fi
done
# Unquoted: words of their own, and the folder's name is quoted by no shell word splitting where it has no spaces.
case $here in *" "*) echo "put this folder where the path has no spaces" >&2; exit 1 ;; esac
[ $# -gt 0 ] || set -- --ms 250
"$here/bin/scaling" --basalt "$here/bin/basalt" $own --out "$here/results" "$@" || exit 1
echo
while read -r line || [ -n "$line" ]; do echo "$line"; done <"$here/results/scaling.json"
"#;

/// Creates the folder named after `bundle`.
pub(crate) fn make(arguments: &Arguments) {
    let dir = PathBuf::from(arguments.value("bundle", ""));
    assert!(!dir.as_os_str().is_empty(), "bundle DIR");
    assert!(!dir.exists(), "{} is there already", dir.display());
    let (bin, lib) = (dir.join("bin"), dir.join("lib"));
    fs::create_dir_all(&bin).expect("make the folder");
    fs::create_dir_all(&lib).expect("make the folder");
    let own = std::env::current_exe().expect("this program");
    let mut programs = vec![(own, "scaling"), (arguments.basalt(), "basalt")];
    for peer in peers::others(arguments) {
        let name = if peer.name == "redis" {
            "redis-server"
        } else {
            "valkey-server"
        };
        programs.extend(find(&peer.binary).map(|binary| (binary, name)));
    }
    let memcached = PathBuf::from(arguments.value("--memcached", "memcached"));
    if !arguments.has("--no-memcached") {
        programs.extend(find(&memcached).map(|binary| (binary, "memcached")));
    }
    for (program, name) in programs {
        let to = bin.join(name);
        fs::copy(&program, &to).expect("copy a program");
        let stripped = Command::new("strip").arg(&to).status();
        assert!(
            stripped.is_ok_and(|status| status.success()),
            "strip (binutils)"
        );
        copy_libraries(&to, &lib);
    }
    let script = dir.join("run");
    fs::write(&script, SCRIPT).expect("write the script");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("make it a program");
    eprintln!("written: {}, {} KiB", dir.display(), size(&dir) / 1024);
}

fn copy_libraries(program: &Path, lib: &Path) {
    let output = Command::new("ldd").arg(program).output().expect("ldd");
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let Some((name, rest)) = line.trim().split_once(" => ") else {
            continue;
        };
        let path = rest.split_whitespace().next().unwrap_or_default();
        if !OF_GLIBC.iter().any(|own| name.starts_with(own)) && path.starts_with('/') {
            fs::copy(path, lib.join(name)).expect("copy a library");
        }
    }
}

fn size(dir: &Path) -> u64 {
    let entries = fs::read_dir(dir).expect("the folder").flatten();
    let of = |entry: fs::DirEntry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => size(&entry.path()),
        Ok(metadata) => metadata.len(),
        Err(_) => 0,
    };
    entries.map(of).sum()
}
