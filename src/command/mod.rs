//! Binds the protocol to the engine: one declaration a command, one file a family.
