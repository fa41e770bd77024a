//! Locations of matches in a document, for commands that change it.

/// One step from a value to one below it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// To the value of a key.
    Key(Box<[u8]>),
    /// To an element, counted from the first.
    Index(usize),
}

/// The steps from the root to a value; none for the root itself.
pub type Location = Vec<Step>;

/// Sorts `locations` and drops those that occur twice or lie below another. Deletions that run over the result from its
/// end to its beginning find each index still right.
pub fn without_descendants(mut locations: Vec<Location>) -> Vec<Location> {
    locations.sort_unstable();
    let mut kept: Vec<Location> = Vec::with_capacity(locations.len());
    for location in locations {
        // Everything below a location follows it directly, before its next sibling.
        match kept.last() {
            Some(above) if location.starts_with(above) => {}
            _ => kept.push(location),
        }
    }
    kept
}
