//! Functions of Lua's own libraries that scripts get as they are, but for some calls.

use mlua::{Function, Lua, Table};

use super::pattern;
use crate::sys::lua::protected;
use crate::sys::lua::screen::{Open, Screen, screened};
use crate::sys::lua::{Argument, Given, Sort};

/// How compiled code begins.
const COMPILED: u8 = 27;

/// Adds what makes them to `native`, as `screens`.
pub(super) fn install(lua: &Lua, native: &Table) -> mlua::Result<()> {
    let screens = lua.create_table()?;
    let tables = |lua: &Lua, (own, refused, otherwise): (Function, Table, Function)| {
        screened::<Open>(lua, &own, Some(&refused), &otherwise)
    };
    screens.raw_set("tables", lua.create_function(tables)?)?;
    let inserting = |lua: &Lua, (own, refused, otherwise): (Function, Table, Function)| {
        screened::<Inserting>(lua, &own, Some(&refused), &otherwise)
    };
    screens.raw_set("inserting", lua.create_function(inserting)?)?;
    screens.raw_set("loading", lua.create_function(by::<Loading>)?)?;
    let resuming =
        |lua: &Lua, (own, seen): (Function, Function)| protected::resume(lua, &own, &seen);
    screens.raw_set("resuming", lua.create_function(resuming)?)?;
    for (name, make) in PLAIN {
        let make = move |lua: &Lua, own: Function| make(lua, &own);
        screens.raw_set(name, lua.create_function(make)?)?;
    }
    screens.raw_set("repeating", lua.create_function(by::<Repeating>)?)?;
    screens.raw_set("searching", lua.create_function(by::<Searching>)?)?;
    screens.raw_set("unpacking", lua.create_function(by::<Unpacking>)?)?;
    screens.raw_set("compiling", lua.create_function(by::<Compiling>)?)?;
    screens.raw_set("collecting", lua.create_function(by::<Collecting>)?)?;
    native.raw_set("screens", screens)
}

/// What makes a function of Lua's own one and nothing else.
type Make = fn(&Lua, &Function) -> mlua::Result<Function>;

const PLAIN: [(&str, Make); 3] = [
    ("wrapping", protected::wrap),
    ("catching", protected::pcall),
    ("handling", protected::xpcall),
];

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

/// What gives back elements of a table by their numbers. Lua counts them in an `int`, and where that overflows it
/// writes beyond its stack (CVE-2025-46817); here are refused ranges that are too long for it anyway.
struct Unpacking;

impl Screen for Unpacking {
    fn passes(given: &Given<'_>) -> bool {
        /// Far more than its stack has room for.
        const COUNT_MAX: i64 = 1_000_000;
        let mut given = given.iter().skip(1);
        let Some(first) = number(given.next(), 1.0) else {
            return false;
        };
        // Without one it is the length, which is not known here.
        let Some(last) = number(given.next(), first.max(0.0)) else {
            return false;
        };
        let fits = |number: f64| (f64::from(i32::MIN)..=f64::from(i32::MAX)).contains(&number);
        fits(first) && fits(last) && (last as i64).saturating_sub(first as i64) < COUNT_MAX
    }
}

/// The number that Lua makes of an argument, which may be a text; what is no number is this one. Nothing, if that is
/// too odd to be sure of: no script counts by such a text.
fn number(argument: Option<Argument<'_>>, otherwise: f64) -> Option<f64> {
    const TEXT_BYTES_MAX: usize = 9;
    match argument {
        Some(Argument::Number(number)) => Some(number),
        Some(Argument::Text(text)) if text.len() <= TEXT_BYTES_MAX => {
            // What else may be a number for Lua is written in other digits.
            let text = std::str::from_utf8(text).ok()?.trim();
            match text.parse() {
                Ok(number) => Some(number),
                Err(_) => (!text.bytes().any(|byte| byte.is_ascii_digit())).then_some(otherwise),
            }
        }
        Some(Argument::Text(_)) => None,
        _ => Some(otherwise),
    }
}

/// What puts an element between others. Lua moves all behind it without a look at whether the script may go on, two
/// thousand million of them if the place is as far below zero; many are for a function that can be interrupted.
struct Inserting;

impl Screen for Inserting {
    fn passes(given: &Given<'_>) -> bool {
        /// Elements that are moved in some hundred microseconds.
        const MOVED_MAX: i64 = 10_000;
        let (3, Some(len)) = (given.count(), given.len_of(0)) else {
            return true;
        };
        let Some(place) = number(given.iter().nth(1), len as f64) else {
            return false;
        };
        // As Lua makes a C `int` of it.
        (len as i64).saturating_sub(i64::from(place as i64 as i32)) <= MOVED_MAX
    }
}

/// What compiles what a function gives; anything else it complains of.
struct Loading;

impl Screen for Loading {
    fn passes(given: &Given<'_>) -> bool {
        given.sort(0) != Sort::Function
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
