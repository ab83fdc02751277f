//! Measures the memory that the parsing of external input needs; see [`tower_chat_benches::held`].

use peak_alloc::PeakAlloc;
use tower_chat::BoxError;
use tower_chat_benches::held::{self, Allocated};

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

struct Counted;

impl Allocated for Counted {
    fn now(&self) -> usize {
        ALLOCATOR.current_usage()
    }

    fn peak(&self) -> usize {
        ALLOCATOR.peak_usage()
    }

    fn reset(&self) {
        ALLOCATOR.reset_peak_usage();
    }
}

fn main() -> Result<(), BoxError> {
    held::measure(&Counted)
}
