//! The dense encoding: registers of six bits each, one after the other, starting at the lowest bit.
//!
//! ```text
//! byte     0         1         2
//!          11000000  22221111  33333322      four registers in three bytes
//! ```
//!
//! Eight registers are six bytes, which are handled as one integer: its 48 bits are spread to eight bytes in three
//! steps, each of which moves the upper halves of equal parts up. Comparing and counting is fast on bytes.

use super::REGISTERS;
use super::estimate::Histogram;

/// Bytes of the registers.
pub const BYTES: usize = REGISTERS * 6 / 8;

const LOW_SIX: u64 = 0x3f3f_3f3f_3f3f_3f3f;

/// Converts eight registers of six bits to bytes.
#[inline]
fn spread(packed: u64) -> u64 {
    let word = packed & 0x0000_0000_00ff_ffff | (packed & 0x0000_ffff_ff00_0000) << 8;
    let word = word & 0x0000_0fff_0000_0fff | (word & 0x00ff_f000_00ff_f000) << 4;
    (word & 0x003f_003f_003f_003f | (word & 0x0fc0_0fc0_0fc0_0fc0) << 2) & LOW_SIX
}

/// Inverts [`spread`], for bytes below 64.
#[inline]
fn gather(bytes: u64) -> u64 {
    let word = bytes & 0x003f_003f_003f_003f | (bytes & 0x3f00_3f00_3f00_3f00) >> 2;
    let word = word & 0x0000_0fff_0000_0fff | (word & 0x0fff_0000_0fff_0000) >> 4;
    word & 0x0000_0000_00ff_ffff | (word & 0x00ff_ffff_0000_0000) >> 8
}

#[inline]
fn packed(six: &[u8; 6]) -> u64 {
    let [a, b, c, d, e, f] = *six;
    u64::from_le_bytes([a, b, c, d, e, f, 0, 0])
}

/// Raises bytes to at least these registers.
pub(super) fn merge(registers: &[u8], into: &mut [u8; REGISTERS]) {
    let (groups, _) = registers.as_chunks::<6>();
    let (bytes, _) = into.as_chunks_mut::<8>();
    for (group, bytes) in groups.iter().zip(bytes) {
        let values = spread(packed(group)).to_le_bytes();
        for (byte, value) in bytes.iter_mut().zip(values) {
            *byte = (*byte).max(value);
        }
    }
}

/// Raises registers to at least these bytes.
pub(super) fn raise_all(registers: &mut [u8], to: &[u8; REGISTERS]) {
    let (groups, _) = registers.as_chunks_mut::<6>();
    let (bytes, _) = to.as_chunks::<8>();
    for (group, bytes) in groups.iter_mut().zip(bytes) {
        let mut values = spread(packed(group)).to_le_bytes();
        for (value, byte) in values.iter_mut().zip(bytes) {
            *value = (*value).max(*byte);
        }
        let [a, b, c, d, e, f, ..] = gather(u64::from_le_bytes(values)).to_le_bytes();
        *group = [a, b, c, d, e, f];
    }
}

/// Counts how many registers have each value.
pub(super) fn count_values(registers: &[u8], counts: &mut Histogram) {
    let (groups, _) = registers.as_chunks::<6>();
    for group in groups {
        counts.add_all(&spread(packed(group)).to_le_bytes());
    }
}

/// Returns one register; 0 beyond the end.
pub fn value_at(registers: &[u8], index: usize) -> u8 {
    let (byte, shift) = (index * 6 / 8, index * 6 % 8);
    let low = registers.get(byte).copied().unwrap_or(0);
    let high = registers.get(byte + 1).copied().unwrap_or(0);
    (u16::from_le_bytes([low, high]) >> shift) as u8 & 0x3f
}

/// Raises one register. Returns whether it was lower.
pub(super) fn raise(registers: &mut [u8], index: usize, value: u8) -> bool {
    if value_at(registers, index) >= value {
        return false;
    }
    set(registers, index, value);
    true
}

/// Sets one register to a value below 64; does nothing beyond the end.
pub fn set(registers: &mut [u8], index: usize, value: u8) {
    let (byte, shift) = (index * 6 / 8, index * 6 % 8);
    let (keep, value) = (!(0x3f_u16 << shift), u16::from(value & 0x3f) << shift);
    for (at, keep, value) in [
        (byte, keep as u8, value as u8),
        (byte + 1, (keep >> 8) as u8, (value >> 8) as u8),
    ] {
        if let Some(byte) = registers.get_mut(at) {
            *byte = *byte & keep | value;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_registers_are_spread_and_gathered() {
        let values = [1, 62, 63, 0, 33, 17, 63, 42];
        let mut registers = [0; 6];
        for (index, value) in values.iter().enumerate() {
            set(&mut registers, index, *value);
        }
        let word = packed(&registers);
        assert_eq!(spread(word).to_le_bytes(), values);
        assert_eq!(gather(spread(word)), word);
    }

    #[test]
    fn setting_a_register_leaves_its_neighbours_alone() {
        let mut registers = vec![0; BYTES];
        let value = |index: usize| (index * 7 % 64) as u8;
        for index in 0..REGISTERS {
            set(&mut registers, index, value(index));
        }
        for index in (0..REGISTERS).rev() {
            assert_eq!(value_at(&registers, index), value(index));
            set(&mut registers, index, 63);
            set(&mut registers, index, 0);
        }
        assert!(registers.iter().all(|byte| *byte == 0));
    }
}
