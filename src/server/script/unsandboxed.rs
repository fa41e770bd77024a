//! Determines which scripts can neither change the globals nor obtain a reference to them.
//!
//! Shared tables are behind read-only proxies, and each access through a proxy costs as much as some ten
//! instructions of a script. Most scripts only call functions in these tables. Their compiled code shows this, so
//! that they may run on the tables themselves. Such a plain script
//!
//! - assigns to no global, nested functions included;
//! - names neither `_G` nor any function that returns a table of globals or compiles unknown code;
//! - after loading a global that is a table, replaces the table by one of its fields in the very next
//!   instruction.
//!
//! KEYS and ARGV are created anew for each run, unless a plain script only reads their elements or their
//! length: then no script can notice that the tables are those of the previous run.
//!
//! A script whose code is not understood counts as not plain. This module knows the format of Lua 5.1's dumps,
//! but no interpreter.

/// Globals that no plain script may name.
const REFUSED: [&[u8]; 5] = [b"_G", b"getfenv", b"setfenv", b"load", b"loadstring"];

/// The globals with the arguments of a run ("lists").
const LISTS: [&[u8]; 2] = [b"KEYS", b"ARGV"];

/// The first bytes of Lua dumps on the machines that the server runs on.
const HEADER: &[u8] = b"\x1bLua\x51\x00\x01\x04\x08\x04\x08\x00";

/// Maximum nesting depth of functions that are inspected.
const DEPTH_MAX: usize = 100;

/// Opcodes of the interpreter, in the lowest bits of an instruction.
const OP_BITS: u32 = 6;
const GET_GLOBAL: u32 = 5;
const GET_TABLE: u32 = 6;
const SET_GLOBAL: u32 = 7;
const LENGTH: u32 = 20;

/// How a script accesses globals and its lists, which determines the environment in which it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ListAccess {
    /// The script is not plain, and runs behind proxies.
    Guarded,
    /// The script is plain, but may change or keep its lists.
    Plain,
    /// The script is plain, and only reads its lists.
    Reading,
}

/// Classifies a compiled script; `is_table` tells which globals are shared tables.
pub(super) fn list_access(dump: &[u8], is_table: &dyn Fn(&[u8]) -> bool) -> ListAccess {
    let Some(rest) = dump.strip_prefix(HEADER) else {
        return ListAccess::Guarded;
    };
    let mut reader = BytecodeReader {
        rest,
        only_reads: true,
    };
    let is_plain = reader.function(is_table, 0).unwrap_or(false);
    match (is_plain && reader.rest.is_empty(), reader.only_reads) {
        (false, _) => ListAccess::Guarded,
        (true, false) => ListAccess::Plain,
        (true, true) => ListAccess::Reading,
    }
}

struct BytecodeReader<'d> {
    rest: &'d [u8],
    /// Whether no instruction was found so far that keeps or changes a list.
    only_reads: bool,
}

impl<'d> BytecodeReader<'d> {
    fn bytes(&mut self, count: usize) -> Option<&'d [u8]> {
        let (bytes, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(bytes)
    }

    fn count(&mut self) -> Option<usize> {
        let bytes = self.bytes(4)?.first_chunk::<4>()?;
        usize::try_from(i32::from_le_bytes(*bytes)).ok()
    }

