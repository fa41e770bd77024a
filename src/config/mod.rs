//! One row per parameter; files, environment and arguments; CONFIG GET, SET and REWRITE.
