//! Tests journaled runs in incomplete stacks, with tool loops of an application, and with services
//! that store the history.

use tower::Layer;
use tower_chat::{
    BoxError, ChatRequest, ChatResponse, Message, PersistenceError, ToolResult,
    layer::{PerRunPersistence, PerServiceCallPersistence, ToolLoopLayer},
    message::MessageId,
    policy::ConflictPolicy,
};
use tower_chat_testkit::{Gate, ScriptedModel, Step, cases};

use super::booking_tools::*;
use crate::common::*;

#[tokio::test]
async fn a_journal_needs_both_layers() {
    for streamed in BOTH_WAYS {
        let (store, booking_tools) = (store(), BookingTools::default());
        let model = booking_model();
        let above = PerRunPersistence::new(store.clone()).mode(JOURNALED);
        let client =
            boxed(above.layer(ToolLoopLayer::new(booking_tools.tools()).layer(model.clone())));
        let error = refused(send(&client, ask("trip", streamed)).await);
        assert!(matches!(error, PersistenceError::PersisterMissing { .. }), "{error:?}");
        assert_eq!(booking_tools.ran(), [""; 0], "the run fails before any tool runs");
        let below = PerServiceCallPersistence::new(store.clone()).layer(model.clone());
        let client = boxed(ToolLoopLayer::new(booking_tools.tools()).layer(below));
        let request = ask("trip", streamed).with_extension(JOURNALED);
        let error = refused(send(&client, request).await);
        assert!(
            matches!(error, PersistenceError::RunMissing { mode: "journaled", .. }),
            "{error:?}"
        );
    }
}

#[tokio::test]
async fn without_a_tool_loop_the_caller_receives_the_calls_and_sends_their_results() {
    for streamed in BOTH_WAYS {
        let store = store();
        let model = ScriptedModel::new([calls([("ask", "c1")]), Step::text("thanks")]);
        let below = PerServiceCallPersistence::new(store.clone()).layer(model.clone());
        let client = boxed(PerRunPersistence::new(store.clone()).mode(JOURNALED).layer(below));
        send(&client, ask("go", streamed)).await.unwrap();
        assert!(open(&store).await.is_none());
        let input = [Message::tool_results([ToolResult::new("c1", "blue")])];
        send(&client, request_with(input, streamed)).await.unwrap();
        let all = ["user go", "assistant ask#c1", "tool c1=blue", "assistant thanks"];
        assert_eq!(stored(&store).await, all);
        assert_eq!(sent_texts(&model, 1), all[..3]);
    }
}

#[tokio::test]
async fn the_run_of_a_loop_of_another_crate_is_staged_and_committed_at_its_end() {
    for streamed in BOTH_WAYS {
        let store = store();
        let model = ScriptedModel::new([calls([("look", "c1")]), Step::text("there")]);
        let below = boxed(PerServiceCallPersistence::new(store.clone()).layer(model.clone()));
        let seen_by_store = store.clone();
        let looping = tower::service_fn(move |request: ChatRequest| {
            let (below, store) = (below.clone(), seen_by_store.clone());
            async move {
                // This tool loop sends messages without ids.
                let mut first = request.clone();
                let plain = request
                    .messages()
                    .iter()
                    .map(|message| {
                        let mut message = Message::clone(message);
                        message.id = None;
                        message
                    })
                    .collect::<Vec<_>>();
                first.set_messages(plain, request.history_len());
                let answer = send(&below, first).await?;
                assert_eq!(staged(&store).await, ["user where?", "assistant look#c1"]);
                assert_eq!(stored(&store).await, [""; 0]);
                let mut next = request.clone();
                let result = ToolResult::new("c1", "looked c1");
                next.set_messages(Message::tool_results([result]), 0);
                next.history_owner = answer.finish.history_owner.clone();
                let answer = send(&below, next).await?;
                Ok::<_, BoxError>(ChatResponse::from(answer))
            }
        });
        let client = boxed(PerRunPersistence::new(store.clone()).mode(JOURNALED).layer(looping));
        send(&client, ask("where?", streamed)).await.unwrap();
        let all = ["user where?", "assistant look#c1", "tool c1=looked c1", "assistant there"];
        assert_eq!(stored(&store).await, all);
        assert!(open(&store).await.is_none());
    }
}

