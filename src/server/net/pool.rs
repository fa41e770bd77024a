//! Scratch batches for connections with input. Each thread keeps some and lends the one that was used last, which is
//! in its core's caches; an idle connection keeps none.

use std::cell::RefCell;

use crate::session::batch::Batch;
use crate::telemetry::counters;
use basalt_core::resp::reply::Out;

/// Batches kept per thread: as many as may be in use at a time, while replies wait for other connections' turns.
const KEPT_MAX: usize = 64;

/// Maximum total size in bytes of a thread's kept batches.
const KEPT_TOTAL_BYTES_MAX: usize = 1024 * 1024;

/// Initial size of a read buffer.
pub const INPUT_BYTES: usize = 16 * 1024;

/// Read buffers larger than this are not kept.
const KEPT_BYTES_MAX: usize = 256 * 1024;

/// Output buffers larger than this are not kept.
pub const OUTPUT_BYTES_KEPT_MAX: usize = 16 * 1024;

thread_local! {
    static POOL: RefCell<Pool> = const { RefCell::new(Pool { batches: Vec::new(), bytes: 0 }) };
}

/// A thread's batches, with their sizes in bytes.
struct Pool {
    batches: Vec<(Box<Batch>, usize)>,
    bytes: usize,
}

impl Pool {
    fn take(&mut self) -> Option<Box<Batch>> {
        let (batch, bytes) = self.batches.pop()?;
        self.count(self.bytes - bytes);
        Some(batch)
    }

    fn count(&mut self, bytes: usize) {
        self.bytes = bytes;
        counters::local().pooled_bytes.set(bytes as u64);
    }

    fn put(&mut self, batch: Box<Batch>) {
        let bytes = batch.memory_bytes();
        if self.batches.len() < KEPT_MAX && self.bytes + bytes <= KEPT_TOTAL_BYTES_MAX {
            self.count(self.bytes + bytes);
            self.batches.push((batch, bytes));
        }
    }
}

/// Returns an empty batch with a read buffer.
pub fn take() -> Box<Batch> {
    let pooled = POOL.with_borrow_mut(Pool::take);
    pooled.unwrap_or_else(|| {
        let mut batch = Box::<Batch>::default();
        batch.input.reserve(INPUT_BYTES);
        batch
    })
}

/// Returns a batch to the pool, in whatever state its connection left it.
pub fn put(mut batch: Box<Batch>) {
    if batch.input.capacity() > KEPT_BYTES_MAX {
        batch.input = Vec::with_capacity(INPUT_BYTES);
    }
    if batch.out.memory_bytes() > OUTPUT_BYTES_KEPT_MAX {
        batch.out = Out::default();
    }
    batch.reset();
    POOL.with_borrow_mut(|pool| pool.put(batch));
}
