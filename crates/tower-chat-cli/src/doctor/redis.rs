//! Checks a Redis server.

use tower_chat_redis::ServerSettings;

use super::findings::{Findings, Level};

pub(super) fn check(settings: &ServerSettings, findings: &mut Findings) {
    let cluster = if settings.is_in_cluster { ", in a cluster" } else { "" };
    findings.ok("server", format!("Redis {}{cluster}", settings.version));
    check_memory(settings, findings);
    check_files(settings, findings);
    findings.expect(
        !settings.is_replica,
        Level::Problem,
        "writes",
        if settings.is_replica { "the server is a replica" } else { "the server accepts writes" },
        "give the address of the primary server",
    );
    findings.ok("replicas", settings.replicas.to_string());
}

fn check_memory(settings: &ServerSettings, findings: &mut Findings) {
    let policy = settings.eviction_policy.as_deref().unwrap_or("noeviction");
    let evicts = policy != "noeviction";
    let advice = "set maxmemory-policy noeviction: otherwise conversations lose messages";
    match (evicts, settings.max_memory) {
        (true, Some(_)) => findings.problem("maxmemory-policy", policy, advice),
        (true, None) => findings.warning("maxmemory-policy", policy, advice),
        (false, _) => findings.ok("maxmemory-policy", policy),
    }
    findings.expect(
        settings.evicted_keys == 0,
        Level::Problem,
        "evicted keys",
        settings.evicted_keys.to_string(),
        "look for damaged conversations, and set maxmemory-policy noeviction",
    );
    let used = settings.used_memory;
    match settings.max_memory {
        None => findings.ok("memory", format!("{used} bytes are used, and there is no limit")),
        Some(limit) => findings.expect(
            used <= limit / 10 * 9,
            Level::Warning,
            "memory",
            format!("{used} of {limit} bytes are used"),
            "raise maxmemory, or prune conversations: a full server refuses writes",
        ),
    }
}

fn check_files(settings: &ServerSettings, findings: &mut Findings) {
    let has_snapshots = settings.snapshots.as_deref().is_none_or(|save| !save.is_empty());
    findings.expect(
        settings.is_append_only,
        if has_snapshots { Level::Warning } else { Level::Problem },
        "appendonly",
        if settings.is_append_only { "yes" } else { "no" },
        "set appendonly yes: without it a crash loses all writes since the last snapshot",
    );
    if settings.is_append_only {
        let fsync = settings.append_fsync.as_deref().unwrap_or("unknown");
        findings.expect(
            fsync != "no",
            Level::Warning,
            "appendfsync",
            fsync,
            "set appendfsync to everysec or always: otherwise a power loss loses many writes",
        );
        let truncated = settings.loads_truncated_file;
        findings.expect(
            truncated != Some(true),
            Level::Warning,
            "aof-load-truncated",
            truncated.map_or("unknown", |is_loaded| if is_loaded { "yes" } else { "no" }),
            "set aof-load-truncated no: otherwise half of a write may be stored after a power loss",
        );
    }
    let save = settings.snapshots.as_deref();
    findings
        .ok("save", save.map_or("unknown", |save| if save.is_empty() { "never" } else { save }));
    findings.expect(
        settings.last_append_succeeded && settings.last_snapshot_succeeded,
        Level::Problem,
        "last write to disk",
        match (settings.last_append_succeeded, settings.last_snapshot_succeeded) {
            (true, true) => "well",
            (false, _) => "the append-only file could not be written",
            (true, false) => "the last snapshot failed",
        },
        "free some space on the disk of the server, and read its log",
    );
}
