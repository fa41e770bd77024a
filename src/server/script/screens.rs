//! Screens: checks that pass a script's call to Lua's own function unless the arguments make the call dangerous
//! or slow. Then a replacement in Rust or Lua is called.

use mlua::{Function, Lua, Table};

use super::current::{look, tick};
use super::pattern;
use crate::sys::lua::compiling::{ScriptGate, stepwise};
use crate::sys::lua::screen::{Open, Screen, screened};
use crate::sys::lua::{Given, LuaArgument, Sort, naming, protected};

/// First byte of compiled code.
const COMPILED: u8 = 27;

/// Adds the constructors of screens to `native`, as `screens`.
pub(super) fn install(lua: &Lua, native: &Table) -> mlua::Result<()> {
    let screens = lua.create_table()?;
    let tables = |lua: &Lua, (own, refused, otherwise): (Function, Table, Function)| {
        screened::<Open>(lua, &own, Some(&refused), &otherwise)
    };
    screens.raw_set("tables", lua.create_function(tables)?)?;
    let inserting = |lua: &Lua, (own, refused, otherwise): (Function, Table, Function)| {
        screened::<InsertScreen>(lua, &own, Some(&refused), &otherwise)
    };
    screens.raw_set("inserting", lua.create_function(inserting)?)?;
    screens.raw_set("loading", lua.create_function(by::<LoadScreen>)?)?;
    let resuming =
        |lua: &Lua, (own, seen): (Function, Function)| protected::resume(lua, &own, &seen);
    screens.raw_set("resuming", lua.create_function(resuming)?)?;
    for (name, make) in PLAIN {
        let make = move |lua: &Lua, own: Function| make(lua, &own);
        screens.raw_set(name, lua.create_function(make)?)?;
    }
    screens.raw_set("repeating", lua.create_function(by::<RepScreen>)?)?;
    screens.raw_set("finding", lua.create_function(by::<FindScreen>)?)?;
    screens.raw_set("searching", lua.create_function(by::<MatchScreen>)?)?;
    screens.raw_set("replacing", lua.create_function(by::<GsubScreen>)?)?;
    screens.raw_set("short", lua.create_function(by::<TextLengthScreen>)?)?;
    screens.raw_set("joining", lua.create_function(by::<ConcatScreen>)?)?;
    screens.raw_set("removing", lua.create_function(by::<RemoveScreen>)?)?;
    screens.raw_set("sorting", lua.create_function(by::<SortScreen>)?)?;
    screens.raw_set("scanning", lua.create_function(by::<MaxnScreen>)?)?;
    screens.raw_set("unpacking", lua.create_function(by::<UnpackScreen>)?)?;
    screens.raw_set("compiling", lua.create_function(by::<LoadstringScreen>)?)?;
    screens.raw_set(
        "collecting",
        lua.create_function(by::<CollectgarbageScreen>)?,
    )?;
    native.raw_set("screens", screens)?;
    let refuse = lua.create_function(|_, ()| tick())?;
    native.raw_set(
        "compile_stepwise",
        stepwise::<StepwiseCompilation>(lua, &refuse)?,
    )
}

/// Constructor of a screened function from one of Lua's own functions.
type Make = fn(&Lua, &Function) -> mlua::Result<Function>;

const PLAIN: [(&str, Make); 4] = [
    ("naming", naming::tostring),
    ("wrapping", protected::wrap),
    ("catching", protected::pcall),
    ("handling", protected::xpcall),
];

fn by<S: Screen>(lua: &Lua, (own, otherwise): (Function, Function)) -> mlua::Result<Function> {
    screened::<S>(lua, &own, None, &otherwise)
}

/// Bytes of a text that Lua's own functions process, byte by byte, in a few hundred microseconds.
const SHORT_BYTES: usize = 256 * 1024;

/// Number of table elements that Lua's own functions process in that time.
const FEW_ELEMENTS: i64 = 10_000;

/// Screen of functions that repeat a text. Checks the count even if the text is empty, because Lua's loop takes
/// as long then.
struct RepScreen;

impl Screen for RepScreen {
    fn passes(given: &Given<'_>) -> bool {
        let mut given = given.iter();
        let (Some(LuaArgument::Text(text)), Some(count)) = (given.next(), given.next()) else {
            return true;
        };
        match count {
            LuaArgument::Number(count) => {
                text.len() as f64 * count <= SHORT_BYTES as f64 && !text.is_empty()
            }
            // A text with digits may be a number to Lua.
            LuaArgument::Text(count) => !count.iter().any(u8::is_ascii_digit),
            LuaArgument::Other => true,
        }
    }
}

