//! Tests a tool loop over `PerServiceCallPersistence`, without `PerRunPersistence` above it. What
//! is stored is the same as in a complete stack, and the hooks of the tools are called.

use std::pin::pin;

use futures_util::{StreamExt, future::poll_immediate};
use tower_chat::{
    ChatRequest, ChatUpdate, Message, Role, Tool, ToolContext, Tools,
    layer::ToolLoopLayer,
    store::format,
    tool::{Retention, SharedTools, ToolOutput, ToolStatus, persist_with},
    tool_fn,
};
use tower_chat_testkit::{FaultyStore, Step, cases};

use super::*;

const ABOVE: [bool; 2] = [true, false];

fn agent(above: bool, tool_loop: &ToolLoopLayer, script: Vec<Step>) -> Agent {
    match above {
        true => Agent::new(PersistenceMode::PerServiceCall, tool_loop.clone(), script),
        false => Agent::without_per_run(tool_loop.clone(), script),
    }
}

fn hooked(tool: impl Tool) -> impl Tool {
    persist_with(tool, |call| {
        call.redact_arguments("{}");
        call.redact_result("kept");
        if call.error().is_some() {
            call.redact_error(Some("error kept".to_owned()));
        }
        Ok(Retention::Keep)
    })
}

fn tools() -> Tools {
    Tools::new()
        .with(hooked(tool_fn(definition("pay"), |_| async { Ok("card xqz charged") })))
        .with(hooked(tool_fn(definition("refuse"), |_| async {
            Err::<ToolOutput, BoxError>("card xqz refused".into())
        })))
        .with(tool_fn(definition("look"), |context: ToolContext| async move {
            Ok(format!("looked for {}", context.call_id()))
        }))
        .with(tool_fn(definition("stop"), |context: ToolContext| async move {
            Ok(ToolOutput::from(format!("stopped at {}", context.call_id())).terminate())
        }))
        .with(tool_fn(definition("hang"), |_| std::future::pending::<Result<&str, BoxError>>()))
}

async fn everything(agent: &Agent) -> String {
    let mut all: String =
        agent.stored().await.iter().map(|message| format::encode(message)).collect();
    all.push_str(&format!("{:?}", agent.record().await));
    all
}

type Row = (
    String,
    u32,
    ToolStatus,
    Option<String>,
    Option<String>,
    Option<SystemTime>,
    Option<SystemTime>,
);

async fn rows(agent: &Agent) -> Vec<Row> {
    let row = |call: ToolInvocation| {
        let result = call.result.as_ref().map(|result| result.text());
        (
            call.call_id,
            call.round_index,
            call.status,
            result,
            call.error,
            call.started_at,
            call.finished_at,
        )
    };
    agent.record().await.into_iter().map(row).collect()
}

async fn stored(agent: &Agent) -> Vec<(Option<u32>, Role, String)> {
    let row = |message: &Arc<Message>| {
        let index = message.id.map(|id| id.index);
        (index, message.role, format!("{:?} {:?}", message.parts, message.metadata))
    };
    agent.stored().await.iter().map(row).collect()
}

#[tokio::test]
async fn hooks_errors_times_and_statuses_equal_those_of_a_complete_stack() {
    for (streamed, concurrent) in cases!(BOTH_WAYS, BOTH_WAYS) {
        let mut found = Vec::new();
        for above in ABOVE {
            let script = vec![
                calls([("pay", "c1"), ("refuse", "c2"), ("nobody", "c3")]),
                calls([("look", "c4"), ("pay", "c5")]),
                Step::text("done"),
                Step::text("bye"),
            ];
            let tool_loop = ToolLoopLayer::new(tools()).concurrent(concurrent);
            let agent = agent(above, &tool_loop, script);
            let first = agent.send_as(streamed, ChatRequest::user("hi")).await.unwrap();
            let all = everything(&agent).await;
            assert!(!all.contains("xqz") && !first.messages.is_empty(), "{above} {all}");
            let live = agent.model.requests()[1].messages().clone();
            let results: Vec<_> =
                live.last().unwrap().results().map(|result| result.text()).collect();
            assert_eq!(results[0], "card xqz charged", "{above}");
            agent.send_as(streamed, ChatRequest::user("bye")).await.unwrap();
            let seen: Vec<_> = agent
                .model
                .requests()
                .iter()
                .map(|request| {
                    request.messages().iter().map(|m| format!("{:?}", m.parts)).collect::<Vec<_>>()
                })
                .collect();
            let rows = rows(&agent).await;
            let of: Vec<_> = rows.iter().map(|row| (row.0.as_str(), row.2)).collect();
            assert_eq!(
                of,
                [
                    ("c1", ToolStatus::Ok),
                    ("c2", ToolStatus::Error),
                    ("c3", ToolStatus::UnknownTool),
                    ("c4", ToolStatus::Ok),
                    ("c5", ToolStatus::Ok),
                ],
                "{above}"
            );
            assert_eq!(rows[1].4.as_deref(), Some("error kept"), "{above}");
            let timed: Vec<_> = rows.iter().map(|row| row.5.is_some() && row.6 > row.5).collect();
            assert_eq!(timed, [true, true, false, true, true], "{above}");
            found.push((stored(&agent).await, rows, seen));
        }
        assert_eq!(found[0].0, found[1].0, "stored, streamed {streamed}");
        assert_eq!(found[0].2, found[1].2, "shown, streamed {streamed}");
        let untimed = |rows: &[Row]| -> Vec<_> {
            rows.iter().map(|r| (r.0.clone(), r.1, r.2, r.3.clone(), r.4.clone())).collect()
        };
        assert_eq!(untimed(&found[0].1), untimed(&found[1].1), "streamed {streamed}");
    }
}

