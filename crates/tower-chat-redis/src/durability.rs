//! When a write counts as stored.

/// Where a write must be before it is acknowledged.
///
/// | | survives the end of the server's process | loss of power | loss of the server |
/// |---|---|---|---|
/// | [`Server`](Self::Server), `appendonly no` | no | no | no |
/// | `Server`, `appendfsync everysec` | yes | but for the last second or two | no |
/// | `Server`, `appendfsync always` | yes | yes | no |
/// | [`Replicas`](Self::Replicas) | as above | as above | while a replica that has it takes over |
/// | [`Synced`](Self::Synced) | yes | yes | while a replica that has it takes over |
///
/// Redis does not promise that a replica that has everything is the one that takes over, so a
/// failover may lose what was acknowledged in every row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Durability {
    /// Where the server's own settings put it (`appendonly`, `appendfsync`).
    #[default]
    Server,
    /// Also in the memory of this many replicas (`WAIT`).
    Replicas(u32),
    /// On the disk of the server, and on those of this many replicas (`WAITAOF`). Needs Redis 7.2, or
    /// Valkey, with `appendonly yes`. With `appendfsync everysec` each write waits for up to a
    /// second; with `appendfsync no` nobody writes to the disk in time, and every write fails.
    Synced {
        /// How many replicas; 0 for the server alone.
        replicas: u32,
    },
}
