//! The rules for [claims](Claim) of tool calls, and for calls that wait for approval. A process
//! claims an approved call with the write that starts the call, so that no other process starts it.
//! The record has one row for each call. Staged messages belong to an open run, which is a run that
//! is not committed yet.

use tower_chat_core::{
    ApprovalRequest, Message, Part, Role, ToolCall, ToolResult, ToolStatus,
    store::{
        Capability, HistoryStore, Revision, SequencePosition, StoreError,
        author::{Claim, RecordedResult, ToolRecord, Write},
    },
};

use super::{
    Store,
    fixture::{
        StagedRun, at, commit, key, lacks, pending, position, recorded, revision, staging, stored,
        submit, texts, with_outcome, write, write_messages, write_rows,
    },
};

fn request(id: &str) -> ApprovalRequest {
    ApprovalRequest::new(id, ToolCall::new("", "tool", "{}"), true)
}

/// Returns a message with two approval requests, between which is a call that needs no approval.
fn requesting(ids: [&str; 2]) -> Message {
    let [first, last] = ids.map(|id| Part::ApprovalRequest(request(id)));
    let call = Part::ToolCall(ToolCall::new("", "tool", "{}"));
    Message::new(Role::Assistant, vec![Part::text("May I?"), first, call, last])
}

fn waiting(sequence: u64, index: u32) -> ToolRecord {
    let row = pending(sequence, index, "tool");
    with_outcome(row, ToolStatus::PendingApproval, RecordedResult::None)
}

fn begun(row: ToolRecord, milliseconds: u64) -> ToolRecord {
    let mut row = row;
    row.started_at = Some(at(milliseconds));
    row
}

fn claim(call: SequencePosition, started: Option<u64>) -> Claim {
    Claim { call, started_at: started.map(at) }
}

/// Submits a write whose claim must be refused. Returns the call that the error names.
async fn claimed(store: &Store, write: Write) -> SequencePosition {
    let before = revision(store, write.key()).await;
    let error = submit(store, vec![write.clone()]).await.expect_err("the claim is refused");
    assert_eq!((error.completed, error.source.is_retryable()), (0, false));
    assert_eq!(revision(store, write.key()).await, before, "nothing is stored");
    match error.source {
        StoreError::Claimed { key, call } => {
            assert_eq!(&key, write.key());
            call
        }
        other => panic!("expected a refused claim, not {other:?}"),
    }
}

/// If two writes claim a call that was not started, only the first write is stored. After that, a
/// claim is accepted only if it names the start time that is stored for the call.
pub async fn of_two_claims_to_a_call_one_holds(store: Store) {
    let key = key("claimed");
    let first = write_messages(&key, Revision::ABSENT, [requesting(["r1", "r2"])])
        .with_tools(vec![waiting(1, 0), waiting(1, 2)]);
    let at = stored(&store, first).await;
    let begin = |started, milliseconds, calls: &[u32]| {
        let rows = calls.iter().map(|index| begun(waiting(1, *index), milliseconds));
        let claims = calls.iter().map(|index| claim(position(1, *index), started)).collect();
        write_rows(&key, at, rows.collect()).with_claims(claims)
    };
    let winner = begin(None, 10, &[0]);
    stored(&store, winner.clone()).await;
    assert_eq!(claimed(&store, begin(None, 11, &[0])).await, position(1, 0));
    assert_eq!(
        claimed(&store, winner).await,
        position(1, 0),
        "a repeated claim is refused, because the call has been started"
    );
    assert_eq!(claimed(&store, begin(None, 11, &[2, 0])).await, position(1, 0));
    assert_eq!(claimed(&store, begin(Some(9), 11, &[0])).await, position(1, 0));
    let started = async || {
        let calls = recorded(&store, &key).await;
        calls.iter().map(|call| call.started_at).collect::<Vec<_>>()
    };
    let time = super::fixture::at;
    assert_eq!(
        started().await,
        [Some(time(10)), None],
        "a write with several claims claims all calls or none"
    );
    stored(&store, begin(Some(10), 20, &[0])).await;
    stored(&store, begin(None, 21, &[2])).await;
    assert_eq!(started().await, [Some(time(20)), Some(time(21))]);
    assert_eq!(claimed(&store, begin(Some(10), 30, &[0])).await, position(1, 0));
}

