//! Arguments that outlive the buffer that they were received in: of commands that wait, move to another thread or are
//! queued by MULTI.

use std::ops::Range;

use super::Args;
use super::args::RoutedKey;
use basalt_core::resp::request::{Arena, Span};
use basalt_core::structures::block::{Content, LONG_BYTES_MIN, SharedBlock};

/// Returns the total bytes of a request's short arguments, which are copied instead of shared.
pub fn short_bytes(args: &Args<'_>) -> usize {
    let lengths = args.from(0).map(<[u8]>::len);
    lengths.filter(|len| *len < LONG_BYTES_MIN).sum()
}

/// The arguments of one request, or of several in a row, with their routed keys. Short ones are copied; long ones are
/// blocks, which are shared with their other owners.
#[derive(Default)]
pub struct OwnedArgs {
    data: Vec<u8>,
    arena: Arena,
    spans: Vec<Span>,
    keys: Vec<RoutedKey>,
    /// Bytes allocated for the blocks.
    blocks_bytes: usize,
}

impl OwnedArgs {
    /// Creates an empty list with capacity for these bytes of short arguments, and these numbers of arguments and
    /// keys.
    pub fn with_room(bytes: usize, arguments: usize, keys: usize) -> OwnedArgs {
        OwnedArgs {
            data: Vec::with_capacity(bytes),
            spans: Vec::with_capacity(arguments),
            keys: Vec::with_capacity(keys),
            ..OwnedArgs::default()
        }
    }

    /// Creates an empty list with capacity for the arguments of this request.
    pub fn with_room_for(args: &Args<'_>) -> OwnedArgs {
        OwnedArgs::with_room(short_bytes(args), args.len(), args.keys().len())
    }

    /// Copies some arguments, without keys.
    pub fn of(arguments: &[Vec<u8>]) -> OwnedArgs {
        let mut owned = OwnedArgs::default();
        for argument in arguments {
            owned.push(Content::from(argument));
        }
        owned
    }

    /// Copies the arguments of one request.
    pub fn copy_of(args: &Args<'_>) -> OwnedArgs {
        let mut copy = OwnedArgs::with_room_for(args);
        copy.push_all(args);
        copy
    }

    /// Appends the arguments of another request.
    pub fn push_all(&mut self, args: &Args<'_>) {
        args.contents(0).for_each(|content| self.push(content));
        self.keys.extend_from_slice(args.keys());
    }

    /// Adds an argument.
    pub fn push(&mut self, content: Content<'_>) {
        let span = match content.block() {
            Some(block) => self.push_block(block.clone()),
            None if content.len() >= LONG_BYTES_MIN => self.push_block(SharedBlock::new(&content)),
            None => {
                let start = self.data.len();
                self.data.extend_from_slice(&content);
                Span::in_buffer(start, content.len())
            }
        };
        self.spans.push(span);
    }

    #[cold]
    fn push_block(&mut self, block: SharedBlock) -> Span {
        self.blocks_bytes += block.memory_bytes();
        self.arena.push(block)
    }

    /// Adds the routed keys of the arguments.
    pub fn route(&mut self, keys: &[RoutedKey]) {
        self.keys.extend_from_slice(keys);
    }

    /// Returns all arguments.
    pub fn args(&self) -> Args<'_> {
        Args::new(&self.data, &self.arena, &self.spans, &self.keys)
    }

    /// Returns all arguments, with `keys` as their routed keys.
    pub fn args_with<'a>(&'a self, keys: &'a [RoutedKey]) -> Args<'a> {
        Args::new(&self.data, &self.arena, &self.spans, keys)
    }

    /// Returns the arguments of one of several requests: ranges of all arguments, and of all keys.
    pub fn part(&self, arguments: Range<usize>, keys: Range<usize>) -> Args<'_> {
        let (spans, keys) = (&self.spans[arguments], &self.keys[keys]);
        Args::new(&self.data, &self.arena, spans, keys)
    }

    /// Returns all routed keys.
    pub fn keys(&self) -> &[RoutedKey] {
        &self.keys
    }

    /// Returns the number of arguments.
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Whether there are no arguments.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Returns the bytes of the short arguments: less than 2 GiB together.
    pub fn short_bytes(&self) -> usize {
        self.data.len()
    }

    /// Returns the allocated bytes, including all of the blocks.
    pub fn memory_bytes(&self) -> usize {
        self.data.capacity()
            + self.arena.blocks.capacity() * size_of::<SharedBlock>()
            + self.blocks_bytes
            + self.spans.capacity() * size_of::<Span>()
            + self.keys.capacity() * size_of::<RoutedKey>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a request of these arguments, with a block for the last one.
    fn request(short: &[u8], last: &SharedBlock) -> (Vec<Span>, Arena) {
        let mut arena = Arena::default();
        let spans = vec![Span::in_buffer(0, short.len()), arena.push(last.clone())];
        (spans, arena)
    }

    #[test]
    fn blocks_are_shared_and_everything_else_is_copied() {
        let block = SharedBlock::new(&[7; LONG_BYTES_MIN]);
        let (spans, arena) = request(b"short", &block);
        let key = RoutedKey {
            hash: 1,
            argument: 0,
            shard: 2,
            engine_index: 0,
        };
        let keys = [key];
        let args = Args::new(b"short", &arena, &spans, &keys);
        let copy = OwnedArgs::copy_of(&args);
        assert_eq!(copy.args().to_vec(), args.to_vec());
        assert_eq!(copy.args().keys(), [key]);
        let at = |args: Args<'_>, index: usize| args.get(index).as_ptr();
        assert_eq!(at(copy.args(), 1), block.as_ptr());
        assert_ne!(at(copy.args(), 0), at(args, 0));
        assert!(copy.memory_bytes() > block.memory_bytes());
    }

    #[test]
    fn long_arguments_become_blocks() {
        let long = vec![7; LONG_BYTES_MIN];
        let spans = [Span::in_buffer(0, long.len())];
        let copy = OwnedArgs::copy_of(&Args::in_buffer(&long, &spans, &[]));
        let content = copy.args().content(0);
        assert_eq!(content.block().map(|block| block.len()), Some(long.len()));
        assert_eq!(content.bytes(), long);
    }

    #[test]
    fn several_requests_lie_one_behind_the_other() {
        let blocks = [1, 2].map(|byte| SharedBlock::new(&[byte; LONG_BYTES_MIN]));
        let mut all = OwnedArgs::default();
        for (short, block) in [&b"one"[..], b"two"].into_iter().zip(&blocks) {
            let (spans, arena) = request(short, block);
            all.push_all(&Args::new(short, &arena, &spans, &[]));
        }
        let second = all.part(2..4, 0..0);
        assert_eq!(second.get(0), b"two");
        assert_eq!(second.get(1).as_ptr(), blocks[1].as_ptr());
        assert_eq!(all.args().get(1).as_ptr(), blocks[0].as_ptr());
    }
}
