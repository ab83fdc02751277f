//! An agent with one tool on OpenAI Responses. The service stores the history, and each request
//! contains only the new messages. The store of the agent contains the id of the last response,
//! with which the next run continues. In the second run of the program, the agent remembers the
//! first one.
//!
//! ```text
//! OPENAI_API_KEY=sk-... cargo run -p tower-chat-providers --example openai_responses [DATABASE] [QUESTION]
//! ```
//!
//! Without a key, the program starts a scripted server on this machine, which has the same wire
//! format. `OPENAI_BASE_URL` and `OPENAI_MODEL` select another service and model.

mod program;
mod scripted_server;

use std::env::var;

use serde_json::json;
use tower::{Service, ServiceExt, util::BoxCloneSyncService};
use tower_chat::{
    BoxError, ChatPipeline, ChatRequest, ChatResponse, ChatUpdate, ConversationKey, HistoryStore,
    PersistencePolicy, ToolDefinition, Tools, policy::ConflictPolicy, tool_fn,
};
use tower_chat_providers::{HistoryStorage, OpenAiResponses, ProviderError, ReqwestTransport};
use tower_chat_sqlite::SqliteStore;

use program::Failure;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let [database, question] = program::arguments(
        "openai_responses [DATABASE] [QUESTION]",
        ["responses.db", "Where is my order 7?"],
    );

    let store = SqliteStore::open(&database).await?;
    let key = ConversationKey::new("alice", "orders");
    match store.head(&key).await?.service_id {
        Some(id) => println!("the service remembers, up to {id}"),
        None => println!("a new conversation"),
    }

    // By default, a run reports a conflict if the service also stores the history. With this
    // policy, the run reports none, and the store does not record the messages a second time.
    let service_keeps = ConflictPolicy::StopRecording;
    let mut agent = ChatPipeline::builder(model().await?)
        .tools(Tools::new().with(order_status()))
        .history(store.clone())
        .policy(PersistencePolicy::default().on_conflict(service_keeps))
        .build()?;

    let request = ChatRequest::user(question).in_conversation(key).streamed();
    let mut response = agent.ready().await?.call(request).await?;
    while let Some(update) = response.next().await {
        match update? {
            ChatUpdate::TextDelta(text) => print!("{text}"),
            ChatUpdate::Finish(finish) => {
                let usage = finish.usage;
                println!("\n{} tokens read, {} written", usage.input_tokens, usage.output_tokens);
            }
            _ => {}
        }
    }
    store.close().await?;
    Ok(())
}

/// Creates the model client: for a service if a key or an address is set, and otherwise for the
/// scripted server.
async fn model() -> Result<Model, BoxError> {
    let model = var("OPENAI_MODEL").unwrap_or_else(|_| "gpt-5-mini".to_owned());
    let transport = ReqwestTransport::new()?;
    let client = match (var("OPENAI_BASE_URL"), var("OPENAI_API_KEY")) {
        (Ok(url), _) => OpenAiResponses::compatible_over(&url, transport),
        (Err(_), Ok(_)) => OpenAiResponses::new(transport),
        (Err(_), Err(_)) => {
            OpenAiResponses::compatible_over(&scripted_server::start().await?, transport)
        }
    };
    let client = client.with_model(&model).with_history_storage(HistoryStorage::Response);
    Ok(match var("OPENAI_API_KEY") {
        Ok(key) => BoxCloneSyncService::new(client.with_key(&key)?),
        Err(_) => BoxCloneSyncService::new(client),
    })
}

/// A model client with or without a key.
type Model = BoxCloneSyncService<ChatRequest, ChatResponse, ProviderError>;

fn order_status() -> impl tower_chat::Tool {
    let parameters = json!({
        "type": "object",
        "properties": {"order": {"type": "integer"}},
        "required": ["order"],
    });
    let definition = ToolDefinition::new("order_status", "Where an order is.", parameters);
    tool_fn(definition, |call| async move {
        let arguments: serde_json::Value = call.parse_arguments()?;
        let order = arguments.get("order").and_then(serde_json::Value::as_u64);
        Ok(match order {
            Some(order) => format!("Order {order} is on its way."),
            None => "Which order?".to_owned(),
        })
    })
}
