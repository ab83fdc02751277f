//! Replicas of a Redis cluster take over, while writers append.

use std::time::Duration;

use tokio::task::block_in_place;
use tower_chat_core::ConversationKey;
use tower_chat_redis::RedisStore;
use tower_chat_testkit::server::{RedisCluster, RedisServer};

use super::{Search, Seen, Writers, check, failed, is_in_first_slots, stale::Stale, started};
use crate::{Failure, Figures};

/// How many servers have slots; each has a replica.
const PRIMARIES: usize = 3;

/// How many slots the first server has.
const SLOTS_OF_FIRST: usize = 5_461;

/// Writes that are acknowledged while the replica gets nothing.
const AHEAD: u64 = 60;

/// How a replica comes to take over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    /// It is asked to, and the primary waits until it has everything.
    Asked,
    /// The primary is killed, and comes back after the replica has taken over.
    Killed,
    /// The same, and the replica gets nothing for a while before.
    KilledCut,
    /// The primary does not run for a while, and then goes on where it stopped.
    Paused,
    /// The same with `min-replicas-to-write 1`.
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
        .with_patience(Duration::from_secs(60))
        .with_response_timeout(Duration::from_secs(5));
    let opened = options.connect_cluster(&addresses).await;
    let store = opened.map_err(|error| failed("the store is opened", error))?;
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
    writers.go_on(search).await;
    if event == Event::KilledCut {
        // Its replica is disconnected, and may not connect again.
        block_in_place(|| {
            cluster.ask(0, "ACL SETUSER default -psync -sync");
            cluster.ask(0, "CLIENT KILL TYPE replica");
        });
        stale.write_ahead(&store).await?;
        writers.progress(AHEAD).await;
    }
    block_in_place(|| take_over(&mut cluster, event));
    if event == Event::KilledCut {
        stale.go_on(search, &store).await?;
    }
    writers.go_on(search).await;
    let logs = writers.stop().await?;
    check(search, &store, &logs).await?;
    let seen = Seen::by(&logs);
    match event {
        Event::Asked if seen.lost_writes > 0 => {
            return Err(search.found(format!("{} writes were lost", seen.lost_writes)));
        }
        Event::KilledCut if seen.lost_writes == 0 => {
            return Err(search.found("no writer has learned of its loss".to_owned()));
        }
        _ => {}
    }
    seen.figures(&format!("cluster, {name}"), figures);
    block_in_place(|| cluster.until(|| !cluster.is_primary(0)));
    if cluster.is_primary(0) {
        return Err(search.found("the failed primary takes changes again".to_owned()));
    }
    Ok(())
}

/// Lets the replica of the first server take over.
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
            with_first(cluster, |first| first.go_on());
        }
    }
}

fn with_first(cluster: &mut RedisCluster, act: impl FnOnce(&mut RedisServer)) {
    if let Some(first) = cluster.servers().first_mut() {
        act(first);
    }
}
