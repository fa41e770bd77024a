//! What tags keys have, and for how long they count as stale, goes with their slot.

use super::{TAG, await_end, migrate, pair};
use crate::clustered::options;
use crate::support::{self, check};

#[test]
fn tags_and_stale_windows_go_with_their_slot() {
    if support::is_stand_in() {
        return;
    }
    let (one, other) = pair(&options());
    let mut raw = one.raw();
    for line in [
        format!("SET {TAG}fresh v PX 1 STALE 500000 TAGS 2 red blue"),
        format!("SET {TAG}plain v"),
        format!("RPUSH {TAG}list a b c"),
        format!("TAG ADD {TAG}list red"),
        format!("SET {TAG}void v TAGS 1 gone"),
    ] {
        let reply = raw.call(&line);
        assert!(!reply.is_error(), "{line}: {}", reply.show());
    }
    // A large one, which otherwise goes by the piece.
    let members: Vec<String> = (0..20_000).map(|number| format!("m{number}")).collect();
    for some in members.chunks(1_000) {
        raw.call(&format!("SADD {TAG}large {}", some.join(" ")));
    }
    check(&mut raw, &format!("TAG ADD {TAG}large blue"), "(integer) 1");
    check(&mut raw, "TAG INVALIDATE gone", "(integer) 1");
    migrate(&one, &other);
    await_end(&one, "success");
    let mut raw = other.raw();
    let tags = |raw: &mut crate::wire::Raw, key: &str| {
        let tags = raw.call(&format!("TAG OF {TAG}{key}"));
        let mut tags: Vec<String> = tags.items().iter().map(|tag| tag.text()).collect();
        tags.sort();
        tags.join(" ")
    };
    assert_eq!(tags(&mut raw, "fresh"), "blue red");
    assert_eq!(tags(&mut raw, "list"), "red");
    assert_eq!(tags(&mut raw, "plain"), "");
    assert_eq!(tags(&mut raw, "large"), "blue");
    let state = raw.call(&format!("LGET {TAG}fresh LEASE 1000"));
    assert_eq!(state.items()[1].text(), "stale", "{}", state.show());
    check(&mut raw, &format!("SCARD {TAG}large"), "(integer) 20000");
    check(&mut raw, &format!("EXISTS {TAG}void"), "(integer) 0");
    check(&mut raw, "TAG INVALIDATE red", "(integer) 2");
    check(
        &mut raw,
        &format!("EXISTS {TAG}fresh {TAG}list {TAG}plain"),
        "(integer) 1",
    );
}