#[tokio::test]
async fn results_of_a_run_that_a_tool_ends_are_in_the_record_alone() {
    for (streamed, concurrent) in cases!(BOTH_WAYS, BOTH_WAYS) {
        let mut found = Vec::new();
        for above in ABOVE {
            let script = vec![
                calls([("look", "c1")]),
                calls([("pay", "c2"), ("nobody", "c3"), ("stop", "c4"), ("look", "c5")]),
            ];
            let tool_loop = ToolLoopLayer::new(tools()).concurrent(concurrent);
            let agent = agent(above, &tool_loop, script);
            let answer = agent.send_as(streamed, ChatRequest::user("hi")).await.unwrap();
            assert_eq!(answer.messages.last().unwrap().role, Role::Tool);
            let all = everything(&agent).await;
            assert!(!all.contains("xqz"), "{above} {all}");
            let rows = rows(&agent).await;
            let rows: Vec<_> = rows.into_iter().map(|r| (r.0, r.1, r.2, r.3, r.4)).collect();
            found.push((stored(&agent).await, rows));
            let pending = tower_chat::tool::pending_results(&agent.store, &key()).await.unwrap();
            assert_eq!(pending.unwrap().results().count(), if concurrent { 4 } else { 3 });
        }
        assert_eq!(found[0], found[1], "streamed {streamed} concurrent {concurrent}");
    }
}

#[tokio::test]
async fn results_of_a_run_that_a_tool_ends_are_stored_before_the_caller_receives_them() {
    let mut found = Vec::new();
    for above in ABOVE {
        let script = vec![calls([("look", "c1"), ("stop", "c2")])];
        let agent = agent(above, &ToolLoopLayer::new(tools()), script);
        let request = ChatRequest::user("hi").streamed().in_conversation(key());
        let mut response = agent.client.clone().ready().await.unwrap().call(request).await.unwrap();
        let is_result = |update: &ChatUpdate| matches!(update, ChatUpdate::Message(message) if message.role == Role::Tool);
        while !is_result(&response.next().await.unwrap().unwrap()) {}
        drop(response);
        let rows = rows(&agent).await;
        let rows: Vec<_> = rows.into_iter().map(|r| (r.0, r.1, r.2, r.3, r.4)).collect();
        assert_eq!(rows[0].3.as_deref(), Some("looked for c1"), "{above}");
        assert_eq!(rows[1].3.as_deref(), Some("stopped at c2"), "{above}");
        found.push((stored(&agent).await, rows));
    }
    assert_eq!(found[0], found[1]);
}

#[tokio::test]
async fn an_answer_reports_what_is_stored_although_a_layer_has_removed_the_run() {
    for streamed in BOTH_WAYS {
        let store = memory();
        let model = ScriptedModel::new([Step::text("done")]);
        let client = tower::ServiceBuilder::new()
            .layer(ToolLoopLayer::new(tools()))
            .map_request(|mut request: ChatRequest| {
                request.extensions.remove::<tower_chat::run::Run>();
                request
            })
            .layer(PerServiceCallPersistence::new(store.clone()))
            .service(model.clone());
        let client = tower::util::BoxCloneSyncService::new(client);
        let agent = Agent { store, streamed, model, client };
        let answer = agent.send_as(streamed, ChatRequest::user("hi")).await.unwrap();
        assert_eq!(answer.finish.saved.unwrap().messages, 2, "streamed {streamed}");
        assert_eq!(agent.stored().await.len(), 2);
    }
}

