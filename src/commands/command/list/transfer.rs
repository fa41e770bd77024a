//! Commands that move an element from list to list: LMOVE RPOPLPUSH, and BLMOVE BRPOPLPUSH, which wait for an
//! element; and several elements: LMOVEM, and BLMOVEM, which waits.
//!
//! The shards of both lists are locked, so no client sees the element in both lists or in neither. Both keys may be
//! the same: then the list is rotated.

use super::edit::at;
use super::{POPPED, PUSHED, end_named, limits, popped_event, pushed_event, took};
use crate::command::context::{ShardCx, Wait};
use crate::command::declaration::{Command, CommandResult, Flags, Group, KeySpec};
use crate::command::element::reply_item;
use crate::command::error::CommandError;
use crate::command::options::blocking_timeout;
use crate::command::{Args, Out};
use basalt_core::alloc::account;
use basalt_core::base::number;
use basalt_core::structures::block::{Content, SharedBlock};
use basalt_core::structures::item::Item;
use basalt_core::structures::quicklist::End;
use basalt_core::structures::table::EntrySlot;
use basalt_engine::Key;
use basalt_engine::value::{DataType, list};

const SOURCE_AND_TARGET: &[KeySpec] = &[KeySpec::one(1, POPPED), KeySpec::one(2, PUSHED)];

/// `LMOVE source destination <LEFT | RIGHT> <LEFT | RIGHT>`
pub(super) static LMOVE: Command = Command::new("lmove", Group::List, 5)
    .writes(SOURCE_AND_TARGET)
    .flags(Flags::DENYOOM)
    .doc(
        "6.2.0",
        "source destination <LEFT | RIGHT> <LEFT | RIGHT>",
        "Removes an element from one end of a list and adds it to an end of another or the same list.",
    )
    .on_keys(lmove);

fn lmove(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let (from, to) = (end_named(args, 3)?, end_named(args, 4)?);
    move_or_null(cx, args, from, to, out)
}

/// `RPOPLPUSH source destination`
pub(super) static RPOPLPUSH: Command = Command::new("rpoplpush", Group::List, 3)
    .writes(SOURCE_AND_TARGET)
    .flags(Flags::DENYOOM)
    .doc(
        "1.2.0",
        "source destination",
        "Removes the last element of a list and prepends it to another or the same list.",
    )
    .deprecated("6.2.0", "`LMOVE` with the `RIGHT` and `LEFT` arguments")
    .on_keys(|cx, args, out| move_or_null(cx, args, End::Back, End::Front, out));

fn move_or_null(
    cx: &mut ShardCx<'_>,
    args: &Args<'_>,
    from: End,
    to: End,
    out: &mut Out,
) -> CommandResult {
    if !move_element(cx, args, from, to, out)? {
        out.null();
    }
    Ok(())
}

/// Moves an element and replies with it. Returns false if the source has none.
fn move_element(
    cx: &mut ShardCx<'_>,
    args: &Args<'_>,
    from: End,
    to: End,
    out: &mut Out,
) -> Result<bool, CommandError> {
    let (source, target, limits) = (args.key(1), args.key(2), limits(cx));
    let Some(place) = find(cx, &source, &target)? else {
        return Ok(false);
    };
    let popped = cx.at(&source).edit(place, |entry| {
        list::pop(entry, from, &limits, |element| {
            account::uncharged(|| MovedElement::of(element))
        })
    });
    let (element, left) = popped.expect("a list is never empty");
    push_all(cx, &target, to, std::slice::from_ref(&element));
    record(cx, &source, &target, from, left);
    reply_item(element.as_item(), out);
    Ok(true)
}

/// Looks up both lists, and returns the place of the source if it exists.
fn find(
    cx: &mut ShardCx<'_>,
    source: &Key<'_>,
    target: &Key<'_>,
) -> Result<Option<EntrySlot>, CommandError> {
    if cx.at(source).find_typed(source, DataType::List)?.is_none() {
        return Ok(None);
    }
    cx.at(target).find_typed(target, DataType::List)?;
    // Looked up again: if the target had expired and was just deleted, the source's place may have changed.
    Ok(cx.at(source).find_write(source))
}

