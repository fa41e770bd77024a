//! Documents as paths see them.

use super::{Elements, JsonRef, JsonView, Members, Number};
use basalt_core::json_path::{Node, View};

impl<'d> Node<'d> for JsonRef<'d> {
    type Elements = Elements<'d>;
    type Members = Members<'d>;

    fn view(self) -> View<'d> {
        match JsonRef::view(self) {
            JsonView::Null => View::Null,
            JsonView::Bool(truth) => View::Bool(truth),
            JsonView::Number(Number::Int(number)) => View::Int(number),
            JsonView::Number(Number::Uint(number)) => View::Uint(number),
            JsonView::Number(Number::Float(number)) => View::Float(number),
            JsonView::Text(text) => View::Str(text),
            JsonView::Array => View::Array,
            JsonView::Object => View::Object,
        }
    }

    fn len(self) -> usize {
        JsonRef::len(self)
    }

    fn child(self, name: &[u8]) -> Option<JsonRef<'d>> {
        JsonRef::child(self, name)
    }

    fn element(self, index: usize) -> Option<JsonRef<'d>> {
        JsonRef::element(self, index)
    }

    fn elements(self) -> Elements<'d> {
        JsonRef::elements(self)
    }

    fn members(self) -> Members<'d> {
        JsonRef::members(self)
    }
}
