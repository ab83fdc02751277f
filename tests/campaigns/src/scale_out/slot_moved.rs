//! Slots of a Redis cluster (partitions of its keys) are moved to other servers during writes.

use tokio::task::block_in_place;
use tower_chat_core::ConversationKey;
use tower_chat_redis::RedisStore;
use tower_chat_testkit::server::RedisCluster;

use super::{Search, Totals, Writers, check, failed, is_in_first_slots, started};
use crate::{Failure, Figures};

/// The maximum number of moved slots: one less than a third of all slots. A server without slots
/// would become a replica.
const MAX_SLOTS: usize = 5_460;

pub(super) async fn run(search: Search, figures: &mut Figures) -> Result<(), Failure> {
    let slots = search.slots.min(MAX_SLOTS);
    let cluster = started(block_in_place(|| RedisCluster::start(3)))?;
    let addresses = cluster.addresses();
    let addresses: Vec<_> = addresses.iter().map(String::as_str).collect();
    let opened = RedisStore::options().connect_cluster(&addresses).await;
    let store = opened.map_err(|error| failed("open the store", error))?;
    // Only the conversations of the writers with even numbers are in moved slots.
    let key = |number: usize| {
        let mut keys = (0..).map(|id| ConversationKey::new("slots", format!("w{number}-{id}")));
        let is_moved = number.is_multiple_of(2);
        let key = keys.find(|key| is_in_first_slots(&cluster, key, slots) == is_moved);
        key.unwrap_or_else(|| ConversationKey::new("slots", format!("w{number}")))
    };
    let writers = Writers::start_with(search, key, |_| store.clone());
    writers.run_phase(search).await;
    let keys = |server| cluster.ask(server, "DBSIZE").parse::<u64>().unwrap_or_default();
    let mut moved = 0;
    for (from, to) in [(0, 1), (1, 0)] {
        let before = keys(from);
        block_in_place(|| cluster.move_slots(from, to, slots));
        moved += before.saturating_sub(keys(from));
        writers.run_phase(search).await;
    }
    if moved == 0 {
        return Err(Failure::cannot_run("no conversation was in a slot that was moved"));
    }
    let logs = writers.stop().await?;
    check(search, &store, &logs).await?;
    let totals = Totals::of(&logs);
    if totals.lost_writes > 0 || totals.conflicts > 0 {
        let (lost, conflicts) = (totals.lost_writes, totals.conflicts);
        return Err(search.found(format!("{lost} writes were lost, {conflicts} conflicts")));
    }
    totals.figures("slots moved", figures);
    figures.add("slots moved: slots", 2 * slots);
    figures.add("slots moved: keys", moved);
    Ok(())
}
