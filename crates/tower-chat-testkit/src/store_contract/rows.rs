//! The rules for reading the [rows](ConversationRows) of a conversation, one by one, and for
//! [rewrites](Rewrite), which change stored rows. The record has one row for each tool call. A
//! staged message belongs to an open run, which is not committed yet. A prune deletes the oldest
//! runs.

use std::{sync::Arc, time::SystemTime};

use tower_chat_core::{
    ConversationKey, Message, MessageId, RunId, ToolResult, ToolStatus, Usage,
    store::{
        Capability, ConversationRows, Directory, DirectoryCounts, HistoryStore, Keep, Maintenance,
        ModelUsage, Revision, Rewrite, RunActivity, RunSummary, StoreError, UsageSum,
        author::{RecordedResult, ToolRecord, Write},
    },
};

use super::{
    Store,
    fixture::{
        StagedRun, asking, commit, key, lacks, pending, position, recorded, refused, revision,
        staging, stored, submit, texts, with_outcome, with_times, write, write_messages,
    },
};

async fn rows(store: &Store, key: &ConversationKey) -> ConversationRows {
    store.rows(key).await.expect("the rows are read").expect("the conversation exists")
}

/// Returns the messages of the rows with their sequence numbers. Every message must be readable.
fn messages(rows: &ConversationRows) -> Vec<(u64, Message)> {
    let read = |(number, message): &(u64, Result<Arc<Message>, _>)| {
        (*number, Message::clone(message.as_ref().expect("the message is readable")))
    };
    rows.messages.iter().map(read).collect()
}

/// Returns the record of tool calls in the rows. Every row of the record must be readable.
fn tools(rows: &ConversationRows) -> Vec<ToolRecord> {
    let tools: Vec<ToolRecord> =
        rows.tools.iter().map(|(_, row)| row.clone().expect("the row is readable")).collect();
    let calls: Vec<_> = tools.iter().map(|row| row.call).collect();
    assert_eq!(rows.tools.iter().map(|(call, _)| *call).collect::<Vec<_>>(), calls);
    tools
}

/// Loads a conversation, and returns its messages with their sequence numbers.
async fn loaded(store: &Store, key: &ConversationKey) -> Vec<(u64, Message)> {
    let history = store.load(key).await.expect("the history is loaded");
    history.numbered().map(|(number, message)| (number, Message::clone(message))).collect()
}

/// Returns messages and rows with three calls: one whose result is in a message, one whose result
/// is in the record, and one that waits for approval.
fn recorded_calls() -> ([Message; 2], Vec<ToolRecord>) {
    let asks = asking(&["hat", "coat", "shoe"]);
    let results = Message::tool_results([ToolResult::new("id 0", "a straw hat")]);
    let in_message = RecordedResult::InMessage(position(2, 0));
    let apart = RecordedResult::Apart(ToolResult::new("id 1", "a rain coat").into());
    let first = with_outcome(pending(1, 0, "hat"), ToolStatus::Ok, in_message);
    let mut second = with_outcome(pending(1, 1, "coat"), ToolStatus::Error, apart);
    second.error = Some("it does not fit".to_owned());
    let third =
        with_outcome(pending(1, 2, "shoe"), ToolStatus::PendingApproval, RecordedResult::None);
    ([asks, results], vec![with_times(first, 5, 9), with_times(second, 7, 8), third])
}

