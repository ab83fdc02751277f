//! Tests of the problems of summaries. The model receives the last summary, which is in force,
//! instead of the messages that it covers.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use tower_chat_core::{
    ApprovalRequest, ConversationKey, MemoryStore, Message, MessageId, Part, Role, RunId, ToolCall,
    store::{
        AddedSummary, Directory, Head, HistoryStore, HistorySummary, Journal, Keep, Maintenance,
        StoreError, Summaries, SummaryInForce, author,
    },
};
use tower_chat_repair::{Repair, Target, plan_repair, repair, verify};

use crate::key;

/// A store with any rows of summaries, also with rows that no operation of a store creates.
#[derive(Clone)]
struct AnySummaries {
    inner: MemoryStore,
    rows: Arc<Mutex<Rows>>,
}

#[derive(Default)]
struct Rows {
    summaries: Vec<HistorySummary>,
    /// The summary that the head names.
    in_force: Option<SummaryInForce>,
    /// The ids of the rows that cannot be read.
    unreadable: Vec<u64>,
}

fn corrupt() -> StoreError {
    StoreError::Corrupt { reason: "the row is damaged".to_owned() }
}

#[async_trait]
impl author::StoreWrapper for AnySummaries {
    type Inner = MemoryStore;

    fn inner(&self) -> &MemoryStore {
        &self.inner
    }

    async fn head(&self, key: &ConversationKey) -> Result<Head, StoreError> {
        let in_force = self.rows.lock().unwrap().in_force;
        Ok(self.inner.head(key).await?.with_summary(in_force))
    }

    fn journal(&self) -> Option<&dyn Journal> {
        self.inner.journal()
    }

    fn directory(&self) -> Option<&dyn Directory> {
        self.inner.directory()
    }

    fn maintenance(&self) -> Option<&dyn Maintenance> {
        self.inner.maintenance()
    }

    fn summaries(&self) -> Option<&dyn Summaries> {
        Some(self)
    }
}

#[async_trait]
impl Summaries for AnySummaries {
    async fn history_summaries(
        &self,
        _: &ConversationKey,
    ) -> Result<Vec<HistorySummary>, StoreError> {
        let rows = self.rows.lock().unwrap();
        let is_unreadable = rows.summaries.iter().any(|it| rows.unreadable.contains(&it.id));
        if is_unreadable { Err(corrupt()) } else { Ok(rows.summaries.clone()) }
    }

    async fn history_summary(
        &self,
        _: &ConversationKey,
        id: u64,
    ) -> Result<Option<HistorySummary>, StoreError> {
        let rows = self.rows.lock().unwrap();
        if rows.unreadable.contains(&id) {
            return Err(corrupt());
        }
        Ok(rows.summaries.iter().find(|it| it.id == id).cloned())
    }

    async fn add_summary(
        &self,
        _: &ConversationKey,
        _: &HistorySummary,
        _: u64,
    ) -> Result<AddedSummary, StoreError> {
        panic!("a repair adds no summary")
    }

    async fn remove_summary(&self, _: &ConversationKey, id: u64) -> Result<bool, StoreError> {
        let mut rows = self.rows.lock().unwrap();
        let is_in_force = rows.in_force.is_some_and(|it| it.id == id);
        if is_in_force {
            rows.summaries.retain(|it| it.id != id);
            rows.in_force = rows.summaries.last().map(HistorySummary::in_force);
        }
        Ok(is_in_force)
    }
}

/// Creates a conversation of three turns: the messages 1 and 2, 3 to 5, and 6 and 7. Message 2 is
/// an answer, or the given message.
async fn conversation(second: Option<Message>) -> MemoryStore {
    let store = MemoryStore::new();
    let answer = second.unwrap_or_else(|| Message::assistant("Yes."));
    let turns = [
        vec![Message::user("A coat?"), answer],
        vec![
            Message::user("A hat?"),
            Message::tool_calls([ToolCall::new("c1", "look", "{}")]),
            Message::tool_results([tower_chat_core::ToolResult::new("c1", "Rain.")]),
        ],
        vec![Message::user("Gloves?"), Message::assistant("No.")],
    ];
    for messages in turns {
        let expected = store.head(&key()).await.unwrap().revision;
        let id = MessageId { run: RunId::new(), index: 0 };
        let messages: Vec<_> = messages.into_iter().map(Into::into).collect();
        let write = author::Write::new(key(), id, expected, messages);
        store.append(store.reserve().await.unwrap(), vec![write]).await.unwrap();
    }
    store
}

