//! Tests tool loops of an application, and stacks without a tool loop: which messages and tool
//! calls are stored if the caller receives the calls, and if the loop copies messages.

use std::sync::Arc;

use tower::{Layer, service_fn};
use tower_chat::{
    Answer, BoxError, ChatRequest, ChatResponse, Finish, HistoryStore, Message, Role, ToolResult,
    layer::{PerRunPersistence, PerServiceCallPersistence},
    request::Usage,
    store::{Directory, InvocationQuery, ToolCallQueries},
    tool::{ToolInvocation, ToolStatus},
};
use tower_chat_testkit::{ScriptedModel, Step, cases};

use crate::common::*;

/// Returns the label, the status and the result of each stored tool call.
async fn record(store: &Store) -> Vec<(String, ToolStatus, Option<String>)> {
    store.inner().flush().await.unwrap();
    let found = store.inner().invocations(&InvocationQuery::of(&key())).await.unwrap().found;
    let row = |call: &ToolInvocation| {
        let result = call.result.as_ref().map(|result| result.text());
        (label(&call.arguments).unwrap_or_default(), call.status, result)
    };
    found.iter().map(|(_, call)| row(call)).collect()
}

fn answer(messages: impl IntoIterator<Item = Message>, finish: Finish) -> ChatResponse {
    Answer::new(messages.into_iter().map(Arc::new).collect(), finish).into()
}

#[tokio::test]
async fn without_a_tool_loop_the_calls_of_an_answer_are_returned_in_every_mode() {
    every_case(async |case| {
        let store = case.store().await;
        let model = ScriptedModel::new([case.calls([("look", "c1"), ("ask", "c2")])]);
        let below = PerServiceCallPersistence::new(store.clone()).layer(model);
        let client = boxed(PerRunPersistence::new(store.clone()).mode(case.mode).layer(below));
        send(&client, case.ask("go")).await.unwrap();
        let returned = |label: &str| (label.to_owned(), ToolStatus::Returned, None);
        assert_eq!(record(&store).await, ["c1", "c2"].map(returned));
    })
    .await;
}

#[tokio::test]
async fn all_messages_of_the_input_follow_the_history_in_a_first_service_call() {
    every_case(async |case| {
        let (store, model) =
            (case.store().await, ScriptedModel::new([Step::text("a1"), Step::text("a2")]));
        let below = PerServiceCallPersistence::new(store.clone()).layer(model.clone());
        let client = boxed(PerRunPersistence::new(store.clone()).mode(case.mode).layer(below));
        send(&client, case.ask("q1")).await.unwrap();
        let both = [Message::user("q2"), Message::user("q3")];
        send(&client, case.request_with(both)).await.unwrap();
        let request = &model.requests()[1];
        assert_eq!(sent_texts(&model, 1), ["user q1", "assistant a1", "user q2", "user q3"]);
        assert_eq!(request.history_len(), 2);
    })
    .await;
}

#[tokio::test]
async fn of_a_foreign_loop_calls_with_a_result_are_recorded_and_the_others_returned() {
    let cases =
        Cases::all().modes([PerRun], "the other modes need a persister below the tool loop");
    let scenario = async |case: Case| {
        let store = case.store().await;
        let first = case.call_message([("look", "c1")]);
        let second = case.call_message([("ask", "c2"), ("ask", "c3")]);
        let result_of = move |message: &Message, text: &str| {
            let id = tower_chat::replay::effective_call_ids(message).remove(0);
            Message::tool_results([ToolResult::new(id, text)])
        };
        let messages = [first.clone(), result_of(&first, "looked at one"), second.clone()];
        let looping = service_fn(move |_: ChatRequest| {
            let messages = messages.clone();
            async move { Ok::<_, BoxError>(answer(messages, Finish::stop())) }
        });
        let client = boxed(PerRunPersistence::new(store.clone()).mode(case.mode).layer(looping));
        send(&client, case.ask("go")).await.unwrap();
        let ok =
            |label: &str, text: &str| (label.to_owned(), ToolStatus::Ok, Some(text.to_owned()));
        let returned = |label: &str| (label.to_owned(), ToolStatus::Returned, None);
        let expected = [ok("c1", "looked at one"), returned("c2"), returned("c3")];
        assert_eq!(record(&store).await, expected);
    };
    cases.check(scenario).await;
}