/// The rows of a conversation contain its head, its visible messages, and its record of tool calls.
pub async fn rows_are_what_readers_see(store: Store) {
    if lacks(&store, &[Capability::Journal]) {
        return;
    }
    let key = key("row by row");
    assert!(
        store.rows(&key).await.expect("the rows are read").is_none(),
        "the conversation was never written"
    );
    let (asked, records) = recorded_calls();
    let write = write_messages(&key, Revision::ABSENT, asked).with_tools(records.clone());
    let at = stored(&store, write).await;
    let found = rows(&store, &key).await;
    assert_eq!((found.head.revision, found.head.pruned), (at, 0));
    assert_eq!((&found.head.open_run, tools(&found)), (&None, records.clone()));
    assert_eq!(messages(&found), loaded(&store, &key).await);
    assert_eq!(messages(&found).len(), 2);

    let mut journal = StagedRun::new(&key, at);
    let staged = journal.write(staging(1), [asking(&["glove"])]);
    let at = stored(&store, staged.with_tools(vec![pending(3, 0, "glove")])).await;
    let found = rows(&store, &key).await;
    assert_eq!(found.head.revision, at);
    assert_eq!(found.head.open_run.as_ref().map(|open| open.run), Some(journal.run));
    assert_eq!(
        (messages(&found).len(), tools(&found)),
        (2, records.clone()),
        "the message is staged"
    );
    stored(&store, journal.write(commit(1), [])).await;
    let found = rows(&store, &key).await;
    assert_eq!((messages(&found).len(), tools(&found).len()), (3, 4));
    assert_eq!(messages(&found), loaded(&store, &key).await);

    assert!(store.delete(&key).await.expect("the conversation is deleted"));
    assert!(store.rows(&key).await.expect("the rows are read").is_none());
}

/// A prune does not change the sequence numbers of the remaining rows. The head contains the number
/// of pruned messages.
pub async fn rows_of_a_pruned_conversation_have_their_numbers(store: Store) {
    let key = key("pruned rows");
    let mut at = Revision::ABSENT;
    for texts in [["one", "two"], ["three", "four"]] {
        at = stored(&store, write(&key, at, &texts)).await;
    }
    store.prune(&key, Keep::Messages(1)).await.expect("the conversation is pruned");
    let found = rows(&store, &key).await;
    let numbered: Vec<_> =
        messages(&found).into_iter().map(|(number, message)| (number, message.text())).collect();
    assert_eq!(numbered, [(3, "three".to_owned()), (4, "four".to_owned())]);
    assert_eq!(found.head.pruned, 2);
    let mut rewrite = Rewrite::new(key.clone(), found.head.revision);
    rewrite.messages.push((4, Message::user("vier")));
    let after = store.rewrite(rewrite).await.expect("the rows are rewritten");
    assert_eq!(texts(&store, &key).await, ["three", "vier"]);
    assert_eq!(revision(&store, &key).await, after);
    let mut gone = Rewrite::new(key.clone(), after);
    gone.messages.push((2, Message::user("zwei")));
    assert!(store.rewrite(gone).await.is_err(), "message 2 was pruned");
    assert_eq!(texts(&store, &key).await, ["three", "vier"]);
}

/// A rewrite replaces the rows that it contains, and gives the conversation a new incarnation,
/// which is a random number. Sequence numbers, message ids and other conversations do not change.
pub async fn a_rewrite_keeps_numbers_and_ids(store: Store) {
    let key = key("rewritten");
    let other = ConversationKey::new("another scope", key.id());
    for key in [&key, &other] {
        stored(&store, write(key, Revision::ABSENT, &["one", "two", "three"])).await;
    }
    let (before, untouched) = (loaded(&store, &key).await, loaded(&store, &other).await);
    let found = rows(&store, &key).await;
    let late = write(&key, found.head.revision, &["it expects the conversation as it was"]);

    let mut rewrite = Rewrite::new(key.clone(), found.head.revision);
    let mut foreign = Message::user("eins");
    foreign.id = Some(MessageId { run: RunId::new(), index: 7 });
    rewrite.messages = vec![(3, Message::user("drei")), (1, foreign)];
    let after = store.rewrite(rewrite.clone()).await.expect("the rows are rewritten");
    assert_eq!(after.sequence, found.head.revision.sequence);
    assert_ne!(after.incarnation, found.head.revision.incarnation);
    assert_eq!(revision(&store, &key).await, after);
    let now = loaded(&store, &key).await;
    let named = |messages: &[(u64, Message)]| -> Vec<_> {
        messages.iter().map(|(number, message)| (*number, message.id)).collect()
    };
    assert_eq!(named(&now), named(&before), "sequence numbers and ids are unchanged");
    assert_eq!(texts(&store, &key).await, ["eins", "two", "drei"]);
    assert_eq!(now[1], before[1], "messages that the rewrite does not name are unchanged");
    assert_eq!(messages(&rows(&store, &key).await), now);
    assert_eq!(loaded(&store, &other).await, untouched);

    assert_eq!(refused(&store, late).await.found, after);
    stored(&store, write(&key, after, &["four"])).await;
    assert_eq!(texts(&store, &key).await, ["eins", "two", "drei", "four"]);
}

