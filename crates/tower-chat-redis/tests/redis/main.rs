//! Tests of the store on a Redis server: the store contract, the update log, and failures of the
//! server and of connections.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic is a failing test")]

#[cfg(feature = "cluster")]
mod cluster;
mod common;
mod directory;
mod durability;
mod keys;
mod lost_connections;
mod maintenance;
mod metrics;
mod opening;
mod ranges;
mod restarts;
mod sealed;
mod server_settings;
mod several;
mod store_contract;
mod summaries;
#[cfg(feature = "tls")]
mod tls;
mod update_log;
