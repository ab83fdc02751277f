//! Runs a small version of every campaign, and every planted fault.

mod corruption;
mod deliveries;
mod histories;
mod power_cuts;
mod scale_out;
mod server_crashes;
mod soak;
mod transfers;
