//! Campaigns: long searches for lost, doubled or damaged messages, with faults that no unit test makes.
//!
//! Each campaign is a module with its `Arguments`, which say how long it searches and with which seed,
//! and a function `run`, which gives [`Figures`] or the [`Failure`] that it found. Its argument
//! `--plant` puts a known fault into what is tested; a campaign that does not find it is broken. The
//! defaults are small enough for the tests in `tests/campaigns`, which run every campaign and every
//! planted fault. `docs/testing.md` has the commands of the long searches and their last figures.

mod conversations;
pub mod corruption;
mod failure;
mod figures;
pub mod histories;
pub mod power_cuts;
pub mod scale_out;
pub mod server_crashes;
mod shared_store;
pub mod soak;

pub use failure::Failure;
pub use figures::Figures;
