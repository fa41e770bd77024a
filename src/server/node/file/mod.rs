//! The cluster config file (`cluster-config-file`, nodes.conf) on disk. The file is read at startup, replaced
//! whenever its contents change, and locked as long as the process lives.
//!
//! A new version is written to another file in the same directory, synced, and renamed over the old file; then
//! the directory is synced. After a crash at any moment, the old or the new version exists completely. The lock
//! is on the file with the final name: a new file is locked before it gets this name, so that another process
//! never finds an unlocked file.
//!
//! A version that was written to the other file but is not synced yet ([`NodesFile::keep`]) survives a crash of
//! the process, but not a power cut. The next start uses that version if it is complete (its last line is
//! there) and not older than the file.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use basalt_commands::cluster::nodes_conf::{read, write};
use basalt_commands::cluster::saved::Saved;
use basalt_commands::config::Config;
use basalt_commands::config::values::system_text;
use basalt_core::base::lossless;

/// Maximum bytes of the cluster config file: far more than a thousand nodes need even if all slots are
/// migrating.
const BYTES_MAX: u64 = 256 << 20;
/// Maximum characters shown of an invalid line.
const SHOWN_CHARS_MAX: usize = 200;

/// The locked cluster config file, and a newer version in another file that is not synced yet.
#[derive(Debug)]
pub(super) struct NodesFile {
    path: PathBuf,
    /// The open file, which holds the lock.
    locked: File,
    /// Contents of the last synced version, without the times of pings and pongs; `None` if unknown.
    has: Option<String>,
    /// The newer, unsynced version, if any: its contents without the times of pings and pongs, and its open
    /// file.
    kept: Option<(String, File)>,
    /// Number of times the file was replaced.
    #[cfg(test)]
    puts: u32,
}

