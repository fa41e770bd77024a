//! Functions of Lua's own libraries that scripts get as they are, but for some calls.

use mlua::{Function, Lua, Table};

use super::pattern;
use crate::structures::lua::screen::{Open, Screen, screened};
use crate::structures::lua::{Argument, Given};

/// How compiled code begins.
const COMPILED: u8 = 27;

/// Adds what makes them to `native`, as `screens`.
pub(super) fn install(lua: &Lua, native: &Table) -> mlua::Result<()> {
    let screens = lua.create_table()?;
    let tables = |lua: &Lua, (own, refused, otherwise): (Function, Table, Function)| {
        screened::<Open>(lua, &own, Some(&refused), &otherwise)
    };
    screens.raw_set("tables", lua.create_function(tables)?)?;
    screens.raw_set("repeating", lua.create_function(by::<Repeating>)?)?;
    screens.raw_set("searching", lua.create_function(by::<Searching>)?)?;
    screens.raw_set("compiling", lua.create_function(by::<Compiling>)?)?;
    screens.raw_set("collecting", lua.create_function(by::<Collecting>)?)?;
    native.raw_set("screens", screens)
}

fn by<S: Screen>(lua: &Lua, (own, otherwise): (Function, Function)) -> mlua::Result<Function> {
    screened::<S>(lua, &own, None, &otherwise)
}

/// What repeats a text, which may be empty: to repeat nothing would take as long as to repeat something.
struct Repeating;

impl Screen for Repeating {
    fn passes(given: &Given<'_>) -> bool {
        let mut given = given.iter();
        let (Some(Argument::Text(b"")), Some(count)) = (given.next(), given.next()) else {
            return true;
        };
        match count {
            Argument::Number(_) => false,
            // It may be a number, too.
            Argument::Text(text) => !text.iter().any(u8::is_ascii_digit),
            Argument::Other => true,
        }
    }
}

/// What searches a text by a pattern.
struct Searching;

impl Screen for Searching {
    fn passes(given: &Given<'_>) -> bool {
        let mut given = given.iter();
        match (given.next(), given.next()) {
            (Some(Argument::Text(text)), Some(Argument::Text(pattern))) => {
                pattern::is_light(text, pattern)
            }
            _ => true,
        }
    }
}

/// What compiles a text, which may be compiled code.
struct Compiling;

impl Screen for Compiling {
    fn passes(given: &Given<'_>) -> bool {
        let first = given.iter().next();
        !matches!(first, Some(Argument::Text(text)) if text.first() == Some(&COMPILED))
    }
}

/// What has to do with the collector, which scripts may not stop.
struct Collecting;

impl Screen for Collecting {
    fn passes(given: &Given<'_>) -> bool {
        let refused = [&b"stop"[..], b"restart", b"setpause", b"setstepmul"];
        let first = given.iter().next();
        !matches!(first, Some(Argument::Text(option)) if refused.contains(&option))
    }
}
