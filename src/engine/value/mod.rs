//! The values of keys: the types, their encodings, and the interface for handlers.

pub mod body;
pub mod copying;
pub mod deadlines;
pub mod hash;
pub mod hyperloglog;
pub mod json;
pub mod kind;
pub mod lapse;
pub mod list;
pub mod object;
pub mod set;
pub mod sketch;
pub mod slices;
pub mod sorted_set;
pub mod stream;
pub mod text;
pub(super) mod undone;

pub use body::{
    CollectionBody, CollectionCursor, CollectionPiece, ElementRef, Journal, Part, ShowBefore,
    ShowPiece,
};
pub use kind::{DataType, ObjectKind, TYPES, ValueEncoding};
pub use object::{Collection, Object, Trash};
pub use text::*;
