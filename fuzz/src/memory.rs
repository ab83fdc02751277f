//! Measures the peak memory of an execution, over all threads.

use peak_alloc::PeakAlloc;

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// Returns the result of a function, and its peak memory: the maximum of the allocated bytes during
/// the execution, minus the bytes that were allocated before.
pub(crate) fn measured<T>(run: impl FnOnce() -> T) -> (T, usize) {
    ALLOCATOR.reset_peak_usage();
    let before = ALLOCATOR.current_usage();
    let result = run();
    (result, ALLOCATOR.peak_usage().saturating_sub(before))
}
