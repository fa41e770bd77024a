//! DEBUG MALLCTL: statistics of the allocator, under jemalloc's names.

use crate::command::error::CommandError;
use crate::command::{Args, Out};
use basalt_core::alloc::slabs;

/// The argument that stands for "no value".
const NO_VALUE: &[u8] = b"VOID";

const NOT_SET: &str = "ERR allocator settings are read-only";

/// `DEBUG MALLCTL name`
pub(super) fn number(args: &Args<'_>, out: &mut Out) -> Result<(), CommandError> {
    if args.len() > 3 {
        return Err(NOT_SET.into());
    }
    let number = name(args).and_then(slabs::allocator_number);
    out.integer(number.ok_or("ERR the allocator has no numeric setting with this name")? as i64);
    Ok(())
}

/// `DEBUG MALLCTL-STR name [VOID]`
pub(super) fn text(args: &Args<'_>, out: &mut Out) -> Result<(), CommandError> {
    if args.len() == 3 {
        let text = name(args).and_then(slabs::allocator_text);
        out.bulk(
            text.ok_or("ERR the allocator has no string setting with this name")?
                .as_bytes(),
        );
        return Ok(());
    }
    if args.get(3) != NO_VALUE {
        return Err(NOT_SET.into());
    }
    match name(args).is_some_and(slabs::tell_allocator) {
        true => out.ok(),
        false => return Err("ERR this allocator setting cannot be written".into()),
    }
    Ok(())
}

fn name<'a>(args: &Args<'a>) -> Option<&'a str> {
    std::str::from_utf8(args.get(2)).ok()
}

#[cfg(all(test, not(feature = "system-allocator")))]
mod tests {
    use crate::command::testing::check_all;

    #[test]
    fn numbers_and_texts_are_read_and_what_is_harmless_is_done() {
        const NOT_SET: &str = "(error) ERR allocator settings are read-only";
        const NO_NUMBER: &str = "(error) ERR the allocator has no numeric setting with this name";
        check_all(&[
            ("DEBUG MALLCTL arenas.quantum", "(integer) 16"),
            ("DEBUG MALLCTL config.stats", "(integer) 1"),
            ("DEBUG MALLCTL no.such.name", NO_NUMBER),
            ("DEBUG MALLCTL arena.0.reset", NO_NUMBER),
            ("DEBUG MALLCTL arenas.lookup", NO_NUMBER),
            ("DEBUG MALLCTL arenas.create", NO_NUMBER),
            ("DEBUG MALLCTL stats.mutexes.reset", NO_NUMBER),
            ("DEBUG MALLCTL version", NO_NUMBER),
            ("DEBUG MALLCTL arenas.page 1", NOT_SET),
            ("DEBUG MALLCTL-STR opt.dss", "\"secondary\""),
            (
                "DEBUG MALLCTL-STR arenas.page",
                "(error) ERR the allocator has no string setting with this name",
            ),
            ("DEBUG MALLCTL-STR opt.dss primary", NOT_SET),
            ("DEBUG MALLCTL-STR thread.tcache.flush VOID", "OK"),
            (
                "DEBUG MALLCTL-STR arena.0.reset VOID",
                "(error) ERR this allocator setting cannot be written",
            ),
        ]);
    }
}
