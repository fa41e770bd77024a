//! A snapshot that is not loaded, as the append-only file is, and that the next save would replace.
//!
//! Mostly the server saved it itself. If it did not, it may be a backup that somebody put there to be restored, and the
//! only copy of it: then it is given another name before anything else is.

use std::fs::{self, File, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jiff::Zoned;

use crate::persist::load::Loader;
use crate::state::Service;

/// A file that a server saves is made so soon after the moment that its header names.
const MADE_WITHIN: Duration = Duration::from_secs(5);

/// The last write to it and its last name are so close to each other.
const NAMED_WITHIN_S: i64 = 60;

/// Gives a snapshot another name if it was not saved where it lies.
pub(super) fn put_aside(service: &'static Service, path: &Path) {
    let Ok(mut file) = File::open(path) else {
        return;
    };
    let Ok(facts) = file.metadata() else {
        return;
    };
    let fields = Loader::new(service).fields_of(&mut file);
    let saved_s = fields.get(&b"ctime"[..]);
    let saved_s = saved_s.and_then(|text| std::str::from_utf8(text).ok()?.parse().ok());
    if was_saved_here(&facts, saved_s) {
        return;
    }
    let aside = name_aside(path);
    let (shown, aside_shown) = (path.display(), aside.display());
    match fs::rename(path, &aside) {
        Ok(()) => tracing::warn!(
            "{shown} is not loaded, as there is an append only file, which is. It was not saved here, so that it may be \
             a backup: it is kept as {aside_shown}. To restore it, stop the server, give the file its name back and move \
             the folder of the append only file away."
        ),
        Err(error) => tracing::warn!(
            "{shown} is not loaded, as there is an append only file, which is; and it can not be kept as {aside_shown}: \
             {error}"
        ),
    }
}

/// Whether a server has saved this file where it lies, given the Unix second in its header: it is made as it is saved,
/// while a copy is made later, and given its name at once, while a file that is moved keeps the time of its last write.
/// A file system that does not know when a file was made leaves nothing to tell by.
fn was_saved_here(facts: &Metadata, saved_s: Option<u64>) -> bool {
    let (Some(saved_s), made) = (saved_s, facts.created()) else {
        return false;
    };
    let Ok(made) = made else {
        return true;
    };
    let saved = UNIX_EPOCH + Duration::from_secs(saved_s);
    let apart = |one: SystemTime, other: SystemTime| one.duration_since(other).unwrap_or_default();
    let is_made_then = apart(made, saved) <= MADE_WITHIN && apart(saved, made) <= MADE_WITHIN;
    is_made_then && facts.ctime() - facts.mtime() <= NAMED_WITHIN_S
}

fn name_aside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}.bak", Zoned::now().strftime("%Y%m%d-%H%M%S")));
    PathBuf::from(name)
}
