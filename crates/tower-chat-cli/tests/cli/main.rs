//! Tests the `tower-chat` command by running its executable.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that fails says where")]

mod backup;
mod chat;
mod completions;
mod directory;
mod doctor;
mod environment;
mod export;
#[cfg(unix)]
mod files;
mod import;
mod maintenance;
mod migrate;
mod open_runs;
mod prune;
mod refusals;
mod repair;
mod serve;
mod show;
mod stores;
mod support;
mod terminal;
mod tools;
mod transfer;
mod unwritable;
mod vacuum;
mod verify;
mod without_keys;
