//! Crashes and power losses of the servers of the stores, while runs in all persistence modes write.
//!
//! A crash is `kill -9` of every process of the server. The operating system keeps what they have written,
//! so a crash loses only what the server has not written yet. To simulate a power loss, strace records
//! which bytes of the server's log were synced when it was killed. Before the server restarts, the campaign
//! puts the files into a state that a disk may have after a power loss:
//!
//! - **Redis**: each append-only file is cut at the end of its last sync, or at a random position between
//!   that and the end of what was written.
//! - **PostgreSQL**: the tables have their state of the last checkpoint. The write-ahead log has everything
//!   that was synced, and each sector that was written after that at random.
//!
//! Everything that the layers acknowledged must then be stored, once and in order, and nothing that was
//! never sent; unacknowledged messages may be stored. With `appendfsync everysec` the end of each
//! conversation may be missing. The campaign measures how long before the cut it was acknowledged: Redis
//! documents a second or two, and ten are an error. A writer with a newer revision than the server must be
//! refused.

mod clients;
mod cut;
mod servers;
mod strace;

use std::time::Duration;

use clap::ValueEnum;

use self::clients::Clients;
use crate::{Failure, Figures};

/// Crashes and losses of power of the server of a store
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
    /// It never syncs: `appendfsync no`, `fsync=off`. Found by a power loss, not by a crash
    NoSyncs,
    /// It acknowledges before it writes: `appendonly no`, `synchronous_commit=off`. Found by a crash
    NoWrites,
}

/// Runs the campaign.
///
/// # Errors
///
/// [`Failure::Found`], if a conversation differs from its model; [`Failure::CannotRun`], if the server or
/// strace is missing.
pub fn run(arguments: Arguments) -> Result<Figures, Failure> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(|source| Failure::CannotRun {
        what: "start a runtime".to_owned(),
        source: Some(source.into()),
    })?;
    let figures = runtime.block_on(Clients::crash(arguments));
    // Do not wait for writes to a server that has stopped.
    runtime.shutdown_timeout(Duration::from_secs(1));
    figures
}
