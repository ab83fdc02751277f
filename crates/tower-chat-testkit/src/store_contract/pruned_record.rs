//! The rules for the record of tool calls (one row for each call) of a conversation whose oldest
//! runs were pruned, that is deleted.

use tower_chat_core::{
    ApprovalRequest, Message, Part, Role, ToolCall, ToolResult, ToolStatus,
    store::{
        CallSelection, HistoryStore, InvocationQuery, Keep, Maintenance, Revision,
        SequencePosition,
        author::{Claim, RecordedResult, ToolRecord},
    },
};

use super::{
    Store,
    fixture::{
        asking, assert_counted, key, pending, position, recorded, revision, stored, texts,
        with_outcome, write, write_messages, write_rows,
    },
};

fn done(row: ToolRecord, result: SequencePosition) -> ToolRecord {
    with_outcome(row, ToolStatus::Ok, RecordedResult::InMessage(result))
}

fn answer(text: &str) -> Message {
    Message::tool_results([ToolResult::new("id 0", text)])
}

/// A prune deletes the rows of calls in the deleted messages. The other rows do not change, and
/// later writes can replace them.
pub async fn rows_are_pruned_with_their_messages(store: Store) {
    let key = key("rows");
    let mut at = Revision::ABSENT;
    for run in 0..3 {
        let call = run * 3 + 2;
        let messages = [Message::user("u"), asking(&["tool"]), answer(&format!("answer {run}"))];
        let row = done(pending(call, 0, "tool"), position(call + 1, 0));
        at = stored(&store, write_messages(&key, at, messages).with_tools(vec![row])).await;
    }
    let before = recorded(&store, &key).await;
    assert_eq!(
        store.prune(&key, Keep::Messages(6)).await.expect("the conversation is pruned").messages,
        3
    );
    let left = recorded(&store, &key).await;
    assert_eq!(left, before[1..]);
    assert_eq!(left.iter().map(|call| call.sequence).collect::<Vec<_>>(), [5, 8]);
    assert_eq!(left[0].result.as_ref().map(ToolResult::text).as_deref(), Some("answer 1"));
    let of = async |sequences: &[u64]| {
        let selected = CallSelection::in_messages(sequences.iter().copied());
        store.calls(&key, &selected).await.expect("the calls are read").found.len()
    };
    assert_eq!((of(&[2]).await, of(&[5]).await, of(&[1, 2, 3, 8]).await), (0, 1, 1));
    assert_counted(&store, &InvocationQuery::of(&key), &[2]).await;

    let rows = [2, 5].map(|call| {
        let row = pending(call, 0, "tool");
        with_outcome(row, ToolStatus::Error, RecordedResult::None)
    });
    let at = revision(&store, &key).await;
    stored(&store, write_rows(&key, at, rows.into())).await;
    let left = recorded(&store, &key).await;
    let statuses: Vec<_> = left.iter().map(|call| (call.sequence, call.status)).collect();
    assert_eq!(
        statuses,
        [(5, ToolStatus::Error), (8, ToolStatus::Ok)],
        "deleted messages have no rows"
    );
    let at = revision(&store, &key).await;
    let row = done(pending(11, 0, "tool"), position(12, 0));
    let next = [Message::user("u"), asking(&["tool"]), answer("answer 3")];
    stored(&store, write_messages(&key, at, next).with_tools(vec![row])).await;
    assert_eq!(recorded(&store, &key).await[2].sequence, 11);
    let copy = super::fixture::key("copy");
    store.fork_at(&key, None, &copy).await.expect("the conversation is forked");
    let (copied, original) = (recorded(&store, &copy).await, recorded(&store, &key).await);
    let what = |calls: &[tower_chat_core::ToolInvocation]| {
        calls.iter().map(|call| (call.message, call.result.clone())).collect::<Vec<_>>()
    };
    assert_eq!(what(&copied), what(&original));
}

