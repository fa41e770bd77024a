//! Prefetch hints for the processor. They change nothing and may be wrong.

#![expect(unsafe_code, reason = "prefetching is an intrinsic of the processor")]

/// Prefetches the cache line in which a value begins.
#[inline(always)]
pub fn line_of<T: ?Sized>(place: &T) {
    line_at(std::ptr::from_ref(place).cast());
}

/// Prefetches the line of an address for writing, so that no other core has it. Several lines are prefetched
/// concurrently, whereas a locked instruction waits for its line before the next one starts.
#[inline(always)]
pub fn line_to_write(address: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch accesses nothing that the program can see, whatever the address; 64-bit processors without
    // this instruction treat it as a NOP.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) address, options(nostack, readonly, preserves_flags));
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: as above; the instruction changes no register, flag or memory.
    unsafe {
        std::arch::asm!("prfm pstl1keep, [{}]", in(reg) address, options(nostack, readonly, preserves_flags));
    }
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    let _ = address;
}

/// Prefetches all lines of a value of a few hundred bytes.
#[inline]
pub fn whole<T>(place: &T) {
    let first = std::ptr::from_ref(place).cast::<u8>();
    for offset in (0..size_of::<T>()).step_by(64) {
        line_at(first.wrapping_add(offset));
    }
}

/// Prefetches the two lines at the end of some bytes, which a walk from the back reads first.
#[inline(always)]
pub fn end_of(bytes: &[u8]) {
    let end = bytes.as_ptr_range().end;
    line_at(end.wrapping_sub(1));
    line_at(end.wrapping_sub(65));
}

/// Prefetches the line of an address, which need not be valid.
#[inline(always)]
pub fn line_at(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch accesses nothing that the program can see, whatever the address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above; the instruction changes no register, flag or memory.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{}]", in(reg) address, options(nostack, readonly, preserves_flags));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = address;
}