/// A rewrite is refused if it does not expect the current revision of the conversation. A rewrite
/// never creates a conversation.
pub async fn a_rewrite_at_another_revision_is_a_conflict(store: Store) {
    let key = key("rewritten late");
    let at = stored(&store, write(&key, Revision::ABSENT, &["one"])).await;
    let now = stored(&store, write(&key, at, &["two"])).await;
    let mut rewrite = Rewrite::new(key.clone(), at);
    rewrite.messages.push((1, Message::user("eins")));
    for expected in [at, Revision { incarnation: now.incarnation ^ 2, ..now }] {
        rewrite.expected = expected;
        match store.rewrite(rewrite.clone()).await.expect_err("another revision") {
            StoreError::Conflict(conflict) => {
                assert_eq!((conflict.expected, conflict.found), (expected, now));
                assert_eq!((&conflict.key, conflict.open_run), (&key, None));
            }
            error => panic!("expected a conflict, not {error:?}"),
        }
    }
    assert_eq!(texts(&store, &key).await, ["one", "two"]);
    let absent = Rewrite::new(super::fixture::key("never written"), Revision::ABSENT);
    let refused = store.rewrite(absent.clone()).await;
    assert!(matches!(refused, Err(StoreError::Conflict(_))), "{refused:?}");
    assert!(store.rows(&absent.key).await.expect("the rows are read").is_none());
}

/// A rewrite sets those counts of the directory that it contains, and no other counts.
pub async fn a_rewrite_sets_counts_of_the_directory(store: Store) {
    if lacks(&store, &[Capability::Directory]) {
        return;
    }
    let (key, other) = (key("counted"), key("counted too"));
    let (first, second) = (RunId::new(), RunId::new());
    let used = |model: &str, calls| {
        let tokens = Usage::new(10, 5);
        ModelUsage::new(Some(model.into()), UsageSum::of_calls(1, calls).with_tokens(tokens))
    };
    let write_of_run = |key: &ConversationKey, run, at, usage: Vec<ModelUsage>| {
        let id = MessageId { run, index: 0 };
        let write = Write::new(key.clone(), id, at, [Message::user("one").into()]);
        write.with_activity(RunActivity::new(SystemTime::now()).with_usage(usage))
    };
    stored(&store, write_of_run(&other, first, Revision::ABSENT, vec![used("a", 1)])).await;
    let models = vec![used("a", 1), used("b", 2)];
    let at = stored(&store, write_of_run(&key, first, Revision::ABSENT, models)).await;
    let at = stored(&store, write_of_run(&key, second, at, vec![used("a", 4)])).await;
    let before = entry(&store, &key).await;
    assert_eq!((before.0, before.1.tool_calls, before.1.tokens.input_tokens), (2, 7, 30));
    let untouched = entry(&store, &other).await;

    let mut rewrite = Rewrite::new(key.clone(), at);
    let mut counts = DirectoryCounts::new(9);
    counts.tool_calls = vec![(first, 50), (RunId::new(), 3)];
    rewrite.counts = Some(counts.clone());
    let at = store.rewrite(rewrite.clone()).await.expect("the rows are rewritten");
    let (runs, sum, of_runs) = entry(&store, &key).await;
    assert_eq!((runs, sum.tool_calls), (9, 54), "an absent run is ignored");
    assert_eq!((sum.service_calls, sum.tokens), (before.1.service_calls, before.1.tokens));
    let calls_of = |wanted| of_runs.iter().find(|(run, _)| *run == wanted).map(|(_, calls)| *calls);
    assert_eq!((calls_of(first), calls_of(second)), (Some(50), Some(4)));
    assert_eq!(entry(&store, &other).await, untouched);
    assert!(store.rewrite(rewrite).await.is_err(), "the conversation is at another revision");

    let mut rewrite = Rewrite::new(key.clone(), at);
    counts.runs = before.0;
    counts.tool_calls = vec![(first, 3)];
    rewrite.counts = Some(counts);
    let at = store.rewrite(rewrite).await.expect("the rows are rewritten");
    assert_eq!(entry(&store, &key).await, before);
    stored(&store, write_of_run(&key, RunId::new(), at, vec![used("a", 1)])).await;
    let (runs, sum, _) = entry(&store, &key).await;
    assert_eq!((runs, sum.tool_calls), (3, 8), "later writes are added to the counts");
}

