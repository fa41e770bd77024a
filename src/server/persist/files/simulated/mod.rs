//! An in-memory file system for tests: a crash loses unsynced data, in part or whole, and calls fail on request.
//!
//! Three states are kept apart. First, the written data, which readers see until the crash. Second, the durable
//! data of each file: its bytes as of the last successful sync, and the changes since then. A crash keeps any
//! prefix of these changes; the last kept one may be torn, or zeros where the file's length reached the disk
//! before the bytes. Third, the names: those of the last sync of the directory, with any prefix of the changes
//! since then. A failed sync leaves the changes before it in doubt for ever, like a kernel that marks lost
//! pages clean.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, IoSlice, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::{File, Files, parent};

/// A fault of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The machine stops before the call: it and all later ones fail, until [`Simulated::restart`].
    Crash,
    /// The call fails without effect. A failed sync leaves the data it should have synced in doubt.
    Fails(i32),
    /// A write stores only half of its bytes; other calls fail with EIO.
    Short,
}

/// Error number of a failing disk.
pub const EIO: i32 = 5;
/// Error number of a full disk.
pub const ENOSPC: i32 = 28;

/// A change of a file's bytes.
#[derive(Clone, Debug)]
enum Change {
    Append(Vec<u8>),
    Truncate(u64),
}

#[derive(Debug, Default)]
struct Inode {
    /// Contents as readers see them.
    bytes: Vec<u8>,
    /// Contents as of the last successful sync.
    synced: Vec<u8>,
    /// Changes since the last successful sync, in order.
    changes: Vec<Change>,
    /// Bytes that a failed sync left in doubt: a crash may zero them, even if they are synced again later.
    doubtful: Vec<Range<usize>>,
}

/// A change of the names in a directory.
#[derive(Clone, Debug)]
enum DirectoryChange {
    Make(PathBuf, usize),
    Rename(PathBuf, PathBuf),
    Remove(PathBuf),
}

impl DirectoryChange {
    fn directory(&self) -> &Path {
        match self {
            DirectoryChange::Make(path, _)
            | DirectoryChange::Remove(path)
            | DirectoryChange::Rename(path, _) => parent(path),
        }
    }

    fn apply(&self, names: &mut BTreeMap<PathBuf, usize>) {
        match self {
            DirectoryChange::Make(path, inode) => {
                names.insert(path.clone(), *inode);
            }
            DirectoryChange::Rename(from, to) => {
                if let Some(inode) = names.remove(from) {
                    names.insert(to.clone(), inode);
                }
            }
            DirectoryChange::Remove(path) => {
                names.remove(path);
            }
        }
    }
}

#[derive(Debug, Default)]
struct State {
    inodes: Vec<Inode>,
    names: BTreeMap<PathBuf, usize>,
    synced_names: BTreeMap<PathBuf, usize>,
    namings: Vec<DirectoryChange>,
    directories: Vec<PathBuf>,
    /// Number of modifying calls so far.
    steps: u64,
    /// Faults to inject, by the number of the modifying call.
    faults: BTreeMap<u64, Fault>,
    has_crashed: bool,
    /// Number of crashes: files opened before a crash are closed.
    lives: u64,
}

/// An in-memory file system that loses unsynced data in a crash; see the module.
#[derive(Clone, Debug, Default)]
pub struct Simulated(Arc<Mutex<State>>);

struct Opened {
    system: Simulated,
    inode: usize,
    life: u64,
}

fn error(number: i32) -> io::Error {
    io::Error::from_raw_os_error(number)
}

fn missing() -> io::Error {
    io::ErrorKind::NotFound.into()
}

impl State {
    /// Counts a modifying call. Returns the fault to inject, if any, or an error if the call fails or the machine has
    /// crashed.
    fn step(&mut self) -> io::Result<Option<Fault>> {
        if self.has_crashed {
            return Err(error(EIO));
        }
        self.steps += 1;
        match self.faults.get(&self.steps) {
            Some(Fault::Crash) => {
                self.has_crashed = true;
                Err(error(EIO))
            }
            fault => Ok(fault.copied()),
        }
    }

