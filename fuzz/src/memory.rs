//! The peak memory of an execution, over all threads.

use peak_alloc::PeakAlloc;

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// The result of a function, and the bytes that it allocated at its peak.
pub(crate) fn measured<T>(run: impl FnOnce() -> T) -> (T, usize) {
    ALLOCATOR.reset_peak_usage();
    let before = ALLOCATOR.current_usage();
    let result = run();
    (result, ALLOCATOR.peak_usage().saturating_sub(before))
}
