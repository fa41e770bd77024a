//! The directory of the append-only file: its manifest, and changes to it such that after a crash either the old or
//! the new manifest is there, whole, with all the files it lists.
//!
//! Every change follows one order: create and sync new files, replace the manifest (write beside it, sync, rename,
//! sync the directory), and only then remove the files that no manifest lists any more.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::manifest::{AofManifestError, AofManifestFile, Manifest};
use crate::persist::files::new_file::NewFile;
use crate::persist::files::{self, File, Files};
use crate::telemetry::log;
use basalt_core::base::text::visible;

/// Maximum bytes read of a manifest.
const MANIFEST_BYTES_MAX: u64 = 16 << 20;

/// Bytes copied per read when a snapshot becomes the base.
const COPIED_BYTES: usize = 1 << 20;

/// An error that prevents the use of the append-only file.
#[derive(Debug)]
pub enum StoreError {
    /// The manifest is invalid.
    Manifest(PathBuf, AofManifestError),
    /// A system call failed: what was tried, and why it failed.
    Io(String, io::Error),
}

impl StoreError {
    /// Reports the error to the log and the terminal, in redis-server's words, which tools look for.
    pub fn report(&self) {
        match self {
            StoreError::Manifest(path, refused) => {
                log::refusal("*** FATAL AOF MANIFEST FILE ERROR ***");
                if refused.line > 0 {
                    log::refusal(&format!(
                        "Reading the manifest file {}, at line {}",
                        path.display(),
                        refused.line
                    ));
                    log::refusal(&format!(">>> '{}'", visible(&refused.text)));
                }
                log::refusal(&match refused.byte {
                    None => refused.why.to_owned(),
                    Some(byte) => format!("{} (byte {byte} of the line)", refused.why),
                });
            }
            StoreError::Io(what, error) => log::refusal(&format!("{what}: {error}")),
        }
    }
}

fn failed<T>(result: io::Result<T>, what: impl FnOnce() -> String) -> Result<T, StoreError> {
    result.map_err(|error| StoreError::Io(what(), error))
}

/// State of the file for the commands after a rewrite's cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IncrFileState {
    /// The manifest already lists the file.
    Listed,
    /// The file has a temporary name, and the manifest will list it together with the new base.
    Temporary,
    /// No file exists, because nothing is appended.
    None,
}

/// The directory of the append-only file, with its manifest.
pub struct Store {
    files: Arc<dyn Files>,
    directory: PathBuf,
    /// Common prefix of all file names (`appendfilename`).
    name: Vec<u8>,
    manifest: Manifest,
}

impl Store {
    /// Opens the store and reads the manifest, if it exists.
    pub fn open(
        files: Arc<dyn Files>,
        directory: PathBuf,
        name: Vec<u8>,
    ) -> Result<Store, StoreError> {
        let mut store = Store {
            files,
            directory,
            name,
            manifest: Manifest::default(),
        };
        store.reload()?;
        Ok(store)
    }

    /// Reads the manifest again from the disk.
    pub fn reload(&mut self) -> Result<(), StoreError> {
        let path = self.path(&self.with_suffix(".manifest"));
        let what = || {
            format!(
                "Fatal error: can't open the AOF manifest file {} for reading",
                path.display()
            )
        };
        if failed(self.files.len(&path), what)?.is_none() {
            self.manifest = Manifest::default();
            return Ok(());
        }
        let mut bytes = Vec::new();
        let file = failed(self.files.open(&path), what)?;
        failed(file.take(MANIFEST_BYTES_MAX).read_to_end(&mut bytes), what)?;
        self.manifest =
            Manifest::parse(&bytes).map_err(|refused| StoreError::Manifest(path, refused))?;
        Ok(())
    }

