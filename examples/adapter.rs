//! A tower client that exists already, with its own request and response types, gains a history:
//! an adapter layer turns it into a model client, and nothing in the client changes.
//!
//! This client takes texts alone, so its codec refuses instructions, tools and whatever else a request may
//! have. The guide's chapter about providers has the codec of a client that takes them.
//!
//! ```text
//! cargo run -p tower-chat-examples --bin adapter
//! ```

use std::{error::Error, fmt};

use futures_util::{FutureExt, future::BoxFuture};
use tower::{Service, ServiceBuilder, ServiceExt, service_fn};
use tower_chat::{
    BoxError, ChatOptions, ChatPipeline, ChatRequest, ChatResponse, ConversationKey, Finish,
    MemoryStore, Message, Part, Role,
    adapt::{AdaptLayer, ClientCodec},
};

/// What the existing client takes.
struct Prompt {
    lines: Vec<(&'static str, String)>,
}

/// What it returns.
struct Completion {
    text: String,
}

/// Stands for the client that exists: it knows nothing of tower-chat.
async fn existing_client(prompt: Prompt) -> Result<Completion, BoxError> {
    let lines = prompt.lines.iter().filter(|(speaker, _)| *speaker == "person");
    let lines: Vec<&str> = lines.map(|(_, text)| text.as_str()).collect();
    Ok(Completion { text: format!("You said: {}", lines.join("; ")) })
}

/// A request has something that a [`Prompt`] cannot say.
#[derive(Debug)]
struct OnlyTexts;

impl fmt::Display for OnlyTexts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the client takes texts alone: no instructions, tools or other options")
    }
}

impl Error for OnlyTexts {}

/// Says how its types and ours become each other.
struct PromptCodec;

impl ClientCodec for PromptCodec {
    type Request = Prompt;
    type Response = Completion;

    fn encode(&self, request: ChatRequest) -> Result<Prompt, BoxError> {
        let options = ChatOptions::new().with_stream(request.options.stream);
        if *request.options != options || request.service_id()?.is_some() {
            return Err(OnlyTexts.into());
        }
        let line = |message: &Message| match (message.role, message.parts.as_slice()) {
            (Role::User, [Part::Text(text)]) => Ok(("person", text.text.clone())),
            (Role::Assistant, [Part::Text(text)]) => Ok(("model", text.text.clone())),
            _ => Err(OnlyTexts),
        };
        let lines =
            request.messages.iter().map(|message| line(message)).collect::<Result<_, _>>()?;
        Ok(Prompt { lines })
    }

    fn decode(&self, completion: Completion) -> BoxFuture<'static, Result<ChatResponse, BoxError>> {
        let message = Message::assistant(completion.text);
        async { Ok(ChatResponse::whole([message], Finish::stop())) }.boxed()
    }
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let model = ServiceBuilder::new()
        .layer(AdaptLayer::new(PromptCodec))
        .concurrency_limit(4) // the client's own layers stay where they are
        .service(service_fn(existing_client));
    let mut client = ChatPipeline::builder(model).history(MemoryStore::new()).build()?;

    let key = ConversationKey::new("alice", "adapter");
    for text in ["My name is Alice.", "What is my name?"] {
        let request = ChatRequest::user(text).in_conversation(key.clone());
        let answer = client.ready().await?.call(request).await?.collect().await?;
        println!("{}", answer.text());
    }
    Ok(())
}
