//! Tests of runs of the layers over a store that gathers writes.

use serde_json::json;
use tower::ServiceExt;
use tower_chat::{
    ChatPipeline, ChatRequest, Message, PersistenceMode, ToolCall, ToolDefinition, Tools,
    store::HistoryStore, tool_fn,
};
use tower_chat_cache::{CacheOptions, CachingStore, Revalidation};
use tower_chat_testkit::{ScriptedModel, Step};

use super::{behind, key, stored};

#[tokio::test]
async fn a_run_of_many_service_calls_is_stored_in_few_appends() {
    let definition = ToolDefinition::new("look", "Looks.", json!({"type": "object"}));
    let tools = Tools::new().with(tool_fn(definition, |_| async { Ok("found") }));
    let behind = behind();
    let options = CacheOptions::new().with_revalidation(Revalidation::Never);
    let model = ScriptedModel::new([]);
    let mut client = ChatPipeline::builder(model.clone())
        .tools(tools)
        .history(CachingStore::with_options(behind.clone(), options))
        .persistence(PersistenceMode::PerServiceCall)
        .build()
        .unwrap();
    for turn in 1..=3 {
        for round in 0..5 {
            let call = ToolCall::new(format!("c{round}"), "look", "{}");
            model.push(Step::message(Message::tool_calls([call])));
        }
        model.push(Step::text("there"));
        let request = ChatRequest::user("where?").in_conversation(key());
        let client = client.ready().await.unwrap();
        let answer = tower::Service::call(client, request).await.unwrap();
        assert_eq!(answer.collect().await.unwrap().text(), "there");
        assert_eq!(model.requests().last().unwrap().messages.len(), 12 * turn - 1);
    }
    // The first call was stored at once; the 17 others are gathered.
    assert_eq!((behind.inner().appends(), behind.unstored_writes()), (1, 17));
    behind.close().await.unwrap();
    assert_eq!((behind.inner().appends(), stored(&behind).await.len()), (2, 36));
}
