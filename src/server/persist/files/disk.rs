//! The file system of the machine.

use std::ffi::OsString;
use std::fs;
use std::io::{self, IoSlice, Read, Write};
use std::path::Path;
use std::sync::Arc;

use super::{File, Files};

/// The real file system.
#[derive(Clone, Copy, Debug, Default)]
pub struct Disk;

struct DiskFile(fs::File);

impl Files for Disk {
    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        // A file may be truncated while open for appending, but cannot be opened with both flags.
        let file = fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(path)?;
        file.set_len(0)?;
        Ok(Arc::new(DiskFile(file)))
    }

    fn append(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        let file = fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(path)?;
        Ok(Arc::new(DiskFile(file)))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn Read + Send>> {
        Ok(Box::new(fs::File::open(path)?))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        match fs::create_dir(path) {
            Err(_) if path.is_dir() => Ok(()),
            made => made,
        }
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        fs::File::open(path)?.sync_all()
    }

    fn list(&self, path: &Path) -> io::Result<Vec<OsString>> {
        let names: io::Result<Vec<_>> = fs::read_dir(path)?
            .map(|entry| Ok(entry?.file_name()))
            .collect();
        let mut names = names?;
        names.sort();
        Ok(names)
    }

    fn len(&self, path: &Path) -> io::Result<Option<u64>> {
        match fs::metadata(path) {
            Ok(metadata) => Ok(Some(metadata.len())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl File for DiskFile {
    fn write(&self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        (&self.0).write_vectored(pieces)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::persist::files::{parent, replace};

    #[test]
    fn files_are_appended_to_cut_renamed_and_listed() {
        let base = std::env::temp_dir().join(format!("basalt-disk-{}", std::process::id()));
        let _ = fs::remove_dir_all(&base);
        Disk.create_directory(&base).expect("the directory is made");
        Disk.create_directory(&base).expect("it is there already");
        let path = base.join("a");
        let file = Disk.append(&path).expect("the file is made");
        let pieces = [IoSlice::new(b"one"), IoSlice::new(b" two")];
        assert_eq!(file.write(&pieces).expect("written"), 7);
        file.truncate(3).expect("cut");
        drop(file);
        let file = Disk.append(&path).expect("the file is there");
        file.write_all(b"!").expect("written");
        file.sync().expect("synced");
        assert_eq!(file.len().expect("a length"), 4);
        replace(
            &Disk,
            &path.with_extension("m"),
            &base.join("temp"),
            b"manifest",
        )
        .expect("put");
        assert_eq!(Disk.list(&base).expect("a list"), ["a", "a.m"]);
        let mut text = String::new();
        let mut read = Disk.open(&path).expect("opened");
        read.read_to_string(&mut text).expect("read");
        assert_eq!(text, "one!");
        Disk.create(&path).expect("emptied");
        assert_eq!(Disk.len(&path).expect("a length"), Some(0));
        assert_eq!(Disk.len(&base.join("none")).expect("no error"), None);
        assert_eq!(parent(Path::new("a")), Path::new("."));
        fs::remove_dir_all(&base).expect("removed");
    }
}
