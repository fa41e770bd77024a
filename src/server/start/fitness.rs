//! Checks at startup that files can be written, so that the problem is reported now rather than by the first save.

use std::fs::{self, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use basalt_commands::config::Config;
use basalt_commands::config::values::system_text;
use basalt_core::base::lossless;

/// Default PID file of a daemonized server, as in Redis.
const PIDFILE_OF_DAEMON: &str = "/var/run/redis.pid";

/// Checks that files can be created in the directories of snapshots and of the append-only file. The error text
/// names the directory.
pub(super) fn check_folders(config: &Config) -> Result<(), String> {
    let mut wants = Vec::new();
    if !config.save.is_empty() {
        wants.push((
            config.dir.clone(),
            "snapshots are written there: set another directory with `dir`, or disable snapshots with `save \"\"`",
        ));
    }
    if config.appendonly {
        let folder = config.dir.join(lossless::path_of(&config.appenddirname));
        let folder = match folder.is_dir() {
            true => folder,
            false => config.dir.clone(),
        };
        wants.push((
            folder,
            "the append-only file is written there: set another directory with `dir`",
        ));
    }
    for (folder, why) in wants {
        try_in(&folder).map_err(|error| {
            format!(
                "Can't write to the directory {}: {}; {why}",
                folder.display(),
                system_text(&error)
            )
        })?;
    }
    Ok(())
}

/// Creates and removes a file in a directory: whatever other checks say, a file system may still refuse it.
fn try_in(folder: &Path) -> io::Result<()> {
    let path = folder.join(format!(".basalt-{}.trial", std::process::id()));
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path)?;
    fs::remove_file(&path)
}

/// The PID file, if one was written.
#[derive(Debug, Default)]
pub(super) struct Pidfile(Option<PathBuf>);

impl Pidfile {
    /// Writes the configured PID file, or the default one if the server is daemonized. A file that cannot be written
    /// is only logged, as configurations of pods name one in folders where only root may write.
    pub(super) fn write(config: &Config, is_daemon: bool) -> Pidfile {
        let path = match config.pidfile.as_str() {
            "" if !is_daemon => return Pidfile(None),
            "" => Path::new(PIDFILE_OF_DAEMON).to_owned(),
            named => lossless::path_of(named),
        };
        let text = format!("{}\n", std::process::id());
        let written = fs::write(&path, text).and_then(|()| {
            // Tools that watch the process run as other users.
            fs::set_permissions(&path, Permissions::from_mode(0o644))
        });
        match written {
            Ok(()) => Pidfile(Some(path)),
            Err(error) => {
                let (path, error) = (path.display(), system_text(&error));
                tracing::warn!("Failed to write the PID file {path}: {error}");
                Pidfile(None)
            }
        }
    }

    /// Removes the file, which may be gone already.
    pub(super) fn remove(&self) {
        if let Some(path) = &self.0 {
            let _ = fs::remove_file(path);
        }
    }
}
