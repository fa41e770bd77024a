//! What a key can hold: the types, their encodings, and how handlers see them.

pub mod hash;
pub mod hyperloglog;
pub mod kind;
pub mod list;
pub mod object;
pub mod set;
pub mod sketch;
pub mod sorted_set;
pub mod stream;
pub mod text;

pub use kind::{DataType, Encoding, Kind};
pub use object::{
    Body, Collection, ElementRef, Journal, Object, Part, Piece, ShowBefore, ShowPiece, Standing,
    Trash,
};
pub use text::*;
