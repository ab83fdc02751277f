//! Tests tool sets that change while a call is in progress. The hook of the tool that executes the
//! call still decides what is stored.

use std::sync::Mutex;

use tower_chat::{
    ChatRequest, Message, Part, Role, Tool, ToolResult, Tools,
    layer::ToolLoopLayer,
    message::{Native, RawJson},
    store::{InvocationQuery, Journal, ToolCallQueries, format},
    tool::{CallPosition, Retention, SharedTools, ToolOutput, ToolStatus, persist_with},
    tool_fn,
};
use tower_chat_testkit::{Step, cases};

use super::*;
use crate::case::labelled;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    Unregistered,
    Replaced,
    ReplacedByPlain,
    Declared,
}

const CHANGES: [Change; 4] =
    [Change::Unregistered, Change::Replaced, Change::ReplacedByPlain, Change::Declared];

/// Returns a tool that changes the tool set while it runs. Its results and errors contain a secret.
fn pay(shared: &SharedTools, change: Option<Change>, fails: bool, asks: bool) -> impl Tool + use<> {
    let shared = shared.clone();
    let definition = definition("pay");
    let definition = if asks { definition.needs_approval() } else { definition };
    let pay = tool_fn(definition, move |_| {
        if let Some(change) = change {
            shared.update(|_| changed(change));
        }
        async move {
            match fails {
                true => Err::<ToolOutput, BoxError>("card xqz refused".into()),
                false => Ok("card xqz charged".into()),
            }
        }
    });
    hooked(pay, "first")
}

fn hooked(tool: impl Tool, by: &'static str) -> impl Tool {
    persist_with(tool, move |call| {
        call.redact_arguments(format!("{{\"kept_by\":\"{by}\"}}"));
        call.redact_result(format!("kept by {by}"));
        if call.error().is_some() {
            call.redact_error(Some(format!("error kept by {by}")));
        }
        Ok(Retention::Keep)
    })
}

fn changed(change: Change) -> Tools {
    let plain = tool_fn(definition("pay"), |_| async { Ok("plainly paid") });
    match change {
        Change::Unregistered => others(),
        Change::Replaced => others().with(hooked(plain, "second")),
        Change::ReplacedByPlain => others().with(plain),
        Change::Declared => others().declare(definition("pay")),
    }
}

fn others() -> Tools {
    Tools::new()
        .with(tool_fn(definition("look"), |_| async { Ok("looked") }))
        .declare(definition("ask"))
}

