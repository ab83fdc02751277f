//! Tests tools that fail the run. In every mode, only the calls before the failed call have run.

use tower_chat::store::Journal;
use tower_chat::{
    Role, ToolError, Tools,
    error::ToolLoopError,
    layer::ToolLoopLayer,
    tool::{ToolOutput, ToolStatus},
    tool_fn,
};
use tower_chat_testkit::Step;

use super::*;

fn tools() -> Tools {
    Tools::new()
        .with(tool_fn(definition("look"), |_| async { Ok("looked around") }))
        .with(tool_fn(definition("charge"), |_| async {
            Err::<ToolOutput, BoxError>(ToolError::fail_run("the account is closed").into())
        }))
        .with(tool_fn(definition("ship"), |_| async { Ok("shipped the parcel") }))
}

fn script() -> Vec<Step> {
    vec![
        calls([("look", "c1"), ("charge", "c2"), ("ship", "c3")]),
        Step::text("what became of it"),
        Step::text("and later"),
    ]
}

#[tokio::test]
async fn a_tool_that_fails_its_run_is_named_and_no_later_call_is_started() {
    every_case(async |case| {
        let agent = Agent::of(case, ToolLoopLayer::new(tools()), script()).await;
        let error = agent.ask("send it").await.unwrap_err();
        let Some(ToolLoopError::ToolFailedRun { failure, .. }) = error.downcast_ref() else {
            panic!("{case:?}: {error}");
        };
        assert_eq!((&*failure.tool, &*failure.call_id), ("charge", "c2"), "{case:?}");
        assert!(error.to_string().contains("the account is closed"), "{case:?}: {error}");

        let record = agent.record().await;
        let ran: Vec<_> = record
            .iter()
            .filter(|call| call.status != ToolStatus::Pending)
            .map(|call| (call.name.as_str(), call.status))
            .collect();
        let expected: &[_] = match case.mode {
            PersistenceMode::PerServiceCall => {
                &[("look", ToolStatus::Ok), ("charge", ToolStatus::Error)]
            }
            // In journaled mode, the run remains open, and its rows are staged.
            _ => &[],
        };
        assert_eq!(ran, expected, "{case:?}");
        let open_run = agent.store.open_run(&key()).await.unwrap();
        assert_eq!(open_run.is_some(), case.mode == PersistenceMode::Journaled, "{case:?}");
    })
    .await;
}

#[tokio::test]
async fn the_conversation_continues_after_a_run_that_a_tool_has_failed() {
    every_case(async |case| {
        let agent = Agent::of(case, ToolLoopLayer::new(tools()), script()).await;
        agent.ask("send the first parcel").await.unwrap_err();
        let answer = agent.ask("where is it now").await.unwrap();
        // An open journaled run is resumed first, and receives the first answer.
        let is_resumed = case.mode == PersistenceMode::Journaled;
        let expected = if is_resumed { "and later" } else { "what became of it" };
        assert_eq!(answer.text(), expected, "{case:?}");
        let sent = agent.model.requests()[1].messages().clone();
        let results = sent.iter().flat_map(|message| message.results());
        let results: Vec<_> = results
            .filter(|result| result.call_id.as_deref() != Some("c3"))
            .map(|result| (result.call_id.clone().unwrap(), result.text()))
            .collect();
        let pair = |id: &str, text: &str| (id.to_owned(), text.to_owned());
        let expected = match case.mode {
            PersistenceMode::PerRun => vec![],
            _ => vec![pair("c1", "looked around"), pair("c2", "The tool failed.")],
        };
        assert_eq!(results, expected, "{case:?}");
    })
    .await;
}

#[tokio::test]
async fn calls_that_run_at_the_same_time_end_before_the_run_fails() {
    let tool_loop = ToolLoopLayer::new(tools()).concurrent(true);
    let agent = Agent::new(PersistenceMode::PerServiceCall, tool_loop, script());
    let error = agent.ask("send all of it").await.unwrap_err();
    assert!(matches!(error.downcast_ref(), Some(ToolLoopError::ToolFailedRun { .. })), "{error}");
    let statuses: Vec<_> = agent.record().await.iter().map(|call| call.status).collect();
    assert_eq!(statuses, [ToolStatus::Ok, ToolStatus::Error, ToolStatus::Ok]);
}

#[tokio::test]
async fn the_model_receives_only_the_part_of_an_error_that_is_meant_for_the_model() {
    every_case(async |case| {
        let tools = Tools::new()
            .with(tool_fn(definition("look"), |_| async {
                Err::<ToolOutput, BoxError>("the password is hunter2".into())
            }))
            .with(tool_fn(definition("charge"), |_| async {
                Err::<ToolOutput, BoxError>(ToolError::for_model("the card has expired").into())
            }));
        let script =
            vec![calls([("look", "c4"), ("charge", "c5")]), Step::text("try another card")];
        let agent = Agent::of(case, ToolLoopLayer::new(tools), script).await;
        agent.ask("pay with a card").await.unwrap();
        let shown = agent.model.requests()[1].messages().clone();
        let results = shown.iter().filter(|message| message.role == Role::Tool);
        let texts: Vec<_> = results
            .flat_map(|message| {
                message.results().map(|result| (result.call_id.clone(), result.text()))
            })
            .collect();
        assert_eq!(
            texts,
            [
                (Some("c4".to_owned()), "The tool failed.".to_owned()),
                (Some("c5".to_owned()), "the card has expired".to_owned())
            ],
            "{case:?}"
        );
    })
    .await;
}