/// A call that has a result, or that needs no approval, cannot be claimed. An approval request
/// without a row in the record can be claimed in the same way as a call that was not started.
pub async fn only_calls_that_wait_can_be_claimed(store: Store) {
    let key = key("answered");
    let answered = with_outcome(waiting(1, 0), ToolStatus::Ok, RecordedResult::None);
    let first = write_messages(&key, Revision::ABSENT, [requesting(["r1", "r2"])])
        .with_tools(vec![answered, pending(1, 1, "tool")]);
    let at = stored(&store, first).await;
    let write = |index, started| {
        write(&key, at, &["stored with the claim"])
            .with_claims(vec![claim(position(1, index), started)])
    };
    assert_eq!(claimed(&store, write(0, None)).await, position(1, 0));
    assert_eq!(claimed(&store, write(1, None)).await, position(1, 1));
    assert_eq!(claimed(&store, write(2, Some(1))).await, position(1, 2));
    stored(&store, write(2, None)).await;
    assert_eq!(texts(&store, &key).await, ["May I?", "stored with the claim"]);
}

/// An open run can claim calls in visible messages, but not calls in its staged messages.
pub async fn an_open_run_claims_calls_that_are_seen(store: Store) {
    let key = key("staged claims");
    let first = write_messages(&key, Revision::ABSENT, [requesting(["r1", "r2"])])
        .with_tools(vec![waiting(1, 0)]);
    let mut run = StagedRun::new(&key, stored(&store, first).await);
    let staged = run
        .write(staging(1), [requesting(["r3", "r4"])])
        .with_tools(vec![begun(waiting(1, 0), 10), begun(waiting(2, 0), 11)])
        .with_claims(vec![claim(position(1, 0), None)]);
    stored(&store, staged).await;
    let again = |started| vec![claim(position(1, 0), started)];
    let late = run.write(staging(1), []);
    assert_eq!(claimed(&store, late.clone().with_claims(again(None))).await, position(1, 0));
    let staged = vec![claim(position(2, 0), Some(11))];
    assert_eq!(claimed(&store, late.clone().with_claims(staged)).await, position(2, 0));
    stored(&store, late.with_claims(again(Some(10)))).await;
}

/// The head (everything about a conversation except its messages) lists the approval requests
/// without a result, in the order of their calls and grouped by the answer of the model. An answer
/// may consist of several messages. Staged requests are not listed.
pub async fn calls_that_wait_for_approval_come_with_the_head(store: Store) {
    let (key, other) = (key("waiting"), key("waiting too"));
    let pending = async || {
        let head = store.head(&key).await.expect("the head is read");
        let ids = head.pending_approvals.iter().map(|batch| {
            let requests = batch.iter().inspect(|found| assert_eq!(**found, request(&found.id)));
            requests.map(|found| found.id.clone()).collect::<Vec<_>>()
        });
        ids.collect::<Vec<_>>()
    };
    assert!(pending().await.is_empty());
    let first = [Message::user("hi"), requesting(["r1", "r2"]), requesting(["r3", "r4"])];
    let rows =
        vec![waiting(3, 0), waiting(2, 2), waiting(2, 0), super::fixture::pending(2, 1, "t")];
    let first = write_messages(&key, Revision::ABSENT, first).with_tools(rows);
    let at = stored(&store, first).await;
    let elsewhere = write_messages(&other, Revision::ABSENT, [requesting(["r9", "r9"])]);
    stored(&store, elsewhere.with_tools(vec![waiting(1, 0)])).await;
    assert_eq!(pending().await, [["r1", "r2", "r3"]]);
    stored(&store, write_rows(&key, at, vec![begun(waiting(2, 0), 1)])).await;
    assert_eq!(pending().await, [["r1", "r2", "r3"]]);

    let answered = |sequence, index, status| {
        let result = RecordedResult::Apart(ToolResult::new("", "done").into());
        vec![with_outcome(waiting(sequence, index), status, result)]
    };
    stored(&store, write_rows(&key, at, answered(2, 0, ToolStatus::Ok))).await;
    assert_eq!(pending().await, [["r2", "r3"]]);
    if !lacks(&store, &[Capability::Journal]) {
        let mut run = StagedRun::new(&key, at);
        let staged = run.write(staging(1), [requesting(["r5", "r6"])]);
        stored(&store, staged.with_tools(vec![waiting(4, 0), waiting(4, 2)])).await;
        assert_eq!(pending().await, [["r2", "r3"]], "a staged request is not pending");
        let committed = run.write(commit(1), []).with_tools(answered(3, 0, ToolStatus::Error));
        stored(&store, committed).await;
        assert_eq!(pending().await, [vec!["r2"], vec!["r5", "r6"]]);
    }
    store.delete(&key).await.expect("the conversation is deleted");
    assert!(pending().await.is_empty());
}
