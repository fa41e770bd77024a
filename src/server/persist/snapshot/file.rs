//! A snapshot in a file: written beside the old one, synced, and renamed over it.
//!
//! On any failure the old file stays as it was, and the new one is removed.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::Sink;
use crate::persist::files::new_file::NewFile;
use crate::persist::files::{self, Files};

/// Sink that writes a snapshot to a file and replaces the old one in the end.
pub struct FileSink {
    files: Arc<dyn Files>,
    path: PathBuf,
    temporary: NewFile,
}

impl FileSink {
    /// Creates a sink for a file at this path; nothing is opened yet.
    pub fn new(files: Arc<dyn Files>, path: PathBuf, is_incremental: bool) -> FileSink {
        let name = format!("temp-{}.rdb", std::process::id());
        FileSink::beside(files, path, &name, is_incremental)
    }

    /// Creates a sink that first writes to a file of this name.
    pub fn beside(
        files: Arc<dyn Files>,
        path: PathBuf,
        name: &str,
        is_incremental: bool,
    ) -> FileSink {
        let temporary = path.with_file_name(name);
        FileSink {
            temporary: NewFile::new(Arc::clone(&files), temporary, is_incremental),
            files,
            path,
        }
    }

    fn open(&mut self) -> io::Result<()> {
        let Err(error) = self.temporary.made() else {
            return Ok(());
        };
        let (name, directory) = (shown(self.temporary.path()), self.directory());
        tracing::warn!(
            "Failed opening the temp RDB file {name} (in server root dir {directory}) for saving: {error}"
        );
        Err(error)
    }

    fn directory(&self) -> String {
        files::parent(&self.path).display().to_string()
    }

    fn keep(&mut self) -> io::Result<()> {
        let told = |what: &str| {
            let what = what.to_owned();
            move |error: &io::Error| {
                tracing::warn!("Write error while saving DB to the disk({what}): {error}");
            }
        };
        self.open()?;
        self.temporary.sync().inspect_err(told("fsync"))?;
        let temporary = self.temporary.path();
        let renamed = self.files.rename(temporary, &self.path);
        renamed.inspect_err(|error| {
            let (from, to) = (shown(temporary), shown(&self.path));
            let directory = self.directory();
            tracing::warn!(
                "Error moving temp DB file {from} on the final destination {to} (in server root dir {directory}): \
                 {error}"
            );
        })?;
        let directory = files::parent(&self.path);
        let synced = self.files.sync_directory(directory);
        synced.inspect_err(told("fsync of the directory"))
    }
}

fn shown(path: &Path) -> String {
    let name = path.file_name().unwrap_or(path.as_os_str());
    name.to_string_lossy().into_owned()
}

impl Sink for FileSink {
    fn write(&mut self, chunk: Vec<u8>) -> io::Result<()> {
        self.open()?;
        self.temporary.write(&chunk).inspect_err(|error| {
            tracing::warn!("Write error while saving DB to the disk(rdbSaveRio): {error}");
        })
    }

    fn finish(mut self: Box<Self>, ok: bool) -> io::Result<()> {
        let kept = match ok {
            true => self.keep(),
            false => Ok(()),
        };
        if (!ok || kept.is_err()) && self.temporary.is_made() {
            // Ignore errors: if syncing the directory failed, the file already has its final name.
            let _ = self.files.remove(self.temporary.path());
        }
        kept
    }
}
