//! A parsed path, and the questions that commands ask it.

use super::evaluate::{self, search};
use super::limits::{Budget, PATTERN_BYTES_MAX, PathError};
use super::locations::Location;
use super::node::Node;
use super::parse;
use super::syntax::{DefiniteStep, Dialect, Kind};
use super::value::Value;

/// A parsed path.
#[derive(Debug)]
pub struct Program {
    text: Box<[u8]>,
    dialect: Dialect,
    kind: Kind,
    /// Number of regular expressions in the path.
    patterns: usize,
}

impl Program {
    /// Parses the text of a path.
    pub fn parse(text: &[u8]) -> Result<Program, PathError> {
        let parsed = parse::path(text)?;
        Ok(Program {
            text: text.into(),
            dialect: parsed.dialect,
            kind: parsed.kind,
            patterns: parsed.patterns,
        })
    }

    /// The text as the client wrote it.
    pub fn text(&self) -> &[u8] {
        &self.text
    }

    /// The dialect of the text.
    pub fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// Whether the text is legacy.
    pub fn is_legacy(&self) -> bool {
        self.dialect == Dialect::Legacy
    }

    /// Whether this is the document itself: `$`, `.`.
    pub fn is_root(&self) -> bool {
        matches!(&self.kind, Kind::Definite(steps) if steps.is_empty())
    }

    /// Whether this matches at most one value of any document.
    pub fn is_definite(&self) -> bool {
        matches!(self.kind, Kind::Definite(_))
    }

    /// Whether this computes values instead of finding them.
    pub fn is_projection(&self) -> bool {
        matches!(self.kind, Kind::Projection(_))
    }

    /// The steps of a definite path.
    pub fn definite_steps(&self) -> Option<&[DefiniteStep]> {
        match &self.kind {
            Kind::Definite(steps) => Some(steps),
            _ => None,
        }
    }

    /// About how many bytes of memory this takes, for caches: mostly its regular expressions.
    pub fn weight(&self) -> usize {
        size_of::<Program>() + 16 * self.text.len() + self.patterns * PATTERN_BYTES_MAX / 2
    }

    /// All matches below `root`, in the order of the document for each selector; a value that is reached in two ways is
    /// there twice. A projection finds nothing.
    pub fn find<'d, N: Node<'d>>(&self, root: N, budget: &mut Budget) -> Result<Vec<N>, PathError> {
        match &self.kind {
            Kind::Definite(steps) => Ok(search::definite(steps, root).into_iter().collect()),
            Kind::Segments(segments) => search::nodes(segments, root, root, budget),
            Kind::Projection(_) => Ok(Vec::new()),
        }
    }

    /// The first match.
    pub fn first<'d, N: Node<'d>>(
        &self,
        root: N,
        budget: &mut Budget,
    ) -> Result<Option<N>, PathError> {
        match &self.kind {
            Kind::Definite(steps) => Ok(search::definite(steps, root)),
            Kind::Segments(segments) => search::first(segments, root, budget),
            Kind::Projection(_) => Ok(None),
        }
    }

    /// The locations of all matches, in the order of [`Program::find`].
    pub fn locate<'d, N: Node<'d>>(
        &self,
        root: N,
        budget: &mut Budget,
    ) -> Result<Vec<Location>, PathError> {
        match &self.kind {
            Kind::Definite(steps) => {
                Ok(search::definite_location(steps, root).into_iter().collect())
            }
            Kind::Segments(segments) => search::locations(segments, root, budget),
            Kind::Projection(_) => Ok(Vec::new()),
        }
    }

    /// The values of a projection; none for a path, and none where nothing can be computed.
    pub fn project<'d, N: Node<'d>>(
        &self,
        root: N,
        budget: &mut Budget,
    ) -> Result<Vec<Value>, PathError> {
        match &self.kind {
            Kind::Projection(expression) => evaluate::project(expression, root, budget),
            _ => Ok(Vec::new()),
        }
    }
}
