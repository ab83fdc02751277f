//! The guarantees of journaled mode: when messages are staged, which readers see them, how a run is
//! resumed from any point, and that two attempts of a run never mix.

mod approvals;
mod assembly;
mod booking_tools;
mod call_identity;
mod disconnects;
mod ending;
mod fencing;
mod foreign;
mod held_calls;
mod late_results;
mod leases;
mod limits;
mod mixed;
mod pending;
mod recording;
mod refusals;
mod resuming;
mod rounds;
mod sent_again;
mod shared_ids;
mod staging;
mod turns;
mod visibility;
