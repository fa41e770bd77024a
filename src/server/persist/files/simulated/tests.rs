//! Tests of `simulated`.

use super::*;
use crate::persist::files::replace;

const DIR: &str = "/sim";

fn path(name: &str) -> PathBuf {
    Path::new(DIR).join(name)
}

fn text(system: &Simulated, name: &str) -> Option<String> {
    let mut text = String::new();
    let mut read = system.open(&path(name)).ok()?;
    read.read_to_string(&mut text).expect("text");
    Some(text)
}

#[test]
fn a_crash_keeps_what_was_synced_and_any_prefix_of_the_rest() {
    let mut ends = std::collections::BTreeSet::new();
    for seed in 0..200 {
        let system = Simulated::new(Path::new(DIR));
        let file = system.append(&path("a")).expect("made");
        file.write_all(b"abc").expect("written");
        file.sync().expect("synced");
        system.sync_directory(Path::new(DIR)).expect("synced");
        file.write_all(b"de").expect("written");
        file.write_all(b"fg").expect("written");
        assert_eq!(text(&system, "a").as_deref(), Some("abcdefg"));
        system.restart(seed);
        assert!(file.write_all(b"x").is_err(), "the file is closed");
        ends.insert(
            text(&system, "a")
                .expect("its name was synced")
                .replace('\0', "0"),
        );
    }
    let prefixes = ["abc", "abcd", "abcde", "abcdef", "abcdefg"];
    assert!(
        prefixes.iter().all(|prefix| ends.contains(*prefix)),
        "{ends:?}"
    );
    assert!(ends.contains("abcd0") && ends.iter().all(|end| end.starts_with("abc")));
}

#[test]
fn names_are_lost_until_their_directory_is_synced() {
    let (mut lost, mut kept) = (0, 0);
    for seed in 0..50 {
        let system = Simulated::new(Path::new(DIR));
        system
            .append(&path("a"))
            .expect("made")
            .sync()
            .expect("synced");
        system.restart(seed);
        match text(&system, "a") {
            Some(_) => kept += 1,
            None => lost += 1,
        }
    }
    assert!(lost > 0 && kept > 0);
}

#[test]
fn a_file_that_is_replaced_is_whole_wherever_the_crash_falls() {
    let mut steps = 0;
    for n in 1.. {
        let system = Simulated::new(Path::new(DIR));
        replace(&system, &path("m"), &path("t"), b"old").expect("put");
        system.fail_at(n, Fault::Crash);
        let put = replace(&system, &path("m"), &path("t"), b"new and longer");
        assert_eq!(put.is_err(), system.has_crashed());
        let has_crashed = system.has_crashed();
        system.restart(n);
        let left = text(&system, "m").expect("one of the two");
        assert!(
            left == "new and longer" || (has_crashed && left == "old"),
            "{left:?}"
        );
        if !has_crashed {
            break;
        }
        steps = n;
    }
    assert_eq!(
        steps, 5,
        "create, write, sync, rename, sync of the directory"
    );
}

#[test]
fn calls_fail_as_told_and_a_failed_sync_is_never_made_good() {
    let system = Simulated::new(Path::new(DIR));
    let file = system.append(&path("a")).expect("made");
    system.fail_at(1, Fault::Short);
    assert_eq!(file.write(&[IoSlice::new(b"abcd")]).expect("half"), 2);
    system.fail_at(1, Fault::Fails(ENOSPC));
    let full = file.write_all(b"x").expect_err("full");
    assert_eq!(full.raw_os_error(), Some(ENOSPC));
    system.sync_directory(Path::new(DIR)).expect("synced");
    system.fail_at(1, Fault::Fails(EIO));
    assert!(file.sync().is_err());
    assert!(file.sync().is_ok(), "as if nothing had been");
    let zeroed = (0..20).any(|seed| {
        let state = system.0.lock().inodes[0].doubtful.clone();
        system.restart(seed);
        let is_zero = text(&system, "a").as_deref() == Some("\0\0");
        system.0.lock().inodes[0].doubtful = state;
        is_zero
    });
    assert!(zeroed, "a crash shows what the failed sync lost");
}
