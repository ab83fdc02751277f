//! The rules for copies of conversations. A turn, the unit of a copy, consists of the messages of a
//! run and of the later runs that answer calls of this run. The record has one row for each tool
//! call. Staged messages belong to an open run, which is a run that is not committed yet.

use std::time::{Duration, SystemTime};

use tower_chat_core::{
    ConversationKey, Message, ToolResult, ToolStatus,
    store::{
        Capability, Fork, HistoryStore, Keep, Maintenance, Revision, ServiceIdChange, StoreError,
        author::{RecordedResult, Write},
    },
};

use super::{
    Store,
    fixture::{
        StagedRun, asking, assert_listed, commit, key, lacks, open_run, pending, position,
        recorded, revision, staging, stored, texts, with_outcome, write, write_messages,
    },
};

/// Copies a whole conversation, and returns the revision of the copy.
pub(super) async fn forked(
    store: &Store,
    from: &ConversationKey,
    to: &ConversationKey,
) -> Revision {
    let fork = store.fork_at(from, None, to).await.expect("the conversation is forked");
    fork.revision
}

/// A copy has the visible messages and the record of the original. Later changes of one of the two
/// do not change the other.
pub async fn a_fork_has_what_readers_see_and_a_life_of_its_own(store: Store) {
    let (from, to) = (key("original"), key("copy"));
    let result = ToolResult::new("id 0", "done");
    let row = |result| with_outcome(pending(2, 0, "a"), ToolStatus::Ok, result);
    let messages =
        [Message::user("0"), asking(&["a", "b"]), Message::tool_results([result.clone()])];
    let mut waiting = pending(2, 1, "b");
    waiting.status = ToolStatus::PendingApproval;
    let first = write_messages(&from, Revision::ABSENT, messages)
        .with_tools(vec![row(RecordedResult::InMessage(position(3, 0))), waiting])
        .with_service_id(ServiceIdChange::Set("the service knows one".into()));
    let at = stored(&store, first).await;
    let copied = forked(&store, &from, &to).await;
    assert_eq!((revision(&store, &to).await, copied.sequence), (copied, 3));
    assert!(![at.incarnation, 0].contains(&copied.incarnation));
    let (original, copy) = (
        store.load(&from).await.expect("the history is loaded"),
        store.load(&to).await.expect("the copy is loaded"),
    );
    assert_eq!(copy.messages, original.messages);
    assert!(copy.messages.iter().all(|message| message.id.is_some()));
    assert_eq!(original.head.service_id.as_deref(), Some("the service knows one"));
    assert_eq!(copy.head.service_id, None);
    let (of_original, of_copy) = (recorded(&store, &from).await, recorded(&store, &to).await);
    assert_eq!((of_copy.len(), &of_copy[0]), (2, &of_original[0]));
    assert_eq!(of_copy[0].result, Some(result));
    assert_listed(&store, "scope", &[to.clone(), from.clone()]).await;

    let changed = row(RecordedResult::None);
    let later = stored(&store, write(&from, at, &["later"]).with_tools(vec![changed])).await;
    stored(&store, write(&to, copied, &["elsewhere"])).await;
    assert_eq!(texts(&store, &from).await, ["0", "", "", "later"]);
    assert_eq!(texts(&store, &to).await, ["0", "", "", "elsewhere"]);
    assert!(recorded(&store, &to).await[0].result.is_some());
    assert_eq!(revision(&store, &from).await, later);
    store.delete(&from).await.expect("the conversation is deleted");
    assert_eq!((texts(&store, &to).await.len(), recorded(&store, &to).await.len()), (4, 2));
}

