//! A small hash: a listpack inside its entry.
//!
//! ```text
//! pairs    field value field value …                       OBJECT ENCODING listpack
//! triples  field value deadline field value deadline …     OBJECT ENCODING listpackex
//! ```
//!
//! A hash changes to triples when the first of its fields gets a deadline, and stays so. Deadlines are Unix
//! milliseconds, 0 for none; the soonest come first and fields without one last, so the expired fields are a prefix
//! of the listpack.

use basalt_core::structures::listpack::{At, EMPTY, Element, Listpack, ListpackMut};
use basalt_core::structures::splice::Splice;

/// Number of elements per field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FieldStride {
    Pairs = 2,
    Triples = 3,
}

impl FieldStride {
    pub(super) fn step(self) -> usize {
        self as usize
    }
}

/// A field in a listpack.
#[derive(Clone, Copy)]
pub(super) struct ListpackField<'a> {
    pub(super) name: Element<'a>,
    pub(super) value: Element<'a>,
    pub(super) deadline: Option<u64>,
}

impl ListpackField<'_> {
    pub(super) fn is_live(self, now_ms: u64) -> bool {
        self.deadline.is_none_or(|deadline_ms| deadline_ms > now_ms)
    }
}

fn deadline_of(element: Element<'_>) -> Option<u64> {
    let number = element.integer().unwrap_or(0);
    u64::try_from(number).ok().filter(|number| *number != 0)
}

fn element_of(deadline: Option<u64>) -> Element<'static> {
    Element::Integer(deadline.map_or(0, |deadline_ms| deadline_ms as i64))
}

/// Returns all fields, in the order of the listpack.
pub(super) fn fields(
    pack: Listpack<'_>,
    form: FieldStride,
) -> impl Iterator<Item = ListpackField<'_>> {
    let mut elements = pack.iter();
    std::iter::from_fn(move || {
        let (name, value) = (elements.next()?, elements.next()?);
        let deadline = match form {
            FieldStride::Pairs => None,
            FieldStride::Triples => deadline_of(elements.next()?),
        };
        Some(ListpackField {
            name,
            value,
            deadline,
        })
    })
}

/// Returns the field that begins at a position.
pub(super) fn field_at(pack: Listpack<'_>, form: FieldStride, at: At) -> Option<ListpackField<'_>> {
    let value_at = pack.next(at)?;
    let deadline = match form {
        FieldStride::Pairs => None,
        FieldStride::Triples => deadline_of(pack.get(pack.next(value_at)?)),
    };
    Some(ListpackField {
        name: pack.get(at),
        value: pack.get(value_at),
        deadline,
    })
}

/// Returns the soonest deadline.
pub(super) fn next_deadline(triples: Listpack<'_>) -> Option<u64> {
    field_at(triples, FieldStride::Triples, triples.first()?)?.deadline
}

/// Sets a field of pairs. Returns true if it is new. Takes one search and one splice.
#[inline]
pub(super) fn set_pair<B: Splice>(
    pairs: &mut ListpackMut<'_, B>,
    field: &[u8],
    value: &[u8],
) -> bool {
    let pack = pairs.as_listpack();
    let value_at = pack
        .find(field, FieldStride::Pairs.step())
        .and_then(|at| pack.next(at));
    match value_at {
        Some(value_at) => {
            pairs.replace(value_at, value);
            false
        }
        None => {
            pairs.push_back_all([field, value].into_iter().map(Element::of));
            true
        }
    }
}

/// Inserts a field that is known to be absent, at the position of its deadline.
pub(super) fn push_triple<B: Splice>(
    triples: &mut ListpackMut<'_, B>,
    name: Element<'_>,
    value: Element<'_>,
    deadline: Option<u64>,
) {
    let field = [name, value, element_of(deadline)];
    let Some(deadline_ms) = deadline else {
        return triples.push_back_all(field.into_iter());
    };
    match place_for(triples.as_listpack(), deadline_ms) {
        Some(before) => {
            // The last element is inserted first, and each of the others before the previous one.
            for element in field.into_iter().rev() {
                triples.insert_element_before(before, element);
            }
        }
        None => triples.push_back_all(field.into_iter()),
    }
}

/// Returns the first field with a later deadline, before which a field with this deadline belongs; None at the end.
fn place_for(triples: Listpack<'_>, deadline_ms: u64) -> Option<At> {
    let mut at = triples.first();
    while let Some(place) = at {
        let deadline_at = triples.next(triples.next(place)?)?;
        if deadline_of(triples.get(deadline_at)).is_none_or(|other_ms| other_ms > deadline_ms) {
            return Some(place);
        }
        at = triples.next(deadline_at);
    }
    None
}

/// Removes a field.
pub(super) fn remove<B: Splice>(pack: &mut ListpackMut<'_, B>, form: FieldStride, at: At) {
    pack.remove_range(at, form.step());
}

/// Sets or removes the deadline of the field at a position, and moves the field to the position of its deadline.
pub(super) fn move_triple<B: Splice>(
    triples: &mut ListpackMut<'_, B>,
    at: At,
    value: Option<&[u8]>,
    deadline: Option<u64>,
) {
    let Some(field) = field_at(triples.as_listpack(), FieldStride::Triples, at) else {
        return;
    };
    let name = field.name.to_vec();
    let value = value.map_or_else(|| field.value.to_vec(), <[u8]>::to_vec);
    remove(triples, FieldStride::Triples, at);
    push_triple(triples, Element::of(&name), Element::of(&value), deadline);
}

/// Returns the number of expired fields, which come first.
pub(super) fn due(triples: Listpack<'_>, now_ms: u64) -> usize {
    fields(triples, FieldStride::Triples)
        .take_while(|field| !field.is_live(now_ms))
        .count()
}

/// Converts the fields of pairs to triples without deadlines.
pub(super) fn triples_of(pairs: Listpack<'_>) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(pairs.bytes().len() + 2 * pairs.len());
    bytes.extend_from_slice(&EMPTY);
    let mut triples = ListpackMut::new(&mut bytes);
    for field in fields(pairs, FieldStride::Pairs) {
        push_triple(&mut triples, field.name, field.value, None);
    }
    bytes
}
