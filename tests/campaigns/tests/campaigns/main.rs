//! Every campaign in small, and with each fault that can be planted.

mod corruption;
mod histories;
mod power_cuts;
mod scale_out;
mod server_crashes;
mod soak;