/// Records that elements were moved from this end of the source, in which `left` are left.
fn record(cx: &mut ShardCx<'_>, source: &Key<'_>, target: &Key<'_>, from: End, left: usize) {
    let mut keyspace = cx.at(source);
    if source.bytes == target.bytes {
        keyspace.wrote(source.bytes, popped_event(from));
    } else {
        let place = keyspace
            .find_write(source)
            .expect("emptied, but not deleted yet");
        took(&mut keyspace, source, place, popped_event(from), left);
    }
}

/// An element on its way from one list to the other.
enum MovedElement {
    Bytes(Vec<u8>),
    Block(SharedBlock),
}

impl MovedElement {
    fn of(item: Item<'_>) -> MovedElement {
        match item {
            Item::Block(block) => MovedElement::Block(block.clone()),
            item => MovedElement::Bytes(item.to_vec()),
        }
    }

    fn as_item(&self) -> Item<'_> {
        match self {
            MovedElement::Bytes(bytes) => Item::bytes(bytes),
            MovedElement::Block(block) => Item::Block(block),
        }
    }

    fn as_content(&self) -> Content<'_> {
        match self {
            MovedElement::Bytes(bytes) => bytes.into(),
            MovedElement::Block(block) => block.into(),
        }
    }
}

fn push_all(cx: &mut ShardCx<'_>, key: &Key<'_>, end: End, elements: &[MovedElement]) {
    let limits = limits(cx);
    let mut keyspace = cx.at(key);
    let place = keyspace
        .find_write(key)
        .unwrap_or_else(|| keyspace.create(key, || list::empty_entry(key.bytes)));
    keyspace.edit(place, |entry| {
        for element in elements {
            list::push_element(entry, end, element.as_item(), &limits);
        }
    });
    // The move counts once, for the list from which the element was taken.
    keyspace.followed(key.bytes, pushed_event(end));
}

/// `BLMOVE source destination <LEFT | RIGHT> <LEFT | RIGHT> timeout`
pub(super) static BLMOVE: Command = Command::new("blmove", Group::List, 6)
    .writes(SOURCE_AND_TARGET)
    .flags(Flags::DENYOOM.or(Flags::BLOCKING))
    .doc(
        "6.2.0",
        "source destination <LEFT | RIGHT> <LEFT | RIGHT> timeout",
        "Like LMOVE, but blocks until there is an element.",
    )
    .on_keys(blmove);

fn blmove(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let (from, to) = (end_named(args, 3)?, end_named(args, 4)?);
    move_or_wait(cx, args, from, to, 5, out)
}

/// `BRPOPLPUSH source destination timeout`
pub(super) static BRPOPLPUSH: Command = Command::new("brpoplpush", Group::List, 4)
    .writes(SOURCE_AND_TARGET)
    .flags(Flags::DENYOOM.or(Flags::BLOCKING))
    .doc(
        "2.2.0",
        "source destination timeout",
        "Like RPOPLPUSH, but blocks until there is an element.",
    )
    .history(&[("6.0.0", "`timeout` may be a fraction of a second.")])
    .deprecated("6.2.0", "`BLMOVE` with the `RIGHT` and `LEFT` arguments")
    .on_keys(|cx, args, out| move_or_wait(cx, args, End::Back, End::Front, 3, out));

fn move_or_wait(
    cx: &mut ShardCx<'_>,
    args: &Args<'_>,
    from: End,
    to: End,
    timeout_at: usize,
    out: &mut Out,
) -> CommandResult {
    let until_ms = blocking_timeout(args, timeout_at, cx.now)?;
    if move_element(cx, args, from, to, out)? {
        if cx.is_logged() {
            // The record is the equivalent command that does not wait.
            let mut request: Vec<Content<'_>> = args.contents(0).take(timeout_at).collect();
            request[0] = match timeout_at {
                3 => b"RPOPLPUSH".into(),
                _ => b"LMOVE".into(),
            };
            cx.log_instead(request);
        }
        return Ok(());
    }
    wait(cx, until_ms, out);
    Ok(())
}