/// If a later run contains the result of a call, a prune deletes either both runs or neither of
/// them.
pub async fn a_call_is_not_pruned_without_its_result(store: Store) {
    let key = key("answered later");
    let first = write_messages(&key, Revision::ABSENT, [asking(&["tool"])])
        .with_tools(vec![pending(1, 0, "tool")]);
    let at = stored(&store, first).await;
    let at = stored(&store, write(&key, at, &["b"])).await;
    let answered = done(pending(1, 0, "tool"), position(3, 0));
    let third = write_messages(&key, at, [answer("late")]).with_tools(vec![answered]);
    let at = stored(&store, third).await;
    let at = stored(&store, write(&key, at, &["d"])).await;
    let prune = async |left| {
        store.prune(&key, Keep::Messages(left)).await.expect("the conversation is pruned")
    };
    assert_eq!((prune(3).await.messages, prune(2).await.messages), (0, 0));
    assert_eq!(revision(&store, &key).await, at);
    let all = prune(1).await;
    assert_eq!((all.runs, all.messages, all.held_back_by), (3, 3, None));
    assert_eq!(
        (texts(&store, &key).await, recorded(&store, &key).await),
        (vec!["d".to_owned()], vec![])
    );
}

/// A call may wait for approval or for a result of the caller. A prune deletes neither such a call
/// nor any later message. The call can still receive a result.
pub async fn calls_that_wait_are_not_pruned(store: Store) {
    let key = key("waiting");
    let request = ApprovalRequest::new("r", ToolCall::new("", "tool", "{}"), true);
    let asks = Message::new(Role::Assistant, vec![Part::ApprovalRequest(request)]);
    let waits = |sequence| {
        let row = pending(sequence, 0, "tool");
        with_outcome(row, ToolStatus::PendingApproval, RecordedResult::None)
    };
    let mut at = Revision::ABSENT;
    at = stored(&store, write(&key, at, &["1", "2"])).await;
    let asking_write = write_messages(&key, at, [Message::user("3"), asks]);
    at = stored(&store, asking_write.with_tools(vec![waits(4)])).await;
    at = stored(&store, write(&key, at, &["5"])).await;
    let calls = write_messages(&key, at, [asking(&["tool"])]);
    at = stored(&store, calls.with_tools(vec![pending(6, 0, "tool")])).await;
    stored(&store, write(&key, at, &["7"])).await;

    let prune =
        async || store.prune(&key, Keep::Messages(1)).await.expect("the conversation is pruned");
    let held = prune().await;
    assert_eq!((held.runs, held.messages, held.held_back_by), (1, 2, Some(position(4, 0))));
    assert_eq!(texts(&store, &key).await, ["3", "", "5", "", "7"]);
    let again = prune().await;
    assert_eq!((again.messages, again.held_back_by), (0, Some(position(4, 0))));
    let head = store.head(&key).await.expect("the head is read");
    assert_eq!(head.pending_approvals.len(), 1);
    assert_eq!(head.pending_approvals[0][0].id, "r");

    let claim = Claim { call: position(4, 0), started_at: None };
    let answered = write_messages(&key, head.revision, [answer("approved")])
        .with_tools(vec![done(waits(4), position(8, 0))])
        .with_claims(vec![claim]);
    stored(&store, answered).await;
    let held = prune().await;
    assert_eq!(
        (held.messages, held.held_back_by),
        (0, None),
        "the result of the call is in the last run"
    );
    let at = revision(&store, &key).await;
    let given = write_messages(&key, at, [answer("given")])
        .with_tools(vec![done(pending(6, 0, "tool"), position(9, 0))]);
    let at = stored(&store, given).await;
    stored(&store, write(&key, at, &["10"])).await;
    let all = prune().await;
    assert_eq!((all.runs, all.messages, all.held_back_by), (6, 7, None));
    assert_eq!(
        store.head(&key).await.expect("the head is read").pending_approvals,
        Vec::<Vec<_>>::new()
    );
    assert_eq!(
        (texts(&store, &key).await, recorded(&store, &key).await),
        (vec!["10".to_owned()], vec![])
    );
}
