//! The values that BY and GET refer to for an element: the element itself, a string of another key, or a field of
//! another key's hash.
//!
//! ```text
//! #                  the element
//! weight_*           the string under the key in which the element replaces the first star
//! object_*->name     that field of the hash under it; the arrow counts after the star, and with a name after it
//! constant           nothing, as it would be the same for every element
//! ```

use crate::command::context::ShardCx;
use basalt_engine::value::Text;
use basalt_engine::value::hash::HashRef;

/// A pattern of BY or GET, see the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SortPattern<'a> {
    /// `#`: the element itself.
    Element,
    /// A pattern without a star, which refers to no value.
    Constant,
    /// A key made of the texts before and after the star, and a field of it.
    Key {
        before: &'a [u8],
        behind: &'a [u8],
        field: Option<&'a [u8]>,
    },
}

impl<'a> SortPattern<'a> {
    pub(super) fn parse(text: &'a [u8]) -> SortPattern<'a> {
        if text == b"#" {
            return SortPattern::Element;
        }
        let Some(star) = text.iter().position(|byte| *byte == b'*') else {
            return SortPattern::Constant;
        };
        let (before, behind) = (&text[..star], &text[star + 1..]);
        let arrow = behind.windows(2).position(|two| two == b"->");
        match arrow {
            Some(at) if at + 2 < behind.len() => SortPattern::Key {
                before,
                behind: &behind[..at],
                field: Some(&behind[at + 2..]),
            },
            _ => SortPattern::Key {
                before,
                behind,
                field: None,
            },
        }
    }

    /// Calls `read` with the value that the pattern refers to for an element, if that exists and is a string.
    pub(super) fn value<R>(
        self,
        cx: &mut ShardCx<'_>,
        element: &[u8],
        read: impl FnOnce(&[u8]) -> R,
    ) -> Option<R> {
        let (before, behind, field) = match self {
            SortPattern::Element => return Some(read(element)),
            SortPattern::Constant => return None,
            SortPattern::Key {
                before,
                behind,
                field,
            } => (before, behind, field),
        };
        let name = [before, element, behind].concat();
        let now_ms = cx.now.unix_ms;
        let (mut keyspace, key) = cx.at_derived(&name);
        let place = keyspace.find_read(&key)?;
        let entry = keyspace.entry(place);
        match field {
            None => Some(Text::of(entry)?.with_bytes(read)),
            Some(field) => {
                let field = HashRef::of(entry, now_ms)?.get(field)?;
                Some(field.value.with_bytes(read))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_star_stands_for_the_element_and_an_arrow_behind_it_for_a_field() {
        let key = |before: &'static str, behind: &'static str, field: Option<&'static str>| {
            SortPattern::Key {
                before: before.as_bytes(),
                behind: behind.as_bytes(),
                field: field.map(str::as_bytes),
            }
        };
        for (text, pattern) in [
            ("#", SortPattern::Element),
            ("", SortPattern::Constant),
            ("##", SortPattern::Constant),
            ("a->b", SortPattern::Constant),
            ("*", key("", "", None)),
            ("w_*", key("w_", "", None)),
            ("w_*_x*", key("w_", "_x*", None)),
            ("o*->f", key("o", "", Some("f"))),
            ("o*x->f->g", key("o", "x", Some("f->g"))),
            ("o*->", key("o", "->", None)),
            ("a->b*", key("a->b", "", None)),
            ("*->*", key("", "", Some("*"))),
        ] {
            assert_eq!(SortPattern::parse(text.as_bytes()), pattern, "{text}");
        }
    }
}
