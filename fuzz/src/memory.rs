//! The memory that an execution takes at its peak, all threads together.

use peak_alloc::PeakAlloc;

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// The result, and the bytes that were allocated at the peak beyond those of before.
pub(crate) fn measured<T>(run: impl FnOnce() -> T) -> (T, usize) {
    ALLOCATOR.reset_peak_usage();
    let before = ALLOCATOR.current_usage();
    let result = run();
    (result, ALLOCATOR.peak_usage().saturating_sub(before))
}