fn wait(cx: &mut ShardCx<'_>, until_ms: Option<u64>, out: &mut Out) {
    if cx.may_block() {
        cx.wait(Wait {
            needs_all: true,
            ..Wait::new(DataType::List, until_ms)
        });
    } else {
        // On timeout the reply is a null array; here Redis replies with a null string.
        out.null();
    }
}

const SEVERAL_COMPLEXITY: &str = "O(N) for N elements moved.";

/// `LMOVEM source destination <LEFT | RIGHT> <LEFT | RIGHT> [<COUNT count | EXACTLY count> <OBO | BULK>]`
pub(super) static LMOVEM: Command = Command::new("lmovem", Group::List, -5)
    .writes(SOURCE_AND_TARGET)
    .flags(Flags::DENYOOM)
    .doc(
        "8.10.0",
        "source destination <LEFT | RIGHT> <LEFT | RIGHT> [<COUNT count | EXACTLY exactly> <OBO | BULK>]",
        "Removes elements from one end of a list and adds them to an end of another or the same list.",
    )
    .complexity(SEVERAL_COMPLEXITY)
    .takes_long()
    .on_keys(lmovem);

fn lmovem(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let order = LmovemOptions::read(args, 5)?;
    if !order.execute(cx, args, out)? {
        // If nothing is moved Redis replies with nil, whatever its documentation says of COUNT.
        out.null();
    }
    Ok(())
}

/// `BLMOVEM source destination <LEFT | RIGHT> <LEFT | RIGHT> timeout [<COUNT count | EXACTLY count> <OBO | BULK>]`
pub(super) static BLMOVEM: Command = Command::new("blmovem", Group::List, -6)
    .writes(SOURCE_AND_TARGET)
    .flags(Flags::DENYOOM.or(Flags::BLOCKING))
    .doc(
        "8.10.0",
        "source destination <LEFT | RIGHT> <LEFT | RIGHT> timeout [<COUNT count | EXACTLY exactly> <OBO | BULK>]",
        "Like LMOVEM, but blocks until there are elements, or as many as EXACTLY requires.",
    )
    .complexity(SEVERAL_COMPLEXITY)
    .takes_long()
    .on_keys(blmovem);

fn blmovem(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let order = LmovemOptions::read(args, 6)?;
    let until_ms = blocking_timeout(args, 5, cx.now)?;
    if !order.execute(cx, args, out)? {
        wait(cx, until_ms, out);
    }
    Ok(())
}

/// The parameters of LMOVEM.
#[derive(Clone, Copy, Debug)]
struct LmovemOptions {
    from: End,
    to: End,
    count: usize,
    /// Whether nothing is moved if the source has fewer elements than the count.
    needs_all: bool,
    /// Whether the elements keep their order; otherwise they are moved one by one, which reverses it in some cases.
    in_bulk: bool,
}

impl LmovemOptions {
    /// Parses the two ends, and the options starting at `at`.
    fn read(args: &Args<'_>, at: usize) -> Result<LmovemOptions, CommandError> {
        let mut order = LmovemOptions {
            from: end_named(args, 3)?,
            to: end_named(args, 4)?,
            count: 1,
            needs_all: false,
            in_bulk: false,
        };
        if args.len() == at {
            return Ok(order);
        }
        if args.len() != at + 3 {
            return Err(CommandError::Syntax);
        }
        order.needs_all = args.is(at, "exactly");
        order.in_bulk = args.is(at + 2, "bulk");
        let has_words = order.needs_all || args.is(at, "count");
        if !has_words || !(order.in_bulk || args.is(at + 2, "obo")) {
            return Err(CommandError::Syntax);
        }
        order.count = number::parse_i64(args.get(at + 1))
            .and_then(|count| usize::try_from(count).ok())
            .filter(|count| *count > 0)
            .ok_or("ERR count should be greater than 0")?;
        Ok(order)
    }