/// Returns a summary up to a message, and the same summary for a message of another run.
async fn summary(store: &MemoryStore, covers_to: u64) -> HistorySummary {
    let history = store.load(&key()).await.unwrap();
    let last = history.message(covers_to).and_then(|message| message.id);
    let last = last.unwrap_or(MessageId { run: RunId::new(), index: 0 });
    HistorySummary::new(covers_to, last, format!("up to {covers_to}"))
}

/// Returns the texts of the findings of a check, the findings of a planned repair and of a repair,
/// and the ends of the summaries that remain. Checks that no message has changed.
async fn outcome(store: &AnySummaries) -> (Vec<String>, Vec<String>, Vec<u64>) {
    let target = Target::new(store.clone());
    let before = store.inner.load(&key()).await.unwrap();
    let mut found = Vec::new();
    verify(&target, &mut |finding| found.push(finding.to_string())).await.unwrap();
    let line = |repair| match repair {
        Repair::Done(finding) => format!("done: {finding}"),
        Repair::Left(finding) => format!("left: {finding}"),
        other => panic!("{other:?}"),
    };
    let (mut planned, mut done) = (Vec::new(), Vec::new());
    plan_repair(&target, &mut |change| planned.push(line(change))).await.unwrap();
    repair(&target, &mut |change| done.push(line(change))).await.unwrap();
    assert_eq!(done, planned);
    let after = store.inner.load(&key()).await.unwrap();
    assert_eq!((after.messages, after.head.revision), (before.messages, before.head.revision));
    let left = store.rows.lock().unwrap().summaries.iter().map(|it| it.covers_to).collect();
    (found, done, left)
}

fn any(inner: MemoryStore, summaries: Vec<HistorySummary>) -> AnySummaries {
    let in_force = summaries.last().map(HistorySummary::in_force);
    let rows = Rows { summaries, in_force, unreadable: Vec::new() };
    AnySummaries { inner, rows: Arc::new(Mutex::new(rows)) }
}

#[tokio::test]
async fn summaries_of_whole_turns_have_no_problems() {
    let inner = conversation(None).await;
    let summaries = vec![summary(&inner, 2).await, summary(&inner, 5).await];
    let (found, done, left) = outcome(&any(inner.clone(), summaries)).await;
    assert_eq!((found, done, left), (vec![], vec![], vec![2, 5]));
    let (found, ..) = outcome(&any(inner.clone(), vec![summary(&inner, 7).await])).await;
    assert_eq!(found, [""; 0]);
}

/// Every message is stored, so the repair removes the summary in force.
#[tokio::test]
async fn a_summary_that_does_not_match_its_messages_is_removed() {
    let request = ApprovalRequest::new("r", ToolCall::new("c", "pay", "{}"), true);
    let waits = Message::new(Role::Assistant, vec![Part::ApprovalRequest(request)]);
    for (second, covers_to, of_other_message, what) in [
        (None, 2, true, "was made for another message with this number"),
        (None, 4, false, "ends inside a turn"),
        (Some(waits), 5, false, "covers a call that waits for its result or for approval"),
    ] {
        let inner = conversation(second).await;
        let mut wrong = summary(&inner, covers_to).await;
        if of_other_message {
            wrong.last.run = RunId::new();
        }
        let (found, done, left) = outcome(&any(inner, vec![wrong])).await;
        let what = format!("conversation alice/c: the summary up to message {covers_to} {what}");
        assert_eq!(
            found,
            [format!("{what}: repair removes it, so that the messages are sent again")]
        );
        assert_eq!(
            done,
            [format!("done: {what}: it is removed, so that the messages are sent again")]
        );
        assert_eq!(left, [0; 0]);
    }
}

#[tokio::test]
async fn the_summary_before_a_removed_one_remains() {
    let inner = conversation(None).await;
    let summaries = vec![summary(&inner, 2).await, summary(&inner, 4).await];
    let store = any(inner, summaries);
    assert_eq!(outcome(&store).await.2, [2]);
    assert_eq!(outcome(&store).await, (vec![], vec![], vec![2]));
}

#[tokio::test]
async fn a_summary_that_is_not_in_force_is_reported_only() {
    let inner = conversation(None).await;
    let summaries = vec![summary(&inner, 4).await, summary(&inner, 5).await];
    let (found, done, left) = outcome(&any(inner, summaries)).await;
    assert!(found[0].contains("up to message 4 ends inside a turn: it is not in force"));
    assert_eq!((done.len(), left), (1, vec![4, 5]), "{done:?}");
    assert!(done[0].starts_with("left: "));
}

#[tokio::test]
async fn rows_in_the_wrong_order_are_reported() {
    let inner = conversation(None).await;
    let summaries = vec![summary(&inner, 5).await, summary(&inner, 2).await];
    let (found, _, left) = outcome(&any(inner, summaries)).await;
    assert!(found[0].contains("up to message 2 is at the wrong position: restore"), "{found:?}");
    assert_eq!((found.len(), left), (1, vec![5, 2]));
}

