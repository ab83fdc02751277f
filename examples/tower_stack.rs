//! The stack of the example `agent` without the builder, with further tower layers and a streamed
//! answer.
//!
//! ```text
//! cargo run -p tower-chat-examples --bin tower_stack
//! ```

use std::time::Duration;

use serde_json::json;
use tower::{Service, ServiceBuilder, ServiceExt};
use tower_chat::{
    BoxError, ChatRequest, ChatUpdate, ConversationKey, MemoryStore, Message, PersistenceMode,
    ToolCall, ToolDefinition, Tools,
    layer::{IdleTimeoutLayer, PerRunPersistence, PerServiceCallPersistence, ToolLoopLayer},
    tool_fn,
};
use tower_chat_testkit::{ScriptedModel, Step};

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let model = ScriptedModel::new([
        Step::message(Message::tool_calls([ToolCall::new("call_1", "order", r#"{"number": 7}"#)])),
        Step::text("Order 7 is on its way."),
    ]);
    let order = tool_fn(
        ToolDefinition::new("order", "Where an order is.", json!({"type": "object"})),
        |_| async { Ok("on its way") },
    );

    let store = MemoryStore::new();
    let mut client = ServiceBuilder::new()
        .concurrency_limit(8)
        .layer(PerRunPersistence::new(store.clone()).mode(PersistenceMode::PerServiceCall))
        .layer(ToolLoopLayer::new(Tools::new().with(order)))
        .layer(PerServiceCallPersistence::new(store))
        .layer(IdleTimeoutLayer::new(Duration::from_secs(60))) // a stalled service call fails
        .service(model);

    let request = ChatRequest::user("Where is order 7?")
        .in_conversation(ConversationKey::new("alice", "support"))
        .streamed();
    let mut response = client.ready().await?.call(request).await?;
    while let Some(update) = response.next().await {
        match update? {
            ChatUpdate::TextDelta(text) => println!("… {text:?}"),
            ChatUpdate::Message(message) => println!("{:?}: {:?}", message.role, message.parts),
            ChatUpdate::Finish(finish) => println!("saved: {:?}", finish.saved),
            _ => {}
        }
    }
    Ok(())
}
