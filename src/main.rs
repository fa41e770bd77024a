//! Arguments to configuration to `server::run` to an exit code; alone may print and exit.

fn main() {}
