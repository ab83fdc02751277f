//! Adds layers for tools and a history to an existing stack with the types of async-openai.
//!
//! The existing program consists of a `Service<CreateChatCompletionRequest>` with its own layers,
//! and of code that calls the service. The five lines between `added` and `until here` are new.
//!
//! ```text
//! OPENAI_API_KEY=sk-... cargo run -p tower-chat-providers --features async-openai --example async_openai_stack
//! ```
//!
//! Without a key, a function in this file replaces the model.

use std::env::var;

use async_openai::{
    Client,
    types::chat::{
        ChatCompletionRequestUserMessage, CreateChatCompletionRequest, CreateChatCompletionResponse,
    },
};
use serde_json::json;
use tower::{Service, ServiceBuilder, ServiceExt, service_fn};
use tower_chat::{
    BoxError, ConversationKey, MemoryStore, PersistenceMode, ToolDefinition, Tools,
    adapt::{AdaptLayer, ExposeLayer},
    layer::{PerRunPersistence, PerServiceCallPersistence, ToolLoopLayer},
    tool_fn,
};
use tower_chat_providers::adapt::ChatTypes;

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let store = MemoryStore::new();
    let types =
        ChatTypes::new("gpt-4o-mini").keyed_by(|_| Some(ConversationKey::new("alice", "orders")));
    let persistence = PerRunPersistence::new(store.clone());

    let mut chat = ServiceBuilder::new()
        .concurrency_limit(4)
        .layer(ExposeLayer::new(types.clone())) // added
        .layer(persistence.mode(PersistenceMode::PerServiceCall))
        .layer(ToolLoopLayer::new(Tools::new().with(order_status())))
        .layer(PerServiceCallPersistence::new(store))
        .layer(AdaptLayer::new(types)) // until here
        .concurrency_limit(2)
        .service(service_fn(model));

    for question in ["Where is order 7?", "And what did I ask before?"] {
        let request = CreateChatCompletionRequest {
            model: "gpt-4o-mini".to_owned(),
            messages: vec![ChatCompletionRequestUserMessage::from(question).into()],
            ..Default::default()
        };
        let answer = chat.ready().await?.call(request).await?;
        let reply = answer.choices.first().and_then(|choice| choice.message.content.as_deref());
        println!("{}", reply.unwrap_or_default());
    }
    Ok(())
}

async fn model(
    request: CreateChatCompletionRequest,
) -> Result<CreateChatCompletionResponse, BoxError> {
    if var("OPENAI_API_KEY").is_ok() {
        return Ok(Client::new().chat().create(request).await?);
    }
    let request = serde_json::to_value(request)?;
    let messages = request.get("messages").and_then(|list| list.as_array()).cloned();
    let messages = messages.unwrap_or_default();
    let is_by = |message: &&serde_json::Value, role: &str| {
        message.get("role").is_some_and(|found| found == role)
    };
    let asked = messages.iter().filter(|message| is_by(message, "user")).count();
    let message = match messages.last() {
        Some(last) if is_by(&last, "user") && asked == 1 => {
            let function = json!({"name": "order_status", "arguments": "{\"order\": 7}"});
            let call = json!({"id": "call_1", "type": "function", "function": function});
            json!({"role": "assistant", "tool_calls": [call]})
        }
        Some(last) if is_by(&last, "tool") => {
            json!({"role": "assistant", "content": last.get("content")})
        }
        _ => {
            let first = messages.first().and_then(|first| first.get("content")?.as_str());
            let reply = format!("You asked: {}", first.unwrap_or_default());
            json!({"role": "assistant", "content": reply})
        }
    };
    let choice = json!({"index": 0, "message": message, "finish_reason": "stop"});
    let answer = json!({"id": "chatcmpl-1", "object": "chat.completion", "created": 0,
        "model": "scripted", "choices": [choice]});
    Ok(serde_json::from_value(answer)?)
}

fn order_status() -> impl tower_chat::Tool {
    let parameters = json!({
        "type": "object",
        "properties": {"order": {"type": "integer"}},
        "required": ["order"],
    });
    let definition = ToolDefinition::new("order_status", "Where an order is.", parameters);
    tool_fn(definition, |_| async { Ok("Order 7 is on its way.") })
}
