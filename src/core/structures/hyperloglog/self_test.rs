//! The checks of PFSELFTEST: registers keep their values, both encodings agree, and the estimate is near the truth.

use super::dense;
use super::{Encoding, HEADER_BYTES, REGISTERS, Sketch, add, empty, to_dense};
use crate::base::random::Random;

const REGISTER_ROUNDS: usize = 5;
const ELEMENTS_MAX: u64 = 100_000;

/// Runs all checks; the error text tells which failed.
pub fn run(random: &mut Random, sparse_bytes_max: usize) -> Result<(), String> {
    for _ in 0..REGISTER_ROUNDS {
        check_registers(random)?;
    }
    check_estimates(random.next_u64(), sparse_bytes_max)
}

fn check_registers(random: &mut Random) -> Result<(), String> {
    let mut registers = vec![0; dense::BYTES];
    let values: Vec<u8> = (0..REGISTERS).map(|_| random.below(64) as u8).collect();
    for (index, value) in values.iter().enumerate() {
        dense::set(&mut registers, index, *value);
    }
    for (index, value) in values.iter().enumerate() {
        let is = dense::value_at(&registers, index);
        if is != *value {
            return Err(format!("register {index} holds {is} instead of {value}"));
        }
    }
    Ok(())
}

fn check_estimates(seed: u64, sparse_bytes_max: usize) -> Result<(), String> {
    let (mut mixed, mut only_dense) = (empty(), empty());
    to_dense(&mut only_dense).map_err(|_| "an empty sketch is corrupt")?;
    let mut checkpoint = 1;
    for number in 1..=ELEMENTS_MAX {
        let element = (number ^ seed).to_le_bytes();
        for sketch in [&mut mixed, &mut only_dense] {
            add(sketch, std::iter::once(&element[..]), sparse_bytes_max)
                .map_err(|_| "a sketch became corrupt")?;
        }
        if number < checkpoint {
            continue;
        }
        let (mixed, only_dense) = (count(&mixed)?, count(&only_dense)?);
        if number < sparse_bytes_max.saturating_sub(HEADER_BYTES) as u64 / 5
            && mixed.0 != Encoding::Sparse
        {
            return Err(format!("{number} elements are no longer sparse"));
        }
        if mixed.1 != only_dense.1 {
            return Err(format!(
                "sparse says {} and dense {} after {number} elements",
                mixed.1, only_dense.1
            ));
        }
        // Six standard errors; at ten elements one collision is likely enough to be allowed for.
        let error_max = (6.0 * 1.04 / (REGISTERS as f64).sqrt() * number as f64).ceil() as u64;
        if mixed.1.abs_diff(number) > error_max.max(1) {
            return Err(format!("{number} elements are taken for {}", mixed.1));
        }
        checkpoint *= 10;
    }
    Ok(())
}

fn count(bytes: &[u8]) -> Result<(Encoding, u64), String> {
    let sketch = Sketch::of(bytes).ok_or("a sketch lost its header")?;
    let count = sketch.count().map_err(|_| "a sketch became corrupt")?;
    Ok((sketch.encoding(), count))
}
