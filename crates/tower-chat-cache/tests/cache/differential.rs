//! Compares a cache that does not revalidate with its inner store, over random operations.

use std::sync::Arc;

use tower_chat_core::{
    ApprovalRequest, ConversationKey, Message, MessageId, Messages, Part, Role, RunId, ToolCall,
    ToolStatus,
    store::{
        Head, HistoryStore, HistorySummary, Maintenance, SequencePosition, ServiceIdChange,
        Summaries,
        author::{Close, LoadFrom, Ticket, ToolRecord, Write},
    },
};

use crate::common::{Cache, broken, cache, staged};

/// A seeded generator of random numbers.
struct Rng(u64);

impl Rng {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

fn keys() -> [ConversationKey; 2] {
    ["a", "b"].map(|id| ConversationKey::new("alice", id))
}

/// Returns a message with a call that waits for approval, or a user message.
fn message(rng: &mut Rng) -> Arc<Message> {
    let number = rng.below(1_000_000).to_string();
    Arc::new(match rng.below(3) {
        0 => {
            let call = ToolCall::new(number.as_str(), "pay", "{}");
            let part = Part::ApprovalRequest(ApprovalRequest::new(number, call, true));
            Message::new(Role::Assistant, vec![part])
        }
        _ => Message::user(number),
    })
}

fn row(rng: &mut Rng, last: u64) -> ToolRecord {
    let position = SequencePosition { sequence: 1 + rng.below(last + 1), index: 0 };
    let mut row = ToolRecord::pending(position, 0, "id", "pay");
    if rng.below(2) == 0 {
        row.status = ToolStatus::PendingApproval;
    }
    row
}

fn service_id(rng: &mut Rng) -> Option<ServiceIdChange> {
    match rng.below(6) {
        0 => Some(ServiceIdChange::Set(format!("id {}", rng.below(100)).into())),
        1 => Some(ServiceIdChange::Clear),
        _ => None,
    }
}

fn load_from(rng: &mut Rng, last: u64) -> Option<Arc<LoadFrom>> {
    let after = rng.below(last + 1);
    let from = LoadFrom { leading: rng.below(after.min(2) + 1), after, applies_to: String::new() };
    (rng.below(2) == 0).then(|| Arc::new(from))
}

/// Returns a write that a conversation with this head accepts, or sometimes a write that it
/// refuses.
fn write(rng: &mut Rng, key: &ConversationKey, head: &Head) -> Write {
    let mut expected = head.revision;
    if rng.below(12) == 0 {
        expected.sequence += 1;
    }
    let open = head.open_run.as_ref();
    let run = match open {
        Some(open) if rng.below(12) > 0 => open.run,
        _ => RunId::new(),
    };
    let index = u32::try_from(head.revision.sequence).unwrap() * 10;
    let messages: Vec<_> = (0..rng.below(3)).map(|_| message(rng)).collect();
    let last = expected.sequence + messages.len() as u64;
    let rows = (0..rng.below(3)).map(|_| row(rng, last)).collect();
    let write = Write::new(key.clone(), MessageId { run, index }, expected, messages)
        .with_tools(rows)
        .with_load_from(load_from(rng, last));
    if open.is_none() && rng.below(2) == 0 {
        return match service_id(rng) {
            Some(change) => write.with_service_id(change),
            None => write,
        };
    }
    let visible = open.map_or(0, |open| open.visible);
    let close = match rng.below(4) {
        0 => Some(Close::Commit),
        1 => Some(Close::Discard { visible }),
        _ => None,
    };
    let attempt = open.map_or(1, |open| open.lease.attempt) + u32::from(rng.below(8) == 0);
    let mut staged = staged(attempt, close);
    staged.service_id = service_id(rng);
    write.staged(staged)
}

/// Compares a part that the cache returns with the end of the whole history.
async fn compare_part(store: &Cache, key: &ConversationKey, seed: u64) -> bool {
    let stored = store.inner().inner();
    let whole = stored.load(key).await.unwrap();
    let Some(from) = &whole.head.load_from else { return false };
    let part = store.load_from(key, from).await.unwrap();
    assert_eq!(part.head.load_from, whole.head.load_from, "seed {seed}");
    let rest = whole.numbered().filter(|(sequence, _)| *sequence > part.skipped());
    assert_eq!(part.numbered().collect::<Vec<_>>(), rest.collect::<Vec<_>>(), "seed {seed}");
    if !part.is_whole() {
        assert!(part.skipped() <= from.after, "seed {seed}");
        let leading = whole.numbered().filter(|(sequence, _)| *sequence <= from.leading);
        let leading: Messages = leading.map(|(_, message)| message.clone()).collect();
        assert_eq!(part.leading, leading, "seed {seed}");
    }
    !part.is_whole()
}

/// Compares the cache with the inner store for one conversation.
async fn compare(store: &Cache, key: &ConversationKey, seed: u64) {
    let stored = store.inner().inner();
    let expected = stored.head(key).await.unwrap();
    let loaded = store.load(key).await.unwrap();
    let whole = stored.load(key).await.unwrap();
    assert_eq!(loaded.messages, whole.messages, "seed {seed}");
    assert!(loaded.well_formed_messages() <= whole.well_formed_messages(), "seed {seed}");
    let head = loaded.head.with_pending_approvals(expected.pending_approvals.clone());
    assert_eq!(head, expected, "seed {seed}");
    assert_eq!(store.head(key).await.unwrap(), expected, "seed {seed}");
    if let Some(summary) = expected.summary {
        let found = store.history_summary(key, summary.id).await.unwrap();
        assert_eq!(found, stored.history_summary(key, summary.id).await.unwrap(), "seed {seed}");
        assert!(found.is_some(), "seed {seed}");
    }
}

async fn step(store: &Cache, rng: &mut Rng, tickets: &mut Vec<Ticket>) {
    let [key, other] = keys();
    let (key, other) = if rng.below(4) == 0 { (other, key) } else { (key, other) };
    match rng.below(24) {
        0 => drop(store.delete(&key).await.unwrap()),
        1 => drop(store.fork_at(&key, None, &other).await),
        2 => tickets.clear(),
        3 => {
            for ticket in tickets.drain(..) {
                let _ = ticket.await;
            }
        }
        4 => drop(store.load(&key).await.unwrap()),
        5 => drop(store.head(&key).await.unwrap()),
        6 => store.inner().fail_next_append(broken()),
        7 => store.inner().fail_next_append_after_storing(broken()),
        8..11 => {
            let stored = store.inner().inner();
            let history = stored.load(&key).await.unwrap();
            let covers_to = rng.below(6);
            let Some(id) = history.message(covers_to).and_then(|message| message.id) else {
                return;
            };
            let summary = HistorySummary::new(covers_to, id, "short");
            store.add_summary(&key, &summary, history.head.rewrites).await.unwrap();
        }
        11 => {
            let in_force = store.inner().inner().head(&key).await.unwrap().summary;
            if let Some(summary) = in_force {
                assert!(store.remove_summary(&key, summary.id).await.unwrap());
            }
        }
        _ => {
            let holds = rng.below(4) == 0;
            let mut head = store.inner().inner().head(&key).await.unwrap();
            let mut writes = Vec::new();
            for _ in 0..=rng.below(2) {
                let next = write(rng, &key, &head);
                head.revision = next.result();
                head.open_run = None;
                writes.push(next);
            }
            if holds {
                store.inner().hold_appends();
            }
            let ticket = store.append(store.reserve().await.unwrap(), writes);
            store.inner().release_appends();
            match rng.below(3) {
                0 => drop(ticket),
                1 => tickets.push(ticket),
                _ => drop(ticket.await),
            }
        }
    }
}

#[tokio::test]
async fn a_cache_returns_the_same_data_as_its_inner_store() {
    let (mut hits, mut parts) = (0, 0);
    for seed in 0..300 {
        let (store, mut rng, mut tickets) = (cache(), Rng(seed), Vec::new());
        for _ in 0..60 {
            step(&store, &mut rng, &mut tickets).await;
            let compares = rng.below(2) == 0;
            for key in keys().iter().filter(|_| compares) {
                match rng.below(2) {
                    0 => compare(&store, key, seed).await,
                    _ => parts += usize::from(compare_part(&store, key, seed).await),
                }
            }
        }
        hits += store.statistics().hits;
    }
    assert!(hits > 5_000, "too few hits of the cache: {hits}");
    assert!(parts > 500, "too few parts: {parts}");
}