#[tokio::test]
async fn a_head_that_differs_from_the_rows_is_reported() {
    let inner = conversation(None).await;
    let (first, second) = (summary(&inner, 2).await, summary(&inner, 5).await);
    let store = any(inner.clone(), vec![first.clone()]);
    store.rows.lock().unwrap().in_force = Some(second.in_force());
    let (found, done, left) = outcome(&store).await;
    assert!(found[0].contains("up to message 5 is in force, but is not stored: repair removes"));
    assert!(done[0].starts_with("done: "), "{done:?}");
    assert_eq!((found.len(), left), (1, vec![2]));
    assert_eq!(store.rows.lock().unwrap().in_force, Some(first.in_force()));

    for (in_force, what) in [
        (None, "summaries are stored, but none is in force"),
        (Some(first.in_force()), "up to message 2 is in force, although it is not the last"),
    ] {
        let store = any(inner.clone(), vec![first.clone(), second.clone()]);
        store.rows.lock().unwrap().in_force = in_force;
        let (found, done, left) = outcome(&store).await;
        assert!(found[0].contains(what), "{found:?}");
        assert!(done[0].starts_with("left: "), "{done:?}");
        assert_eq!((found.len(), left), (1, vec![2, 5]));
    }
}

#[tokio::test]
async fn an_unreadable_summary_is_removed_only_if_it_is_in_force() {
    let inner = conversation(None).await;
    let (first, second) = (summary(&inner, 2).await, summary(&inner, 5).await);
    for (unreadable, outcome_of_repair, left) in
        [(second.id, "done: ", vec![2]), (first.id, "left: ", vec![2, 5])]
    {
        let store = any(inner.clone(), vec![first.clone(), second.clone()]);
        store.rows.lock().unwrap().unreadable = vec![unreadable];
        let (found, done, remaining) = outcome(&store).await;
        assert!(found[0].contains("a summary cannot be read: "), "{found:?}");
        assert!(found[0].contains("the row is damaged"), "{found:?}");
        assert!(done[0].starts_with(outcome_of_repair), "{done:?}");
        assert_eq!((found.len(), remaining), (1, left));
    }
}

/// The messages after the last stored one may be lost.
#[tokio::test]
async fn a_summary_that_ends_after_the_last_message_is_reported_only() {
    let inner = conversation(None).await;
    let (found, done, left) = outcome(&any(inner.clone(), vec![summary(&inner, 9).await])).await;
    let what = "the summary up to message 9 ends after the last message, which is message 7";
    assert!(found[0].contains(&format!("{what}: restore the store from a backup")), "{found:?}");
    assert_eq!((done.len(), left), (1, vec![9]));
    assert!(done[0].starts_with("left: "), "{done:?}");
}

/// Only the summary contains anything about pruned messages.
#[tokio::test]
async fn a_summary_of_pruned_messages_is_not_removed() {
    let inner = conversation(None).await;
    let wrong = summary(&inner, 4).await;
    inner.prune(&key(), Keep::Messages(5)).await.unwrap();
    let (found, done, left) = outcome(&any(inner.clone(), vec![wrong])).await;
    assert!(found[0].contains("ends inside a turn: remove it with"), "{found:?}");
    assert!(done[0].starts_with("left: "), "{done:?}");
    assert_eq!(left, [4]);
    // The message at the end of this summary is pruned, which is no problem.
    let pruned = HistorySummary::new(2, MessageId { run: RunId::new(), index: 1 }, "pruned");
    assert_eq!(outcome(&any(inner, vec![pruned])).await.0, [""; 0]);
}

/// A repair of a message removes the summaries that cover the message.
#[tokio::test]
async fn a_repair_reports_the_summaries_that_a_changed_message_removes() {
    let store = conversation(Some(Message::tool_calls([ToolCall::new("c9", "see", "{}")]))).await;
    for covers_to in [2, 5] {
        let summary = summary(&store, covers_to).await;
        assert_eq!(store.add_summary(&key(), &summary, 0).await.unwrap(), AddedSummary::Stored);
    }
    let (mut planned, mut done) = (Vec::new(), Vec::new());
    let target = Target::new(store.clone());
    plan_repair(&target, &mut |change| planned.push(change)).await.unwrap();
    repair(&target, &mut |change| done.push(change)).await.unwrap();
    assert_eq!(done, planned);
    let Repair::Done(removed) = &done[1] else { panic!("{done:?}") };
    assert_eq!(removed.what, "the summaries that cover message 2 are removed with its repair");
    assert_eq!(done.len(), 2, "{done:?}");
    assert_eq!(store.head(&key()).await.unwrap().summary, None);
}