impl NodesFile {
    /// Locks the file, creating it if needed, and reads it; returns no state if the file is empty. The error is
    /// a message for the operator.
    pub(super) fn open(config: &Config) -> Result<(NodesFile, Option<Saved>), String> {
        let path = config
            .dir
            .join(lossless::path_of(&config.cluster_config_file));
        // Make the path absolute, so that a later CONFIG SET dir does not affect it.
        let path = std::path::absolute(&path).unwrap_or(path);
        let shown = path.display();
        let opened = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o644)
            .open(&path);
        let locked = opened.map_err(|error| {
            let why = system_text(&error);
            format!("Can't open {shown} in order to acquire a lock: {why}")
        })?;
        lock(&locked).map_err(|error| match error.kind() {
            ErrorKind::WouldBlock => format!(
                "Sorry, the cluster configuration file {shown} is already used by a different Redis Cluster node. \
                 Please make sure that different nodes use different cluster configuration files."
            ),
            _ => format!("Impossible to lock {shown}: {}", system_text(&error)),
        })?;
        let mut bytes = Vec::new();
        let taken = (&locked).take(BYTES_MAX + 1).read_to_end(&mut bytes);
        let taken = taken.and_then(|count| match count as u64 {
            ..=BYTES_MAX => Ok(()),
            _ => Err(io::Error::from(ErrorKind::FileTooLarge)),
        });
        taken.map_err(|error| {
            let why = system_text(&error);
            format!("Loading the cluster node config from {shown}: {why}")
        })?;
        let file = NodesFile::new(path, locked);
        if let Some(saved) = file.unsynced(config.tls_cluster) {
            return Ok((file, Some(saved)));
        }
        let shown = file.path.display();
        if bytes.is_empty() {
            return Ok((file, None));
        }
        let text = String::from_utf8_lossy(&bytes);
        let saved = read::read(&text, config.tls_cluster).map_err(|broken| {
            let line = text.lines().nth(broken.line.saturating_sub(1));
            let line: String = line.unwrap_or("").chars().take(SHOWN_CHARS_MAX).collect();
            format!(
                "Unrecoverable error: corrupted cluster config file \"{line}\". {shown}, {broken}"
            )
        })?;
        Ok((file, Some(saved)))
    }

    /// Returns the version that the last process wrote but did not sync.
    fn unsynced(&self, is_tls: bool) -> Option<Saved> {
        let beside = self.beside("unsynced");
        let written = |path: &Path| fs::metadata(path).and_then(|data| data.modified());
        let is_newer = written(&beside).ok()? >= written(&self.path).ok()?;
        let text = fs::read_to_string(&beside).ok()?;
        let is_whole = text
            .strip_suffix('\n')
            .and_then(|text| text.lines().next_back())
            .is_some_and(|line| line.starts_with("vars "));
        let saved = read::read(&text, is_tls).ok()?;
        (is_newer && is_whole).then_some(saved)
    }

    /// Returns the path of this file with `what` appended to its name.
    fn beside(&self, what: &str) -> PathBuf {
        let mut path = self.path.clone().into_os_string();
        path.push(format!(".{what}"));
        PathBuf::from(path)
    }

    fn new(path: PathBuf, locked: File) -> NodesFile {
        NodesFile {
            path,
            locked,
            has: None,
            kept: None,
            #[cfg(test)]
            puts: 0,
        }
    }

    /// Replaces the saved state, unless it is equal except for the times of pings and pongs. The file is synced
    /// when this returns. With `is_forced`, the file is written even if equal.
    pub(super) fn save(&mut self, saved: &Saved, is_forced: bool) -> io::Result<()> {
        let timeless = write::write(&without_times(saved));
        if !is_forced && self.has.as_ref() == Some(&timeless) {
            return Ok(());
        }
        self.has = None;
        self.keep_text(saved, timeless.clone())?;
        let put = self.put();
        if put.is_err() {
            // Ignore errors: the unsynced file may already have its final name.
            let _ = fs::remove_file(self.beside("unsynced"));
        } else {
            self.has = Some(timeless);
        }
        put
    }

    /// Writes the state to the other file, where the next start finds it if this process is killed before
    /// [`NodesFile::save`] has synced it.
    pub(super) fn keep(&mut self, saved: &Saved) -> io::Result<()> {
        let timeless = write::write(&without_times(saved));
        if self.kept.is_none() && self.has.as_ref() == Some(&timeless) {
            return Ok(());
        }
        self.keep_text(saved, timeless)
    }

    fn keep_text(&mut self, saved: &Saved, timeless: String) -> io::Result<()> {
        if self.kept.as_ref().is_some_and(|(has, _)| *has == timeless) {
            return Ok(());
        }
        let aside = self.beside("tmp");
        let kept = self.write_temporary(&aside, &write::write(saved));
        if kept.is_err() {
            // Ignore errors: the file may not exist.
            let _ = fs::remove_file(&aside);
        }
        self.kept = Some((timeless, kept?));
        Ok(())
    }

    fn write_temporary(&self, aside: &Path, text: &str) -> io::Result<File> {
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o644)
            .open(aside)?;
        lock(&file)?;
        file.write_all(text.as_bytes())?;
        fs::rename(aside, self.beside("unsynced"))?;
        Ok(file)
    }

    /// Syncs the newer version, and renames its file over the cluster config file.
    fn put(&mut self) -> io::Result<()> {
        #[cfg(test)]
        {
            self.puts += 1;
        }
        let Some((_, file)) = self.kept.take() else {
            return Ok(());
        };
        file.sync_all()?;
        fs::rename(self.beside("unsynced"), &self.path)?;
        self.locked = file;
        let folder = self.path.parent();
        File::open(folder.unwrap_or(Path::new("/")))?.sync_all()
    }
}

/// Returns the state without the times of pings and pongs, which change with every pong and are not read at
/// startup.
fn without_times(saved: &Saved) -> Saved {
    let mut saved = saved.clone();
    for node in &mut saved.nodes {
        (node.ping_sent, node.pong_received) = (0, 0);
    }
    saved
}

fn lock(file: &File) -> io::Result<()> {
    Ok(flock(file, FlockOperation::NonBlockingLockExclusive)?)
}

#[cfg(test)]
mod tests;