/// A call that waits for approval in the original does not wait in the copy. The copy records the
/// call as rejected, even if the row of the original contains a result.
pub async fn a_fork_does_not_wait_for_approvals(store: Store) {
    let (from, to) = (key("original"), key("copy"));
    let result = Box::new(ToolResult::new("id 1", "paid"));
    let rows = [(0, "a"), (1, "b"), (2, "c")].map(|(index, name)| pending(1, index, name));
    let [mut waits, mut has_run, other] = rows;
    waits.status = ToolStatus::PendingApproval;
    has_run.status = ToolStatus::PendingApproval;
    has_run.result = RecordedResult::Apart(result);
    has_run.error = Some("why".into());
    has_run.started_at = Some(SystemTime::UNIX_EPOCH + Duration::from_secs(1));
    has_run.finished_at = Some(SystemTime::UNIX_EPOCH + Duration::from_secs(2));
    let rows = vec![waits, has_run, other];
    let first = write_messages(&from, Revision::ABSENT, [asking(&["a", "b", "c"])])
        .with_tools(rows.clone());
    stored(&store, first).await;
    store.fork_at(&from, None, &to).await.expect("the conversation is forked");
    let of_copy = recorded(&store, &to).await;
    let known = of_copy.iter().map(|call| {
        let is_known = call.result.is_some() || call.error.is_some();
        (call.status, is_known || call.started_at.is_some() || call.finished_at.is_some())
    });
    let not_approved = (ToolStatus::RejectedByApproval, false);
    let expected = [not_approved, not_approved, (ToolStatus::Pending, false)];
    assert_eq!(known.collect::<Vec<_>>(), expected);
    assert_eq!(
        store.head(&to).await.expect("the head is read").pending_approvals,
        Vec::<Vec<_>>::new()
    );
    let of_original: Vec<_> = recorded(&store, &from).await.iter().map(|it| it.status).collect();
    assert_eq!(of_original, rows.iter().map(|row| row.status).collect::<Vec<_>>());
}

/// Staged messages are not copied, and a copy has no open run.
pub async fn a_fork_has_nothing_that_is_staged(store: Store) {
    if lacks(&store, &[Capability::Journal]) {
        return;
    }
    let (from, to) = (key("open"), key("copy"));
    let first = write_messages(&from, Revision::ABSENT, [asking(&["a"])])
        .with_tools(vec![pending(1, 0, "a")]);
    let mut run = StagedRun::new(&from, stored(&store, first).await);
    let staged = run.write(staging(1), [asking(&["b"])]).with_tools(vec![pending(2, 0, "b")]);
    stored(&store, staged).await;
    let copied = forked(&store, &from, &to).await;
    assert_eq!(copied.sequence, 1);
    assert_eq!(open_run(&store, &to).await, None);
    assert_eq!(open_run(&store, &from).await.map(|open| open.run), Some(run.run));
    stored(&store, run.write(commit(1), [])).await;
    assert_eq!((texts(&store, &from).await.len(), texts(&store, &to).await.len()), (2, 1));
    stored(&store, write_messages(&to, copied, [asking(&["c"])])).await;
    assert_eq!(recorded(&store, &to).await.len(), 1);
}

/// Copying a conversation that does not exist creates nothing. A copy never replaces an existing
/// conversation.
pub async fn a_fork_makes_nothing_of_nothing_and_replaces_nothing(store: Store) {
    if lacks(&store, &[Capability::Journal]) {
        return;
    }
    let (absent, open, there) = (key("absent"), key("open"), key("there"));
    let to = key("copy");
    stored(&store, StagedRun::new(&open, Revision::ABSENT).text(staging(1), "staged")).await;
    for from in [&absent, &open] {
        assert_eq!(
            store.fork_at(from, None, &to).await.expect("the conversation is forked"),
            Fork::ABSENT
        );
        assert_eq!(revision(&store, &to).await, Revision::ABSENT);
    }
    let at = stored(&store, write(&there, Revision::ABSENT, &["there"])).await;
    for to in [&there, &open] {
        match store.fork_at(&there, None, to).await {
            Err(StoreError::Exists { key }) => assert_eq!(&key, to),
            other => panic!("expected an error because the target exists, not {other:?}"),
        }
    }
    assert_eq!(revision(&store, &there).await, at);
    assert_eq!(texts(&store, &there).await, ["there"]);
}

