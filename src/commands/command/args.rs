//! The arguments of one request, in place in the buffer that holds them, and its keys as prepared by routing.

use super::error::CommandError;
use super::prepared::Prepared;
use basalt_core::base::number;
use basalt_core::resp::request::{Arena, NOTHING_BESIDE, Span};
use basalt_core::structures::block::Content;
use basalt_engine::Key;

/// A key's position, hash and shard, computed once per request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoutedKey {
    /// Keyed hash of the whole key.
    pub hash: u64,
    /// Index of the argument.
    pub argument: u32,
    /// Number of the shard that owns the key.
    pub shard: u16,
    /// Index of that shard's engine among those of the request, which are in ascending order.
    pub engine_index: u16,
}

/// The arguments of one request, see the module.
#[derive(Clone, Copy)]
pub struct Args<'a> {
    buffer: &'a [u8],
    arena: &'a Arena,
    spans: &'a [Span],
    keys: &'a [RoutedKey],
    prepared: Option<&'a Prepared>,
}

impl<'a> Args<'a> {
    /// Creates arguments that lie in `buffer` or else in `arena`.
    pub fn new(
        buffer: &'a [u8],
        arena: &'a Arena,
        spans: &'a [Span],
        keys: &'a [RoutedKey],
    ) -> Args<'a> {
        Args {
            buffer,
            arena,
            spans,
            keys,
            prepared: None,
        }
    }

    /// Creates arguments that all lie in `buffer`.
    pub fn in_buffer(buffer: &'a [u8], spans: &'a [Span], keys: &'a [RoutedKey]) -> Args<'a> {
        Args::new(buffer, &NOTHING_BESIDE, spans, keys)
    }

    /// Returns empty arguments, for calls that do not read arguments.
    pub fn none() -> Args<'static> {
        Args::in_buffer(&[], &[], &[])
    }

    /// Adds what was prepared from the arguments before the shards were locked.
    pub fn with_prepared(self, prepared: Option<&'a Prepared>) -> Args<'a> {
        Args { prepared, ..self }
    }

    /// Returns the data prepared from the arguments before the shards were locked.
    #[inline]
    pub fn prepared(&self) -> Option<&'a Prepared> {
        self.prepared
    }

    /// Returns the number of arguments, including the command's name.
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Always false: a request has at least its name.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Returns one argument; 0 is the command's name.
    pub fn get(&self, index: usize) -> &'a [u8] {
        self.spans[index].bytes(self.buffer, self.arena)
    }

    /// Returns an argument that is to be stored: a long one may be a block, which can be shared instead of copied.
    pub fn content(&self, index: usize) -> Content<'a> {
        self.spans[index].content(self.buffer, self.arena)
    }

    /// Whether any argument may be stored in a shared block.
    #[inline]
    pub fn may_have_blocks(&self) -> bool {
        !self.arena.blocks.is_empty()
    }

    /// Applies `read` to the arguments, starting at `index`.
    fn map_from<T, F: Fn(Span, &'a [u8], &'a Arena) -> T>(
        &self,
        index: usize,
        read: F,
    ) -> impl ExactSizeIterator<Item = T> + use<'a, T, F> {
        let Args {
            buffer,
            arena,
            spans,
            ..
        } = *self;
        spans[index.min(spans.len())..]
            .iter()
            .map(move |span| read(*span, buffer, arena))
    }

    /// Returns the arguments, starting at an index.
    pub fn from(&self, index: usize) -> impl ExactSizeIterator<Item = &'a [u8]> + use<'a> {
        self.map_from(index, Span::bytes)
    }

    /// Returns the arguments, starting at an index, in the form to be stored.
    pub fn contents(&self, index: usize) -> impl ExactSizeIterator<Item = Content<'a>> + use<'a> {
        self.map_from(index, Span::content)
    }

    /// Returns the key at an argument position.
    pub fn key(&self, index: usize) -> Key<'a> {
        let routed = self.routed(index);
        Key {
            bytes: self.get(index),
            hash: routed.hash,
        }
    }

    /// Returns all routed keys, in the order of the key specifications.
    pub fn keys(&self) -> &'a [RoutedKey] {
        self.keys
    }

    /// Returns the routing result of the key at an argument position.
    pub fn routed(&self, index: usize) -> RoutedKey {
        let first = self.keys[0];
        if first.argument as usize == index {
            return first;
        }
        *self
            .keys
            .iter()
            .find(|key| key.argument as usize == index)
            .expect("handlers touch declared keys only")
    }

    /// Returns a routed key together with its bytes.
    pub fn key_of(&self, routed: &RoutedKey) -> Key<'a> {
        Key {
            bytes: self.get(routed.argument as usize),
            hash: routed.hash,
        }
    }

    /// Parses an argument as a 64-bit integer.
    pub fn integer(&self, index: usize) -> Result<i64, CommandError> {
        number::parse_i64(self.get(index)).ok_or(CommandError::NotInteger)
    }

    /// Whether an argument equals this word, ignoring case.
    #[inline]
    pub fn is(&self, index: usize, word: &str) -> bool {
        let text = self.get(index);
        // Words are short and mostly known at compile time: comparing byte by byte is cheaper than the library's way.
        text.len() == word.len()
            && text.iter().zip(word.as_bytes()).all(|(byte, expected)| {
                byte == expected || (byte ^ expected == 0x20 && expected.is_ascii_alphabetic())
            })
    }

    /// Returns all arguments, copied.
    pub fn to_vec(&self) -> Vec<Vec<u8>> {
        self.from(0).map(<[u8]>::to_vec).collect()
    }

    /// Whether the arguments are so many, or so long, that the command takes long. The length of blocks does not
    /// count for arguments that the command keeps without copying (`keeps`).
    pub fn are_long(&self, keeps: impl Fn(usize) -> bool) -> bool {
        let bytes = |(index, span): (usize, &Span)| match span.block() {
            Some(_) if keeps(index) => 0,
            _ => span.len(),
        };
        self.len() > COUNT_HERE_MAX
            || self.spans.iter().enumerate().map(bytes).sum::<usize>() > BYTES_HERE_MAX
    }
}