/// Screen of functions that process all the texts they are given.
struct TextLengthScreen;

impl Screen for TextLengthScreen {
    fn passes(given: &Given<'_>) -> bool {
        let length = |argument| match argument {
            LuaArgument::Text(text) => text.len(),
            _ => 0,
        };
        given.iter().map(length).sum::<usize>() <= SHORT_BYTES
    }
}

/// Screen of functions that search a text by a pattern.
struct MatchScreen;

impl Screen for MatchScreen {
    fn passes(given: &Given<'_>) -> bool {
        match two_texts(given) {
            Some((text, pattern)) => pattern::is_light(text, pattern),
            None => true,
        }
    }
}

/// Screen of functions that search a text by a pattern, or for a text.
struct FindScreen;

impl Screen for FindScreen {
    fn passes(given: &Given<'_>) -> bool {
        match two_texts(given) {
            Some((text, pattern)) if given.is_true(3) || pattern::is_literal(pattern) => {
                pattern::is_light_product(text, pattern)
            }
            Some((text, pattern)) => pattern::is_light(text, pattern),
            None => true,
        }
    }
}

/// Screen of functions that replace the matches of a pattern.
struct GsubScreen;

impl Screen for GsubScreen {
    fn passes(given: &Given<'_>) -> bool {
        let Some((text, pattern)) = two_texts(given) else {
            return true;
        };
        pattern::is_light(text, pattern)
            && match given.iter().nth(2) {
                Some(LuaArgument::Text(by)) => pattern::is_light_product(text, by),
                _ => true,
            }
    }
}

fn two_texts<'g>(given: &'g Given<'_>) -> Option<(&'g [u8], &'g [u8])> {
    let mut given = given.iter();
    match (given.next(), given.next()) {
        (Some(LuaArgument::Text(first)), Some(LuaArgument::Text(second))) => Some((first, second)),
        _ => None,
    }
}

/// Screen of functions that join the elements of a table.
struct ConcatScreen;

impl Screen for ConcatScreen {
    fn passes(given: &Given<'_>) -> bool {
        let (Sort::Table, Some(len)) = (given.sort(0), given.len_of(0)) else {
            return true;
        };
        let separator = match given.iter().nth(1) {
            Some(LuaArgument::Text(separator)) => separator.len() as i64,
            Some(LuaArgument::Other) if given.sort(1) != Sort::Nothing => return true,
            _ => 0,
        };
        let first = number(given.iter().nth(2), 1.0);
        let last = number(given.iter().nth(3), len as f64);
        let (Some(first), Some(last)) = (first, last) else {
            return false;
        };
        let count = (last as i64).saturating_sub(first as i64);
        count.saturating_mul(separator + 1) <= FEW_ELEMENTS
    }
}

/// Screen of functions that remove an element, and move all elements after it.
struct RemoveScreen;

impl Screen for RemoveScreen {
    fn passes(given: &Given<'_>) -> bool {
        match (given.count(), given.sort(0), given.len_of(0)) {
            (2.., Sort::Table, Some(len)) => moves_few(given, len),
            _ => true,
        }
    }
}

/// Whether few elements follow the position that the second argument names in a table of this length.
fn moves_few(given: &Given<'_>, len: usize) -> bool {
    let Some(place) = number(given.iter().nth(1), len as f64) else {
        return false;
    };
    // Convert the position to a C `int`, as Lua does.
    (len as i64).saturating_sub(i64::from(place as i64 as i32)) <= FEW_ELEMENTS
}

/// Screen of sorting. A comparison function given by the script can be interrupted; without it, Lua compares
/// the elements in C.
struct SortScreen;

impl Screen for SortScreen {
    fn passes(given: &Given<'_>) -> bool {
        /// Maximum total of bytes that Lua may have to compare.
        const BYTES_MAX: usize = 1024 * 1024;
        /// Fixed cost of one comparison, as an equivalent number of compared bytes.
        const EACH: usize = 16;
        let (Sort::Table, Some(len)) = (given.sort(0), given.len_of(0)) else {
            return true;
        };
        given.sort(1) != Sort::Nothing
            || len as i64 <= FEW_ELEMENTS
                && len * (given.longest_element(0, len) + EACH) <= BYTES_MAX
    }
}

