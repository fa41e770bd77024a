//! JSON documents.
//!
//! A document is one run of bytes in the packed form of [`encoding`]. Up to [`SMALL_BYTES_MAX`] the bytes are the value
//! of its entry, in one allocation with the key; a longer document is an object of its own ([`large`]). Both are read
//! through [`JsonRef`] and changed by the functions of [`mod@edit`], which need a buffer that can be spliced, no more.
//!
//! Nothing is parsed twice: [`parse()`] writes the packed form, paths are followed in it, and [`print`](mod@print)
//! writes the text that RedisJSON would give.

pub mod edit;
mod encoding;
pub mod large;
mod node;
mod parse;
pub mod print;
#[cfg(test)]
mod tests;

use super::object::{Collection, Object, note_entry_bytes};
use super::{DataType, ObjectKind, ValueEncoding};
use basalt_core::alloc::account;
use basalt_core::structures::entry::{Entry, EntryRef, Value};
use basalt_core::structures::splice::Splice;
use encoding::{Header, size, stored_number, tag, text};
use large::LargeJson;
use print::{Format, Printer};

pub use encoding::{DEPTH_MAX, Number, NumberText, PackedScalar};
pub use parse::{ParseError, Problem, parse, parse_number};

/// Type and encoding of documents. Redis calls the encoding of all values of modules `raw`.
pub const KIND: ObjectKind = ObjectKind::new(DataType::Json, ValueEncoding::Raw);

/// Documents with at most this many packed bytes are stored in their entries.
pub const SMALL_BYTES_MAX: usize = 8 * 1024;

/// A value of a document.
#[derive(Clone, Copy, Debug)]
pub struct JsonRef<'d>(&'d [u8]);

/// The kind of a value of a document, with its content if it is a scalar.
#[derive(Clone, Copy, Debug, PartialEq)]
#[expect(missing_docs, reason = "the names are those of JSON")]
pub enum JsonView<'d> {
    Null,
    Bool(bool),
    Number(Number),
    Text(&'d [u8]),
    Array,
    Object,
}

impl<'d> JsonRef<'d> {
    /// Returns the root of a document in its packed form.
    pub fn root(doc: &'d [u8]) -> JsonRef<'d> {
        JsonRef(doc)
    }

    /// Returns the document in an entry whose type has been checked.
    pub fn of(entry: EntryRef<'d, Object>) -> JsonRef<'d> {
        match entry.value() {
            Value::Bytes(doc) => JsonRef(doc),
            Value::Object(object) => match &object.body {
                Collection::Json(doc) => JsonRef(doc.bytes()),
                _ => unreachable!("the entry holds a document"),
            },
            Value::Integer(_) | Value::Block(_) => unreachable!("the entry holds a document"),
        }
    }

    /// Returns the kind of value.
    #[inline]
    pub fn view(self) -> JsonView<'d> {
        if let Some(text) = text(self.0) {
            return JsonView::Text(text);
        }
        if let Some(stored) = stored_number(self.0) {
            return JsonView::Number(stored.number());
        }
        match self.0[0] {
            tag::NULL => JsonView::Null,
            found @ (tag::FALSE | tag::TRUE) => JsonView::Bool(found == tag::TRUE),
            found if found < tag::OBJECT => JsonView::Array,
            _ => JsonView::Object,
        }
    }

    /// Returns the number of elements or members; 0 for scalars.
    #[inline]
    pub fn len(self) -> usize {
        Header::of(self.0).map_or(0, |header| header.count)
    }

    /// True if the value has no elements or members.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Returns the packed content of an array (if `of_object` is false) or object, empty for others.
    #[inline]
    fn content(self, of_object: bool) -> &'d [u8] {
        match Header::of(self.0) {
            Some(header) if header.is_object == of_object => {
                let start = header.bytes();
                &self.0[start..start + header.len]
            }
            _ => &[],
        }
    }

