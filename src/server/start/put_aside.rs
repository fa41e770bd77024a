//! Renames a snapshot that is not loaded, because the append-only file is loaded instead, and that the next
//! save would replace.
//!
//! Usually the server saved it itself. Otherwise the file may be a backup that was put there to be restored,
//! perhaps the only copy: then it is renamed before anything else happens.

use std::fs::{self, File, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jiff::Zoned;

use crate::persist::load::Loader;
use crate::state::Service;

/// Time after the timestamp in its header within which a snapshot file must have been created to count as saved by a
/// server.
const MADE_WITHIN: Duration = Duration::from_secs(5);

/// Seconds after its last write within which such a file must have been renamed.
const NAMED_WITHIN_S: i64 = 60;

/// Renames a snapshot unless a server saved it in its current place.
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
    let aside = backup_path(path);
    let (shown, aside_shown) = (path.display(), aside.display());
    match fs::rename(path, &aside) {
        Ok(()) => tracing::warn!(
            "{shown} is not loaded because the append only file is loaded instead. It was not saved by this server \
             and may be a backup, so it is renamed to {aside_shown}. To restore it, stop the server, rename the file \
             back and move the directory of the append only file away."
        ),
        Err(error) => tracing::warn!(
            "{shown} is not loaded because the append only file is loaded instead; it cannot be renamed to \
             {aside_shown}: {error}"
        ),
    }
}

/// Whether a server saved this file in its current place, given the Unix second in its header. A file saved by
/// a server is created at the time in its header, whereas a copy is created later. It is also renamed right
/// after the last write, whereas a file that is moved later keeps its old modification time. On a file system
/// without creation times this cannot be determined.
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

fn backup_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}.bak", Zoned::now().strftime("%Y%m%d-%H%M%S")));
    PathBuf::from(name)
}
