//! What basalt is installed with: the Debian package, the image and the examples for Kubernetes and compose.
//!
//! ```text
//! deb        the package that packaging/build-deb makes: files, modes, fields; its scripts with stand-ins
//! image      the Dockerfile's steps, and the image's entrypoint with stand-ins
//! manifests  what the examples promise each other and the server
//! release    what a release hands out, and backups
//! stand_ins  programs that only note how they were called
//! ```
//!
//! `.ci/package` installs the package and the image in a clean root and runs the server there.

mod deb;
mod image;
mod manifests;
mod release;
mod stand_ins;

use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A file of the source.
fn read(path: &str) -> String {
    let path = root().join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The server that was built with the tests.
fn server() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_basalt"))
}

/// Whether the server takes these arguments as its configuration; if not, why.
fn check_config(arguments: &[&str]) -> Result<(), String> {
    let checked = std::process::Command::new(server())
        .args(arguments)
        .arg("--check-config")
        .output()
        .expect("the server starts");
    let text = String::from_utf8_lossy(&checked.stdout).into_owned()
        + &String::from_utf8_lossy(&checked.stderr);
    if checked.status.success() {
        Ok(())
    } else {
        Err(text)
    }
}

#[test]
fn a_configuration_that_is_wrong_is_told_from_a_good_one() {
    assert_eq!(check_config(&["--port", "7000"]), Ok(()));
    assert!(check_config(&["--nonsense", "1"]).is_err());
}
