//! Crashes and power losses of the servers of the stores, during runs in all persistence modes.
//!
//! A crash is `kill -9` of every process of the server. It loses only data that the server has not
//! yet written, because the operating system still has the written data.
//!
//! For a power loss, strace records which bytes of the server's log were synced before the kill.
//! Before the restart, the campaign changes the files to a state that a disk may have after a power
//! loss:
//!
//! - **Redis**: each append-only file is cut at the end of its last sync, or at a random later
//!   position.
//! - **PostgreSQL**: the tables have the state of the last checkpoint. The write-ahead log has all
//!   synced bytes, and a random choice of the sectors that were written later.
//!
//! Then everything that the layers acknowledged must be stored, once and in order. Messages that
//! were sent but not acknowledged may be stored. The server must refuse a write that expects a newer
//! revision than the server has.
//!
//! With `appendfsync everysec`, the last messages of each conversation may be missing. Redis
//! documents a loss of one or two seconds. The campaign fails if a lost message was acknowledged
//! more than ten seconds before the power loss.

mod clients;
mod cut;
mod servers;
mod strace;

use std::time::Duration;

use clap::ValueEnum;

use self::clients::Clients;
use crate::{Failure, Figures};

/// Crashes and power losses of the server of a store
#[derive(Debug, Clone, clap::Args)]
pub struct Arguments {
    /// The server, with its durability settings
    #[arg(long, value_enum, default_value_t = StoreKind::RedisAlways)]
    pub store: StoreKind,
    /// The number of crashes
    #[arg(long, default_value_t = 4)]
    pub crashes: u64,
    /// The number of conversations with concurrent runs
    #[arg(long, default_value_t = 12)]
    pub conversations: u32,
    /// The seed of all random choices
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// A planted fault, which must be found
    #[arg(long, value_enum)]
    pub plant: Option<Plant>,
}

/// A server and its settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum StoreKind {
    /// `appendfsync always`
    RedisAlways,
    /// `appendfsync everysec`
    RedisEverysec,
    /// `fsync` and `synchronous_commit` on
    Postgres,
}

/// A fault in the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Plant {
    /// The server never syncs: `appendfsync no`, `fsync=off`. Found by a power loss, not by a crash
    NoSyncs,
    /// The server acknowledges before it writes: `appendonly no`, `synchronous_commit=off`. Found
    /// by a crash
    NoWrites,
}

/// Runs the campaign.
///
/// # Errors
///
/// [`Failure::Found`] if a conversation differs from its model, [`Failure::CannotRun`] if the
/// server or strace is missing.
pub fn run(arguments: Arguments) -> Result<Figures, Failure> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(|source| Failure::CannotRun {
        what: "start a runtime".to_owned(),
        source: Some(source.into()),
    })?;
    let figures = runtime.block_on(Clients::crash(arguments));
    // Does not wait for writes to a stopped server.
    runtime.shutdown_timeout(Duration::from_secs(1));
    figures
}
