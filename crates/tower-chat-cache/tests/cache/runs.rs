//! Tests of runs with a cache: in every mode, a run of a cached conversation reads nothing, and
//! each run reserves a slot.

use std::sync::Arc;

use serde_json::json;
use tower::ServiceExt;
use tower_chat::{
    ChatPipeline, ChatRequest, HistoryStore, Message, PersistenceMode, ToolCall, ToolDefinition,
    Tools, tool_fn,
};
use tower_chat_cache::CachingStore;
use tower_chat_sqlite::SqliteStore;
use tower_chat_testkit::{ScriptedModel, Step};

use crate::common::{cache, key, reads};

fn tools() -> Tools {
    let definition = ToolDefinition::new("look", "Looks.", json!({"type": "object"}));
    Tools::new().with(tool_fn(definition, |_| async { Ok("found") }))
}

#[tokio::test]
async fn a_run_in_a_cached_conversation_reads_nothing_from_the_inner_store() {
    for mode in
        [PersistenceMode::PerRun, PersistenceMode::PerServiceCall, PersistenceMode::Journaled]
    {
        for begins_here in [true, false] {
            let store = cache();
            let model = ScriptedModel::new([]);
            let mut client = ChatPipeline::builder(model.clone())
                .tools(tools())
                .history(store.clone())
                .persistence(mode)
                .build()
                .unwrap();
            for turn in 0..4 {
                if turn == 1 && !begins_here {
                    store.forget(&key());
                }
                model.push(Step::message(Message::tool_calls([ToolCall::new("c", "look", "{}")])));
                model.push(Step::text("there"));
                let (before, queries) = (reads(store.inner()), store.inner().queries());
                let request = ChatRequest::user("where?").in_conversation(key());
                let client = client.ready().await.unwrap();
                let answer = tower::Service::call(client, request).await.unwrap();
                assert_eq!(answer.collect().await.unwrap().text(), "there");
                let read = (reads(store.inner()).0 - before.0, reads(store.inner()).1 - before.1);
                let expected = match (turn, begins_here) {
                    (0, _) => (0, 1),
                    (1, false) => (1, 1),
                    _ => (0, 0),
                };
                assert_eq!(read, expected, "{mode:?}, turn {turn}");
                assert_eq!(store.inner().queries(), queries, "{mode:?}, turn {turn}");
            }
            let history = store.load(&key()).await.unwrap();
            let stored = store.inner().inner().load(&key()).await.unwrap();
            assert_eq!(history.messages, stored.messages);
            assert_eq!(history.messages.len(), 16);
            assert_eq!(history.head, stored.head);
            assert!(Arc::ptr_eq(
                history.messages.get(15).unwrap(),
                stored.messages.get(15).unwrap()
            ));
        }
    }
}

#[tokio::test]
async fn a_run_reserves_a_slot_while_the_model_is_called() {
    let folder = tempfile::tempdir().unwrap();
    let options = SqliteStore::options().with_max_queued(1);
    let store = CachingStore::new(options.open(folder.path().join("chat.db")).await.unwrap());
    let model = ScriptedModel::new([]);
    let client = ChatPipeline::builder(model.clone())
        .tools(tools())
        .history(store.clone())
        .persistence(PersistenceMode::PerServiceCall)
        .build()
        .unwrap();
    let look = Step::message(Message::tool_calls([ToolCall::new("c", "look", "{}")]));
    for step in [look, Step::text("there")] {
        let store = store.clone();
        model.push(Step::respond(move |_| {
            assert!(store.try_reserve().is_none(), "the run has the only permit");
            step
        }));
    }
    let request = ChatRequest::user("where?").in_conversation(key());
    let answer = client.oneshot(request).await.unwrap().collect().await.unwrap();
    assert_eq!(answer.text(), "there");
    assert!(store.try_reserve().is_some(), "the permit is free again");
    assert_eq!(model.requests().len(), 2);
}