    /// Returns the manifest.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    fn with_suffix(&self, suffix: &str) -> Vec<u8> {
        [&self.name, suffix.as_bytes()].concat()
    }

    fn path(&self, name: &[u8]) -> PathBuf {
        self.directory.join(OsStr::from_bytes(name))
    }

    /// Returns the path of a file of the manifest.
    pub fn path_of(&self, part: &AofManifestFile) -> PathBuf {
        self.path(&part.name)
    }

    /// Returns the path at which the next base is written before it is renamed.
    pub fn temporary_base(&self) -> PathBuf {
        self.path(&[b"temp-rewrite-", &self.name[..], b".base"].concat())
    }

    fn temporary_incr(&self) -> PathBuf {
        self.path(&[b"temp-", &self.name[..], b".incr"].concat())
    }

    /// Creates the directory.
    pub fn create_directory(&self) -> io::Result<()> {
        self.files.create_directory(&self.directory)?;
        self.files.sync_directory(files::parent(&self.directory))
    }

    fn put(&mut self, manifest: Manifest) -> io::Result<()> {
        let path = self.path(&self.with_suffix(".manifest"));
        let temporary = self.path(&[b"temp-", &self.name[..], b".manifest"].concat());
        let put = files::replace(&*self.files, &path, &temporary, &manifest.to_bytes());
        if put.is_ok() || self.is_on_disk(&manifest) {
            self.manifest = manifest;
        } else {
            // The new manifest may be on the disk all the same, so its sequence numbers are not used again.
            let (base, incr) = (manifest.base_seq, manifest.incr_seq);
            self.manifest.base_seq = self.manifest.base_seq.max(base);
            self.manifest.incr_seq = self.manifest.incr_seq.max(incr);
        }
        put
    }

    /// True if the manifest on the disk can be read and equals this one.
    fn is_on_disk(&self, manifest: &Manifest) -> bool {
        let path = self.path(&self.with_suffix(".manifest"));
        let mut bytes = Vec::new();
        let read = self
            .files
            .open(&path)
            .and_then(|mut file| file.read_to_end(&mut bytes));
        match read {
            Ok(_) => bytes == manifest.to_bytes(),
            Err(error) => {
                error.kind() == io::ErrorKind::NotFound && *manifest == Manifest::default()
            }
        }
    }

    /// True if there is neither a manifest nor a file of an older server.
    pub fn is_fresh(&self, old_directory: &Path) -> bool {
        let old = old_directory.join(OsStr::from_bytes(&self.name));
        let manifest = self.path(&self.with_suffix(".manifest"));
        let is_missing = |path: &Path| matches!(self.files.len(path), Ok(None));
        is_missing(&old) && is_missing(&manifest)
    }

    /// Migrates the single file of older servers; returns whether there was one.
    pub fn upgrade(&mut self, old_directory: &Path) -> Result<bool, StoreError> {
        let old = old_directory.join(OsStr::from_bytes(&self.name));
        let new = self.path(&self.name);
        let what = || format!("Can't take over the old AOF file {}", old.display());
        if failed(self.files.len(&old), what)?.is_none() {
            return Ok(false);
        }
        let is_fresh = self.manifest == Manifest::default();
        let is_begun = self.manifest.incrs.is_empty()
            && self
                .manifest
                .base
                .as_ref()
                .is_some_and(|base| base.name == self.name)
            && failed(self.files.len(&new), what)?.is_none();
        if !is_fresh && !is_begun {
            return Ok(false);
        }
        failed(self.create_directory(), what)?;
        if is_fresh {
            let mut manifest = Manifest::default();
            let (name, seq) = (self.name.clone(), 1);
            manifest.base = Some(AofManifestFile { name, seq });
            manifest.base_seq = seq;
            failed(self.put(manifest), what)?;
        }
        failed(self.files.rename(&old, &new), what)?;
        failed(self.files.sync_directory(&self.directory), what)?;
        Ok(true)
    }

    /// Returns the length of a file of the manifest, which has to exist.
    pub fn len_of(&self, part: &AofManifestFile) -> Result<u64, StoreError> {
        let path = self.path_of(part);
        let what = || {
            format!(
                "Unable to obtain the AOF file {} length. stat",
                name_of(part)
            )
        };
        let len = failed(self.files.len(&path), what)?;
        failed(len.ok_or_else(|| io::Error::from_raw_os_error(2)), what)
    }

    /// Opens a file of the manifest for reading.
    pub fn open_part(&self, part: &AofManifestFile) -> Result<Box<dyn Read + Send>, StoreError> {
        let what = || {
            format!(
                "Fatal error: can't open the append log file {} for reading",
                name_of(part)
            )
        };
        failed(self.files.open(&self.path_of(part)), what)
    }

    /// Truncates a file of the manifest to a length.
    pub fn truncate(&self, part: &AofManifestFile, len: u64) -> io::Result<()> {
        let file = self.files.append(&self.path_of(part))?;
        file.truncate(len)?;
        file.sync()
    }

    /// Creates the append-only file with a snapshot as its base; no files may exist yet.
    pub fn begin_with(&mut self, snapshot: &mut dyn Read) -> io::Result<()> {
        self.create_directory()?;
        self.remove_temporary();
        let mut manifest = self.manifest.clone();
        let part = manifest.next_base(&self.name, true);
        let mut base = NewFile::new(Arc::clone(&self.files), self.temporary_base(), true);
        let written = copy(snapshot, &mut base).and_then(|()| base.sync());
        written
            .and_then(|()| self.files.rename(base.path(), &self.path_of(&part)))
            .and_then(|()| self.files.sync_directory(&self.directory))
            .inspect_err(|_| self.remove_temporary())?;
        manifest.replace(part, 0);
        self.put(manifest)
    }

    /// Opens the last file of commands and returns it with its length. Creates whatever is missing: an empty base
    /// (`base`: its bytes, and whether they are RDB) and the first file of commands.
    pub fn open_at_start(
        &mut self,
        base: Option<(&[u8], bool)>,
    ) -> io::Result<(Arc<dyn File>, u64)> {
        self.create_directory()?;
        self.remove_temporary();
        let mut manifest = self.manifest.clone();
        if let Some((bytes, is_rdb)) = base.filter(|_| manifest == Manifest::default()) {
            let part = manifest.next_base(&self.name, is_rdb);
            let path = self.path_of(&part);
            files::replace(&*self.files, &path, &self.temporary_base(), bytes)?;
            tracing::info!("Creating AOF base file {} on server start", name_of(&part));
            manifest.replace(part, 0);
        }
        if manifest.incrs.is_empty() {
            let part = manifest.next_incr(&self.name);
            tracing::info!("Creating AOF incr file {} on server start", name_of(&part));
            manifest.add_incr(part);
        }
        let last = manifest.incrs.last().expect("there is one by now");
        let file = self.files.append(&self.path_of(last))?;
        if manifest != self.manifest {
            self.files.sync_directory(&self.directory)?;
            self.put(manifest)?;
        }
        let len = file.len()?;
        Ok((file, len))
    }

    /// Creates the file for the commands after a cut; returns `None` if nothing is appended.
    pub fn next_incr(&mut self, next: &IncrFileState) -> io::Result<Option<Arc<dyn File>>> {
        self.create_directory()?;
        match next {
            IncrFileState::None => Ok(None),
            IncrFileState::Temporary => self.files.create(&self.temporary_incr()).map(Some),
            IncrFileState::Listed => {
                let mut manifest = self.manifest.clone();
                let part = manifest.next_incr(&self.name);
                let path = self.path_of(&part);
                let file = self.files.create(&path)?;
                manifest.add_incr(part);
                let old = self.manifest.clone();
                let put = self.files.sync_directory(&self.directory);
                if let Err(error) = put.and_then(|()| self.put(manifest)) {
                    if self.is_on_disk(&old) {
                        let _ = self.files.remove(&path);
                    }
                    return Err(error);
                }
                tracing::info!(
                    "Creating AOF incr file {} on background rewrite",
                    path.display()
                );
                Ok(Some(file))
            }
        }
    }

    /// Installs the base that was written to [`Store::temporary_base`] and synced, in place of the files whose
    /// data it contains.
    pub fn finish_rewrite(&mut self, is_rdb: bool, next: &IncrFileState) -> io::Result<()> {
        let mut manifest = self.manifest.clone();
        let base = manifest.next_base(&self.name, is_rdb);
        self.files
            .rename(&self.temporary_base(), &self.path_of(&base))?;
        let is_listed = *next == IncrFileState::Listed;
        let base_path = self.path_of(&base);
        manifest.replace(base, usize::from(is_listed));
        let mut incr_path = None;
        if *next == IncrFileState::Temporary {
            let incr = manifest.next_incr(&self.name);
            let path = self.path_of(&incr);
            if let Err(error) = self.files.rename(&self.temporary_incr(), &path) {
                let _ = self.files.remove(&base_path);
                return Err(error);
            }
            incr_path = Some(path);
            manifest.add_incr(incr);
        }
        let old = self.manifest.clone();
        let put = self.files.sync_directory(&self.directory);
        if let Err(error) = put.and_then(|()| self.put(manifest)) {
            // The manifest on the disk may be the old or the new one. Remove the new base only if the old
            // manifest is known to be there.
            if self.is_on_disk(&old) {
                let _ = self.files.remove(&base_path);
                if let Some(path) = incr_path {
                    let _ = self.files.rename(&path, &self.temporary_incr());
                }
            }
            return Err(error);
        }
        Ok(())
    }

    /// Removes the temporary base of a failed rewrite.
    pub fn remove_temporary_base(&self) {
        // Ignore errors: the file may never have been created.
        let _ = self.files.remove(&self.temporary_base());
    }

    /// Removes the temporary file of commands of a failed rewrite.
    pub fn remove_temporary_incr(&self) {
        tracing::info!(
            "Removing the temp incr aof file {} in the background",
            self.temporary_incr().display()
        );
        let _ = self.files.remove(&self.temporary_incr());
    }

    /// Removes temporary files that a crash left behind.
    fn remove_temporary(&self) {
        for path in [self.temporary_base(), self.temporary_incr()] {
            if let Ok(Some(_)) = self.files.len(&path) {
                let _ = self.files.remove(&path);
            }
        }
    }

    /// Removes replaced files. The manifest lists each replaced file until it is removed, so a file left by a
    /// crash or an error is removed the next time.
    pub fn delete_history(&mut self) -> io::Result<()> {
        if self.manifest.history.is_empty() {
            return Ok(());
        }
        let mut manifest = self.manifest.clone();
        let mut failure = None;
        manifest.history.retain(|part| {
            tracing::info!(
                "Removing the history file {} in the background",
                name_of(part)
            );
            match self.files.remove(&self.path_of(part)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    failure = Some(error);
                    true
                }
                _ => false,
            }
        });
        if manifest.history.len() < self.manifest.history.len() {
            self.put(manifest)?;
        }
        failure.map_or(Ok(()), Err)
    }
}

fn copy(from: &mut dyn Read, to: &mut NewFile) -> io::Result<()> {
    let mut piece = vec![0; COPIED_BYTES];
    loop {
        match from.read(&mut piece) {
            Ok(0) => return Ok(()),
            Ok(count) => to.write(&piece[..count])?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Returns the name of a file, for messages.
pub fn name_of(part: &AofManifestFile) -> String {
    let name = OsString::from_vec(part.name.clone());
    name.to_string_lossy().into_owned()
}
