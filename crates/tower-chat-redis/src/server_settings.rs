//! The settings of a server, for diagnostics.

use redis::{Client, Value, cmd};
use tower_chat_core::Classified;

use crate::{
    OpenError, RedisOptions, answer,
    connections::{Connections, Target},
    store::refused,
};

/// The settings of a server that affect a store.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerSettings {
    /// The version of Redis. A compatible server, such as Valkey, reports the version of Redis with
    /// which it is compatible.
    pub version: String,
    /// Whether the server belongs to a cluster.
    pub is_in_cluster: bool,
    /// Whether the server is a replica, which is read-only.
    pub is_replica: bool,
    /// The number of replicas of the server.
    pub replicas: u64,
    /// The number of bytes of memory in use.
    pub used_memory: u64,
    /// The maximum number of bytes of memory; `None` if there is no limit.
    pub max_memory: Option<u64>,
    /// The eviction policy when this limit is reached, such as `noeviction`; `None` if the server
    /// does not report it.
    pub eviction_policy: Option<String>,
    /// The number of keys that were evicted since the server was started.
    pub evicted_keys: u64,
    /// Whether the server has an append-only file.
    pub is_append_only: bool,
    /// The setting for syncs of the append-only file: `always`, `everysec` or `no`. `None` if the
    /// user may not read the setting.
    pub append_fsync: Option<String>,
    /// Whether the server starts if the end of its append-only file is missing
    /// (`aof-load-truncated`). The server ignores an incomplete transaction at the end of the file,
    /// but leaves it in the file and executes it at the next start. `None` if the user may not read
    /// the setting.
    pub loads_truncated_file: Option<bool>,
    /// The setting `save`, which determines when the server writes snapshots, such as
    /// `3600 1 300 100`; empty if the server writes no snapshots. `None` if the user may not read
    /// the setting.
    pub snapshots: Option<String>,
    /// Whether the last write to the append-only file succeeded.
    pub last_append_succeeded: bool,
    /// Whether the last snapshot succeeded.
    pub last_snapshot_succeeded: bool,
}

impl ServerSettings {
    /// Parses the reply to `INFO`.
    fn read(answer: &str) -> Result<Self, OpenError> {
        let find = |name: &str| {
            let line = answer.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.map(|value| value.trim().to_owned())
        };
        let is = |name: &str, value: &str| find(name).is_some_and(|found| found == value);
        let number = |name: &str| find(name).and_then(|value| value.parse().ok()).unwrap_or(0);
        Ok(Self {
            version: find("redis_version").ok_or(OpenError::NoVersion)?,
            is_in_cluster: is("cluster_enabled", "1"),
            is_replica: is("role", "slave"),
            replicas: number("connected_slaves"),
            used_memory: number("used_memory"),
            max_memory: Some(number("maxmemory")).filter(|limit| *limit > 0),
            eviction_policy: find("maxmemory_policy"),
            evicted_keys: number("evicted_keys"),
            is_append_only: is("aof_enabled", "1"),
            append_fsync: None,
            loads_truncated_file: None,
            snapshots: None,
            last_append_succeeded: !is("aof_last_write_status", "err"),
            last_snapshot_succeeded: !is("rdb_last_bgsave_status", "err"),
        })
    }
}

/// Queries the server at an address.
pub(crate) async fn ask(
    address: &str,
    options: &RedisOptions,
) -> Result<ServerSettings, OpenError> {
    #[cfg(feature = "tls")]
    crate::tls::prepare();
    let client = Client::open(address)
        .map_err(|error| OpenError::Address { source: Classified::permanent(error) })?;
    let connections = Connections::new(Target::Server(Box::new(client)), options);
    let info = connections.command(&cmd("INFO")).await.map_err(refused)?;
    let mut settings = ServerSettings::read(&answer::text(info).unwrap_or_default())?;
    settings.append_fsync = setting(&connections, "appendfsync").await;
    let truncated = setting(&connections, "aof-load-truncated").await;
    settings.loads_truncated_file = truncated.map(|value| value == "yes");
    settings.snapshots = setting(&connections, "save").await;
    Ok(settings)
}

/// Returns the value of a setting; `None` if the user may not read it. Many hosted servers do not
/// permit this.
async fn setting(connections: &Connections, name: &str) -> Option<String> {
    let mut command = cmd("CONFIG");
    command.arg("GET").arg(name);
    let values = match connections.command(&command).await.ok()? {
        // The reply is a map in RESP3, and a list in RESP2.
        Value::Map(pairs) => pairs.into_iter().map(|(_, value)| value).collect(),
        Value::Array(items) => items.into_iter().skip(1).collect::<Vec<_>>(),
        _ => return None,
    };
    values.into_iter().next().and_then(|value| answer::text(value).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_settings_of_a_server_are_parsed_from_its_answer() {
        let answer = "redis_version:7.2.4\r\nrole:slave\r\nconnected_slaves:2\r\nused_memory:900\r\n\
            maxmemory:1000\r\nmaxmemory_policy:allkeys-lru\r\nevicted_keys:3\r\naof_enabled:1\r\n\
            aof_last_write_status:err\r\nrdb_last_bgsave_status:err\r\ncluster_enabled:1\r\n";
        let read = ServerSettings::read(answer).unwrap();
        assert_eq!((read.version.as_str(), read.replicas, read.used_memory), ("7.2.4", 2, 900));
        assert_eq!((read.max_memory, read.evicted_keys), (Some(1000), 3));
        assert_eq!(read.eviction_policy.as_deref(), Some("allkeys-lru"));
        assert!(read.is_replica && read.is_in_cluster && read.is_append_only);
        assert!(!read.last_append_succeeded && !read.last_snapshot_succeeded);
        let plain = ServerSettings::read("redis_version:8.0\r\nmaxmemory:0\r\n").unwrap();
        assert_eq!((plain.max_memory, plain.is_append_only), (None, false));
        assert!(plain.last_append_succeeded && plain.last_snapshot_succeeded);
        assert!(matches!(ServerSettings::read("HTTP/1.1 400"), Err(OpenError::NoVersion)));
    }
}
