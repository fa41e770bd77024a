//! A file that grows from nothing, as snapshots and bases do.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{File, Files};

/// Bytes after which a file goes to the disk that is synced bit by bit.
const SYNC_BYTES: usize = 4 * 1024 * 1024;

/// A file that is made when it is first asked for.
pub struct NewFile {
    files: Arc<dyn Files>,
    path: PathBuf,
    file: Option<Arc<dyn File>>,
    /// The file is synced each [`SYNC_BYTES`], so that the last sync is short.
    is_incremental: bool,
    unsynced_bytes: usize,
}

impl NewFile {
    /// At this path; nothing is made yet.
    pub fn new(files: Arc<dyn Files>, path: PathBuf, is_incremental: bool) -> NewFile {
        NewFile {
            files,
            path,
            file: None,
            is_incremental,
            unsynced_bytes: 0,
        }
    }

    /// Where it lies.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it was made.
    pub fn is_made(&self) -> bool {
        self.file.is_some()
    }

    /// The file, made if it is not there.
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

    /// Makes all that was written durable.
    pub fn sync(&mut self) -> io::Result<()> {
        self.made()?.sync()
    }
}
