//! The arguments of one request, in place in whatever buffer holds them, and its keys as routing prepared them.

use super::error::CommandError;
use super::made::Made;
use super::renewal::Renewal;
use crate::base::number;
use crate::engine::Key;
use crate::engine::value::ahead::Form;
use crate::resp::request::Span;

/// A key's position, hash and shard, computed once per request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoutedKey {
    /// Keyed hash of the whole key.
    pub hash: u64,
    /// Which argument it is.
    pub argument: u32,
    /// The shard that owns it.
    pub shard: u16,
    /// Position of that shard among the shards of the request, which are ascending.
    pub hand: u16,
}

/// See the module.
#[derive(Clone, Copy)]
pub struct Args<'a> {
    buffer: &'a [u8],
    arena: &'a [u8],
    spans: &'a [Span],
    keys: &'a [RoutedKey],
    made: Option<&'a Made>,
}

/// The arguments that a command stores, if they may be long, and as what.
#[derive(Clone, Copy, Debug)]
pub struct Stored {
    /// What becomes of them.
    pub form: Form,
    /// None if it is 0, where the command's name stands.
    first: usize,
    step: usize,
}

impl Stored {
    /// No argument.
    pub const NONE: Stored = Stored::one(Form::Text, 0);

    /// This one.
    pub const fn one(form: Form, argument: usize) -> Stored {
        Stored::every(form, argument, usize::MAX)
    }

    /// This one, and each so many behind it.
    pub const fn every(form: Form, first: usize, step: usize) -> Stored {
        Stored { form, first, step }
    }

    /// Those of a request with so many arguments.
    pub fn positions(self, count: usize) -> impl Iterator<Item = usize> {
        let count = if self.first == 0 { 0 } else { count };
        (self.first..count).step_by(self.step)
    }
}

/// The arguments of one request, and its keys, copied out of the buffer that held them.
pub struct OwnedArgs {
    data: Vec<u8>,
    spans: Vec<Span>,
    keys: Vec<RoutedKey>,
}

impl OwnedArgs {
    /// A copy.
    pub fn copy_of(args: &Args<'_>) -> OwnedArgs {
        let mut data = Vec::with_capacity(args.from(0).map(<[u8]>::len).sum());
        let mut spans = Vec::with_capacity(args.len());
        for argument in args.from(0) {
            spans.push(Span {
                start: data.len() as u32,
                len: argument.len() as u32,
            });
            data.extend_from_slice(argument);
        }
        OwnedArgs {
            data,
            spans,
            keys: args.keys().to_vec(),
        }
    }

    /// The arguments.
    pub fn args(&self) -> Args<'_> {
        Args::new(&self.data, &[], &self.spans, &self.keys)
    }
}

impl<'a> Args<'a> {
    /// Arguments in `buffer` (or, where unescaping changed them, in `arena`).
    pub fn new(
        buffer: &'a [u8],
        arena: &'a [u8],
        spans: &'a [Span],
        keys: &'a [RoutedKey],
    ) -> Args<'a> {
        Args {
            buffer,
            arena,
            spans,
            keys,
            made: None,
        }
    }

    /// The same, with what was made for the command.
    pub fn with_made(self, made: Option<&'a Made>) -> Args<'a> {
        Args { made, ..self }
    }

    /// What was made for the command.
    #[inline]
    pub fn made(&self) -> Option<&'a Made> {
        self.made
    }

    /// The string that may be made anew for the command.
    #[inline]
    pub fn renewal(&self) -> Option<&'a Renewal> {
        self.made.map(|made| &made.renewal)
    }

    /// How many arguments there are, the command's name included.
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Never true: a request has at least its name.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// One argument; 0 is the command's name.
    pub fn get(&self, index: usize) -> &'a [u8] {
        self.spans[index].bytes(self.buffer, self.arena)
    }

    /// The arguments from one position on.
    pub fn from(&self, index: usize) -> impl ExactSizeIterator<Item = &'a [u8]> + use<'a> {
        let Args {
            buffer,
            arena,
            spans,
            ..
        } = *self;
        spans[index.min(spans.len())..]
            .iter()
            .map(move |span| span.bytes(buffer, arena))
    }

    /// The key at an argument position.
    pub fn key(&self, index: usize) -> Key<'a> {
        let routed = self.routed(index);
        Key {
            bytes: self.get(index),
            hash: routed.hash,
        }
    }

    /// All routed keys, in the order of the key specifications.
    pub fn keys(&self) -> &'a [RoutedKey] {
        self.keys
    }

    /// What routing knows of the key at an argument position.
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

    /// A routed key with its bytes.
    pub fn key_of(&self, routed: &RoutedKey) -> Key<'a> {
        Key {
            bytes: self.get(routed.argument as usize),
            hash: routed.hash,
        }
    }

    /// An argument as a 64-bit integer.
    pub fn integer(&self, index: usize) -> Result<i64, CommandError> {
        number::parse_i64(self.get(index)).ok_or(CommandError::NotInteger)
    }

    /// Whether an argument is this word, in any case.
    pub fn is(&self, index: usize, word: &str) -> bool {
        self.get(index).eq_ignore_ascii_case(word.as_bytes())
    }

    /// All arguments, copied.
    pub fn to_vec(&self) -> Vec<Vec<u8>> {
        self.from(0).map(<[u8]>::to_vec).collect()
    }
}
