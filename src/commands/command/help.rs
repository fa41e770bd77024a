//! The replies of `… HELP`, and arguments as text.

use super::{Args, Out};
use basalt_core::base::lossless;

/// Writes the reply of a `… HELP` subcommand: a title, the lines of the container, and the line on HELP itself.
pub(super) fn reply_help(container: &str, lines: &[&str], out: &mut Out) {
    out.array(lines.len() + 3);
    out.simple(format!(
        "{container} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"
    ));
    for line in lines {
        out.simple(line);
    }
    out.simple("HELP");
    out.simple("    Print this help.");
}

/// Returns an argument as text that can represent any bytes, see [`lossless`].
pub(super) fn text(args: &Args<'_>, index: usize) -> String {
    lossless::text_of(args.get(index)).into_owned()
}