    /// Does the same as [`State::step`], for calls that succeed or fail as a whole.
    fn step_whole(&mut self) -> io::Result<()> {
        match self.step()? {
            None => Ok(()),
            Some(Fault::Fails(number)) => Err(error(number)),
            Some(_) => Err(error(EIO)),
        }
    }

    fn name(&mut self, naming: DirectoryChange) {
        naming.apply(&mut self.names);
        self.namings.push(naming);
    }

    fn find(&self, path: &Path) -> io::Result<&Inode> {
        if self.has_crashed {
            return Err(error(EIO));
        }
        let inode = self.names.get(path).ok_or_else(missing)?;
        Ok(&self.inodes[*inode])
    }
}

impl Simulated {
    /// Returns an empty file system with one directory.
    pub fn new(directory: &Path) -> Simulated {
        let system = Simulated::default();
        system.0.lock().directories.push(directory.to_owned());
        system
    }

    /// Injects a fault into the n-th modifying call from now on, counted from 1.
    pub fn fail_at(&self, n: u64, fault: Fault) {
        let mut state = self.0.lock();
        let at = state.steps + n;
        state.faults.insert(at, fault);
    }

    /// Cancels all faults that have not occurred yet.
    pub fn heal(&self) {
        self.0.lock().faults.clear();
    }

    /// Returns the number of modifying calls so far.
    pub fn steps(&self) -> u64 {
        self.0.lock().steps
    }

    /// True if the machine has crashed.
    pub fn has_crashed(&self) -> bool {
        self.0.lock().has_crashed
    }

    /// Restarts after a power cut; the seed determines which unsynced data survives.
    pub fn restart(&self, seed: u64) {
        let mut random = SmallRng::seed_from_u64(seed);
        let state = &mut *self.0.lock();
        let kept = random.random_range(0..=state.namings.len());
        for naming in &state.namings[..kept] {
            naming.apply(&mut state.synced_names);
        }
        state.namings.clear();
        state.names = state.synced_names.clone();
        for inode in &mut state.inodes {
            inode.settle(&mut random);
        }
        state.faults.clear();
        state.has_crashed = false;
        state.lives += 1;
    }

    fn opened(&self, state: &State, inode: usize) -> Arc<dyn File> {
        Arc::new(Opened {
            system: self.clone(),
            inode,
            life: state.lives,
        })
    }

    fn open_to_write(&self, path: &Path, empties: bool) -> io::Result<Arc<dyn File>> {
        let state = &mut *self.0.lock();
        state.step_whole()?;
        if !state
            .directories
            .iter()
            .any(|directory| directory == parent(path))
        {
            return Err(missing());
        }
        if let Some(&inode) = state.names.get(path) {
            if empties {
                state.inodes[inode].change(Change::Truncate(0));
            }
            return Ok(self.opened(state, inode));
        }
        state.inodes.push(Inode::default());
        let inode = state.inodes.len() - 1;
        state.name(DirectoryChange::Make(path.to_owned(), inode));
        Ok(self.opened(state, inode))
    }
}

impl Inode {
    fn change(&mut self, change: Change) {
        apply(&change, &mut self.bytes);
        if let Change::Truncate(len) = change {
            // Bytes beyond the new length are no longer in doubt: later writes there reach the disk.
            for range in &mut self.doubtful {
                range.end = range.end.min(len as usize);
                range.start = range.start.min(range.end);
            }
        }
        self.changes.push(change);
    }

    /// Replaces the contents by a random outcome of a crash.
    fn settle(&mut self, random: &mut SmallRng) {
        let kept = random.random_range(0..=self.changes.len());
        let mut bytes = std::mem::take(&mut self.synced);
        for change in &self.changes[..kept] {
            apply(change, &mut bytes);
        }
        if let Some(Change::Append(torn)) = self.changes.get(kept) {
            let whole = random.random_range(0..=torn.len());
            bytes.extend_from_slice(&torn[..whole]);
            if random.random_bool(0.3) {
                bytes.resize(bytes.len() + (torn.len() - whole), 0);
            }
        }
        for range in self.doubtful.drain(..) {
            if random.random_bool(0.5) {
                let end = range.end.min(bytes.len());
                bytes[range.start.min(end)..end].fill(0);
            }
        }
        self.changes.clear();
        self.synced = bytes.clone();
        self.bytes = bytes;
    }
}