/// Returns the number of runs, the usage, and the number of tool calls of each run.
async fn entry(store: &Store, key: &ConversationKey) -> (u64, UsageSum, Vec<(RunId, u64)>) {
    let summary =
        store.summary(key).await.expect("the summary is read").expect("the conversation exists");
    let runs = store.runs(key, None, 10).await.expect("the runs are read");
    let calls = |run: &RunSummary| run.usage.iter().map(|usage| usage.sum.tool_calls).sum();
    (summary.runs, summary.usage, runs.iter().map(|run| (run.run, calls(run))).collect())
}

/// If a rewrite contains a message that does not exist, nothing is changed.
pub async fn a_rewrite_is_done_whole_or_not_at_all(store: Store) {
    let key = key("rewritten in part");
    let (asked, records) = recorded_calls();
    let write = write_messages(&key, Revision::ABSENT, asked).with_tools(records.clone());
    let at = stored(&store, write).await;
    let before = loaded(&store, &key).await;
    for number in [0, 3, u64::MAX] {
        let mut rewrite = Rewrite::new(key.clone(), at);
        rewrite.messages = vec![(2, Message::user("zwei")), (number, Message::user("nobody's"))];
        rewrite.removed_tools.push(position(1, 0));
        match store.rewrite(rewrite).await.expect_err("there is no such message") {
            StoreError::Corrupt { reason } => {
                assert!(reason.contains(&format!("message {number} of")), "{reason}");
            }
            error => {
                panic!("expected an error because message {number} does not exist, not {error:?}")
            }
        }
        let found = rows(&store, &key).await;
        assert_eq!((found.head.revision, tools(&found)), (at, records.clone()));
        assert_eq!(messages(&found), before);
    }
}

