//! Composition root: builds shards, registries and listeners; starts and stops them in order.
