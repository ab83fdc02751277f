//! Tests that an approval applies only to one conversation, and not to a copy of it.

use tower_chat::{
    ChatRequest, ConversationKey, HistoryStore, Message, Part, Role,
    error::ToolLoopError,
    store::{InvocationQuery, Maintenance, ToolCallQueries},
    tool::{ApprovalRequest, ToolStatus},
};
use tower_chat_testkit::Step;

use crate::common::*;

fn copy() -> ConversationKey {
    ConversationKey::new("alice", "copy")
}

fn deciding(case: Case, part: impl Into<Part>, key: ConversationKey) -> ChatRequest {
    let request = ChatRequest::new(Message::new(Role::User, vec![part.into()]));
    case.way(request).in_conversation(key)
}

#[tokio::test]
async fn an_approval_is_valid_only_in_the_original_conversation() {
    for first_in_copy in [true, false] {
        every_id(async |case| {
            let (store, ran, model, client) = case
                .begin_with_log([
                    case.calls([("pay", "c1")]),
                    Step::text("paid"),
                    Step::text("no payment"),
                ])
                .await;
            let answer = send(&client, case.ask("buy")).await.unwrap();
            let asked: Vec<_> = answer.approval_requests().cloned().collect();
            store.inner().flush().await.unwrap();
            store.inner().fork_at(&key(), None, &copy()).await.unwrap();
            assert_eq!(store.inner().head(&copy()).await.unwrap().pending_approvals.len(), 0);
            if !first_in_copy {
                send(&client, deciding(case, asked[0].approve(), key())).await.unwrap();
            }
            for decision in [asked[0].approve(), asked[0].reject("no")] {
                let error = send(&client, deciding(case, decision, copy())).await.unwrap_err();
                let error: &ToolLoopError = error.downcast_ref().unwrap();
                assert!(matches!(error, ToolLoopError::ApprovalUnknown { .. }), "{error:?}");
            }
            assert!(store.inner().head(&copy()).await.unwrap().open_run.is_none());
            if first_in_copy {
                send(&client, deciding(case, asked[0].approve(), key())).await.unwrap();
            }
            assert_eq!(ran.names(), ["pay"], "the tool runs once, in the original conversation");
            let rows = store.inner().invocations(&InvocationQuery::of(&copy())).await.unwrap();
            assert_eq!(rows.found[0].1.status, ToolStatus::RejectedByApproval);
            let question = ChatRequest::user("and?").in_conversation(copy());
            send(&client, case.way(question)).await.unwrap();
            assert_eq!(model.requests().len(), 3);
            assert_eq!(sent_texts(&model, 2), ["user buy", "user and?"]);
        })
        .await;
    }
}

#[tokio::test]
async fn a_call_that_was_claimed_in_the_original_is_recorded_as_rejected_in_the_copy() {
    let cases = Cases::all().modes([PerRun, Journaled], "per-service-call mode stores the result");
    let scenario = async |case: Case| {
        let (store, ran, _, client) = case
            .begin_with_log([case.calls([("pay", "c1")]), Step::error("down"), Step::text("paid")])
            .await;
        let answer = send(&client, case.ask("buy")).await.unwrap();
        let asked: Vec<ApprovalRequest> = answer.approval_requests().cloned().collect();
        let yes = deciding(case, asked[0].approve(), key());
        // The run fails after the tool has run. Its result is then stored only in the row of the
        // call.
        send(&client, yes.clone()).await.unwrap_err();
        store.inner().flush().await.unwrap();
        store.inner().fork_at(&key(), None, &copy()).await.unwrap();
        let rows = store.inner().invocations(&InvocationQuery::of(&copy())).await.unwrap();
        let row = &rows.found[0].1;
        assert_eq!((row.status, &row.result), (ToolStatus::RejectedByApproval, &None));
        send(&client, yes).await.unwrap();
        assert_eq!(ran.names(), ["pay"]);
    };
    cases.check(scenario).await;
}
