//! Generated changes of a conversation with summaries, which replace its first messages for the
//! model.

use std::{env, sync::Arc};

use tower_chat_core::{
    ConversationKey, MemoryStore, Message, MessageId, RunId,
    store::{
        AddedSummary, Capability, HistoryStore, HistorySummary, Keep, Maintenance, Revision,
        Rewrite, Summaries, SummaryInForce, author::Write,
    },
};

use super::{Store, fixture::*};
use crate::Rng;

const SEED: u64 = 452;

/// The number of conversations, unless `TOWER_CHAT_CASES` is set.
const CASES: u64 = 4;

/// The number of changes of a conversation.
const STEPS: usize = 40;

/// In any order, writes, prunes (deletions of the oldest runs), rewrites of stored messages, and
/// additions and removals of summaries have the same outcomes, and leave the same summaries, as in
/// a [`MemoryStore`].
pub async fn generated_summaries_are_decided_as_in_memory(store: Store) {
    let cases = env::var("TOWER_CHAT_CASES").ok().and_then(|cases| cases.parse().ok());
    let has_maintenance = !lacks(&store, &[Capability::Maintenance]);
    for case in 0..cases.unwrap_or(CASES) {
        let reference: Store = Arc::new(MemoryStore::new());
        let mut rng = Rng::of(SEED, case);
        let key = key(&format!("generated {case}"));
        let mut known = Vec::new();
        for step in 0..STEPS {
            let change = Change::generate(&mut rng, &reference, &key, &known, has_maintenance);
            let change = change.await;
            let expected = change.make(&reference, &key).await;
            let found = change.make(&store, &key).await;
            assert_eq!(found, expected, "case {case}, step {step}: {change:?}");
            let expected = seen(&reference, &key).await;
            assert_eq!(seen(&store, &key).await, expected, "case {case}, step {step}: {change:?}");
            if let Change::Add(summary, _) = change {
                known.push(summary);
            }
        }
    }
}

type Seen = (Vec<HistorySummary>, Option<SummaryInForce>, u64, u64, Vec<String>);

/// Returns the summaries, the summary in force, the numbers of rewrites and of pruned messages, and
/// the texts of the messages.
async fn seen(store: &Store, key: &ConversationKey) -> Seen {
    let summaries = store.history_summaries(key).await.expect("the summaries are read");
    let head = store.head(key).await.expect("the head is read");
    (summaries, head.summary, head.rewrites, head.pruned, texts(store, key).await)
}

#[derive(Debug)]
enum Change {
    Write(RunId, Vec<String>),
    Add(HistorySummary, u64),
    Remove(u64),
    Prune(u64),
    Rewrite(u64),
}

#[derive(Debug, PartialEq)]
enum Outcome {
    Done,
    Added(AddedSummary),
    Removed(bool),
}

impl Change {
    async fn generate(
        rng: &mut Rng,
        reference: &Store,
        key: &ConversationKey,
        known: &[HistorySummary],
        has_maintenance: bool,
    ) -> Self {
        let head = reference.head(key).await.expect("the head is read");
        let last = head.revision.sequence;
        let any = |rng: &mut Rng| rng.below(last as usize + 2) as u64;
        match rng.below(10) {
            0..3 => {
                let texts = (0..1 + rng.below(3)).map(|_| format!("text {}", rng.next()));
                Self::Write(RunId::new(), texts.collect())
            }
            3..7 => {
                let rewrites = head.rewrites.saturating_sub(u64::from(rng.one_in(5)));
                if !known.is_empty() && rng.one_in(4) {
                    return Self::Add(known[rng.below(known.len())].clone(), rewrites);
                }
                let history = reference.load(key).await.expect("the history is loaded");
                let covers_to = any(rng);
                let foreign = MessageId { run: RunId::new(), index: 0 };
                let message = history.message(covers_to).and_then(|message| message.id);
                let message = message.filter(|_| !rng.one_in(8)).unwrap_or(foreign);
                let text = format!("up to {covers_to}");
                let summary = HistorySummary::new(covers_to, message, text);
                Self::Add(summary.with_time(at(covers_to)), rewrites)
            }
            7 => {
                let id = match known.len() {
                    0 => 1,
                    count => known[rng.below(count)].id,
                };
                let in_force = head.summary.filter(|_| rng.one_in(2));
                Self::Remove(in_force.map_or(id, |summary| summary.id))
            }
            8 if has_maintenance => Self::Prune(1 + any(rng)),
            9 if has_maintenance && last > head.pruned => {
                let messages = (last - head.pruned) as usize;
                Self::Rewrite(head.pruned + 1 + rng.below(messages) as u64)
            }
            _ => Self::Write(RunId::new(), vec!["one".to_owned()]),
        }
    }

    async fn make(&self, store: &Store, key: &ConversationKey) -> Outcome {
        let head = store.head(key).await.expect("the head is read");
        match self {
            Self::Write(run, texts) => {
                let id = MessageId { run: *run, index: 0 };
                let messages = texts.iter().map(|text| Message::user(text.as_str()).into());
                let at: Revision = head.revision;
                stored(store, Write::new(key.clone(), id, at, messages)).await;
            }
            Self::Add(summary, rewrites) => {
                let added = store.add_summary(key, summary, *rewrites).await;
                return Outcome::Added(added.expect("the addition has an outcome"));
            }
            Self::Remove(id) => {
                let removed = store.remove_summary(key, *id).await;
                return Outcome::Removed(removed.expect("the removal has an outcome"));
            }
            Self::Prune(keep) => {
                let pruned = store.prune(key, Keep::Messages(*keep)).await;
                pruned.expect("the conversation is pruned");
            }
            Self::Rewrite(sequence) => {
                let mut rewrite = Rewrite::new(key.clone(), head.revision);
                rewrite.messages.push((*sequence, Message::user(format!("rewritten {sequence}"))));
                store.rewrite(rewrite).await.expect("the message is rewritten");
            }
        }
        Outcome::Done
    }
}
