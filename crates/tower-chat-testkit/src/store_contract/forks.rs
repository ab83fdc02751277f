//! The rules for copies of conversations.

use std::time::{Duration, SystemTime};

use tower_chat_core::{
    Message, ToolResult, ToolStatus,
    store::{
        Capability, HistoryStore, Maintenance, Revision, ServiceIdChange, StoreError,
        author::RecordedResult,
    },
};

use super::{
    Store,
    fixture::{
        StagedRun, asking, assert_listed, commit, key, lacks, open_run, pending, position,
        recorded, revision, staging, stored, texts, with_outcome, write, write_messages,
    },
};

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
    let copied = store.fork(&from, &to).await.expect("the conversation is forked");
    assert_eq!((revision(&store, &to).await, copied.sequence), (copied, 3));
    assert!(![at.incarnation, 0].contains(&copied.incarnation));
    let (original, copy) = (
        store.load(&from).await.expect("the history is loaded"),
        store.load(&to).await.expect("it"),
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

/// If a call of the original waits for approval, the call in the copy does not wait, whatever its
/// row contains.
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
    store.fork(&from, &to).await.expect("the conversation is forked");
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
    let copied = store.fork(&from, &to).await.expect("the conversation is forked");
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
            store.fork(from, &to).await.expect("the conversation is forked"),
            Revision::ABSENT
        );
        assert_eq!(revision(&store, &to).await, Revision::ABSENT);
    }
    let at = stored(&store, write(&there, Revision::ABSENT, &["there"])).await;
    for to in [&there, &open] {
        match store.fork(&there, to).await {
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
    assert_eq!(store.fork(&from, &to).await.expect("the conversation is forked").sequence, 2);
    store.close().await.expect("the store is closed");
    let refused = store.fork(&from, &key("another copy")).await;
    assert!(matches!(refused, Err(StoreError::Closed)), "{refused:?}");
    assert_eq!(texts(&store, &to).await, ["0", "1"]);
}
