//! The durability of acknowledged writes.

/// The place where a write must be stored before it is acknowledged.
///
/// | | survives the end of the server's process | survives a power loss | survives the loss of the server |
/// |---|---|---|---|
/// | [`Server`](Self::Server), `appendonly no` | no | no | no |
/// | `Server`, `appendfsync everysec` | yes | except for the last one or two seconds | no |
/// | `Server`, `appendfsync always` | yes | yes | no |
/// | [`Replicas`](Self::Replicas) | as above | as above | if a replica with the write becomes the primary |
/// | [`Synced`](Self::Synced) | yes | yes | if a replica with the write becomes the primary |
///
/// Redis does not guarantee that a replica with all writes becomes the primary. A failover may
/// therefore lose acknowledged writes in every row of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum WriteConcern {
    /// The settings of the server decide (`appendonly`, `appendfsync`).
    #[default]
    Server,
    /// The write must also be in the memory of this many replicas (`WAIT`).
    Replicas(u32),
    /// The write must be on the disk of the server, and on those of this many replicas (`WAITAOF`). This
    /// concern requires Redis 7.2, or Valkey, with `appendonly yes`. With `appendfsync everysec` each
    /// write waits for up to a second. With `appendfsync no` the server does not sync in time, and every
    /// write fails.
    Synced {
        /// The number of replicas; 0 for the server alone.
        replicas: u32,
    },
}