/// Screen of functions that traverse a whole table. The table's length says nothing about its other entries, so
/// the interpreter's memory is checked.
struct MaxnScreen;

impl Screen for MaxnScreen {
    fn passes(given: &Given<'_>) -> bool {
        given.sort(0) != Sort::Table || given.interpreter_kib() <= SMALL_KIB
    }
}

/// Maximum memory of an interpreter, in KiB, that can be traversed quickly.
const SMALL_KIB: usize = 2 * 1024;

/// Screen of functions that return elements of a table by index. Lua counts them in an `int`, and on overflow it
/// writes beyond its stack (CVE-2025-46817); ranges that are too long anyway are refused here.
struct UnpackScreen;

impl Screen for UnpackScreen {
    fn passes(given: &Given<'_>) -> bool {
        /// Far more elements than Lua's stack can hold.
        const COUNT_MAX: i64 = 1_000_000;
        let mut given = given.iter().skip(1);
        let Some(first) = number(given.next(), 1.0) else {
            return false;
        };
        // The default of this argument is the table's length, which is not known here.
        let Some(last) = number(given.next(), first.max(0.0)) else {
            return false;
        };
        let fits = |number: f64| (f64::from(i32::MIN)..=f64::from(i32::MAX)).contains(&number);
        fits(first) && fits(last) && (last as i64).saturating_sub(first as i64) < COUNT_MAX
    }
}

/// Returns the number that Lua makes of an argument, which may be a text; `otherwise` if it is not a number.
/// Returns `None` for texts too odd to be certain: no real script uses them.
fn number(argument: Option<LuaArgument<'_>>, otherwise: f64) -> Option<f64> {
    const TEXT_BYTES_MAX: usize = 9;
    match argument {
        Some(LuaArgument::Number(number)) => Some(number),
        Some(LuaArgument::Text(text)) if text.len() <= TEXT_BYTES_MAX => {
            // Other texts that are numbers to Lua contain digits.
            let text = std::str::from_utf8(text).ok()?.trim();
            match text.parse() {
                Ok(number) => Some(number),
                Err(_) => (!text.bytes().any(|byte| byte.is_ascii_digit())).then_some(otherwise),
            }
        }
        Some(LuaArgument::Text(_)) => None,
        _ => Some(otherwise),
    }
}

/// Screen of functions that insert an element between others. Lua moves all elements after it without checking
/// whether the script may go on, two billion of them if the index is that far below zero; large moves are left to a
/// function that can be interrupted.
struct InsertScreen;

impl Screen for InsertScreen {
    fn passes(given: &Given<'_>) -> bool {
        match (given.count(), given.len_of(0)) {
            (3, Some(len)) => moves_few(given, len),
            _ => true,
        }
    }
}

/// Screen of functions that compile the pieces returned by a function; other arguments are errors.
struct LoadScreen;

impl Screen for LoadScreen {
    fn passes(given: &Given<'_>) -> bool {
        given.sort(0) != Sort::Function
    }
}

/// Screen of functions that compile a text, which may be compiled code, or long.
struct LoadstringScreen;

impl Screen for LoadstringScreen {
    fn passes(given: &Given<'_>) -> bool {
        const BYTES_MAX: usize = 16 * 1024;
        match given.iter().next() {
            Some(LuaArgument::Text(text)) => {
                text.first() != Some(&COMPILED) && text.len() <= BYTES_MAX
            }
            _ => true,
        }
    }
}

/// Reader that passes a long text to Lua's compiler in pieces, and checks between them whether the script may
/// continue.
struct StepwiseCompilation;

impl ScriptGate for StepwiseCompilation {
    fn is_open() -> bool {
        look().is_ok()
    }
}

/// Screen of the collector's functions: scripts may not stop it, and the memory traversed at once is bounded.
struct CollectgarbageScreen;

impl Screen for CollectgarbageScreen {
    fn passes(given: &Given<'_>) -> bool {
        let refused = [&b"stop"[..], b"restart", b"setpause", b"setstepmul"];
        let long = [&b"collect"[..], b"step"];
        match given.iter().next() {
            Some(LuaArgument::Text(option)) if refused.contains(&option) => false,
            Some(LuaArgument::Text(option)) if !long.contains(&option) => true,
            _ => given.interpreter_kib() <= SMALL_KIB,
        }
    }
}
