//! One shard's keyspace: databases, values, expiry, effects. Synchronous and deterministic.
