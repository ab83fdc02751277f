//! The servers of the stores crash, and lose their power, while runs of all persistence modes write.
//!
//! A crash is `kill -9` of every process of the server. The system keeps what they wrote, so a crash by
//! itself shows what the server has not even written: it is no loss of power. For that, strace records
//! which bytes of the server's log were synced when it was killed, and before the server is started
//! again the files are put into a state that a disk may be in after a loss of power:
//!
//! - **Redis**: each append-only file ends where its last sync ended, or at random after that, up to what
//!   was written.
//! - **PostgreSQL**: of its tables nothing is left that was written since the last checkpoint, as if all
//!   of it had waited in memory; of the write-ahead log everything that was synced, and of what was
//!   written after that, sector by sector, what chance leaves.
//!
//! What the layers acknowledged must be there then, once and in order, and nothing that was never sent;
//! what was not acknowledged may be. With `appendfsync everysec` the end of each conversation may be
//! missing, as Redis says: how long before the cut it was acknowledged is measured. Redis says a second or
//! two, and ten are too many. A writer that knows more than the server must be refused.

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
    /// The server, and how it keeps its data
    #[arg(long, value_enum, default_value_t = StoreKind::RedisAlways)]
    pub store: StoreKind,
    /// How often it crashes
    #[arg(long, default_value_t = 4)]
    pub crashes: u64,
    /// On how many conversations at the same time
    #[arg(long, default_value_t = 12)]
    pub conversations: u32,
    /// Of what is left to chance
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// A fault that must be found
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
    /// It never syncs: `appendfsync no`, `fsync=off`. A loss of power shows it, a crash does not
    NoSyncs,
    /// It acknowledges what it has not written: `appendonly no`, `synchronous_commit=off`. A crash shows it
    NoWrites,
}

/// Runs the campaign.
///
/// # Errors
///
/// [`Failure::Found`], if a conversation is not what its model says; [`Failure::CannotRun`], if the
/// server or strace is missing.
pub fn run(arguments: Arguments) -> Result<Figures, Failure> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(|source| Failure::CannotRun {
        what: "to start a runtime".to_owned(),
        source: Some(source.into()),
    })?;
    let figures = runtime.block_on(Clients::crash(arguments));
    // Writes to a server that is gone are not waited for.
    runtime.shutdown_timeout(Duration::from_secs(1));
    figures
}
