//! Hides stale and private tool results from later runs.
//!
//! ```text
//! cargo run -p tower-chat-examples --bin freshness [DATABASE]
//! ```
//!
//! The program asks the same question three times, with a simulated clock: at first, later while the
//! first result is still fresh, and finally when this result is stale. The function that replaces
//! the model calls a tool only if the request contains no result of the tool.
//!
//! Then a tool returns private content, which only the current run receives: the `persist` hook of
//! the tool replaces the content before the result is stored.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};

use serde_json::json;
use tower::service_fn;
use tower_chat::{
    BoxError, ChatPipeline, ChatRequest, ChatResponse, ConversationKey, Finish, HistoryStore,
    Message, PersistencePolicy, Role, Tool, ToolCall, ToolDefinition, Tools,
    replay::{Freshness, ReplayPolicy},
    run::Clock,
    tool::{Retention, persist_with},
    tool_fn,
};
use tower_chat_sqlite::SqliteStore;

const WEATHER: &str = "Does it rain in Paris?";
const CARD: &str = "Which card do I pay with?";

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let database = std::env::args().nth(1).unwrap_or_else(|| "freshness.db".to_owned());
    let store = SqliteStore::open(&database).await?;
    let key = ConversationKey::new("alice", "freshness");
    store.delete(&key).await?; // deletes the conversation of an earlier execution of this program

    let minute = Arc::new(AtomicU64::new(0));
    let looked = Arc::new(AtomicU64::new(0));
    let five_minutes = Freshness::within(Duration::from_secs(5 * 60));
    let agent = ChatPipeline::builder(service_fn(stand_in_model))
        .tools(Tools::new().with(weather(looked.clone())).with(card()))
        .history(store.clone())
        .policy(
            PersistencePolicy::default()
                .with_replay(ReplayPolicy::default().with_freshness(five_minutes)),
        )
        .clock(clock(minute.clone()))
        .build()?;
    let ask = async |question: &str| -> Result<String, BoxError> {
        Ok(agent.ask(key.clone(), question).await?.text())
    };

    for now in [0, 4, 10] {
        minute.store(now, Ordering::Relaxed);
        let answer = ask(WEATHER).await?;
        println!(
            "minute {now:2}: {answer} Weather calls so far: {}",
            looked.load(Ordering::Relaxed)
        );
    }
    println!("this run: {}", ask(CARD).await?);
    println!("later:    {}", ask(CARD).await?);
    let stored = store.load(&key).await?.messages;
    let results = stored.iter().flat_map(|message| message.results());
    println!("stored:   {}", results.last().map(|result| result.text()).unwrap_or_default());
    store.close().await?;
    Ok(())
}

fn clock(minute: Arc<AtomicU64>) -> Clock {
    let beginning = SystemTime::now();
    Clock::new(move || beginning + Duration::from_secs(60 * minute.load(Ordering::Relaxed)))
}

fn weather(looked: Arc<AtomicU64>) -> impl Tool {
    let definition = ToolDefinition::new("weather", "The weather in Paris.", json!({}));
    tool_fn(definition, move |_| {
        looked.fetch_add(1, Ordering::Relaxed);
        async { Ok("It rains.") }
    })
}

/// A tool whose result contains a card number. The store, and therefore later runs, receive only
/// its last digits.
fn card() -> impl Tool {
    let definition = ToolDefinition::new("card", "The card that is on file.", json!({}));
    let card = tool_fn(definition, |_| async { Ok("Card 4111 1111 1111 1111.") });
    persist_with(card, |call| {
        call.redact_result("A card that ends in 1111.");
        Ok(Retention::Keep)
    })
}

/// Answers with the newest result of the tool. If the request contains none, calls the tool.
async fn stand_in_model(request: ChatRequest) -> Result<ChatResponse, BoxError> {
    request.service_id()?; // like every model client, checks the history owner
    let question = request.messages().iter().rev().find(|message| message.role == Role::User);
    let tool = match question.map(|message| message.text()) {
        Some(question) if question == CARD => "card",
        _ => "weather",
    };
    let mut results = request.messages().iter().rev().flat_map(|message| message.results());
    let message = match results.find(|result| result.name.as_deref() == Some(tool)) {
        Some(result) => Message::assistant(result.text()),
        None => Message::tool_calls([ToolCall::new("call_1", tool, "{}")]),
    };
    Ok(ChatResponse::whole([message], Finish::stop()))
}
