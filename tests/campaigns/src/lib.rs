//! Campaigns: long searches for lost, duplicated or damaged messages, with faults that unit tests
//! do not produce.
//!
//! Each campaign is a module with a function `run` and its `Arguments`, which include the length
//! and the seed of the search. The function returns [`Figures`], or a [`Failure`] if the campaign
//! finds a fault or cannot run.
//!
//! The argument `--plant` adds a known fault to the code under test. A campaign that does not find
//! the fault is broken. The tests in `tests/campaigns` run every campaign and every planted fault,
//! with the short default lengths.
//!
//! `docs/testing.md` contains the commands of the long searches, and `tests/campaigns/README.md`
//! contains the figures of the last searches.

mod conversations;
pub mod corruption;
pub mod deliveries;
mod failure;
mod figures;
pub mod histories;
pub mod play;
mod playback;
pub mod power_cuts;
pub mod scale_out;
pub mod server_crashes;
mod shared_store;
pub mod soak;
pub mod transfers;

pub use failure::Failure;
pub use figures::Figures;
