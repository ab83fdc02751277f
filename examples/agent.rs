//! An agent with two tools and a history in SQLite. In the second run of the program, the agent
//! remembers the first one.
//!
//! ```text
//! cargo run -p tower-chat-examples --bin agent [DATABASE] [QUESTION]
//! ```
//!
//! The model is a function that needs no key: it calls both tools, and then repeats their results.
//! Any model client can replace it.

use tower::service_fn;
use tower_chat::{Finish, ToolCall, prelude::*};

/// The weather in a city.
#[tool]
async fn weather(city: String) -> String {
    format!("Rain in {city}.")
}

/// What hangs in the wardrobe.
#[tool]
async fn wardrobe() -> &'static str {
    "A coat and a straw hat."
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let mut arguments = std::env::args().skip(1);
    let database = arguments.next().unwrap_or_else(|| "agent.db".to_owned());
    let question = arguments.next().unwrap_or_else(|| "What should I wear in Paris?".to_owned());

    let store = SqliteStore::open(&database).await?;
    let key = ConversationKey::new("alice", "wardrobe");
    println!("remembered {} messages", store.load(&key).await?.messages.len());

    let agent = ChatPipeline::builder(service_fn(stand_in_model))
        .tools(Tools::new().with(weather()).with(wardrobe()))
        .history(store.clone())
        .persistence(PersistenceMode::PerServiceCall)
        .build()?;

    let answer = agent.ask(key, question).await?;
    println!("{}", answer.text());
    store.close().await?;
    Ok(())
}

/// Calls both tools, and then repeats their results.
async fn stand_in_model(request: ChatRequest) -> Result<ChatResponse, BoxError> {
    request.service_id()?; // like every model client, checks the history owner
    let results = request.messages().last().filter(|message| message.role == Role::Tool);
    let message = match results {
        None => Message::tool_calls([
            ToolCall::new("call_1", "weather", r#"{"city": "Paris"}"#),
            ToolCall::new("call_2", "wardrobe", "{}"),
        ]),
        Some(results) => {
            let facts: Vec<String> = results.results().map(|result| result.text()).collect();
            let asked = request.messages().iter().filter(|m| m.role == Role::User).count();
            Message::assistant(format!("{} (You have asked {asked} times.)", facts.join(" ")))
        }
    };
    Ok(ChatResponse::whole([message], Finish::stop()))
}
