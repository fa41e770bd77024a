//! Scratch for connections that have input: each thread keeps a few batches, an idle connection keeps none.

use std::cell::RefCell;

use crate::session::batch::Batch;
use basalt_core::resp::reply::Out;

/// Batches that a thread keeps: few, as connections that are active keep their own.
const KEPT_MAX: usize = 4;

/// First size of a read buffer.
pub const INPUT_BYTES: usize = 16 * 1024;

/// A buffer larger than this is not kept.
const KEPT_BYTES_MAX: usize = 256 * 1024;

/// An output buffer larger than this is not kept.
pub const OUTPUT_BYTES_KEPT_MAX: usize = 16 * 1024;

thread_local! {
    #[expect(clippy::vec_box, reason = "a batch moves between pool and connection as one pointer")]
    static POOL: RefCell<Vec<Box<Batch>>> = const { RefCell::new(Vec::new()) };
}

/// An empty batch with a read buffer.
pub fn take() -> Box<Batch> {
    let pooled = POOL.with_borrow_mut(Vec::pop);
    pooled.unwrap_or_else(|| {
        let mut batch = Box::<Batch>::default();
        batch.input.reserve(INPUT_BYTES);
        batch
    })
}

/// Gives a batch back, at whatever point its connection left it.
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
