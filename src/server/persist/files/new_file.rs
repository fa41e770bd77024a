//! A newly created file that is appended to, for snapshots and the bases of append-only files.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{File, Files};

/// Bytes written between two syncs of an incrementally synced file.
const SYNC_BYTES: usize = 4 * 1024 * 1024;

/// A file that is created on first use.
pub struct NewFile {
    files: Arc<dyn Files>,
    path: PathBuf,
    file: Option<Arc<dyn File>>,
    /// Whether to sync the file every [`SYNC_BYTES`], so that the last sync is short.
    is_incremental: bool,
    unsynced_bytes: usize,
}

impl NewFile {
    /// Returns a file for this path; nothing is created yet.
    pub fn new(files: Arc<dyn Files>, path: PathBuf, is_incremental: bool) -> NewFile {
        NewFile {
            files,
            path,
            file: None,
            is_incremental,
            unsynced_bytes: 0,
        }
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// True if the file was created, that is, `NewFile::made` succeeded.
    pub fn is_made(&self) -> bool {
        self.file.is_some()
    }

    /// Returns the file, creating it if needed.
    pub fn made(&mut self) -> io::Result<&Arc<dyn File>> {
        match &mut self.file {
            Some(file) => Ok(file),
            none => Ok(none.insert(self.files.create(&self.path)?)),
        }
    }

    /// Appends bytes.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let file = Arc::clone(self.made()?);
        file.write_all(bytes)?;
        self.unsynced_bytes += bytes.len();
        if self.is_incremental && self.unsynced_bytes >= SYNC_BYTES {
            self.unsynced_bytes = 0;
            file.sync()?;
        }
        Ok(())
    }

    /// Makes everything written durable.
    pub fn sync(&mut self) -> io::Result<()> {
        self.made()?.sync()
    }
}
