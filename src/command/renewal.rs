//! Long strings that are written to: made anew before their shard is in hand, so that nobody waits for the copies.
//!
//! Where a write would move much, the handler asks for the string to be made anew ([`Renewal::made_or_asked`]), does
//! nothing, and has the command leave. Then the string is copied with the change in it ([`Renewal::make`]), which needs no
//! shard: the block is shared, and whoever writes to a shared block writes to a copy, so that one look tells whether
//! somebody did. The handler runs again, and if its key still holds that block, puts the new one in its place.

use std::cell::Cell;

use super::Args;
use super::context::ShardCx;
use super::error::CommandError;
use crate::engine::Key;
use crate::engine::value::Text;
use crate::structures::block::Block;
use crate::structures::table::Place;

/// How often a string is made anew for a command, if it is another one each time.
const ROUNDS_MAX: u32 = 3;

/// What is to be written, and where.
#[derive(Clone, Copy)]
pub struct Write {
    /// The first byte that it writes.
    pub offset: usize,
    /// How many.
    pub len: usize,
    /// The argument that they are; none, if the string is only to be so long.
    pub argument: Option<usize>,
}

/// A string to be made anew.
struct Wanted {
    base: Block,
    offset: usize,
    argument: Option<usize>,
}

/// See the module.
#[derive(Default)]
pub struct Renewal {
    wanted: Cell<Option<Wanted>>,
    made: Cell<Option<(Wanted, Block)>>,
    rounds: u32,
}

impl Renewal {
    /// Makes what the handler asked for, with the arguments of the request.
    pub fn make<'a>(&mut self, argument: impl FnOnce(usize) -> &'a [u8]) {
        self.rounds += 1;
        self.made.set(None);
        if let Some(wanted) = self.wanted.take() {
            let bytes = wanted.argument.map_or(&[][..], argument);
            let block = wanted.base.overwritten(wanted.offset, bytes);
            self.made.set(Some((wanted, block)));
        }
    }

    /// Whether the handler may still ask.
    pub fn may_ask(&self) -> bool {
        self.rounds < ROUNDS_MAX
    }

    /// The string as it will be after a write, if it was made of what is there now; else asks for it.
    fn made_or_asked(&self, text: Option<Text<'_>>, write: Write) -> Option<Block> {
        if let Some((wanted, block)) = self.made.take()
            && wanted.offset == write.offset
            && is_same(&wanted.base, text)
        {
            return Some(block);
        }
        let base = match text {
            Some(Text::Block(block)) => block.clone(),
            Some(text) => text.with_bytes(Block::new),
            None => Block::new(&[]),
        };
        self.wanted.set(Some(Wanted {
            base,
            offset: write.offset,
            argument: write.argument,
        }));
        None
    }
}

fn is_same(base: &Block, text: Option<Text<'_>>) -> bool {
    match text {
        Some(Text::Block(block)) => block.is_same(base),
        // So short that they can be compared.
        Some(text) => text.with_bytes(|bytes| bytes == &base[..]),
        None => base.is_empty(),
    }
}

/// For handlers about to write to the string that a look-up just found: the string as it will be, if it had better be put
/// there whole. An error has the command run again.
pub fn renewed(
    cx: &mut ShardCx<'_>,
    args: &Args<'_>,
    key: &Key<'_>,
    found: Option<Place>,
    write: Write,
) -> Result<Option<Block>, CommandError> {
    let scales = cx.scales();
    let keyspace = cx.at(key);
    let text = match found {
        Some(place) => Some(keyspace.text(place)?),
        None => None,
    };
    let moved = moved_by(text, write);
    if !scales.is_heavy(moved) {
        return Ok(None);
    }
    if let Some(renewal) = args.renewal()
        && let Some(block) = renewal.made_or_asked(text, write)
    {
        return Ok(Some(block));
    }
    scales.weigh_bytes(moved)?;
    Ok(None)
}

/// Bytes that a write moves, where the string lies or to where it would have room.
fn moved_by(text: Option<Text<'_>>, write: Write) -> usize {
    let end = write.offset.saturating_add(write.len);
    match text {
        Some(Text::Block(block)) if end <= block.room() && block.is_unique() => {
            end.saturating_sub(write.offset.min(block.len()))
        }
        Some(text) => end.max(text.len()),
        None => end,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(offset: usize, len: usize) -> Write {
        Write {
            offset,
            len,
            argument: Some(2),
        }
    }

    #[test]
    fn what_was_made_is_used_if_the_string_is_still_the_same() {
        let mut block = Block::new(b"some text");
        let mut renewal = Renewal::default();
        renewal.make(|_| unreachable!("nothing was asked for"));
        let ask = |renewal: &Renewal, block: &Block| {
            renewal.made_or_asked(Some(Text::Block(block)), write(5, 7))
        };
        assert_eq!(ask(&renewal, &block), None);
        renewal.make(|argument| [&b""[..], b"", b"strings"][argument]);
        assert_eq!(ask(&renewal, &block).as_deref(), Some(&b"some strings"[..]));
        assert_eq!(ask(&renewal, &block), None, "it is used once");
        renewal.make(|_| b"strings");
        // Somebody else writes meanwhile: to a copy, as the block is shared.
        block.make_mut()[0] = b'S';
        assert_eq!(ask(&renewal, &block), None, "it is another one now");
        renewal.make(|_| b"strings");
        assert_eq!(ask(&renewal, &block).as_deref(), Some(&b"Some strings"[..]));
        assert!(!renewal.may_ask());
    }

    #[test]
    fn a_short_string_or_none_is_compared_by_its_bytes() {
        let mut renewal = Renewal::default();
        let none = |renewal: &Renewal| renewal.made_or_asked(None, write(2, 1));
        let short =
            |renewal: &Renewal| renewal.made_or_asked(Some(Text::Bytes(b"abc")), write(2, 1));
        assert_eq!(none(&renewal), None);
        renewal.make(|_| b"x");
        assert_eq!(short(&renewal), None, "there is one by now");
        renewal.make(|_| b"x");
        assert_eq!(short(&renewal).as_deref(), Some(&b"abx"[..]));
        assert_eq!(none(&renewal), None);
        renewal.make(|_| b"x");
        assert_eq!(none(&renewal).as_deref(), Some(&b"\0\0x"[..]));
    }

    #[test]
    fn a_write_moves_all_that_has_to_find_a_new_place() {
        let block = Block::new(&[1; 1000]);
        let room = block.room();
        let text = Some(Text::Block(&block));
        assert_eq!(moved_by(text, write(10, 5)), 5);
        assert_eq!(moved_by(text, write(1000, room - 1000)), room - 1000);
        assert_eq!(moved_by(text, write(1000, room)), 1000 + room);
        assert_eq!(moved_by(None, write(1000, 1)), 1001);
        let _shared = block.clone();
        assert_eq!(moved_by(text, write(10, 5)), 1000);
    }
}