/// A copy includes all writes that were submitted before it. A closed store refuses to copy.
pub async fn a_fork_sees_what_was_submitted_before_it(store: Store) {
    let (from, to) = (key("original"), key("copy"));
    let slot = store.reserve().await.expect("a slot is reserved");
    drop(store.append(slot, vec![write(&from, Revision::ABSENT, &["0", "1"])]));
    assert_eq!(forked(&store, &from, &to).await.sequence, 2);
    store.close().await.expect("the store is closed");
    let refused = store.fork_at(&from, None, &key("another copy")).await;
    assert!(matches!(refused, Err(StoreError::Closed)), "{refused:?}");
    assert_eq!(texts(&store, &to).await, ["0", "1"]);
}

/// Returns a write of a run with this text, a tool call and its result.
fn turn(key: &ConversationKey, at: Revision, text: &str) -> Write {
    let [_, call, result] = [1, 2, 3].map(|index| at.sequence + index);
    let row = with_outcome(
        pending(call, 0, "a"),
        ToolStatus::Ok,
        RecordedResult::InMessage(position(result, 0)),
    );
    let answer = Message::tool_results([ToolResult::new("id 0", text)]);
    let messages =
        [Message::user(text), asking(&["a"]), answer, Message::assistant(format!("re: {text}"))];
    write_messages(key, at, messages).with_tools(vec![row])
}

/// A copy ends between two turns. A copy contains the turns that end before the message that the
/// caller names. Its record contains only the calls in these turns.
pub async fn a_fork_ends_between_turns(store: Store) {
    let from = key("original");
    let mut at = Revision::ABSENT;
    for text in ["one", "two", "three"] {
        at = stored(&store, turn(&from, at, text)).await;
    }
    let all = texts(&store, &from).await;
    let with_all = [None, Some(13), Some(u64::MAX)].map(|before| (before, 12));
    let with_two = [12, 11, 10, 9].map(|before| (Some(before), 8));
    let with_one = [8, 7, 6, 5].map(|before| (Some(before), 4));
    let with_none = [4, 3, 2, 1, 0].map(|before| (Some(before), 0));
    let cases = with_all.into_iter().chain(with_two).chain(with_one).chain(with_none);
    for (before, position) in cases {
        let to = key(&format!("copy before {before:?}"));
        let fork = store.fork_at(&from, before, &to).await.expect("the conversation is forked");
        assert_eq!((fork.position, fork.revision.sequence), (position, position), "{before:?}");
        assert_eq!(revision(&store, &to).await, fork.revision);
        assert_eq!(texts(&store, &to).await, all[..position as usize], "{before:?}");
        let calls: Vec<_> = recorded(&store, &to).await.iter().map(|call| call.sequence).collect();
        assert_eq!(calls, (2..position).step_by(4).collect::<Vec<_>>(), "{before:?}");
        let later = stored(&store, turn(&to, fork.revision, "elsewhere")).await;
        assert_eq!(later.sequence, position + 4);
        assert_eq!(recorded(&store, &to).await.len(), calls.len() + 1);
    }
    assert_eq!((revision(&store, &from).await, texts(&store, &from).await), (at, all));
}

