//! Keys that remain on a node after their slots moved away: they are removed, whatever happens meanwhile, and
//! no new key is.

use super::{SLOT, TAG, await_end, count, fill, is_over, latest, migrate, owns, start};
use crate::clustered::{agree, id, options, unite};
use crate::support::{self, Server, check, eventually};

/// Number of keys of the slot; deleting them takes a while.
const KEYS: usize = 60_000;

#[test]
fn a_source_that_is_killed_while_it_deletes_what_went_deletes_the_rest_later() {
    if support::is_stand_in() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let lasting = options()
        .with("dir", folder.path().to_str().expect("a plain path"))
        .with("appendonly", "yes")
        .with("appendfsync", "always");
    let (mut one, two) = (Server::start(&lasting), start());
    unite(&[&one, &two]);
    fill(&one, KEYS);
    migrate(&one, &two);
    await_end(&one, "success");
    let left = count(&one);
    one.signal("KILL");
    one.wait_for_exit();
    let port = one.port;
    drop(one);
    let again = support::start_loaded(&lasting.port(port));
    agree(&[&again, &two]);
    eventually("what is not owned goes", || count(&again) == 0);
    assert!(owns(&two) && count(&two) == KEYS as i64, "{left} were left");
    // Nothing is taken for a move by hand.
    let nodes = again.raw().call("CLUSTER NODES").body();
    assert!(!nodes.contains("-<-") && !nodes.contains("->-"), "{nodes}");
}

#[test]
fn setslot_waits_until_what_is_left_is_deleted() {
    if support::is_stand_in() {
        return;
    }
    let (one, two) = (start(), start());
    unite(&[&one, &two]);
    fill(&one, KEYS);
    migrate(&one, &two);
    await_end(&one, "success");
    let mut raw = one.raw();
    let importing = format!("CLUSTER SETSLOT {SLOT} IMPORTING {}", id(&two));
    check(&mut raw, &importing, "OK");
    for key in 0..100 {
        check(&mut raw, "ASKING", "OK");
        check(&mut raw, &format!("SET {TAG}new{key} v"), "OK");
    }
    assert_eq!(
        count(&one),
        100,
        "the old ones are gone, and the new ones are there"
    );
}

#[test]
fn flushdb_while_a_slot_goes_leaves_no_key_at_either_end() {
    if support::is_stand_in() {
        return;
    }
    let (one, two) = (start(), start());
    unite(&[&one, &two]);
    for flush in ["FLUSHDB", "FLUSHDB ASYNC"] {
        fill(&one, 20_000);
        migrate(&one, &two);
        eventually("keys come", || count(&two) > 0 || is_over(&one));
        check(&mut one.raw(), flush, "OK");
        eventually("it is over", || is_over(&one) && is_over(&two));
        let (state, goes) = (latest(&one, "state"), owns(&two));
        assert_eq!(state == "success", goes, "{flush}");
        if !goes {
            assert!(latest(&one, "message").contains("flushed"));
            eventually("no key is left", || count(&one) + count(&two) == 0);
        }
        if goes {
            return;
        }
    }
}
