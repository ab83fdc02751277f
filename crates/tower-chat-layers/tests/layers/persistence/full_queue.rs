//! Tests runs over a store whose queue is full. A run waits for a slot, but never for one that it
//! has reserved itself.

use std::time::Duration;

use tower::{Layer, limit::ConcurrencyLimitLayer};
use tower_chat::{
    Answer, BoxError, ChatRequest, ConversationKey, Message, Part, Role, Tools,
    tool::{ApprovalRequest, ToolOutput},
    tool_fn,
};
use tower_chat_testkit::{Gate, ScriptedModel, Step, cases};

use crate::common::*;

/// Fails a test that would otherwise wait forever.
async fn in_time(sent: impl Future<Output = Result<Answer, BoxError>>) -> Result<Answer, BoxError> {
    tokio::time::timeout(Duration::from_secs(3600), sent).await.expect("no deadlock")
}

#[tokio::test(start_paused = true)]
async fn a_run_with_the_last_slot_of_the_store_runs_its_approved_calls() {
    for (streamed, mode) in cases!(BOTH_WAYS, BOTH_MODES) {
        let (store, tool_log) = (store().with_queue_capacity(1), ToolLog::default());
        let model = ScriptedModel::new([calls([("pay", "c1"), ("pay", "c2")]), Step::text("done")]);
        let client = stack(model, &store, mode, policy(), tools(&tool_log));
        let asked = send(&client, ask("buy", streamed)).await.unwrap();
        let yes = asked.approval_requests().map(ApprovalRequest::approve).map(Part::from);
        let yes = request_with([Message::new(Role::User, yes.collect())], streamed);
        in_time(send(&client, yes)).await.unwrap();
        assert_eq!(tool_log.names(), ["pay", "pay"]);
        assert_eq!(stored(&store).await.len(), 5);
    }
}

#[tokio::test(start_paused = true)]
async fn nested_runs_complete_although_the_outer_runs_hold_all_slots_of_the_store() {
    for (outer, inner) in cases!(BOTH_MODES, BOTH_MODES) {
        let (store, gate) = (store().with_queue_capacity(2), Gate::closed());
        let below = ScriptedModel::new([Step::text("one"), Step::text("two")]);
        let nested = agent(&below, &store, inner);
        let both = gate.clone();
        let delegate = tool_fn(definition("delegate"), move |context| {
            let (nested, both) = (nested.clone(), both.clone());
            async move {
                both.pass().await;
                let parent = context.conversation().unwrap();
                let key = ConversationKey::new(parent.scope(), format!("{}-sub", parent.id()));
                let request = context.nest(ChatRequest::user("sub").in_conversation(key));
                Ok(ToolOutput::from(send(&nested, request).await?.text()))
            }
        });
        let step = || {
            Step::respond(|request| match request.messages().last().unwrap().role {
                Role::User => calls([("delegate", "c1")]),
                _ => Step::text("done"),
            })
        };
        let model = ScriptedModel::new((0..4).map(|_| step()));
        let client = stack(model, &store, outer, policy(), Tools::new().with(delegate));
        let runs = ["a", "b"].map(|id| {
            let key = ConversationKey::new("alice", id);
            let request = ChatRequest::user("go").in_conversation(key);
            let client = client.clone();
            tokio::spawn(in_time(async move { send(&client, request).await }))
        });
        gate.reached(2).await;
        gate.open();
        for run in runs {
            run.await.unwrap().unwrap();
        }
        for id in ["a", "b"] {
            let sub = ConversationKey::new("alice", format!("{id}-sub"));
            assert_eq!(stored_of(&store, &sub).await.len(), 2);
            let key = ConversationKey::new("alice", id);
            assert_eq!(stored_of(&store, &key).await.len(), 4);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_that_waits_for_a_slot_of_the_store_holds_no_permit_of_a_bounded_service() {
    for streamed in BOTH_WAYS {
        let (store, tool_log, gate) =
            (store().with_queue_capacity(1), ToolLog::default(), Gate::closed());
        let model =
            ScriptedModel::new([calls([("wait", "c1")]), Step::text("one"), Step::text("two")]);
        let limited = ConcurrencyLimitLayer::new(1).layer(model.clone());
        let client = stack(limited, &store, PerRun, policy(), tools_with_gate(&tool_log, &gate));
        let begin = |id: &str| {
            let key = ConversationKey::new("alice", id);
            let request = ChatRequest::user("hi").in_conversation(key);
            let request = if streamed { request.streamed() } else { request };
            let client = client.clone();
            tokio::spawn(in_time(async move { send(&client, request).await }))
        };
        let first = begin("a");
        gate.reached(1).await;
        let second = begin("b");
        tokio::task::yield_now().await;
        gate.open();
        assert_eq!(first.await.unwrap().unwrap().text(), "one");
        assert_eq!(second.await.unwrap().unwrap().text(), "two");
    }
}