#[tokio::test]
async fn results_of_tools_that_have_finished_outlive_a_run_that_is_dropped() {
    for streamed in BOTH_WAYS {
        let mut found = Vec::new();
        for above in ABOVE {
            let script = vec![calls([("pay", "c1"), ("look", "c2"), ("hang", "c3")])];
            let agent = agent(above, &ToolLoopLayer::new(tools()), script);
            {
                let sending = agent.send_as(streamed, ChatRequest::user("hi"));
                assert!(poll_immediate(pin!(sending)).await.is_none());
            }
            assert!(!everything(&agent).await.contains("xqz"), "{above}");
            let rows = rows(&agent).await;
            let rows: Vec<_> = rows.into_iter().map(|r| (r.0, r.1, r.2, r.3, r.4)).collect();
            found.push((stored(&agent).await, rows));
        }
        assert_eq!(found[0], found[1], "streamed {streamed}");
        assert_eq!(found[0].1[1].3.as_deref(), Some("looked for c2"), "streamed {streamed}");
    }
}

#[tokio::test]
async fn a_tool_that_is_unregistered_while_it_runs_keeps_its_hook() {
    for streamed in BOTH_WAYS {
        let shared = SharedTools::default();
        let set = shared.clone();
        let pay = tool_fn(definition("pay"), move |_| {
            set.set(Tools::new());
            async { Ok("card xqz charged") }
        });
        shared.set(Tools::new().with(hooked(pay)));
        let script = vec![calls([("pay", "c1")]), Step::text("done")];
        let agent = Agent::without_per_run(ToolLoopLayer::new(shared), script);
        agent.send_as(streamed, ChatRequest::user("hi")).await.unwrap();
        let all = everything(&agent).await;
        assert!(!all.contains("xqz") && all.contains("kept"), "{all}");
    }
}

#[tokio::test]
async fn the_history_is_loaded_once_a_run() {
    for streamed in BOTH_WAYS {
        let store = FaultyStore::new(MemoryStore::new());
        let script = [
            calls([("look", "c1")]),
            calls([("look", "c2")]),
            Step::text("done"),
            Step::text("bye"),
        ];
        let model = ScriptedModel::new(script);
        let client = tower::ServiceBuilder::new()
            .layer(ToolLoopLayer::new(tools()))
            .layer(PerServiceCallPersistence::new(store.clone()))
            .service(model.clone());
        let send = async |text: &str| {
            let request = ChatRequest::user(text).in_conversation(key());
            let request = if streamed { request.streamed() } else { request };
            let response = client.clone().ready().await.unwrap().call(request).await.unwrap();
            response.collect().await.unwrap();
        };
        send("hi").await;
        assert_eq!(model.requests().len(), 3);
        assert_eq!(store.loads(), 0, "a conversation that does not exist is not loaded");
        send("bye").await;
        assert_eq!(store.loads(), 1);
    }
}

#[tokio::test]
async fn a_service_call_that_fails_is_retried_below_the_loop_and_stored_once() {
    for streamed in BOTH_WAYS {
        let mut found = Vec::new();
        for above in ABOVE {
            let script = vec![
                Step::error("overloaded"),
                calls([("pay", "c1")]),
                Step::error("overloaded"),
                Step::text("done"),
            ];
            let agent = Agent::retrying(above, ToolLoopLayer::new(tools()), script);
            agent.send_as(streamed, ChatRequest::user("hi")).await.unwrap();
            assert!(!everything(&agent).await.contains("xqz"), "{above}");
            found.push(stored(&agent).await);
        }
        assert_eq!(found[0], found[1], "streamed {streamed}");
        assert_eq!(found[0].len(), 4);
    }
}

