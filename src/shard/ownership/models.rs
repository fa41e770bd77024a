//! Models of the token for loom.
