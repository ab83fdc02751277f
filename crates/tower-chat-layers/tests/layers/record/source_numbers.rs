//! Tests that the sources of all turns of a conversation have consecutive numbers.

use tower_chat::{ChatResponse, ToolContext, tool_fn};
use tower_chat_testkit::{Step, cases};

use super::*;

const ALL_MODES: [PersistenceMode; 3] =
    [PersistenceMode::PerRun, PersistenceMode::PerServiceCall, PersistenceMode::Journaled];

/// Returns a tool that finds two sources. Their contents contain the id of the call.
fn search() -> impl tower_chat::Tool {
    tool_fn(definition("search"), |context: ToolContext| async move {
        let found = ["a", "b"].map(|source| format!("{} {source}", context.call_id()));
        let sources = context.take_source_numbers(2).zip(found).map(
            |(number, content)| serde_json::json!({"source_number": number, "content": content}),
        );
        Ok(serde_json::Value::from_iter(sources).to_string())
    })
}

fn numbers(answer: &Answer) -> Vec<(String, Vec<u64>)> {
    let results = answer.messages.iter().flat_map(|message| message.results());
    let numbers_of = |text: String| {
        let sources: Vec<serde_json::Value> = serde_json::from_str(&text).unwrap();
        sources.iter().map(|source| source["source_number"].as_u64().unwrap()).collect()
    };
    results.map(|it| (it.call_id.clone().unwrap(), numbers_of(it.text()))).collect()
}

#[tokio::test]
async fn source_numbers_continue_across_rounds_runs_and_processes_and_are_unique() {
    for (mode, streamed, concurrent) in cases!(ALL_MODES, [false, true], [false, true]) {
        let store = MemoryStore::new();
        let mut found = Vec::new();
        for turn in 0..2 {
            let id = |call: &str| format!("{turn}{call}");
            let asking = |ids: &[&str]| {
                let calls = ids.iter().map(|call| ToolCall::new(id(call), "search", "{}"));
                Step::message(Message::tool_calls(calls))
            };
            let model = ScriptedModel::new([asking(&["p", "q"]), asking(&["r"]), Step::text("x")]);
            let tools = tower_chat::Tools::new().with(search());
            // Each turn uses a new stack, as after a restart.
            let client = tower::ServiceBuilder::new()
                .layer(PerRunPersistence::new(store.clone()).mode(mode))
                .layer(ToolLoopLayer::new(tools).concurrent(concurrent))
                .layer(PerServiceCallPersistence::new(store.clone()))
                .service(model);
            let request = ChatRequest::user("what do we know?").in_conversation(key());
            let request = if streamed { request.streamed() } else { request };
            let response: ChatResponse = client.oneshot(request).await.unwrap();
            found.extend(numbers(&response.collect().await.unwrap()));
        }
        let expected = ["0p", "0q", "0r", "1p", "1q", "1r"];
        let expected: Vec<_> = (0..)
            .zip(expected)
            .map(|(call, id)| (id.to_owned(), vec![2 * call, 2 * call + 1]))
            .collect();
        assert_eq!(found, expected, "{mode:?} streamed {streamed} concurrent {concurrent}");
    }
}
