//! Adds a history to an existing stack with its own message types and its own tool loop.
//!
//! The existing program has message structs, a client, and a loop that sends its complete list of
//! messages with each call. The lines between `added` and `until here` are new. The second part of
//! the program begins with an empty list of messages, as after a restart.
//!
//! ```text
//! cargo run -p tower-chat-examples --bin own_loop
//! ```

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tower::{Service, ServiceBuilder, ServiceExt, service_fn};
use tower_chat::{
    BoxError, ConversationKey, HistoryStore, MemoryStore,
    adapt::{AdaptLayer, ExposeLayer},
    layer::PerServiceCallPersistence,
    wire::{body::BodyWire, codec::JsonTypes},
};

#[derive(Clone, Default, Serialize, Deserialize)]
struct Chat {
    #[serde(default)]
    user: String,
    messages: Vec<Line>,
    #[serde(default)]
    tools: Vec<Value>,
}

#[derive(Clone, Default, Serialize, Deserialize)]
struct Line {
    role: String,
    content: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<Call>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tool_call_id: Option<String>,
}

#[derive(Clone, Serialize, Deserialize)]
struct Call {
    id: String,
    r#type: String,
    function: Function,
}

#[derive(Clone, Serialize, Deserialize)]
struct Function {
    name: String,
    arguments: String,
}

#[derive(Serialize, Deserialize)]
struct Reply {
    choices: Vec<Choice>,
}

#[derive(Serialize, Deserialize)]
struct Choice {
    message: Line,
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let store = MemoryStore::new();
    let key = |chat: &Chat| Some(ConversationKey::new(chat.user.as_str(), "weather"));
    let types = JsonTypes::new(BodyWire::OpenAiChat).keyed_by(key);

    let mut chat = ServiceBuilder::new()
        .layer(ExposeLayer::new(types.clone())) // added
        .layer(PerServiceCallPersistence::new(store.clone()))
        .layer(AdaptLayer::new(types)) // until here
        .service(service_fn(client));

    for process in 1..=2 {
        let mut list = Vec::new();
        for question in ["What should I wear?", "And tomorrow?"] {
            println!("{process}: {}", converse(&mut chat, &mut list, question).await?);
        }
    }
    let stored = store.load(&ConversationKey::new("alice", "weather")).await?;
    println!("stored: {} messages", stored.messages.len());
    Ok(())
}

async fn converse<S>(client: &mut S, list: &mut Vec<Line>, text: &str) -> Result<String, BoxError>
where
    S: Service<Chat, Response = Reply, Error = BoxError>,
{
    list.push(line("user", text));
    loop {
        let (user, messages) = ("alice".to_owned(), list.clone());
        let chat = Chat { user, messages, tools: vec![weather()] };
        let reply = client.ready().await?.call(chat).await?;
        let answered = reply.choices.into_iter().next().ok_or("an empty reply")?.message;
        list.push(answered.clone());
        if answered.tool_calls.is_empty() {
            return Ok(answered.content.unwrap_or_default());
        }
        for call in answered.tool_calls {
            let result = format!("Rain, as {} says.", call.function.name);
            list.push(Line { tool_call_id: Some(call.id), ..line("tool", &result) });
        }
    }
}

fn line(role: &str, text: &str) -> Line {
    Line { role: role.to_owned(), content: Some(text.to_owned()), ..Line::default() }
}

fn weather() -> Value {
    let function = json!({"name": "weather", "parameters": {"type": "object"}});
    json!({"type": "function", "function": function})
}

/// The client of the program. Its model calls the weather tool, and reports the number of user
/// messages.
async fn client(chat: Chat) -> Result<Reply, BoxError> {
    let asked = chat.messages.iter().filter(|line| line.role == "user").count();
    let is_told = chat.messages.last().is_some_and(|last| last.role == "tool");
    let message = if is_told {
        line("assistant", &format!("Take a coat. You have asked {asked} times."))
    } else {
        let function = Function { name: "weather".to_owned(), arguments: "{}".to_owned() };
        let call = Call { id: format!("call_{asked}"), r#type: "function".to_owned(), function };
        let asking = Line { role: "assistant".to_owned(), ..Line::default() };
        Line { tool_calls: vec![call], ..asking }
    };
    Ok(Reply { choices: vec![Choice { message }] })
}