/// Maximum number of arguments of a command that runs on a thread that other clients wait for.
pub const COUNT_HERE_MAX: usize = 8 * 1024;

/// Maximum total bytes of the arguments of such a command.
pub const BYTES_HERE_MAX: usize = 512 * 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::registry::registry;
    use basalt_core::structures::block::SharedBlock;

    fn are_long(name: &str, buffered: &[usize], blocks: &[usize]) -> bool {
        let buffer = vec![b'x'; buffered.iter().sum()];
        let (mut arena, mut at) = (Arena::default(), 0);
        let mut spans = vec![Span::in_buffer(0, 0), Span::in_buffer(0, 0)];
        for len in blocks {
            spans.push(arena.push(SharedBlock::new(&vec![b'x'; *len])));
        }
        for len in buffered {
            spans.push(Span::in_buffer(at, *len));
            at += len;
        }
        let command = registry().find(name.as_bytes()).expect("a command");
        Args::new(&buffer, &arena, &spans, &[]).are_long(|at| command.keeps(at))
    }

    #[test]
    fn arguments_are_long_by_their_bytes_but_for_blocks_that_are_kept() {
        let half = BYTES_HERE_MAX / 2;
        for name in ["set", "sadd", "rpush"] {
            assert!(!are_long(name, &[half, half], &[]), "{name}");
            assert!(are_long(name, &[half, half + 1], &[]), "{name}");
        }
        assert!(!are_long("set", &[], &[10 * half]));
        assert!(!are_long("rpush", &[half], &[10 * half, 3 * half]));
        assert!(are_long("sadd", &[], &[2 * half + 1]));
        assert!(are_long("set", &[], &[half, 2 * half + 1]), "no value");
        assert!(are_long("mset", &[], &[half, 2 * half + 1]), "a key");
    }

    #[test]
    fn very_many_arguments_are_long() {
        let zeros = [0; COUNT_HERE_MAX];
        assert!(are_long("rpush", &zeros, &[]));
        assert!(!are_long("rpush", &zeros[2..], &[]));
    }
}