    /// Moves elements and replies with them in their order in the target. Returns false if the source has too few.
    fn execute(
        self,
        cx: &mut ShardCx<'_>,
        args: &Args<'_>,
        out: &mut Out,
    ) -> Result<bool, CommandError> {
        let (source, target, limits) = (args.key(1), args.key(2), limits(cx));
        let Some(place) = find(cx, &source, &target)? else {
            return Ok(false);
        };
        let (scales, mut keyspace) = (cx.scales(), cx.at(&source));
        let len = at(&keyspace, place).len();
        if self.needs_all && len < self.count {
            return Ok(false);
        }
        let count = self.count.min(len);
        scales.weigh(count)?;
        // Collected in the order in which the elements are removed from the source.
        let mut moved = Vec::with_capacity(count);
        at(&keyspace, place).visit(self.from, 0, count, |element| {
            moved.push(MovedElement::of(element))
        });
        let is_same = source.bytes == target.bytes;
        let changes_nothing = is_same && self.in_bulk && (self.from == self.to || count == len);
        if !changes_nothing {
            let first = match self.from {
                End::Front => 0,
                End::Back => len - count,
            };
            keyspace.edit(place, |entry| {
                list::remove_range(entry, first, count, &limits)
            });
        }
        // Pushing one by one at the front reverses the elements, and so does popping them from the back.
        let comes_reversed = self.to == End::Front;
        let goes_reversed = match self.in_bulk {
            true => self.from == End::Back,
            false => comes_reversed,
        };
        if goes_reversed {
            moved.reverse();
        }
        out.array(count);
        moved
            .iter()
            .for_each(|element| reply_item(element.as_item(), out));
        if changes_nothing {
            return Ok(true);
        }
        if comes_reversed {
            moved.reverse();
        }
        push_all(cx, &target, self.to, &moved);
        let left = len - count;
        record(cx, &source, &target, self.from, left);
        self.log(cx, &source, &target, &moved, left);
        Ok(true)
    }

    /// Logs commands that servers without LMOVEM know: for two lists the removals and the additions. A list that was
    /// emptied meanwhile would lose its deadline, so within a single list elements move one by one, or are set in
    /// place.
    fn log(
        &self,
        cx: &mut ShardCx<'_>,
        source: &Key<'_>,
        target: &Key<'_>,
        pushed: &[MovedElement],
        left: usize,
    ) {
        /// Maximum number of elements that one record adds.
        const LOGGED_TOGETHER_MAX: usize = 1024;
        if !cx.is_logged() {
            return;
        }
        if source.bytes == target.bytes {
            let key = source.bytes;
            for (number, element) in pushed.iter().enumerate() {
                if self.from == self.to {
                    let mut digits = itoa::Buffer::new();
                    let index = match self.to {
                        End::Front => pushed.len() - 1 - number,
                        End::Back => left + number,
                    };
                    let index = digits.format(index).as_bytes();
                    let element = element.as_content();
                    cx.log_instead([b"LSET".into(), key.into(), index.into(), element]);
                } else {
                    let [from, to] = [self.from, self.to].map(|end| match end {
                        End::Front => b"LEFT".into(),
                        End::Back => Content::from(b"RIGHT"),
                    });
                    cx.log_instead([b"LMOVE".into(), key.into(), key.into(), from, to]);
                }
            }
            return;
        }
        let [pop, push]: [&[u8]; 2] = [
            match self.from {
                End::Front => b"LPOP",
                End::Back => b"RPOP",
            },
            match self.to {
                End::Front => b"LPUSH",
                End::Back => b"RPUSH",
            },
        ];
        cx.log_taken(pop, source.bytes, pushed.len());
        for some in pushed.chunks(LOGGED_TOGETHER_MAX) {
            let head = [push.into(), Content::from(target.bytes)].into_iter();
            let elements = some.iter().map(MovedElement::as_content);
            let request: Vec<Content<'_>> = head.chain(elements).collect();
            cx.log_instead(request);
        }
    }
}
