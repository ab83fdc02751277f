//! A chat with a model on this machine through the API of Ollama. The conversation continues in the
//! next run of the program.
//!
//! ```text
//! OLLAMA_HOST=http://localhost:11434 cargo run -p tower-chat-providers --example ollama [DATABASE] [QUESTION]
//! ```
//!
//! Without `OLLAMA_HOST`, the program starts a scripted server with the same wire format.
//! `OLLAMA_MODEL` selects another model than `qwen3`.

mod program;
mod scripted_provider;

use std::env::var;

use tower::{Service, ServiceExt};
use tower_chat::{BoxError, ChatPipeline, ChatRequest, ChatUpdate, ConversationKey, HistoryStore};
use tower_chat_providers::{Ollama, ReqwestTransport};
use tower_chat_sqlite::SqliteStore;

use program::Failure;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let [database, question] =
        program::arguments("ollama [DATABASE] [QUESTION]", ["ollama.db", "How often did I ask?"]);

    let store = SqliteStore::open(&database).await?;
    let key = ConversationKey::new("alice", "chat");
    println!("remembered {} messages", store.load(&key).await?.messages.len());
    let mut chat = ChatPipeline::builder(model().await?).history(store.clone()).build()?;

    let request = ChatRequest::user(question).in_conversation(key).streamed();
    let mut response = chat.ready().await?.call(request).await?;
    while let Some(update) = response.next().await {
        match update? {
            ChatUpdate::TextDelta(text) => print!("{text}"),
            ChatUpdate::Finish(_) => println!(),
            _ => {}
        }
    }
    store.close().await?;
    Ok(())
}

/// Creates the model client: for Ollama if its address is set, and otherwise for the scripted
/// server.
async fn model() -> Result<Ollama<ReqwestTransport>, BoxError> {
    let model = var("OLLAMA_MODEL").unwrap_or_else(|_| "qwen3".to_owned());
    let url = match var("OLLAMA_HOST") {
        // Ollama also accepts an address without a scheme.
        Ok(host) if host.contains("://") => host,
        Ok(host) => format!("http://{host}"),
        Err(_) => scripted_provider::start(scripted_provider::ollama).await?,
    };
    Ok(Ollama::local()?.with_model(&model).with_base_url(&url))
}
