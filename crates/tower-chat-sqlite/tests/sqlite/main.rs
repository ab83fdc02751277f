//! Tests of the store in a file: the rules of stores, its files, several processes, and older
//! versions.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic is a failing test")]

mod backup;
mod checksums;
mod common;
mod contract;
mod deletion;
mod hostile;
mod migrations;
#[cfg(unix)]
mod moved;
mod older_files;
mod open;
mod processes;
mod sealed;
mod settings;
#[cfg(target_os = "linux")]
mod space;
mod store_contract;
mod vacuum;