    /// Returns the value under a name, if this is an object that has it.
    #[inline]
    pub fn child(self, name: &[u8]) -> Option<JsonRef<'d>> {
        let mut left = self.content(true);
        while !left.is_empty() {
            let is_it = text(left) == Some(name);
            left = &left[size(left)..];
            if is_it {
                return Some(JsonRef(left));
            }
            left = &left[size(left)..];
        }
        None
    }

    /// Returns an element, if this is an array that is long enough.
    pub fn element(self, index: usize) -> Option<JsonRef<'d>> {
        let mut left = self.content(false);
        for _ in 0..index {
            if left.is_empty() {
                return None;
            }
            left = &left[size(left)..];
        }
        (!left.is_empty()).then_some(JsonRef(left))
    }

    /// Returns the elements, if this is an array.
    pub fn elements(self) -> Elements<'d> {
        Elements(self.content(false))
    }

    /// Returns the members in their order, if this is an object.
    pub fn members(self) -> Members<'d> {
        Members(self.content(true))
    }

    /// Returns the packed form of the value.
    pub fn bytes(self) -> &'d [u8] {
        &self.0[..size(self.0)]
    }

    /// Returns the offset of this value in a document that it is a part of.
    pub fn offset_in(self, root: JsonRef<'_>) -> usize {
        (self.0.as_ptr() as usize).wrapping_sub(root.0.as_ptr() as usize)
    }

    /// Returns the value at an offset where one begins.
    pub fn at_offset(self, at: usize) -> JsonRef<'d> {
        JsonRef(&self.0[at..])
    }

    /// Returns the name of the type, as JSON.TYPE replies it.
    pub fn type_name(self) -> &'static str {
        encoding::type_name(self.0)
    }

    /// Returns the depth of containers: 0 for scalars, 1 for an array of scalars.
    pub fn depth(self) -> usize {
        encoding::depth(self.0)
    }

    /// Appends the text of the value, as within `depth` others.
    pub fn print_at(self, format: &Format<'_>, depth: usize, out: &mut Vec<u8>) {
        Printer::at_depth(depth).print_some(self.0, format, usize::MAX, out);
    }

    /// Returns the text of the value, as short as it can be.
    pub fn text(self) -> Vec<u8> {
        let bytes = size(self.0);
        let mut out = Vec::with_capacity(bytes + bytes / 2 + 16);
        self.print_at(&Format::default(), 0, &mut out);
        out
    }
}

/// The elements of an array.
#[derive(Clone, Debug)]
pub struct Elements<'d>(&'d [u8]);

impl<'d> Iterator for Elements<'d> {
    type Item = JsonRef<'d>;

    #[inline]
    fn next(&mut self) -> Option<JsonRef<'d>> {
        if self.0.is_empty() {
            return None;
        }
        let element = JsonRef(self.0);
        self.0 = &self.0[size(self.0)..];
        Some(element)
    }
}

/// The members of an object: names and values.
#[derive(Clone, Debug)]
pub struct Members<'d>(&'d [u8]);

impl<'d> Iterator for Members<'d> {
    type Item = (&'d [u8], JsonRef<'d>);

    #[inline]
    fn next(&mut self) -> Option<(&'d [u8], JsonRef<'d>)> {
        let name = text(self.0.first().map(|_| self.0)?)?;
        let value = &self.0[size(self.0)..];
        self.0 = &value[size(value)..];
        Some((name, JsonRef(value)))
    }
}

/// Returns the packed form of a string.
pub fn packed_text(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len() + 5);
    encoding::push_text(&mut out, text);
    out
}

/// Returns the packed form of null.
pub fn packed_null() -> Vec<u8> {
    vec![tag::NULL]
}

/// Returns the packed form of an object or array without members or elements.
pub fn packed_empty(is_object: bool) -> Vec<u8> {
    let (bytes, len) = Header::new(is_object, 0, 0).encoded();
    bytes[..len].to_vec()
}

/// Creates an entry with a document in its packed form; to be called where allocations are charged to the shard, or as
/// a detached entry.
pub fn entry_of(key: &[u8], doc: Vec<u8>) -> Entry<Object> {
    if doc.len() <= SMALL_BYTES_MAX {
        return Entry::bytes(KIND.0, key, &doc, None);
    }
    let body = Collection::Json(LargeJson::new(doc));
    Entry::object(KIND.0, key, Object::boxed(body), None)
}

/// Creates a detached entry with the document that a text is.
pub fn detached_entry(key: &[u8], text: &[u8]) -> Result<Entry<Object>, ParseError> {
    let before = account::charged_bytes();
    let mut entry = entry_of(key, parse(text)?);
    note_entry_bytes(&mut entry, account::charged_bytes() - before);
    Ok(entry)
}

/// Changes the document in an entry; for calls within [`Keyspace::edit`](crate::keyspace::Keyspace::edit). A document
/// that has become large moves to an object of its own.
pub fn edit<R>(entry: &mut Entry<Object>, change: impl FnOnce(&mut dyn Splice) -> R) -> R {
    if let Some(object) = entry.object_mut() {
        return match &mut object.body {
            Collection::Json(doc) => change(doc),
            _ => unreachable!("the entry holds a document"),
        };
    }
    let result = change(entry);
    let len = Splice::bytes(entry).len();
    if len > SMALL_BYTES_MAX {
        let doc = Splice::bytes(entry).to_vec();
        entry.set_object(Object::boxed(Collection::Json(LargeJson::new(doc))));
    }
    result
}
