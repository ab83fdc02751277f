//! Tests which content of a call is stored if its tool has a `persist` hook.

use tower_chat::{
    ChatRequest, ToolResult, Tools,
    layer::ToolLoopLayer,
    store::format,
    tool::{Retention, StoredCall, persist_with},
    tool_fn,
};
use tower_chat_testkit::Step;

use super::*;

type Hook = fn(&mut StoredCall<'_>) -> Result<Retention, BoxError>;

async fn agent(case: Case, hook: Hook) -> Agent {
    let pay = tool_fn(definition("pay"), |_| async { Ok("card xqz") });
    let tools = Tools::new().with(persist_with(pay, hook));
    let script = vec![calls([("pay", "c1")]), Step::text("paid"), Step::text("again")];
    Agent::of(case, ToolLoopLayer::new(tools), script).await
}

async fn everything(agent: &Agent) -> String {
    let mut all: String =
        agent.stored().await.iter().map(|message| format::encode(message)).collect();
    all.push_str(&format!("{:?}", agent.record().await));
    all
}

#[tokio::test]
async fn redacted_values_are_not_in_the_store_and_the_run_continues_with_the_raw_values() {
    every_case(async |case| {
        let agent = agent(case, |call| {
            call.redact_arguments("{}");
            call.redact_result("redacted");
            Ok(Retention::Keep)
        })
        .await;
        agent.ask("hi").await.unwrap();
        let all = everything(&agent).await;
        assert!(!all.contains("xqz") && !all.contains("secret"), "{case} {all}");
        let live = agent.model.requests()[1].messages().last().unwrap().clone();
        assert_eq!(live.results().next().unwrap().text(), "card xqz");
        let call = agent.model.requests()[1].messages().get(1).unwrap().clone();
        assert!(call.calls().next().unwrap().arguments.contains("secret"));

        agent.ask("and now?").await.unwrap();
        let replayed = agent.model.requests()[2].messages().clone();
        assert_eq!(replayed.get(2).unwrap().results().next().unwrap().text(), "redacted");
        assert_eq!(replayed.get(1).unwrap().calls().next().unwrap().arguments, "{}");
    })
    .await;
}

#[tokio::test]
async fn a_call_that_a_hook_forgets_leaves_no_call_no_result_and_no_row() {
    every_case(async |case| {
        let agent = agent(case, |_| Ok(Retention::Forget)).await;
        let answer = agent.ask("hi").await.unwrap();
        assert_eq!(answer.text(), "paid");
        assert_eq!(agent.record().await, []);
        let all = everything(&agent).await;
        assert!(!all.contains("xqz") && !all.contains("pay\""), "{case} {all}");
        agent.ask("and now?").await.unwrap();
        let replayed = agent.model.requests()[2].messages().clone();
        let texts: Vec<String> = replayed.iter().map(|message| message.text()).collect();
        assert_eq!(texts, ["hi", "paid", "and now?"]);
    })
    .await;
}

#[tokio::test]
async fn a_hook_that_fails_or_panics_stores_nothing_raw_and_fails_nothing() {
    every_case(async |case| {
        let failing: Hook = |_| Err("no policy".into());
        let panicking: Hook = |_| panic!("no policy");
        for hook in [failing, panicking] {
            let agent = agent(case, hook).await;
            assert_eq!(agent.ask("hi").await.unwrap().text(), "paid");
            let live = agent.model.requests()[1].messages().last().unwrap().clone();
            assert_eq!(live.results().next().unwrap().text(), "card xqz");
            assert!(!everything(&agent).await.contains("xqz"));
        }
    })
    .await;
}

#[tokio::test]
async fn errors_can_be_redacted_too() {
    every_case(async |case| {
        let fail = tool_fn(definition("pay"), |_| async {
            Err::<tower_chat::tool::ToolOutput, _>("card xqz refused".into())
        });
        let fail = persist_with(fail, |call| {
            call.redact_error(None);
            Ok(Retention::Keep)
        });
        let script = vec![calls([("pay", "c1")]), Step::text("sorry")];
        let agent = Agent::of(case, ToolLoopLayer::new(Tools::new().with(fail)), script).await;
        agent.ask("hi").await.unwrap();
        assert!(!everything(&agent).await.contains("xqz"));
        assert_eq!(agent.record().await[0].status, tower_chat::tool::ToolStatus::Error);
    })
    .await;
}

#[tokio::test]
async fn a_hook_that_forgets_the_outcome_alone_leaves_a_call_that_replay_drops() {
    every_case(async |case| {
        let agent = agent(case, |call| {
            Ok(if call.result().is_some() { Retention::Forget } else { Retention::Keep })
        })
        .await;
        agent.ask("hi").await.unwrap();
        assert!(!everything(&agent).await.contains("xqz"));
        agent.ask("and now?").await.unwrap();
        let replayed = agent.model.requests()[2].messages().clone();
        assert!(replayed.iter().all(|message| message.calls().next().is_none()));
    })
    .await;
}

#[tokio::test]
async fn a_result_that_answers_no_call_is_stored_as_it_is_where_no_tool_has_a_hook() {
    every_case(async |case| {
        let plain = tool_fn(definition("look"), |_| async { Ok("looked around") });
        let script = vec![calls([("look", "c1")]), Step::text("done"), Step::text("again")];
        let agent = Agent::of(case, ToolLoopLayer::new(Tools::new().with(plain)), script).await;
        agent.ask("hi").await.unwrap();
        let orphan = ToolResult::new("of no call", "an orphan's text");
        let input = [Message::tool_results([orphan]), Message::user("and that?")];
        agent.send_as(case.streamed, ChatRequest::new(input)).await.unwrap();
        let stored = agent.stored().await;
        let texts: Vec<(String, String)> = stored
            .iter()
            .flat_map(|message| message.results())
            .map(|result| (result.call_id.clone().unwrap_or_default(), result.text()))
            .collect();
        let expected = [("c1", "looked around"), ("of no call", "an orphan's text")];
        assert_eq!(texts, expected.map(|(id, text)| (id.to_owned(), text.to_owned())));
    })
    .await;
}

#[tokio::test]
async fn the_result_of_a_call_that_was_forgotten_in_an_earlier_run_is_withheld() {
    every_case(async |case| {
        let agent = agent(case, |_| Ok(Retention::Forget)).await;
        agent.ask("hi").await.unwrap();
        let late = Message::tool_results([ToolResult::new("c1", "late card xqz")]);
        let input = ChatRequest::new([late, Message::user("and that?")]);
        agent.send_as(case.streamed, input).await.unwrap();
        let all = everything(&agent).await;
        assert!(!all.contains("xqz"), "{case} {all}");
    })
    .await;
}

#[tokio::test]
async fn a_late_outcome_that_is_forgotten_answers_its_stored_call_without_its_text() {
    every_case(async |case| {
        let pay = tool_fn(definition("pay"), |_| async { Ok("never run") });
        let pay = persist_with(pay, |call| {
            Ok(if call.result().is_some() { Retention::Forget } else { Retention::Keep })
        });
        let tools = Tools::new().with(pay).declare(definition("ask"));
        // The call of `ask` makes the loop return both calls to the caller.
        let script =
            vec![calls([("pay", "p1"), ("ask", "a1")]), Step::text("done"), Step::text("again")];
        let agent = Agent::of(case, ToolLoopLayer::new(tools), script).await;
        agent.ask("hi").await.unwrap();
        let late = [ToolResult::new("p1", "late card xqz"), ToolResult::new("a1", "bob agrees")];
        let input = ChatRequest::new([Message::tool_results(late)]);
        agent.send_as(case.streamed, input).await.unwrap();
        assert!(!everything(&agent).await.contains("xqz"), "{case}");
        agent.ask("and now?").await.unwrap();
        let replayed = agent.model.requests()[2].messages().clone();
        let results: Vec<_> = replayed
            .iter()
            .flat_map(|message| message.results())
            .map(|result| (result.call_id.clone().unwrap(), result.text()))
            .collect();
        assert_eq!(results[1], ("a1".to_owned(), "bob agrees".to_owned()), "{case}");
        assert_eq!((results.len(), results[0].0.as_str()), (2, "p1"), "{case}");
    })
    .await;
}