#[tokio::test]
async fn a_run_that_is_sent_again_continues_after_what_is_stored() {
    let modes = [None, Some(PersistenceMode::PerServiceCall), Some(PersistenceMode::Journaled)];
    for (mode, streamed) in cases!(modes, BOTH_WAYS) {
        let script = vec![
            calls([("pay", "c1")]),
            Step::error("overloaded"),
            calls([("look", "c2")]),
            Step::text("done"),
        ];
        let tool_loop = ToolLoopLayer::new(tools());
        let agent = match mode {
            Some(mode) => Agent::new(mode, tool_loop, script),
            None => Agent::without_per_run(tool_loop, script),
        };
        let request = ChatRequest::user("hi").in_conversation(key());
        agent.send_again(streamed, &request).await.unwrap_err();
        agent.send_again(streamed, &request).await.unwrap();
        let indexes: Vec<_> = stored(&agent).await.into_iter().map(|(index, ..)| index).collect();
        assert_eq!(indexes, (0..6).map(Some).collect::<Vec<_>>(), "{mode:?}, streamed {streamed}");
        let rounds: Vec<_> = rows(&agent).await.into_iter().map(|row| (row.0, row.1)).collect();
        assert_eq!(rounds, [("c1".to_owned(), 0), ("c2".to_owned(), 1)]);
        assert!(!everything(&agent).await.contains("xqz"));
    }
}

/// The request of an ended run is sent again. The run has calls without a result, because another
/// tool of their round ended the run, or because they were returned to the caller.
#[tokio::test]
async fn a_run_that_ended_on_purpose_runs_no_tool_and_calls_no_service_when_it_is_sent_again() {
    let forgotten = || {
        let tool = tool_fn(definition("forget"), |_| async { Ok("forgotten") });
        persist_with(tool, |_| Ok(Retention::Forget))
    };
    type Script = fn() -> Vec<Step>;
    let scripts: [(&str, Script, &[&str]); 3] = [
        ("a tool", || vec![calls([("stop", "c1"), ("look", "c2")])], &["c1"]),
        ("its caller", || vec![calls([("pay", "c1")]), calls([("ask", "c2")])], &["c1"]),
        ("an answer", || vec![calls([("forget", ""), ("look", "")]), Step::text("done")], &[]),
    ];
    for ((above, streamed), (ended_by, script, answered)) in
        cases!(ABOVE.into_iter().flat_map(|above| BOTH_WAYS.map(|it| (above, it))), &scripts)
    {
        let tools = tools().with(forgotten()).declare(definition("ask"));
        let agent = agent(above, &ToolLoopLayer::new(tools), script());
        let request = ChatRequest::user("hi").in_conversation(key());
        let first = agent.send_again(streamed, &request).await.unwrap();
        let before = everything(&agent).await;
        let again = agent.send_again(streamed, &request).await.unwrap();
        let case = format!("ended by {ended_by}, a layer above: {above}, streamed: {streamed}");
        assert_eq!(again.text(), first.text(), "{case}");
        let results: Vec<_> = again.messages.iter().flat_map(|it| it.results()).collect();
        let ids = results.iter().filter_map(|it| it.call_id.as_deref());
        let ids: Vec<_> = ids.filter(|_| !answered.is_empty()).collect();
        assert_eq!(ids, *answered, "{case}");
        assert_eq!(everything(&agent).await, before, "{case}");
    }
}

/// The stored answer of the run contains the calls of all answers. Only their sum exceeds the
/// limit.
#[tokio::test]
async fn the_call_limit_per_answer_does_not_apply_to_a_stored_answer_of_several_rounds() {
    for (above, streamed) in ABOVE.into_iter().flat_map(|above| BOTH_WAYS.map(|it| (above, it))) {
        let script = vec![
            calls([("look", "c1"), ("look", "c2")]),
            calls([("look", "c3"), ("look", "c4")]),
            Step::text("done"),
        ];
        let tool_loop = ToolLoopLayer::new(tools()).max_calls_per_answer(Some(2));
        let agent = agent(above, &tool_loop, script);
        let request = ChatRequest::user("hi").in_conversation(key());
        agent.send_again(streamed, &request).await.unwrap();
        let again = agent.send_again(streamed, &request).await.unwrap();
        let asked = again.messages.iter().flat_map(|message| message.calls());
        let asked: Vec<_> = asked.filter_map(|call| call.id.as_deref()).collect();
        assert_eq!(asked, ["c1", "c2", "c3", "c4"], "above: {above}, streamed: {streamed}");
        assert_eq!(again.text(), "done");
    }
}

