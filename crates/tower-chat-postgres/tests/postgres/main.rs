//! Tests of the store on a PostgreSQL server: the store contract, the update log, and failures of
//! the server and of connections.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic is a failing test")]

mod caches;
mod common;
mod directory;
mod lost_connections;
mod maintenance;
mod metrics;
mod migrations;
mod opening;
mod plain_appends;
mod pooled_transactions;
mod ranges;
mod read_only;
mod restarts;
mod sealed;
mod server_settings;
mod silence;
mod store_contract;
mod summaries;
mod tls;
mod update_log;
