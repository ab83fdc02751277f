//! Tests the guarantees of journaled mode: when messages are staged and when readers see them, how
//! a run is resumed from any point, and that the messages of two attempts are never mixed.

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