#[tokio::test]
async fn under_a_foreign_tool_loop_the_hooks_of_the_named_tools_are_asked() {
    for (streamed, forgets) in BOTH_WAYS.into_iter().flat_map(|way| BOTH_WAYS.map(|it| (way, it))) {
        let tools = match forgets {
            false => tools(),
            true => {
                let pay = tool_fn(definition("pay"), |_| async { Ok("paid") });
                Tools::new().with(persist_with(pay, |_| Ok(Retention::Forget)))
            }
        };
        let store = MemoryStore::new();
        let model = ScriptedModel::new([calls([("pay", "c1")]), Step::text("done")]);
        let persistence = PerServiceCallPersistence::new(store.clone()).tools(tools);
        let client = tower::ServiceBuilder::new().layer(persistence).service(model.clone());
        let mut request = ChatRequest::user("hi").in_conversation(key());
        if streamed {
            request = request.streamed();
        }
        let call = async |request: ChatRequest| {
            let response = client.clone().ready().await.unwrap().call(request).await.unwrap();
            if !streamed {
                return response.collect().await.unwrap();
            }
            let updates: Vec<_> = response.map(Result::unwrap).collect().await;
            let messages = updates.into_iter().filter_map(|update| match update {
                tower_chat::ChatUpdate::Message(message) => Some(message),
                _ => None,
            });
            Answer::new(messages.collect(), tower_chat::Finish::stop())
        };
        let asking = call(request.clone()).await;
        for message in asking.messages {
            request.push(message);
        }
        let result = tower_chat::ToolResult::new("c1", "card xqz charged");
        request.push(Message::tool_results([result]));
        call(request).await;
        let mut all = format!("{:?}", record(&store).await);
        let stored = store.load(&key()).await.unwrap().messages;
        all.extend(stored.iter().map(|message| format::encode(message)));
        assert!(!all.contains("xqz") && !all.contains("secret"), "{all}");
        assert_eq!(stored.len(), 4, "nothing is stored twice, forgets {forgets}: {all}");
        assert_eq!(all.contains("\"kept\""), !forgets, "{all}");
        assert_eq!(model.requests().len(), 2);
    }
}

#[tokio::test]
async fn sources_are_numbered_through_the_whole_conversation() {
    for streamed in BOTH_WAYS {
        let search = tool_fn(definition("search"), |context: ToolContext| async move {
            let sources = context.take_source_numbers(2).map(
                |number| serde_json::json!({"source_number": number, "content": context.call_id()}),
            );
            Ok(serde_json::Value::from_iter(sources).to_string())
        });
        let script = vec![
            calls([("search", "c1")]),
            Step::text("one"),
            calls([("search", "c2")]),
            Step::text("two"),
        ];
        let agent = Agent::without_per_run(ToolLoopLayer::new(Tools::new().with(search)), script);
        for text in ["first", "second"] {
            agent.send_as(streamed, ChatRequest::user(text)).await.unwrap();
        }
        let texts: Vec<_> = rows(&agent).await.into_iter().map(|row| row.3.unwrap()).collect();
        for (text, numbers) in texts.iter().zip([[0, 1], [2, 3]]) {
            let sources: Vec<serde_json::Value> = serde_json::from_str(text).unwrap();
            let found: Vec<_> = sources.iter().map(|it| it["source_number"].clone()).collect();
            assert_eq!(found, numbers, "streamed {streamed}");
        }
    }
}

#[tokio::test]
async fn messages_that_a_layer_above_puts_first_are_sent_with_every_service_call_and_not_stored() {
    for (above, streamed) in cases!(ABOVE, BOTH_WAYS) {
        let script = vec![calls([("look", "c1")]), calls([("look", "c2")]), Step::text("done")];
        let agent = agent(above, &ToolLoopLayer::new(tools()), script);
        let mut request = ChatRequest::user("hi");
        let rules = [Message::system("answer briefly"), Message::user("an example question")];
        request.prepend(&rules.into_iter().collect());
        agent.send_as(streamed, request).await.unwrap();
        let about = format!("above {above} streamed {streamed}");
        for (call, own) in agent.model.requests().iter().zip([1, 3, 5]) {
            let texts: Vec<_> = call.messages().iter().take(3).map(|it| it.text()).collect();
            assert_eq!(texts, ["answer briefly", "an example question", "hi"], "{about}");
            assert_eq!(call.messages().len(), 2 + own, "{about}");
        }
        assert_eq!(agent.model.requests().len(), 3, "{about}");
        let first = agent.stored().await.first().map(|message| message.text());
        assert_eq!(first.as_deref(), Some("hi"), "{about}");
    }
}
