//! The reply of the server to `INFO`.

use crate::{OpenError, RedisOptions, WriteConcern};

/// The oldest supported version: the scripts have flags, which Redis 7.0 introduced.
const OLDEST: (u32, u32) = (7, 0);
/// The oldest version with the command `WAITAOF`, which waits for disks.
const OLDEST_THAT_SYNCS: (u32, u32) = (7, 2);

/// The relevant fields of the reply to `INFO`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ServerInfo {
    version: String,
    policy: Option<String>,
    has_memory_limit: bool,
    is_append_only: bool,
    is_in_cluster: bool,
}

impl ServerInfo {
    pub(crate) fn read(answer: &str) -> Result<Self, OpenError> {
        let find = |name: &str| {
            let line = answer.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.map(|value| value.trim().to_owned())
        };
        Ok(Self {
            // In this field, Valkey reports the version of Redis with which it is compatible.
            version: find("redis_version").ok_or(OpenError::NoVersion)?,
            policy: find("maxmemory_policy"),
            has_memory_limit: find("maxmemory").is_some_and(|limit| limit != "0"),
            is_append_only: find("aof_enabled").is_some_and(|enabled| enabled == "1"),
            is_in_cluster: find("cluster_enabled").is_some_and(|enabled| enabled == "1"),
        })
    }

    /// Returns an error if the server does not meet the requirements of the options.
    pub(crate) fn check(&self, options: &RedisOptions, in_cluster: bool) -> Result<(), OpenError> {
        self.is_at_least(OLDEST, "7.0", "a history store")?;
        if self.is_in_cluster && !in_cluster {
            return Err(OpenError::Cluster);
        }
        if let Some(policy) = &self.policy
            && self.has_memory_limit
            && policy != "noeviction"
            && !options.allow_eviction
        {
            return Err(OpenError::Evicts { policy: policy.clone() });
        }
        match options.write_concern {
            WriteConcern::Server | WriteConcern::Replicas(_) => Ok(()),
            WriteConcern::Synced { .. } => {
                self.is_at_least(OLDEST_THAT_SYNCS, "7.2", "waiting for disks")?;
                if self.is_append_only { Ok(()) } else { Err(OpenError::NotAppendOnly) }
            }
        }
    }

    fn is_at_least(
        &self,
        oldest: (u32, u32),
        needed: &'static str,
        what: &'static str,
    ) -> Result<(), OpenError> {
        let mut parts = self.version.split('.').map(|part| part.parse().unwrap_or(0));
        let version = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
        if version >= oldest {
            return Ok(());
        }
        Err(OpenError::TooOld { version: self.version.clone(), what, needed })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REDIS: &str = "# Server\r\nredis_version:7.0.15\r\nredis_mode:standalone\r\n# Memory\r\n\
        maxmemory:0\r\nmaxmemory_policy:noeviction\r\n# Persistence\r\naof_enabled:1\r\n\
        # Cluster\r\ncluster_enabled:0\r\n";

    fn check(answer: &str, options: &RedisOptions) -> Result<(), OpenError> {
        ServerInfo::read(answer)?.check(options, false)
    }

    #[test]
    fn a_server_older_than_version_7_0_is_refused() {
        let options = RedisOptions::new();
        for version in ["7.0.0", "7.4.2", "8.0", "10.1.3"] {
            check(&REDIS.replace("7.0.15", version), &options).unwrap();
        }
        for version in ["6.2.14", "2.8", "x"] {
            let error = check(&REDIS.replace("7.0.15", version), &options).unwrap_err();
            assert!(matches!(error, OpenError::TooOld { needed: "7.0", .. }), "{version}");
        }
        assert!(matches!(check("HTTP/1.1 400", &options), Err(OpenError::NoVersion)));
    }

    #[test]
    fn synced_writes_need_a_server_of_version_7_2_with_an_append_only_file() {
        let options = RedisOptions::new().with_write_concern(WriteConcern::Synced { replicas: 0 });
        let error = check(REDIS, &options).unwrap_err();
        assert!(matches!(error, OpenError::TooOld { needed: "7.2", .. }), "{error:?}");
        let newer = REDIS.replace("7.0.15", "7.2.4");
        check(&newer, &options).unwrap();
        let error = check(&newer.replace("aof_enabled:1", "aof_enabled:0"), &options);
        assert!(matches!(error, Err(OpenError::NotAppendOnly)));
    }

    #[test]
    fn a_server_that_may_evict_keys_is_refused_unless_eviction_is_allowed() {
        let policy = REDIS.replace("policy:noeviction", "policy:allkeys-lru");
        check(&policy, &RedisOptions::new()).unwrap();
        let evicts = policy.replace("maxmemory:0", "maxmemory:1000000");
        let error = check(&evicts, &RedisOptions::new()).unwrap_err();
        assert!(matches!(error, OpenError::Evicts { .. }), "{error:?}");
        check(&evicts, &RedisOptions::new().allow_eviction()).unwrap();
        check(&REDIS.replace("maxmemory:0", "maxmemory:1"), &RedisOptions::new()).unwrap();
    }

    #[test]
    fn a_server_of_a_cluster_is_refused_as_a_single_server() {
        let cluster = REDIS.replace("cluster_enabled:0", "cluster_enabled:1");
        let error = check(&cluster, &RedisOptions::new()).unwrap_err();
        assert!(matches!(error, OpenError::Cluster), "{error:?}");
    }
}