/// A call and its result are copied together: if a later run answers a call, this run and the run
/// with the call are one turn.
pub async fn a_fork_keeps_calls_with_their_results(store: Store) {
    let from = key("original");
    let at = stored(&store, write(&from, Revision::ABSENT, &["one"])).await;
    // Messages 2 and 3: a call that waits for approval. Messages 4 and 5: its result and the answer.
    let mut waits = pending(3, 0, "a");
    waits.status = ToolStatus::PendingApproval;
    let asks = write_messages(&from, at, [Message::user("two"), asking(&["a"])]);
    let at = stored(&store, asks.with_tools(vec![waits.clone()])).await;
    // The call waits in the original only.
    let waiting = key("copy of a waiting call");
    let fork = store.fork_at(&from, None, &waiting).await.expect("the conversation is forked");
    assert_eq!((fork.position, texts(&store, &waiting).await.len()), (3, 3));
    assert_eq!(recorded(&store, &waiting).await[0].status, ToolStatus::RejectedByApproval);
    let answered = |row, result| {
        with_outcome(row, ToolStatus::Ok, RecordedResult::InMessage(position(result, 0)))
    };
    let results = || Message::tool_results([ToolResult::new("id 0", "done")]);
    let answer = write_messages(&from, at, [results(), Message::assistant("re: two")]);
    let at = stored(&store, answer.with_tools(vec![answered(waits, 4)])).await;
    let at = stored(&store, write(&from, at, &["three"])).await;
    // Message 7 is a call without a result, which message 9 of a later run answers.
    let call = pending(7, 0, "a");
    let asks = write_messages(&from, at, [asking(&["a"])]).with_tools(vec![call.clone()]);
    let at = stored(&store, asks).await;
    let at = stored(&store, write(&from, at, &["four"])).await;
    let late = write_messages(&from, at, [results()]).with_tools(vec![answered(call, 9)]);
    stored(&store, late).await;
    let cases = [(None, 9), (Some(9), 6), (Some(8), 6), (Some(7), 6), (Some(6), 5)];
    for (before, position) in cases.into_iter().chain([5, 4, 3, 2].map(|it| (Some(it), 1))) {
        let to = key(&format!("copy before {before:?}"));
        let fork = store.fork_at(&from, before, &to).await.expect("the conversation is forked");
        assert_eq!(fork.position, position, "{before:?}");
        assert_eq!(texts(&store, &to).await.len() as u64, position, "{before:?}");
        let calls = recorded(&store, &to).await;
        assert!(calls.iter().all(|call| call.result.is_some()), "{before:?}: {calls:?}");
        let head = store.head(&to).await.expect("the head is read");
        assert_eq!(head.pending_approvals, Vec::<Vec<_>>::new());
    }
}

/// A copy of a conversation whose beginning was pruned ends between the remaining turns.
pub async fn a_fork_of_a_pruned_conversation_ends_between_turns(store: Store) {
    let from = key("pruned");
    let mut at = Revision::ABSENT;
    for text in ["one", "two", "three"] {
        at = stored(&store, turn(&from, at, text)).await;
    }
    store.prune(&from, Keep::Messages(8)).await.expect("the conversation is pruned");
    for (before, copied) in [(Some(11), 4), (Some(9), 4), (Some(8), 0), (Some(2), 0), (None, 8)] {
        let to = key(&format!("copy before {before:?}"));
        let fork = store.fork_at(&from, before, &to).await.expect("the conversation is forked");
        assert_eq!(fork.position, 4 + copied, "{before:?}");
        assert_eq!(texts(&store, &to).await.len() as u64, copied, "{before:?}");
        let later = stored(&store, turn(&to, fork.revision, "elsewhere")).await;
        assert_eq!(revision(&store, &to).await, later);
        let calls = recorded(&store, &to).await;
        assert_eq!(calls.len() as u64, copied / 4 + 1, "{before:?}");
        assert!(calls.iter().all(|call| call.result.is_some()), "{before:?}");
    }
}

/// A copy contains neither an open run nor the messages of such a run, even if the caller names one
/// of these messages.
pub async fn a_fork_ends_before_an_open_run(store: Store) {
    if lacks(&store, &[Capability::Journal]) {
        return;
    }
    let from = key("open");
    let at = stored(&store, turn(&from, Revision::ABSENT, "one")).await;
    let at = stored(&store, turn(&from, at, "two")).await;
    let mut run = StagedRun::new(&from, at);
    stored(&store, run.text(staging(1), "staged")).await;
    stored(&store, run.text(staging(1), "staged too")).await;
    for (before, position) in [(None, 8), (Some(10), 8), (Some(9), 8), (Some(8), 4)] {
        let to = key(&format!("copy before {before:?}"));
        let fork = store.fork_at(&from, before, &to).await.expect("the conversation is forked");
        assert_eq!((fork.position, open_run(&store, &to).await), (position, None), "{before:?}");
        assert_eq!(texts(&store, &to).await.len() as u64, position, "{before:?}");
    }
}
