//! Scratch batches for connections with input: each thread keeps a few for reuse; an idle connection keeps
//! none.

use std::cell::RefCell;

use crate::session::batch::Batch;
use basalt_core::resp::reply::Out;

/// Batches kept per thread; few, because active connections keep their own.
const KEPT_MAX: usize = 4;

/// Initial size of a read buffer.
pub const INPUT_BYTES: usize = 16 * 1024;

/// Read buffers larger than this are not kept.
const KEPT_BYTES_MAX: usize = 256 * 1024;

/// Output buffers larger than this are not kept.
pub const OUTPUT_BYTES_KEPT_MAX: usize = 16 * 1024;

thread_local! {
    #[expect(clippy::vec_box, reason = "a batch moves between pool and connection as one pointer")]
    static POOL: RefCell<Vec<Box<Batch>>> = const { RefCell::new(Vec::new()) };
}

/// Returns an empty batch with a read buffer.
pub fn take() -> Box<Batch> {
    let pooled = POOL.with_borrow_mut(Vec::pop);
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
    POOL.with_borrow_mut(|pool| {
        if pool.len() < KEPT_MAX {
            pool.push(batch);
        }
    });
}
