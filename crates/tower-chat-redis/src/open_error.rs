//! The errors of opening a store.

use tower_chat_core::{Classified, is_retryable};

/// A store could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The address cannot be parsed.
    #[error(
        "the address of the Redis server cannot be parsed: write it as \
         `redis://user:password@host:port/database`; `rediss://` needs the feature `tls`"
    )]
    Address {
        /// The error of the parser.
        source: Classified,
    },
    /// The server cannot be reached.
    #[error(
        "the Redis server cannot be reached: check that it runs, and that the address is correct"
    )]
    Connect {
        /// The cause.
        source: Classified,
    },
    /// The server refuses the user or the password, or the user does not have the required
    /// permissions.
    #[error(
        "the Redis server refused the connection: check the user, password, database and permissions"
    )]
    Refused {
        /// The server's error.
        source: Classified,
    },
    /// The version of the server is too old for a required feature.
    #[error(
        "the Redis server has version {version}, and {what} needs version {needed}: upgrade the server"
    )]
    TooOld {
        /// The server's version.
        version: String,
        /// The feature that needs a newer version.
        what: &'static str,
        /// The oldest sufficient version.
        needed: &'static str,
    },
    /// The server does not report its version.
    #[error("the server at the address does not report a version of Redis: check the address")]
    NoVersion,
    /// The server evicts keys when its memory is full.
    #[error(
        "the Redis server evicts keys when its memory is full (`maxmemory-policy {policy}`): set `noeviction`, or \
         allow eviction with the option `allow_eviction`"
    )]
    Evicts {
        /// The server's policy.
        policy: String,
    },
    /// The write concern requires that writes are on the disk, and the server has no append-only
    /// file.
    #[error(
        "the Redis server has no append-only file, which `WriteConcern::Synced` needs: set `appendonly yes`"
    )]
    NotAppendOnly,
    /// The server belongs to a cluster, and [`connect`](crate::RedisOptions::connect) does not
    /// support clusters.
    #[error(
        "the Redis server belongs to a cluster: connect with `connect_cluster`, which needs the \
         feature `cluster`"
    )]
    Cluster,
    /// The write concern requires replicas or disks, and the store does not support this in a
    /// cluster.
    #[error("a store in a cluster cannot wait for replicas or disks: use `WriteConcern::Server`")]
    DurabilityInCluster,
    /// The prefix contains a brace. Braces in the prefix would determine the slots of all keys in a
    /// cluster.
    #[error("the prefix `{prefix}` contains a brace: choose a prefix without braces")]
    InvalidPrefix {
        /// The prefix.
        prefix: String,
    },
    /// A setting is out of its range.
    #[error("the option `{option}` cannot be {value}: use a value from 1 to {largest}")]
    InvalidOption {
        /// The setting.
        option: &'static str,
        /// The value of the setting.
        value: u128,
        /// The largest value that the setting can have.
        largest: u128,
    },
}

impl OpenError {
    /// Returns whether a repeated attempt to open the store with the same options may succeed.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Address { source } | Self::Connect { source } | Self::Refused { source } => {
                is_retryable(source) == Some(true)
            }
            Self::TooOld { .. }
            | Self::NoVersion
            | Self::Evicts { .. }
            | Self::NotAppendOnly
            | Self::Cluster
            | Self::DurabilityInCluster
            | Self::InvalidPrefix { .. }
            | Self::InvalidOption { .. } => false,
        }
    }
}