fn apply(change: &Change, bytes: &mut Vec<u8>) {
    match change {
        Change::Append(added) => bytes.extend_from_slice(added),
        Change::Truncate(len) => bytes.truncate(*len as usize),
    }
}

impl Files for Simulated {
    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        self.open_to_write(path, true)
    }

    fn append(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        self.open_to_write(path, false)
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn Read + Send>> {
        let bytes = self.0.lock().find(path)?.bytes.clone();
        Ok(Box::new(io::Cursor::new(bytes)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let state = &mut *self.0.lock();
        state.step_whole()?;
        state.find(from)?;
        state.name(DirectoryChange::Rename(from.to_owned(), to.to_owned()));
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let state = &mut *self.0.lock();
        state.step_whole()?;
        state.find(path)?;
        state.name(DirectoryChange::Remove(path.to_owned()));
        Ok(())
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        let state = &mut *self.0.lock();
        state.step_whole()?;
        // A new directory is durable at once: only lost names within directories are simulated.
        if !state.directories.iter().any(|directory| directory == path) {
            state.directories.push(path.to_owned());
        }
        Ok(())
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        let state = &mut *self.0.lock();
        state.step_whole()?;
        let (here, elsewhere) = std::mem::take(&mut state.namings)
            .into_iter()
            .partition(|naming| naming.directory() == path);
        let here: Vec<DirectoryChange> = here;
        state.namings = elsewhere;
        here.iter()
            .for_each(|naming| naming.apply(&mut state.synced_names));
        Ok(())
    }

    fn list(&self, path: &Path) -> io::Result<Vec<OsString>> {
        let state = self.0.lock();
        if state.has_crashed {
            return Err(error(EIO));
        }
        if !state.directories.iter().any(|directory| directory == path) {
            return Err(missing());
        }
        let names = state.names.keys().filter(|name| parent(name) == path);
        Ok(names
            .filter_map(|name| Some(name.file_name()?.to_owned()))
            .collect())
    }

    fn len(&self, path: &Path) -> io::Result<Option<u64>> {
        match self.0.lock().find(path) {
            Ok(inode) => Ok(Some(inode.bytes.len() as u64)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl Opened {
    /// Returns the file system, unless the file was opened before a crash.
    fn state(&self) -> io::Result<parking_lot::MutexGuard<'_, State>> {
        let state = self.system.0.lock();
        match state.lives == self.life {
            true => Ok(state),
            false => Err(error(EIO)),
        }
    }
}

impl File for Opened {
    fn write(&self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut state = self.state()?;
        let mut bytes: Vec<u8> = pieces
            .iter()
            .flat_map(|piece| piece.iter().copied())
            .collect();
        match state.step()? {
            Some(Fault::Fails(number)) => return Err(error(number)),
            Some(_) => bytes.truncate(bytes.len() / 2),
            None => {}
        }
        let count = bytes.len();
        state.inodes[self.inode].change(Change::Append(bytes));
        Ok(count)
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.state()?;
        let step = state.step_whole();
        if state.has_crashed {
            return step;
        }
        let inode = &mut state.inodes[self.inode];
        if step.is_err() {
            let from = inode.synced.len().min(inode.bytes.len());
            inode.doubtful.push(from..inode.bytes.len());
        }
        // Even if the sync failed: a repeated sync would not write the data again.
        inode.synced = inode.bytes.clone();
        inode.changes.clear();
        step
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        let mut state = self.state()?;
        state.step_whole()?;
        state.inodes[self.inode].change(Change::Truncate(len));
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        let state = self.state()?;
        match state.has_crashed {
            true => Err(error(EIO)),
            false => Ok(state.inodes[self.inode].bytes.len() as u64),
        }
    }
}

#[cfg(test)]
mod tests;