    /// Reads a count and as many items of `bytes_each` bytes; returns the items' bytes.
    fn many(&mut self, bytes_each: usize) -> Option<&'d [u8]> {
        let count = self.count()?;
        self.bytes(count.checked_mul(bytes_each)?)
    }

    /// Returns a string, without its terminating zero.
    fn string(&mut self) -> Option<&'d [u8]> {
        let bytes = self.bytes(8)?.first_chunk::<8>()?;
        let bytes = self.bytes(usize::try_from(u64::from_le_bytes(*bytes)).ok()?)?;
        Some(bytes.split_last().map_or(bytes, |(_, text)| text))
    }

    fn function(&mut self, is_table: &dyn Fn(&[u8]) -> bool, depth: usize) -> Option<bool> {
        if depth > DEPTH_MAX {
            return None;
        }
        self.string()?; // its source
        self.bytes(4 + 4)?; // its lines
        self.bytes(4)?; // how many upvalues, parameters and registers it has
        let (code, _) = self.many(4)?.as_chunks::<4>();
        let mut names = Vec::new();
        for _ in 0..self.count()? {
            let (kind, mut name) = (self.bytes(1)?[0], None);
            match kind {
                0 => {}
                1 => _ = self.bytes(1)?,
                3 => _ = self.bytes(8)?,
                4 => name = Some(self.string()?),
                _ => return None,
            }
            names.push(name);
        }
        for _ in 0..self.count()? {
            if !self.function(is_table, depth + 1)? {
                return Some(false);
            }
        }
        self.many(4)?; // lines
        for _ in 0..self.count()? {
            self.string()?; // a local variable
            self.bytes(4 + 4)?;
        }
        for _ in 0..self.count()? {
            self.string()?; // an upvalue
        }
        let mut code = code.iter().map(|word| u32::from_le_bytes(*word)).peekable();
        while let Some(word) = code.next() {
            let (operation, register) = (word % (1 << OP_BITS), word >> OP_BITS & 0xff);
            if operation == SET_GLOBAL {
                return Some(false);
            }
            if operation != GET_GLOBAL {
                continue;
            }
            let name = (*names.get(word as usize >> 14)?)?;
            if REFUSED.contains(&name) {
                return Some(false);
            }
            // The next instruction reads from the table's register and overwrites it.
            let next = code.peek().copied().unwrap_or_default();
            let is_replaced = next >> OP_BITS & 0xff == register && next >> 23 == register;
            let is_taken_from = is_replaced && next % (1 << OP_BITS) == GET_TABLE;
            let is_measured = is_replaced && next % (1 << OP_BITS) == LENGTH;
            if is_table(name) && !is_taken_from {
                return Some(false);
            }
            if LISTS.contains(&name) && !is_taken_from && !is_measured {
                self.only_reads = false;
            }
        }
        Some(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dump(code: &str, is_stripped: bool) -> Vec<u8> {
        let lua = mlua::Lua::new();
        let function = lua.load(code).into_function();
        function.expect(code).dump(is_stripped)
    }

    fn is_shared(name: &[u8]) -> bool {
        [&b"redis"[..], b"string", b"table"].contains(&name)
    }

    #[test]
    fn scripts_that_only_use_the_globals_are_plain() {
        use ListAccess::{Guarded, Plain, Reading};
        for (code, expected) in [
            ("return 1", Reading),
            (
                "if redis.call('GET',KEYS[1])==ARGV[1] then return redis.call('DEL',KEYS[1]) else return 0 end",
                Reading,
            ),
            (
                "local call = redis.call local x = call('GET', KEYS[1]) return x or missing",
                Reading,
            ),
            (
                "local t = {} for i = 1, #ARGV do t[i] = tonumber(ARGV[i]) end return t",
                Reading,
            ),
            (
                "local f = function() return function() return string.rep(ARGV[1], 3) end end",
                Reading,
            ),
            ("return redis[1], redis['x'], redis.call ~= nil", Reading),
            ("local t = {} t.x = redis.call t.y = 1 return t", Reading),
            ("redis.x.y = 1", Reading), // what is in a shared table is a proxy
            (
                "local f f = function() return f end return ('x'):rep(3)",
                Reading,
            ),
            ("KEYS[1] = 'x' return {1, 2, n = 3}", Plain),
            ("return redis.call('MGET', unpack(KEYS))", Plain),
            ("return ARGV", Plain),
            ("local k = KEYS return k[1]", Plain),
            ("local function f() return ARGV end", Plain),
            ("return ARGV[#ARGV]", Plain),
            ("KEYS.x.y = 1", Reading),
            ("return setmetatable(ARGV, {})", Plain),
        ] {
            let whole = dump(code, true);
            assert_eq!(list_access(&whole, &is_shared), expected, "{code}");
            assert_eq!(list_access(&dump(code, false), &is_shared), expected);
            assert_eq!(
                list_access(&[&whole[..], b"\0"].concat(), &is_shared),
                Guarded
            );
            for end in 0..whole.len() {
                assert_eq!(
                    list_access(&whole[..end], &is_shared),
                    Guarded,
                    "{code} {end}"
                );
            }
        }
    }

    #[test]
    fn scripts_that_may_change_or_hand_out_globals_are_not() {
        for code in [
            "x = 1",
            "KEYS = {}",
            "function f() end",
            "local function f() return function() redis = 1 end end",
            "return _G",
            "getfenv().x = 1",
            "setfenv(1, {})",
            "return loadstring('x = 1')",
            "return load",
            "local r = redis return r",
            "local r = redis return r.call",
            "redis.call = 1",
            "return #redis",
            "return redis",
            "return redis:call()",
            "rawset(redis, 'call', 1)",
            "return {redis}",
            "return redis[ARGV[1]]",
            "local r; r = redis; return 1",
            "local function f() return redis end",
            "for k in pairs(table) do end",
            "return (redis or {}).call and redis",
            "local a, b = redis, redis.call",
        ] {
            let access = list_access(&dump(code, true), &is_shared);
            assert_eq!(access, ListAccess::Guarded, "{code}");
        }
    }
}