#[tokio::test]
async fn an_unseen_answer_counts_as_a_service_call_if_it_has_a_message_or_usage() {
    for (has_message, has_usage, streamed) in cases!(BOTH_WAYS, BOTH_WAYS, BOTH_WAYS) {
        let store = store();
        let usage = if has_usage { Usage::new(70, 8) } else { Usage::default() };
        let looping = service_fn(move |_: ChatRequest| async move {
            let messages = has_message.then(|| Message::assistant("from afar"));
            let finish = Finish::stop().with_usage(usage);
            Ok::<_, BoxError>(answer(messages, finish))
        });
        let client = boxed(PerRunPersistence::new(store.clone()).mode(PerRun).layer(looping));
        send(&client, ask("hi", streamed)).await.unwrap();
        let runs = store.inner().runs(&key(), None, 9).await.unwrap();
        let used = runs.iter().flat_map(|run| &run.usage);
        let calls: u64 = used.map(|usage| usage.sum.service_calls).sum();
        let expected = u64::from(has_message || has_usage);
        assert_eq!(calls, expected, "message {has_message}, usage {has_usage}");
    }
}

#[tokio::test]
async fn a_foreign_loop_that_sends_copies_of_all_messages_stores_each_once() {
    Cases::all()
        .modes([PerServiceCall, Journaled], "per-run mode stores nothing of a single service call")
        .check(async |case| {
            let store = case.store().await;
            let model = ScriptedModel::new([case.calls([("look", "c1")]), Step::text("there")]);
            let below = boxed(PerServiceCallPersistence::new(store.clone()).layer(model.clone()));
            let looping = service_fn(move |request: ChatRequest| {
                let below = below.clone();
                async move {
                    let answer = send(&below, request.clone()).await?;
                    let asking = Message::clone(&answer.messages[0]);
                    let id = tower_chat::replay::effective_call_ids(&asking).remove(0);
                    let results = Message::tool_results([ToolResult::new(id, "looked around")]);
                    let copies = request.messages().iter().map(|message| Message::clone(message));
                    let mut next = request.clone();
                    let messages: Vec<Message> = copies.chain([asking, results]).collect();
                    next.set_messages(messages, request.history_len());
                    next.history_owner = answer.finish.history_owner.clone();
                    Ok::<_, BoxError>(ChatResponse::from(send(&below, next).await?))
                }
            });
            let client =
                boxed(PerRunPersistence::new(store.clone()).mode(case.mode).layer(looping));
            send(&client, case.ask("where?")).await.unwrap();
            let stored = store.inner().load(&key()).await.unwrap().messages;
            let texts: Vec<(Role, String)> = stored
                .iter()
                .map(|message| {
                    let result = message.results().next().map(|result| result.text());
                    (message.role, result.unwrap_or_else(|| message.text()))
                })
                .collect();
            let expected = [
                (Role::User, "where?"),
                (Role::Assistant, ""),
                (Role::Tool, "looked around"),
                (Role::Assistant, "there"),
            ];
            assert_eq!(texts, expected.map(|(role, text)| (role, text.to_owned())));
            let new: Vec<usize> =
                model.requests().iter().map(|request| request.new_messages().len()).collect();
            assert_eq!(new, [1, 1], "the number of messages that are new to the model");
        })
        .await;
}

#[tokio::test]
async fn a_foreign_loop_may_add_a_message_that_is_equal_to_the_input_of_the_run() {
    Cases::all()
        .modes([PerServiceCall, Journaled], "per-run mode stores nothing of a single service call")
        .check(async |case| {
            let store = case.store().await;
            let model = ScriptedModel::new([Step::text("one"), Step::text("two")]);
            let below = boxed(PerServiceCallPersistence::new(store.clone()).layer(model.clone()));
            let looping = service_fn(move |request: ChatRequest| {
                let below = below.clone();
                async move {
                    let answer = send(&below, request.clone()).await?;
                    let mut next = request.clone();
                    next.set_messages(Message::user("go on"), 0);
                    next.history_owner = answer.finish.history_owner.clone();
                    Ok::<_, BoxError>(ChatResponse::from(send(&below, next).await?))
                }
            });
            let client =
                boxed(PerRunPersistence::new(store.clone()).mode(case.mode).layer(looping));
            send(&client, case.ask("go on")).await.unwrap();
            let all = ["user go on", "assistant one", "user go on", "assistant two"];
            assert_eq!(stored(&store).await, all);
            assert_eq!(sent_texts(&model, 1), all[..3]);
        })
        .await;
}
