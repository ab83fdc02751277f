//! Measures an append that tells the directory what its run has used against one that does not, by
//! turns, in each durability. Prints medians in microseconds.
#![allow(clippy::unwrap_used, missing_docs, reason = "a measurement, not part of the crate")]

use std::{
    sync::Arc,
    time::{Instant, SystemTime},
};

use tower_chat_core::{
    ConversationKey, Message, MessageId, PersistenceMode, RunId, Usage,
    store::{HistoryStore, ModelUsage, Revision, RunActivity, UsageSum, author::Write},
};
use tower_chat_sqlite::{Durability, SqliteStore};

const ROUNDS: u32 = 4000;
/// How many service calls a run has.
const CALLS: u32 = 20;

fn messages() -> [Arc<Message>; 2] {
    [Message::user("q".repeat(400)).into(), Message::assistant("a".repeat(400)).into()]
}

fn activity() -> RunActivity {
    let sum = UsageSum::of_calls(1, 1).with_tokens(Usage::new(1200, 80)).with_cost_nanos(460_000);
    RunActivity::new(SystemTime::now())
        .with_mode(PersistenceMode::PerServiceCall)
        .with_usage([ModelUsage::new(Some("gpt-5-mini-2025-08-07".into()), sum)])
}

struct Conversation {
    key: ConversationKey,
    run: RunId,
    at: Revision,
    samples: Vec<f64>,
}

impl Conversation {
    fn new(id: &str) -> Self {
        let key = ConversationKey::new("measured", id);
        Self { key, run: RunId::new(), at: Revision::ABSENT, samples: Vec::new() }
    }

    async fn append(&mut self, store: &SqliteStore, round: u32, tells: bool) {
        if round.is_multiple_of(CALLS) {
            self.run = RunId::new();
        }
        let id = MessageId { run: self.run, index: round % CALLS * 2 };
        let start = Instant::now();
        let write = Write::new(self.key.clone(), id, self.at, messages());
        let write = match tells {
            true => write.with_activity(activity()),
            false => write.without_activity(),
        };
        let slot = store.reserve().await.unwrap();
        self.at = store.append(slot, vec![write]).await.unwrap();
        self.samples.push(start.elapsed().as_secs_f64() * 1e6);
    }

    fn median(&mut self) -> f64 {
        self.samples.sort_by(f64::total_cmp);
        self.samples.get(self.samples.len() / 2).copied().unwrap_or_default()
    }
}

#[tokio::main]
async fn main() {
    for (name, durability) in [("Full", Durability::Full), ("Normal", Durability::Normal)] {
        for others in [0, 2000] {
            let folder = tempfile::tempdir_in(std::env::current_dir().unwrap()).unwrap();
            let options = SqliteStore::options().with_durability(durability);
            let store = options.open(folder.path().join("cost.db")).await.unwrap();
            for number in 0..others {
                Conversation::new(&format!("other {number}")).append(&store, 0, true).await;
            }
            let (mut with, mut without) = (Conversation::new("with"), Conversation::new("without"));
            for round in 0..ROUNDS {
                with.append(&store, round, true).await;
                without.append(&store, round, false).await;
            }
            let (with, without) = (with.median(), without.median());
            println!(
                "{name}, {others} other conversations: {with:.1} us, without {without:.1} us, \
                 ratio {:.3}",
                with / without
            );
            store.close().await.unwrap();
        }
    }
}
