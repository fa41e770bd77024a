//! The file system operations that log and snapshot files need, as a trait: the real one ([`disk::Disk`]), and one for
//! tests that loses unsynced data and fails on request (`simulated/`).
//!
//! Durability: a file's bytes are durable once [`File::sync`] has returned, the name of a file (created, renamed,
//! removed) once [`Files::sync_directory`] has returned for its directory. A failed sync says nothing about earlier
//! writes, and neither does a later successful one: the kernel may have dropped the pages.

pub mod disk;
pub mod new_file;
#[cfg(test)]
pub mod simulated;

use std::ffi::OsString;
use std::io::{self, IoSlice, Read};
use std::path::Path;
use std::sync::Arc;

/// A file system for log and snapshot files.
pub trait Files: Send + Sync {
    /// Creates a file for appending, or truncates an existing one.
    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>>;

    /// Opens a file for appending, creating it if needed.
    fn append(&self, path: &Path) -> io::Result<Arc<dyn File>>;

    /// Opens a file for reading from its beginning.
    fn open(&self, path: &Path) -> io::Result<Box<dyn Read + Send>>;

    /// Renames a file, replacing any file of the new name.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Creates a directory, unless it exists. Its parents have to exist.
    fn create_directory(&self, path: &Path) -> io::Result<()>;

    /// Makes the names in a directory durable.
    fn sync_directory(&self, path: &Path) -> io::Result<()>;

    /// Returns the names of the files in a directory, sorted.
    fn list(&self, path: &Path) -> io::Result<Vec<OsString>>;

    /// Returns the length of a file, or `None` if it does not exist.
    fn len(&self, path: &Path) -> io::Result<Option<u64>>;
}

/// A file opened for appending. One thread writes; another may sync at the same time.
pub trait File: Send + Sync {
    /// Appends the pieces one after the other; returns the number of bytes written, which may be fewer than given.
    fn write(&self, pieces: &[IoSlice<'_>]) -> io::Result<usize>;

    /// Makes everything written so far durable.
    fn sync(&self) -> io::Result<()>;

    /// Truncates the file to a length.
    fn truncate(&self, len: u64) -> io::Result<()>;

    /// Returns the length of the file.
    fn len(&self) -> io::Result<u64>;

    /// True if the file is empty.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Appends all bytes, with as many writes as that takes.
    fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.write(&[IoSlice::new(bytes)]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => bytes = &bytes[count..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Replaces a file so that after a crash either the old or the new one is there, whole: writes beside it, syncs,
/// renames, syncs the directory.
pub fn replace(files: &dyn Files, path: &Path, temporary: &Path, bytes: &[u8]) -> io::Result<()> {
    let put = || -> io::Result<()> {
        let file = files.create(temporary)?;
        file.write_all(bytes)?;
        file.sync()?;
        files.rename(temporary, path)?;
        files.sync_directory(parent(path))
    };
    put().inspect_err(|_| {
        // Ignore errors: the temporary file may not exist, or may already have its final name.
        let _ = files.remove(temporary);
    })
}

/// Returns the directory of a file.
pub fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}
