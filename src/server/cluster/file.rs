//! `cluster-config-file` on disk: read at the start, put in place anew whenever something of it changes, locked for as
//! long as the process lives.
//!
//! A new text is written aside, made safe, and renamed over the old one; then the folder is made safe. After a crash at
//! any moment one of the two is there as a whole. The lock is on the file that has the name: the new one is locked
//! before it gets the name, so that at no moment another process finds a file without a lock.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use crate::base::lossless;
use crate::cluster::nodes_conf::{read, write};
use crate::cluster::saved::Saved;
use crate::config::Config;
use crate::config::values::system_text;

/// Bytes of the largest file that is read: far more than a thousand nodes with all slots on their way need.
const BYTES_MAX: u64 = 256 << 20;
/// Characters of a broken line that are shown.
const SHOWN_CHARS_MAX: usize = 200;

/// See the module.
#[derive(Debug)]
pub(super) struct NodesFile {
    path: PathBuf,
    /// The file, whose lock lasts as long as it is open.
    locked: File,
}

impl NodesFile {
    /// Locks the file, which is made if it is not there, and reads it; nothing was saved if it is empty. The text says
    /// what is wrong.
    pub(super) fn open(config: &Config) -> Result<(NodesFile, Option<Saved>), String> {
        let path = config
            .dir
            .join(lossless::path_of(&config.cluster_config_file));
        // What CONFIG SET makes of the folder later does not matter to it.
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
        if bytes.is_empty() {
            return Ok((NodesFile { path, locked }, None));
        }
        let text = String::from_utf8_lossy(&bytes);
        let saved = read::read(&text, config.tls_cluster).map_err(|broken| {
            let line = text.lines().nth(broken.line.saturating_sub(1));
            let line: String = line.unwrap_or("").chars().take(SHOWN_CHARS_MAX).collect();
            format!(
                "Unrecoverable error: corrupted cluster config file \"{line}\". {shown}, {broken}"
            )
        })?;
        Ok((NodesFile { path, locked }, Some(saved)))
    }

    /// Puts what is to be kept in place of what was. It is safe on disk when this returns.
    pub(super) fn save(&mut self, saved: &Saved) -> io::Result<()> {
        let mut aside = self.path.clone().into_os_string();
        aside.push(format!(".tmp-{}", std::process::id()));
        let aside = PathBuf::from(aside);
        let put = self.put(&aside, &write::write(saved));
        if put.is_err() {
            // It may not have come to be, or has its name already.
            let _ = fs::remove_file(&aside);
        }
        put
    }

    fn put(&mut self, aside: &Path, text: &str) -> io::Result<()> {
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o644)
            .open(aside)?;
        lock(&file)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(aside, &self.path)?;
        self.locked = file;
        let folder = self.path.parent();
        File::open(folder.unwrap_or(Path::new("/")))?.sync_all()
    }
}

fn lock(file: &File) -> io::Result<()> {
    Ok(flock(file, FlockOperation::NonBlockingLockExclusive)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(dir: &Path) -> Config {
        Config {
            dir: dir.to_owned(),
            ..Config::default()
        }
    }

    fn sample() -> Saved {
        let text = "28e8ff7a77886969e9cebc113fb698fa4132a5bf 10.0.0.1:1@2 myself,master - 0 0 3 connected 1-5\n";
        read::read(text, false).expect("it is good")
    }

    #[test]
    fn what_is_saved_is_read_at_the_next_start() {
        let dir = tempfile::tempdir().expect("a folder");
        let config = config(dir.path());
        let (mut file, saved) = NodesFile::open(&config).expect("it can be made");
        assert_eq!(saved, None);
        for _ in 0..2 {
            file.save(&sample()).expect("there is room");
        }
        drop(file);
        let (_file, saved) = NodesFile::open(&config).expect("it is good");
        assert_eq!(saved, Some(sample()));
        let names = fs::read_dir(dir.path()).expect("it is there");
        assert_eq!(names.count(), 1, "nothing is left beside it");
    }

    #[test]
    fn one_process_has_it_before_and_after_it_is_saved() {
        let dir = tempfile::tempdir().expect("a folder");
        let config = config(dir.path());
        let (mut file, _) = NodesFile::open(&config).expect("it can be made");
        let refused = || {
            let text = NodesFile::open(&config).expect_err("another one has it");
            assert!(
                text.starts_with("Sorry, the cluster configuration file /"),
                "{text}"
            );
        };
        refused();
        file.save(&sample()).expect("there is room");
        refused();
        drop(file);
        NodesFile::open(&config).expect("it is free");
    }

    #[test]
    fn a_broken_file_says_what_is_wrong_and_where() {
        let dir = tempfile::tempdir().expect("a folder");
        let config = config(dir.path());
        let path = dir.path().join("nodes.conf");
        fs::write(&path, b"\nnonsense \xFF\n").expect("there is room");
        let text = NodesFile::open(&config).expect_err("it is broken");
        let shown = path.display();
        let expected = format!(
            "Unrecoverable error: corrupted cluster config file \"nonsense \u{FFFD}\". {shown}, line 2: 2 fields where 8 belong"
        );
        assert_eq!(text, expected);
    }

    #[test]
    fn what_can_not_be_saved_leaves_what_was() {
        let dir = tempfile::tempdir().expect("a folder");
        let config = config(dir.path());
        let (mut file, _) = NodesFile::open(&config).expect("it can be made");
        file.save(&sample()).expect("there is room");
        let aside = dir
            .path()
            .join(format!("nodes.conf.tmp-{}", std::process::id()));
        fs::create_dir(&aside).expect("there is room");
        file.save(&Saved::default())
            .expect_err("a folder is in the way");
        fs::remove_dir(&aside).expect("it is there");
        drop(file);
        let (_file, saved) = NodesFile::open(&config).expect("it is good");
        assert_eq!(saved, Some(sample()));
    }
}