/// Returns a call of `pay` whose arguments and provider item contain a secret.
fn paying(id: &str) -> ToolCall {
    let mut call = ToolCall::new(id, "pay", r#"{"card": "xqz"}"#);
    let item = RawJson::from_value(&serde_json::json!({"type": "call", "card": "xqz"})).unwrap();
    call.native = Some(Native::new("some-wire", item));
    call
}

async fn everything(agent: &Agent) -> String {
    let mut all: String =
        agent.stored().await.iter().map(|message| format::encode(message)).collect();
    all.push_str(&format!("{:?}", agent.record().await));
    if let Some(open) = agent.store.open_run(&key()).await.unwrap() {
        all.extend(open.messages.iter().map(|message| format::encode(message)));
        all.push_str(&format!("{:?}", open.tools));
    }
    all
}

fn rows(record: &[ToolInvocation]) -> Vec<(&str, ToolStatus, String, Option<&str>)> {
    let mut rows = Vec::new();
    for call in record {
        let result = call.result.as_ref().map_or("-".to_owned(), |result| result.text());
        rows.push((call.call_id.as_str(), call.status, result, call.error.as_deref()));
    }
    rows
}

#[tokio::test]
async fn a_call_is_stored_by_the_hook_of_the_tool_that_ran_it() {
    for (change, fails, (mode, streamed)) in cases!(CHANGES, BOTH_WAYS, every_way()) {
        let about = format!("{change:?} fails {fails} {mode:?} streamed {streamed}");
        let shared = SharedTools::default();
        shared.set(others().with(pay(&shared, Some(change), fails, false)));
        let script = vec![
            Step::message(Message::tool_calls([paying("c1")])),
            calls([("look", "c2")]),
            Step::text("done"),
            Step::text("again"),
        ];
        let agent = Agent::new(mode, ToolLoopLayer::new(shared), script);
        agent.send_as(streamed, ChatRequest::user("hi")).await.unwrap();
        let all = everything(&agent).await;
        assert!(!all.contains("xqz"), "{about} {all}");
        let record = agent.record().await;
        let (status, error) = match fails {
            true => (ToolStatus::Error, Some("error kept by first")),
            false => (ToolStatus::Ok, None),
        };
        assert_eq!(
            rows(&record),
            [
                ("c1", status, "kept by first".to_owned(), error),
                ("c2", ToolStatus::Ok, "looked".to_owned(), None),
            ],
            "{about}"
        );
        assert_eq!(record[0].arguments, r#"{"kept_by":"first"}"#, "{about}");
        agent.send_as(streamed, ChatRequest::user("and?")).await.unwrap();
        let replayed = agent.model.requests()[3].messages().clone();
        let result = replayed.get(2).unwrap().results().next().unwrap().text();
        assert_eq!(result, "kept by first", "{about}");
    }
}

#[tokio::test]
async fn a_call_of_a_tool_that_was_unregistered_before_is_stored_by_the_hook_it_had() {
    for (mode, streamed) in every_way() {
        let shared = SharedTools::default();
        shared.set(others().with(pay(&shared, Some(Change::Unregistered), false, false)));
        let script = vec![
            Step::message(Message::tool_calls([paying("c1")])),
            Step::message(Message::tool_calls([paying("c2")])),
            Step::text("done"),
        ];
        let agent = Agent::new(mode, ToolLoopLayer::new(shared), script);
        agent.send_as(streamed, ChatRequest::user("hi")).await.unwrap();
        let all = everything(&agent).await;
        assert!(!all.contains("xqz"), "{mode:?} streamed {streamed} {all}");
        assert_eq!(agent.record().await[1].status, ToolStatus::UnknownTool);
    }
}

#[tokio::test]
async fn an_approved_call_keeps_the_hook_of_the_tool_that_was_registered_at_its_approval() {
    for (change, fails, (mode, streamed)) in cases!(CHANGES, BOTH_WAYS, every_way()) {
        let about = format!("{change:?} fails {fails} {mode:?} streamed {streamed}");
        let shared = SharedTools::default();
        let pay = pay(&shared, Some(change), fails, true);
        // The hook must not change the arguments, because the approved call would then not run.
        let pay = persist_with(pay, |call| {
            call.redact_result("kept by first");
            if call.error().is_some() {
                call.redact_error(Some("error kept by first".to_owned()));
            }
            Ok(Retention::Keep)
        });
        shared.set(others().with(pay));
        let script = vec![calls([("pay", "c1")]), calls([("look", "c2")]), Step::text("done")];
        let agent = Agent::new(mode, ToolLoopLayer::new(shared), script);
        let asking = agent.send_as(streamed, ChatRequest::user("hi")).await.unwrap();
        let request = asking.approval_requests().next().unwrap().approve();
        let message = Message::new(Role::User, vec![Part::ApprovalResponse(request)]);
        agent.send_as(streamed, ChatRequest::new(message)).await.unwrap();
        let all = everything(&agent).await;
        assert!(!all.contains("xqz"), "{about} {all}");
        let (status, error) = match fails {
            true => (ToolStatus::Error, Some("error kept by first")),
            false => (ToolStatus::Ok, None),
        };
        let record = agent.record().await;
        let expected = ("c1", status, "kept by first".to_owned(), error);
        assert_eq!(rows(&record)[0], expected, "{about}");
    }
}

#[tokio::test]
async fn a_late_result_of_a_tool_that_is_gone_is_withheld_if_the_tool_had_a_hook() {
    for (ids, (mode, streamed)) in cases!([["c1", "c2"], ["", ""]], every_way()) {
        let shared = SharedTools::default();
        shared.set(others().with(pay(&shared, None, false, false)));
        let script = vec![
            Step::message(Message::tool_calls([
                paying(ids[0]),
                ToolCall::new(ids[1], "ask", r#"{"who": "bob"}"#),
            ])),
            Step::text("done"),
        ];
        let agent = Agent::new(mode, ToolLoopLayer::new(shared.clone()), script);
        let returned = agent.send_as(streamed, ChatRequest::user("hi")).await.unwrap();
        shared.set(others());
        let ids = tower_chat::replay::effective_call_ids(&returned.messages[0]);
        let results = [
            ToolResult::error(ids[0].as_str(), "card xqz refused"),
            ToolResult::new(ids[1].as_str(), "bob said yes"),
        ];
        let input = ChatRequest::new(Message::tool_results(results));
        agent.send_as(streamed, input).await.unwrap();
        let all = everything(&agent).await;
        assert!(!all.contains("xqz"), "{mode:?} streamed {streamed} {all}");
        let record = agent.record().await;
        assert!(record[0].result.as_ref().unwrap().text().contains("was not stored"));
        assert_eq!(record[0].status, ToolStatus::Error);
        assert_eq!(record[1].result.as_ref().unwrap().text(), "bob said yes");
        let live = agent.model.requests()[1].messages().clone();
        let shown = live.iter().flat_map(|message| message.results()).next().unwrap().text();
        assert_eq!(shown, "card xqz refused", "the active run continues with the unchanged result");
    }
}

#[tokio::test]
async fn a_late_result_is_withheld_by_the_hook_of_its_own_message_alone() {
    for (hooked_first, (mode, streamed)) in cases!(BOTH_WAYS, every_way()) {
        let shared = SharedTools::default();
        shared.set(others().with(pay(&shared, None, false, false)));
        let ask = |id: &str| ToolCall::new(id, "ask", labelled(id));
        // The call of `ask` makes the loop return all calls to the caller.
        let hooked = Step::message(Message::tool_calls([paying("p1"), ask("a1")]));
        let plain = Step::message(Message::tool_calls([ask("a2")]));
        let steps = if hooked_first { [hooked, plain] } else { [plain, hooked] };
        let script = steps.into_iter().chain([Step::text("done")]).collect();
        let agent = Agent::new(mode, ToolLoopLayer::new(shared.clone()), script);
        let mut asked = Vec::new();
        for text in ["one", "two"] {
            let answer = agent.send_as(streamed, ChatRequest::user(text)).await.unwrap();
            asked.extend(answer.messages.iter().cloned());
        }
        shared.set(others());
        let late = asked.iter().map(|message| {
            let id = tower_chat::replay::effective_call_ids(message).pop().unwrap();
            let text = format!("late {id} of bob");
            let call = CallPosition { message: message.id.unwrap(), index: 0 };
            ToolResult::new(id, text).answering(call)
        });
        let input = ChatRequest::new([Message::tool_results(late)]);
        agent.send_as(streamed, input).await.unwrap();
        let record = agent.record().await;
        let texts: Vec<(String, String)> = record
            .iter()
            .filter(|call| call.call_id != "a1")
            .map(|call| (call.name.clone(), call.result.as_ref().unwrap().text()))
            .collect();
        let about = format!("{mode:?} streamed {streamed} hooked first {hooked_first} {texts:?}");
        assert_eq!(texts.len(), 2, "{about}");
        for (name, text) in texts {
            match name.as_str() {
                "pay" => assert!(text.contains("was not stored"), "{about}"),
                _ => assert_eq!(text, "late a2 of bob", "{about}"),
            }
        }
    }
}

#[tokio::test]
async fn a_resumed_run_keeps_the_stored_result_of_a_finished_call_after_a_change_of_its_tool() {
    for (change, streamed) in cases!(CHANGES.map(Some).into_iter().chain([None]), BOTH_WAYS) {
        let shared = SharedTools::default();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let log = asked.clone();
        let pay = tool_fn(definition("pay"), |_| async { Ok("card xqz charged") });
        let pay = persist_with(pay, move |call| {
            let text = call.result().map(|result| result.text());
            log.lock().unwrap().extend(text);
            call.redact_result("kept by first");
            Ok(Retention::Keep)
        });
        shared.set(others().with(pay));
        let script = vec![calls([("pay", "c1")]), Step::error("overloaded"), Step::text("done")];
        let agent =
            Agent::new(PersistenceMode::Journaled, ToolLoopLayer::new(shared.clone()), script);
        let request = ChatRequest::user("hi").in_conversation(key());
        agent.send_again(streamed, &request).await.unwrap_err();
        assert!(!everything(&agent).await.contains("xqz"));
        if let Some(change) = change {
            shared.set(changed(change));
        }
        agent.send_again(streamed, &request).await.unwrap();
        let record = agent.record().await;
        let expected = ("c1", ToolStatus::Ok, "kept by first".to_owned(), None);
        assert_eq!(rows(&record), [expected], "{change:?} streamed {streamed}");
        let asked = asked.lock().unwrap().clone();
        assert!(asked.iter().all(|text| text == "card xqz charged"), "{asked:?}");
        let query = InvocationQuery::of(&key());
        assert_eq!(agent.store.invocations(&query).await.unwrap().found.len(), 1);
    }
}
