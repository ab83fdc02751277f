//! What journaled runs promise: what is staged when, who sees it, how a run is taken up again
//! wherever it stopped, and that two attempts at it never mix.

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
