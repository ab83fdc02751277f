//! Tests of the settings of a server.

use crate::common::{ask, options, raw, start};

#[tokio::test]
async fn the_settings_of_a_server_are_reported_although_a_store_refuses_the_server() {
    let server = start(&[
        "--maxmemory",
        "50mb",
        "--maxmemory-policy",
        "allkeys-lru",
        "--appendonly",
        "yes",
        "--appendfsync",
        "always",
        "--save",
        "3600 1",
    ]);
    let address = server.address(0);
    assert!(options().connect(&address).await.is_err());
    let settings = options().server_settings(&address).await.unwrap();
    assert_eq!(settings.max_memory, Some(50 * 1024 * 1024));
    assert_eq!(settings.eviction_policy.as_deref(), Some("allkeys-lru"));
    assert_eq!(settings.append_fsync.as_deref(), Some("always"));
    assert_eq!(settings.loads_truncated_file, Some(true), "the default of Redis");
    assert_eq!(settings.snapshots.as_deref(), Some("3600 1"));
    assert!(settings.is_append_only && settings.used_memory > 0);
    assert_eq!((settings.replicas, settings.evicted_keys), (0, 0));
    assert!(!settings.is_replica && !settings.is_in_cluster);
}

#[tokio::test]
async fn settings_that_a_user_has_no_permission_to_read_are_omitted() {
    let server = start(&["--save", "", "--aof-load-truncated", "no"]);
    let mut connection = raw(&server.address(0)).await;
    let user = "ACL SETUSER limited on >words ~* +@all -config";
    ask::<()>(&mut connection, &user.split_whitespace().collect::<Vec<_>>()).await.unwrap();
    let address = server.address(0).replace("//", "//limited:words@");
    let settings = options().server_settings(&address).await.unwrap();
    assert_eq!((settings.append_fsync, settings.snapshots), (None, None));
    assert_eq!(settings.loads_truncated_file, None);
    let all = options().server_settings(&server.address(0)).await.unwrap();
    assert_eq!((all.snapshots.as_deref(), all.loads_truncated_file), (Some(""), Some(false)));
}
