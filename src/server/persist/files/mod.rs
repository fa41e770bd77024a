//! What log and snapshot files need of a file system, as a trait: the real one ([`disk::Disk`]), and one for tests that
//! loses what was not synced and fails when it is told to (`simulated.rs`).
//!
//! What is durable, and when: a file's bytes once [`File::sync`] has returned, the name of a file (made, renamed,
//! removed) once [`Files::sync_directory`] has returned for its directory. A sync that failed says nothing about what
//! was written before it, and neither does a later one that succeeds: the kernel may have dropped the pages.

pub mod disk;
pub mod new_file;
#[cfg(test)]
pub mod simulated;

use std::ffi::OsString;
use std::io::{self, IoSlice, Read};
use std::path::Path;
use std::sync::Arc;

/// A file system.
pub trait Files: Send + Sync {
    /// Makes a file, or empties the one that is there, for appending.
    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>>;

    /// Opens a file for appending, and makes it if it is not there.
    fn append(&self, path: &Path) -> io::Result<Arc<dyn File>>;

    /// Opens a file for reading from its beginning.
    fn open(&self, path: &Path) -> io::Result<Box<dyn Read + Send>>;

    /// Gives a file another name, in place of a file that had it.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Makes a directory, unless it is there. Its parents are there.
    fn create_directory(&self, path: &Path) -> io::Result<()>;

    /// Makes the names in a directory durable.
    fn sync_directory(&self, path: &Path) -> io::Result<()>;

    /// Names of the files in a directory, sorted.
    fn list(&self, path: &Path) -> io::Result<Vec<OsString>>;

    /// Length of a file, none if there is no such file.
    fn len(&self, path: &Path) -> io::Result<Option<u64>>;
}

/// A file that is appended to. One thread writes, another may sync meanwhile.
pub trait File: Send + Sync {
    /// Appends the pieces one behind the other; how many bytes of them it took, which may be fewer than there are.
    fn write(&self, pieces: &[IoSlice<'_>]) -> io::Result<usize>;

    /// Makes what was written before durable.
    fn sync(&self) -> io::Result<()>;

    /// Cuts the file off at a length.
    fn truncate(&self, len: u64) -> io::Result<()>;

    /// Length of the file.
    fn len(&self) -> io::Result<u64>;

    /// Whether there is nothing in it.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Appends all bytes.
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

/// Puts a file in place of another one so that after a crash one of the two is there, whole: written beside it, synced,
/// renamed, directory synced.
pub fn replace(files: &dyn Files, path: &Path, temporary: &Path, bytes: &[u8]) -> io::Result<()> {
    let put = || -> io::Result<()> {
        let file = files.create(temporary)?;
        file.write_all(bytes)?;
        file.sync()?;
        files.rename(temporary, path)?;
        files.sync_directory(parent(path))
    };
    put().inspect_err(|_| {
        // It may not have come to be, or bear its last name already.
        let _ = files.remove(temporary);
    })
}

/// The directory that a file lies in.
pub fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}