#[tokio::test]
async fn results_with_message_ids_that_a_loop_of_another_crate_returns_last_are_recorded() {
    for streamed in BOTH_WAYS {
        let store = store();
        let model = ScriptedModel::new([calls([("look", "c1")])]);
        let below = boxed(PerServiceCallPersistence::new(store.clone()).layer(model));
        let looping = tower::service_fn(move |request: ChatRequest| {
            let below = below.clone();
            async move {
                let mut answer = send(&below, request).await?;
                let mut results = Message::tool_results([ToolResult::new("c1", "looked c1")]);
                results.id =
                    answer.messages[0].id.map(|id| MessageId { index: id.index + 1, ..id });
                answer.messages.push(results.into());
                Ok::<_, BoxError>(ChatResponse::from(answer))
            }
        });
        let client = boxed(PerRunPersistence::new(store.clone()).mode(JOURNALED).layer(looping));
        let request = ask("where?", streamed);
        let all = ["assistant look#c1", "tool c1=looked c1"];
        for _ in 0..2 {
            let answer = send(&client, request.clone()).await.unwrap();
            assert_eq!(shorts(&answer.messages), all);
        }
        assert_eq!(stored(&store).await, ["user where?", all[0]]);
    }
}

#[tokio::test]
async fn calls_that_the_caller_never_answers_are_not_shown_as_interrupted() {
    for streamed in BOTH_WAYS {
        let store = store();
        let model = ScriptedModel::new([calls([("ask", "c1")]), Step::text("as you like")]);
        let below = PerServiceCallPersistence::new(store.clone()).layer(model.clone());
        let client = boxed(PerRunPersistence::new(store.clone()).mode(JOURNALED).layer(below));
        send(&client, ask("go", streamed)).await.unwrap();
        send(&client, ask("never mind", streamed)).await.unwrap();
        assert_eq!(sent_texts(&model, 1), ["user go", "user never mind"]);
    }
}

#[tokio::test]
async fn the_id_of_a_service_that_keeps_the_history_is_seen_with_the_commit() {
    let policies = [ConflictPolicy::Record, ConflictPolicy::StopRecording];
    for (streamed, conflict) in cases!(BOTH_WAYS, policies) {
        let (store, gate) = (store(), Gate::closed());
        let setup = Setup::new(&store).policy(policy().on_conflict(conflict));
        let model = ScriptedModel::new([
            Step::error("overloaded"),
            kept_call("s1"),
            Step::error("overloaded"),
            kept("there", "s1").waits(&gate),
        ]);
        let client = setup.stack(&model, tools(&ToolLog::default()));
        let request = ask("where?", streamed);
        send(&client, request.clone()).await.unwrap_err();
        send(&client, request.clone()).await.unwrap_err();
        let looking = async {
            model.called(4).await;
            assert_eq!(service_id(&store).await, None);
            gate.open();
        };
        let (answer, ()) = tokio::join!(send(&client, request), looking);
        assert_eq!(answer.unwrap().text(), "there");
        assert_eq!(service_id(&store).await.as_deref(), Some("s1"));
        assert_eq!(sent_texts(&model, 1), ["user where?"]);
        if conflict == ConflictPolicy::Record {
            assert_eq!(
                sent_texts(&model, 3),
                ["tool c1=looked c1"],
                "only the new messages are sent"
            );
        }
        assert_eq!(
            model.requests()[3].service_id().unwrap().map(|id| id.to_string()).as_deref(),
            Some("s1")
        );
    }
}
