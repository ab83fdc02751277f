//! The durability of acknowledged writes.

/// The servers and disks on which a write must be stored before the store acknowledges it.
///
/// | | survives the end of the server's process | survives a power loss | survives the loss of the server |
/// |---|---|---|---|
/// | [`Server`](Self::Server), `appendonly no` | no | no | no |
/// | `Server`, `appendfsync everysec` | yes | except for the last one or two seconds | no |
/// | `Server`, `appendfsync always` | yes | yes | no |
/// | [`Replicas`](Self::Replicas) | as above | as above | if a replica with the write becomes the primary |
/// | [`Synced`](Self::Synced) | yes | yes | if a replica with the write becomes the primary |
///
/// After a failover, Redis does not guarantee that the new primary is a replica with all writes.
/// Therefore a failover may lose acknowledged writes in every row of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum WriteConcern {
    /// The settings of the server (`appendonly`, `appendfsync`) determine the durability.
    #[default]
    Server,
    /// The write must also be in the memory of the given number of replicas (`WAIT`).
    Replicas(u32),
    /// The write must be on the disk of the server, and on the disks of the given number of
    /// replicas (`WAITAOF`). This concern requires Redis 7.2 or Valkey, with `appendonly yes`. With
    /// `appendfsync everysec`, each write waits for up to a second. With `appendfsync no`, every
    /// write fails, because the server does not sync before the timeout.
    Synced {
        /// The number of replicas; 0 if only the server must confirm the write.
        replicas: u32,
    },
}
