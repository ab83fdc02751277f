//! Tests of the SQLite store: the store contract, the handling of its files, several processes with
//! one file, and files of older versions.

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
mod ranges;
mod sealed;
mod settings;
#[cfg(target_os = "linux")]
mod space;
mod store_contract;
mod summaries;
mod vacuum;
