//! Paths: their programs, of which each thread keeps those used last, and what they find in documents.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use crate::command::error::CommandError;
use basalt_core::json_path::{Budget, DefiniteStep, PathError, Program};
use basalt_engine::value::json::JsonRef;
use smallvec::{SmallVec, smallvec};

/// Programs of one generation; two generations are kept.
const GENERATION: usize = 128;

/// Programs that take more bytes than this, by their regular expressions, are kept only until the next one.
const KEPT_WEIGHT_MAX: usize = 16 * 1024;

/// The programs of the paths used last. Once the young ones are many they become the old ones, and those that were old
/// go; an old one that is used becomes young again.
#[derive(Default)]
struct Kept {
    last: Option<Rc<Program>>,
    young: HashMap<Box<[u8]>, Rc<Program>>,
    old: HashMap<Box<[u8]>, Rc<Program>>,
}

thread_local! {
    static KEPT: RefCell<Kept> = RefCell::default();
}

/// Drops the paths that this thread keeps.
#[cfg(test)]
pub(super) fn drop_kept() {
    KEPT.take();
}

impl Kept {
    fn find(&mut self, path: &[u8]) -> Option<Rc<Program>> {
        if let Some(program) = self.young.get(path) {
            return Some(Rc::clone(program));
        }
        let program = self.old.remove(path)?;
        self.keep(path, &program);
        Some(program)
    }

    fn keep(&mut self, path: &[u8], program: &Rc<Program>) {
        if self.young.len() >= GENERATION {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(path.into(), Rc::clone(program));
    }
}

/// A path of a request.
#[derive(Clone)]
pub(super) struct Path {
    program: Rc<Program>,
}

impl From<PathError> for CommandError {
    fn from(error: PathError) -> CommandError {
        error.to_string().into()
    }
}

const READS_ONLY: &str =
    "ERR computed/projection expressions are only supported by JSON.GET/JSON.MGET/JSON.RESP";

impl Path {
    /// Returns the path of a text.
    pub(super) fn parse(text: &[u8]) -> Result<Path, CommandError> {
        let kept = KEPT.with_borrow_mut(|kept| {
            if let Some(last) = &kept.last
                && last.text() == text
            {
                return Some(Rc::clone(last));
            }
            let found = kept.find(text)?;
            kept.last = Some(Rc::clone(&found));
            Some(found)
        });
        if let Some(program) = kept {
            return Ok(Path { program });
        }
        let program = Rc::new(Program::parse(text)?);
        KEPT.with_borrow_mut(|kept| {
            if program.weight() <= KEPT_WEIGHT_MAX {
                kept.keep(text, &program);
            }
            kept.last = Some(Rc::clone(&program));
        });
        Ok(Path { program })
    }

    /// Returns the path of a text that must not compute values: it names places in the document.
    pub(super) fn of_places(text: &[u8]) -> Result<Path, CommandError> {
        let path = Path::parse(text)?;
        match path.program.is_projection() {
            true => Err(READS_ONLY.into()),
            false => Ok(path),
        }
    }

    /// Returns the text of the path.
    pub(super) fn text(&self) -> &[u8] {
        self.program.text()
    }

    /// True for a legacy path, which is answered by one value.
    pub(super) fn is_legacy(&self) -> bool {
        self.program.is_legacy()
    }

    /// True for the path of the whole document.
    pub(super) fn is_root(&self) -> bool {
        self.program.is_root()
    }

    /// True if the path has at most one match in any document.
    pub(super) fn is_definite(&self) -> bool {
        self.program.is_definite()
    }

    /// True if the path computes values.
    pub(super) fn is_projection(&self) -> bool {
        self.program.is_projection()
    }

    /// Returns the steps of a definite path.
    pub(super) fn steps(&self) -> Option<&[DefiniteStep]> {
        self.program.definite_steps()
    }

    /// Returns all matches.
    pub(super) fn all<'d>(&self, root: JsonRef<'d>) -> Result<Vec<JsonRef<'d>>, CommandError> {
        Ok(self.program.find(root, &mut budget(root))?)
    }

    /// Returns the first match.
    pub(super) fn first<'d>(&self, root: JsonRef<'d>) -> Result<Option<JsonRef<'d>>, CommandError> {
        Ok(self.program.first(root, &mut budget(root))?)
    }

    /// Returns the values that the path computes, packed.
    pub(super) fn computed(&self, root: JsonRef<'_>) -> Result<Vec<Vec<u8>>, CommandError> {
        let values = self.program.project(root, &mut budget(root))?;
        Ok(values.iter().map(super::computed::packed).collect())
    }

    /// Returns the offsets of all matches, and for which of them `is_right` holds.
    pub(super) fn places(
        &self,
        root: JsonRef<'_>,
        is_right: impl Fn(JsonRef<'_>) -> bool,
    ) -> Result<Places, CommandError> {
        let mut places = Places::default();
        let mut note = |found: JsonRef<'_>| {
            if is_right(found) {
                places.targets.push(found.offset_in(root));
                places.numbers.push(places.matches);
            }
            places.matches += 1;
        };
        match self.is_definite() {
            true => self.first(root)?.into_iter().for_each(&mut note),
            false => self.all(root)?.into_iter().for_each(&mut note),
        }
        Ok(places)
    }
}

/// Matches of a path in a document that is about to change.
#[derive(Default)]
pub(super) struct Places {
    /// Offsets of those of the right type.
    pub(super) targets: SmallVec<[usize; 1]>,
    /// Numbers of these among all matches.
    numbers: SmallVec<[usize; 1]>,
    /// Number of matches of any type.
    pub(super) matches: usize,
}

/// A result for each match of a path; None for those of another type than the command works on.
pub(super) type Spread<T> = SmallVec<[Option<T>; 1]>;

impl Places {
    /// Returns a result for each match: those of `results` for the ones of the right type, in their order.
    pub(super) fn spread<T: Clone>(&self, results: &[T]) -> Spread<T> {
        let mut all: Spread<T> = smallvec![None; self.matches];
        for (number, result) in self.numbers.iter().zip(results) {
            all[*number] = Some(result.clone());
        }
        all
    }
}

/// Returns the steps that a search may take: more in a large document, of which each value may be looked at.
fn budget(root: JsonRef<'_>) -> Budget {
    Budget::of(Budget::STEPS + root.bytes().len() as u64)
}

/// Removes the offsets of values that are within others of them. Returns the rest, ascending and without repetition.
pub(super) fn outermost(root: JsonRef<'_>, targets: &[usize]) -> Vec<usize> {
    let mut targets = targets.to_vec();
    targets.sort_unstable();
    let mut end = 0;
    targets.retain(|at| {
        let is_within = *at < end;
        if !is_within {
            end = at + root.at_offset(*at).bytes().len();
        }
        !is_within
    });
    targets
}
