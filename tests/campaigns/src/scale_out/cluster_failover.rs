//! Failovers to replicas of a Redis cluster during writes.

use std::time::Duration;

use tokio::task::block_in_place;
use tower_chat_core::ConversationKey;
use tower_chat_redis::RedisStore;
use tower_chat_testkit::server::{RedisCluster, RedisServer};

use super::{Search, Totals, Writers, check, failed, is_in_first_slots, stale::Stale, started};
use crate::{Failure, Figures};

/// The number of servers with slots (Redis's partitions of the keys). Each has a replica.
const PRIMARIES: usize = 3;

/// The number of slots of the first server.
const SLOTS_OF_FIRST: usize = 5_461;

/// The number of writes that are acknowledged while the replica is disconnected.
const AHEAD: u64 = 60;

/// The reason for a failover.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    /// A command requests the failover. The primary waits until the replica has received all
    /// writes.
    Asked,
    /// The primary is killed, and restarts after the failover.
    Killed,
    /// As `Killed`, but the replica is disconnected during some writes before the kill.
    KilledCut,
    /// The primary is paused until the failover is complete, and then resumes.
    Paused,
    /// As `Paused`, with the setting `min-replicas-to-write 1`.
    PausedWithMinimum,
}

pub(super) async fn run(search: Search, figures: &mut Figures) -> Result<(), Failure> {
    for (event, name) in [
        (Event::Asked, "asked"),
        (Event::Killed, "killed"),
        (Event::KilledCut, "killed, cut"),
        (Event::Paused, "paused"),
        (Event::PausedWithMinimum, "paused, min-replicas-to-write 1"),
    ] {
        fail_over(search, event, name, figures).await?;
    }
    Ok(())
}

async fn fail_over(
    search: Search,
    event: Event,
    name: &str,
    figures: &mut Figures,
) -> Result<(), Failure> {
    let mut cluster = started(block_in_place(|| RedisCluster::start_with_replicas(PRIMARIES)))?;
    let addresses = cluster.addresses();
    let addresses: Vec<_> = addresses.iter().map(String::as_str).collect();
    let options = RedisStore::options()
        .with_retry_timeout(Duration::from_secs(60))
        .with_response_timeout(Duration::from_secs(5));
    let opened = options.connect_cluster(&addresses).await;
    let store = opened.map_err(|error| failed("open the store", error))?;
    let mut ids = (0..).map(|id| ConversationKey::new("stale", id.to_string()));
    let in_first = |key: &ConversationKey| is_in_first_slots(&cluster, key, SLOTS_OF_FIRST);
    let key = ids.find(in_first).unwrap_or_else(|| ConversationKey::new("stale", "none"));
    let mut stale = Stale::begin(&store, key).await?;
    if event == Event::PausedWithMinimum {
        block_in_place(|| {
            for setting in ["min-replicas-to-write 1", "min-replicas-max-lag 2"] {
                cluster.ask(0, &format!("CONFIG SET {setting}"));
            }
        });
    }
    let writers = Writers::start(search, &store);
    writers.run_phase(search).await;
    if event == Event::KilledCut {
        block_in_place(|| {
            cluster.ask(0, "ACL SETUSER default -psync -sync");
            cluster.ask(0, "CLIENT KILL TYPE replica");
        });
        stale.add_lost_writes(&store).await?;
        writers.progress(AHEAD).await;
    }
    block_in_place(|| take_over(&mut cluster, event));
    if event == Event::KilledCut {
        stale.assert_refused(search, &store).await?;
    }
    writers.run_phase(search).await;
    let logs = writers.stop().await?;
    check(search, &store, &logs).await?;
    let totals = Totals::of(&logs);
    match event {
        Event::Asked if totals.lost_writes > 0 => {
            return Err(search.found(format!("{} writes were lost", totals.lost_writes)));
        }
        Event::KilledCut if totals.lost_writes == 0 => {
            return Err(search.found("no writer got a conflict for its lost writes".to_owned()));
        }
        _ => {}
    }
    totals.figures(&format!("cluster, {name}"), figures);
    block_in_place(|| cluster.until(|| !cluster.is_primary(0)));
    if cluster.is_primary(0) {
        return Err(search.found("the failed primary is a primary again".to_owned()));
    }
    Ok(())
}

/// Causes the failover to the replica of the first server.
fn take_over(cluster: &mut RedisCluster, event: Event) {
    match event {
        Event::Asked => {
            cluster.ask(PRIMARIES, "CLUSTER FAILOVER");
            cluster.until(|| cluster.is_primary(PRIMARIES));
        }
        Event::Killed | Event::KilledCut => {
            with_first(cluster, RedisServer::crash);
            cluster.until(|| cluster.is_primary(PRIMARIES));
            with_first(cluster, RedisServer::start_again);
        }
        Event::Paused | Event::PausedWithMinimum => {
            with_first(cluster, |first| first.pause());
            cluster.until(|| cluster.is_primary(PRIMARIES));
            with_first(cluster, |first| first.resume());
        }
    }
}

fn with_first(cluster: &mut RedisCluster, act: impl FnOnce(&mut RedisServer)) {
    if let Some(first) = cluster.servers().first_mut() {
        act(first);
    }
}
