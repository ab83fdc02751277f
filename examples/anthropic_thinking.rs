//! A durable agent on Anthropic that reasons before it calls a tool. In the second run of the
//! program, the agent remembers the first one, and sends the signed reasoning back to the model.
//!
//! ```text
//! ANTHROPIC_API_KEY=sk-... cargo run -p tower-chat-providers --example anthropic_thinking [DATABASE] [QUESTION]
//! ```
//!
//! Without a key, the program starts a scripted server on this machine, which has the same wire
//! format. `ANTHROPIC_MODEL` selects another model.

mod program;
mod scripted_provider;

use std::env::var;

use serde_json::json;
use tower::{Service, ServiceExt};
use tower_chat::{
    BoxError, ChatOptions, ChatPipeline, ChatRequest, ChatUpdate, ConversationKey, HistoryStore,
    Part, PersistenceMode, ToolDefinition, Tools, tool_fn,
};
use tower_chat_providers::{Anthropic, ReqwestTransport, auth::Auth};
use tower_chat_sqlite::SqliteStore;

use program::Failure;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let [database, question] = program::arguments(
        "anthropic_thinking [DATABASE] [QUESTION]",
        ["thinking.db", "Where is my order 7?"],
    );

    let store = SqliteStore::open(&database).await?;
    let key = ConversationKey::new("alice", "orders");
    let history = store.load(&key).await?.messages;
    let thoughts = history.iter().flat_map(|message| &message.parts);
    let thoughts = thoughts.filter(|part| matches!(part, Part::Reasoning(_))).count();
    println!("remembered {} messages with {thoughts} thoughts", history.len());

    let mut agent = ChatPipeline::builder(model().await?)
        .tools(Tools::new().with(order_status()))
        .history(store.clone())
        .persistence(PersistenceMode::PerServiceCall)
        .build()?;

    let mut options = ChatOptions::default();
    options.max_output_tokens = Some(4096);
    let thinking = json!({"type": "enabled", "budget_tokens": 1024});
    options.extra.insert("thinking".to_owned(), thinking);
    let request = ChatRequest::user(question).with_options(options).in_conversation(key);
    let mut response = agent.ready().await?.call(request.streamed()).await?;
    let mut is_thinking = false;
    while let Some(update) = response.next().await {
        match update? {
            ChatUpdate::ReasoningDelta(text) if is_thinking => print!("{text}"),
            ChatUpdate::ReasoningDelta(text) => {
                print!("(thinking: {text}");
                is_thinking = true;
            }
            ChatUpdate::Message(_) if is_thinking => {
                println!(")");
                is_thinking = false;
            }
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

/// Creates the model client: for Anthropic if a key is set, and otherwise for the scripted server.
async fn model() -> Result<Anthropic<Auth<ReqwestTransport>>, BoxError> {
    let model = var("ANTHROPIC_MODEL").unwrap_or_else(|_| "claude-sonnet-4-5".to_owned());
    if var("ANTHROPIC_API_KEY").is_ok() {
        return Ok(Anthropic::from_env()?.with_model(&model));
    }
    let url = scripted_provider::start(scripted_provider::anthropic).await?;
    let client = Anthropic::new(ReqwestTransport::new()?).with_base_url(&format!("{url}/v1"));
    Ok(client.with_model(&model).with_key("none")?)
}

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
