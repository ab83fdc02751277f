//! Adds a history to an existing tower client with its own request and response types. An adapter
//! layer turns the unchanged client into a model client.
//!
//! The client accepts only texts. The codec of the adapter therefore rejects requests with
//! instructions, tools or other content. The guide's chapter about providers has a codec for a
//! client that accepts them.
//!
//! ```text
//! cargo run -p tower-chat-examples --bin adapter
//! ```

use std::{error::Error, fmt};

use futures_util::{FutureExt, future::BoxFuture};
use tower::{ServiceBuilder, service_fn};
use tower_chat::{
    BoxError, ChatOptions, ChatPipeline, ChatRequest, ChatResponse, ConversationKey, Finish,
    MemoryStore, Message, Part, Role,
    adapt::{AdaptLayer, ClientCodec},
};

/// The request of the existing client.
struct Prompt {
    lines: Vec<(&'static str, String)>,
}

/// The response of the existing client.
struct Completion {
    text: String,
}

/// The existing client, which is independent of tower-chat.
async fn existing_client(prompt: Prompt) -> Result<Completion, BoxError> {
    let lines = prompt.lines.iter().filter(|(speaker, _)| *speaker == "person");
    let lines: Vec<&str> = lines.map(|(_, text)| text.as_str()).collect();
    Ok(Completion { text: format!("You said: {}", lines.join("; ")) })
}

#[derive(Debug)]
struct OnlyTexts;

impl fmt::Display for OnlyTexts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the client takes texts alone: no instructions, tools or other options")
    }
}

impl Error for OnlyTexts {}

/// Converts between the types of the client and those of tower-chat.
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
            request.messages().iter().map(|message| line(message)).collect::<Result<_, _>>()?;
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
        .concurrency_limit(4) // an existing layer of the client
        .service(service_fn(existing_client));
    let client = ChatPipeline::builder(model).history(MemoryStore::new()).build()?;

    let key = ConversationKey::new("alice", "adapter");
    for text in ["My name is Alice.", "What is my name?"] {
        let answer = client.ask(key.clone(), text).await?;
        println!("{}", answer.text());
    }
    Ok(())
}
