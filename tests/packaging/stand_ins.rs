//! A folder of programs that note how they were called, for scripts that call what a test must not: users, owners,
//! services.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

/// The programs. They lie first in the search path of what is run here.
pub(crate) struct StandIns {
    folder: tempfile::TempDir,
}

impl StandIns {
    /// Stand-ins of these names that note their call and succeed.
    pub(crate) fn new(names: &[&str]) -> StandIns {
        let folder = tempfile::tempdir().expect("a folder");
        let all = StandIns { folder };
        for name in names {
            all.set(name, "");
        }
        all
    }

    /// The stand-in of a name: it notes its call, then runs a piece of shell.
    pub(crate) fn set(&self, name: &str, then: &str) {
        let calls = self.folder.path().join("calls");
        let body = format!(
            "#!/bin/sh\necho \"{name} $*\" >>{}\n{then}\n",
            calls.display()
        );
        let path = self.folder.path().join(name);
        std::fs::write(&path, body).expect("a script");
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).expect("permissions");
    }

    /// Runs a script with the stand-ins before all other programs.
    pub(crate) fn run(
        &self,
        script: &Path,
        arguments: &[&str],
        environment: &[(&str, &str)],
    ) -> Output {
        let path = std::env::var("PATH").expect("a search path");
        let path = format!("{}:{path}", self.folder.path().display());
        Command::new(script)
            .args(arguments)
            .env("PATH", path)
            .envs(environment.iter().copied())
            .output()
            .expect("the script starts")
    }

    /// The calls since the last time, a line each.
    pub(crate) fn take_calls(&self) -> Vec<String> {
        let path = self.folder.path().join("calls");
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let _ = std::fs::remove_file(&path);
        text.lines()
            .map(|line| line.trim_end().to_owned())
            .collect()
    }
}