/// A rewrite can replace and remove rows of the record. The pending approvals in the head change
/// accordingly.
pub async fn a_rewrite_changes_the_record(store: Store) {
    let key = key("a rewritten record");
    let (asked, records) = recorded_calls();
    let write = write_messages(&key, Revision::ABSENT, asked).with_tools(records.clone());
    let at = stored(&store, write).await;
    let mut rewrite = Rewrite::new(key.clone(), at);
    let apart = RecordedResult::Apart(ToolResult::new("id 2", "a red shoe").into());
    let changed = with_outcome(pending(1, 2, "shoe"), ToolStatus::Ok, apart);
    rewrite.tools = vec![changed.clone(), pending(9, 0, "of no message")];
    rewrite.removed_tools = vec![position(1, 0), position(1, 7)];
    let after = store.rewrite(rewrite).await.expect("the rows are rewritten");
    let expected = [records[1].clone(), changed.clone()];
    let found = rows(&store, &key).await;
    assert_eq!((found.head.revision, tools(&found)), (after, expected.to_vec()));
    let calls: Vec<_> = recorded(&store, &key).await;
    let names: Vec<_> = calls.iter().map(|call| (call.sequence_index, call.status)).collect();
    assert_eq!(names, [(1, ToolStatus::Error), (2, ToolStatus::Ok)]);

    let mut again = Rewrite::new(key.clone(), after);
    let mut waits = changed;
    waits.status = ToolStatus::PendingApproval;
    waits.result = RecordedResult::None;
    again.tools.push(waits.clone());
    let after = store.rewrite(again).await.expect("the rows are rewritten");
    assert_eq!(tools(&rows(&store, &key).await), [records[1].clone(), waits]);
    // The row for a message that does not exist at the time of the rewrite is not stored. The row
    // remains absent when the message is written later.
    stored(&store, super::fixture::write(&key, after, &["3", "4", "5", "6", "7", "8", "9"])).await;
    assert_eq!(tools(&rows(&store, &key).await).len(), 2);
}

/// A conversation with an open run cannot be rewritten.
pub async fn an_open_run_is_not_rewritten(store: Store) {
    if lacks(&store, &[Capability::Journal]) {
        return;
    }
    let key = key("rewritten while it is open");
    let at = stored(&store, write(&key, Revision::ABSENT, &["one"])).await;
    let mut journal = StagedRun::new(&key, at);
    let at = stored(&store, journal.text(staging(1), "two")).await;
    let mut rewrite = Rewrite::new(key.clone(), at);
    rewrite.messages.push((1, Message::user("eins")));
    match store.rewrite(rewrite).await.expect_err("a run is open") {
        StoreError::Conflict(conflict) => {
            assert_eq!((conflict.found, conflict.open_run), (at, Some(journal.run)));
        }
        error => panic!("expected a conflict, not {error:?}"),
    }
    assert_eq!(texts(&store, &key).await, ["one"]);
    let at = stored(&store, journal.write(commit(1), [])).await;
    let mut rewrite = Rewrite::new(key.clone(), at);
    rewrite.messages.push((2, Message::user("zwei")));
    store.rewrite(rewrite).await.expect("the run has ended");
    assert_eq!(texts(&store, &key).await, ["one", "zwei"]);
}

/// A read of rows, and a rewrite, take the writes into account that were submitted before. A closed
/// store refuses rewrites, but its rows can be read.
pub async fn a_rewrite_sees_what_was_submitted_before_it(store: Store) {
    let key = key("rewritten at once");
    let mut tickets = Vec::new();
    let mut at = Revision::ABSENT;
    for text in ["one", "two", "three"] {
        let write: Write = write(&key, at, &[text]);
        at = write.result();
        let slot = store.reserve().await.expect("a slot is reserved");
        tickets.push(store.append(slot, vec![write]));
    }
    assert_eq!(messages(&rows(&store, &key).await).len(), 3);
    let write = write(&key, at, &["four"]);
    let slot = store.reserve().await.expect("a slot is reserved");
    tickets.push(store.append(slot, vec![write.clone()]));
    let mut rewrite = Rewrite::new(key.clone(), write.result());
    rewrite.messages.push((4, Message::user("vier")));
    rewrite.expected = store.rewrite(rewrite.clone()).await.expect("the rows are rewritten");
    for ticket in tickets {
        ticket.await.expect("the write is stored");
    }
    assert_eq!(texts(&store, &key).await, ["one", "two", "three", "vier"]);
    let repeated = submit(&store, vec![write]).await;
    assert!(repeated.is_err(), "the rewrite has changed the incarnation");

    store.close().await.expect("the store is closed");
    let refused = store.rewrite(rewrite).await;
    assert!(matches!(refused, Err(StoreError::Closed)), "{refused:?}");
    assert_eq!(messages(&rows(&store, &key).await).len(), 4);
}
