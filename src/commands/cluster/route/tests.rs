//! Tests of `route`.

use super::*;
use crate::cluster::testing::{OTHER, REPLICA, THIRD, map};

const HERE: u16 = 7;
const THERE: u16 = 9000;

fn found(existing: usize, missing: usize) -> Option<Presence> {
    Some(Presence {
        missing,
        existing,
        is_several: existing + missing > 1,
    })
}

#[test]
fn slots_of_keys_are_joined() {
    let (one, two) = (SlotOf::of(1), SlotOf::of(2));
    assert_eq!(SlotOf::NONE.with(one), one);
    assert_eq!(one.with(SlotOf::NONE), one);
    assert_eq!(one.with(one), one);
    assert!(!one.is_cross() && !SlotOf::NONE.is_cross());
    let both = one.with(two);
    assert!(both.is_cross() && both.with(one).is_cross() && both.with(two).is_cross());
    assert_eq!((both.first(), both.with(two).first()), (Some(1), Some(1)));
    assert!(both.index() >= usize::from(SLOTS) && SlotOf::NONE.index() >= usize::from(SLOTS));
}

/// Each line: the change of the map, the slot, the routing flags, the keys' presence, and the decision.
#[test]
fn requests_go_where_redis_sends_them() {
    use Refusal::{Ask, CrossSlot, Down, DownForWrites, Moved, TryAgain, Unbound};
    use Verdict::{NeedsKeyCheck, Refuse, Serve};
    let (none, reads, asks) = (
        RoutingFlags::default(),
        RoutingFlags::READS_HERE,
        RoutingFlags::ASKS,
    );
    let (writes, channel, moves) = (
        RoutingFlags::WRITES,
        RoutingFlags::CHANNEL,
        RoutingFlags::MOVES,
    );
    let strict = DownPolicy {
        reads: false,
        channels: true,
    };
    let lax = DownPolicy {
        reads: true,
        channels: false,
    };
    let (here, there) = (SlotOf::of(HERE), SlotOf::of(THERE));
    let plain = map();
    let mut down = map();
    down.is_up = false;
    let mut unbound = map();
    unbound.owners[usize::from(HERE)] = super::super::map::UNOWNED;
    let mut migrating = map();
    migrating.migrating.insert(HERE, THIRD);
    let mut importing = map();
    importing.importing.insert(THERE, OTHER);
    let mut replica = map();
    replica.myself = REPLICA;
    type Case<'m> = (
        &'m ClusterMap,
        SlotOf,
        RoutingFlags,
        DownPolicy,
        Option<Presence>,
        Verdict,
    );
    let cases: &[Case<'_>] = &[
        (&plain, SlotOf::NONE, writes, strict, None, Serve),
        (&down, SlotOf::NONE, writes, strict, None, Serve),
        (&plain, here, writes, strict, None, Serve),
        (
            &plain,
            there,
            none,
            strict,
            None,
            Refuse(Moved(THERE, OTHER)),
        ),
        (
            &plain,
            there,
            reads,
            strict,
            None,
            Refuse(Moved(THERE, OTHER)),
        ),
        (
            &plain,
            there,
            asks,
            strict,
            None,
            Refuse(Moved(THERE, OTHER)),
        ),
        (
            &plain,
            here.with(there),
            none,
            strict,
            None,
            Refuse(CrossSlot),
        ),
        (
            &down,
            here.with(there),
            none,
            strict,
            None,
            Refuse(CrossSlot),
        ),
        (
            &unbound,
            here.with(there),
            none,
            strict,
            None,
            Refuse(Unbound),
        ),
        (&unbound, here, none, strict, None, Refuse(Unbound)),
        (&down, here, none, strict, None, Refuse(Down)),
        (&down, here, none, lax, None, Serve),
        (&down, here, writes, lax, None, Refuse(DownForWrites)),
        (&down, there, none, lax, None, Refuse(Moved(THERE, OTHER))),
        (&down, here, channel, strict, None, Serve),
        (&down, here, channel, lax, None, Refuse(Down)),
        (&migrating, here, none, strict, None, NeedsKeyCheck),
        (&migrating, here, none, strict, found(2, 0), Serve),
        (
            &migrating,
            here,
            none,
            strict,
            found(1, 1),
            Refuse(TryAgain),
        ),
        (
            &migrating,
            here,
            none,
            strict,
            found(0, 1),
            Refuse(Ask(HERE, THIRD)),
        ),
        (
            &migrating,
            here,
            asks,
            strict,
            found(0, 1),
            Refuse(Ask(HERE, THIRD)),
        ),
        (&migrating, here, channel, strict, None, Serve),
        (&migrating, here, writes.or(moves), strict, None, Serve),
        (
            &importing,
            there,
            none,
            strict,
            None,
            Refuse(Moved(THERE, OTHER)),
        ),
        (&importing, there, asks, strict, None, NeedsKeyCheck),
        (&importing, there, asks, strict, found(0, 1), Serve),
        (&importing, there, asks, strict, found(2, 0), Serve),
        (
            &importing,
            there,
            asks,
            strict,
            found(1, 1),
            Refuse(TryAgain),
        ),
        (&importing, there, writes.or(moves), strict, None, Serve),
        (
            &importing,
            there,
            channel,
            strict,
            None,
            Refuse(Moved(THERE, OTHER)),
        ),
        (
            &replica,
            there,
            none,
            strict,
            None,
            Refuse(Moved(THERE, OTHER)),
        ),
        (&replica, there, reads, strict, None, Serve),
        (
            &replica,
            there,
            reads.or(writes),
            strict,
            None,
            Refuse(Moved(THERE, OTHER)),
        ),
        (&replica, there, channel, strict, None, Serve),
        (&replica, here, reads, strict, None, Refuse(Moved(HERE, 0))),
    ];
    for (at, (map, slot, routing, down_policy, presence, verdict)) in cases.iter().enumerate() {
        let decided = decide(map, *slot, *routing, *down_policy, *presence);
        assert_eq!(decided, *verdict, "line {at}");
    }
}

#[test]
fn who_waits_for_a_key_or_listens_is_told_when_its_slot_goes() {
    let mut map = map();
    let none = RoutingFlags::default();
    assert_eq!(while_waiting(&map, HERE, none), None);
    let moved = Some(Refusal::Moved(THERE, OTHER));
    assert_eq!(while_waiting(&map, THERE, none), moved);
    assert!(!serves_channel(&map, THERE));
    map.importing.insert(THERE, OTHER);
    assert_eq!(while_waiting(&map, THERE, none), None);
    assert!(serves_channel(&map, THERE));
    map.is_up = false;
    assert_eq!(while_waiting(&map, HERE, none), Some(Refusal::Down));
}
