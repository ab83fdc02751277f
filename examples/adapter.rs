//! A tower client that exists already, with its own request and response types, gains a history:
//! an adapter layer turns it into a leaf, and nothing in the client changes.
//!
//! ```text
//! cargo run -p tower-chat-examples --bin adapter
//! ```

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use tower::{Layer, Service, ServiceBuilder, ServiceExt, service_fn};
use tower_chat::{
    ChatPipeline,
    core::{
        BoxError, ChatRequest, ChatResponse, ConversationKey, Finish, MemoryStore, Message, Role,
    },
};

/// What the existing client takes.
struct Prompt {
    lines: Vec<(&'static str, String)>,
}

/// What it returns.
struct Completion {
    text: String,
}

/// Turns a `Service<Prompt, Response = Completion>` into a leaf.
#[derive(Clone)]
struct PromptAdapter;

impl<S> Layer<S> for PromptAdapter {
    type Service = PromptLeaf<S>;

    fn layer(&self, client: S) -> PromptLeaf<S> {
        PromptLeaf { client }
    }
}

#[derive(Clone)]
struct PromptLeaf<S> {
    client: S,
}

impl<S> Service<ChatRequest> for PromptLeaf<S>
where
    S: Service<Prompt, Response = Completion>,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
{
    type Response = ChatResponse;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<ChatResponse, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.client.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: ChatRequest) -> Self::Future {
        if let Err(sentinel) = request.service_id() {
            return Box::pin(std::future::ready(Err(sentinel.into())));
        }
        let completion = self.client.call(to_prompt(&request));
        Box::pin(async move {
            let Completion { text } = completion.await.map_err(Into::into)?;
            Ok(ChatResponse::whole([Message::assistant(text)], Finish::stop()))
        })
    }
}

fn to_prompt(request: &ChatRequest) -> Prompt {
    let speaker = |role| if role == Role::Assistant { "model" } else { "person" };
    let line = |message: &Message| (speaker(message.role), message.text());
    Prompt { lines: request.messages.iter().map(|message| line(message)).collect() }
}

/// Stands for the client that exists: it knows nothing of tower-chat.
async fn existing_client(prompt: Prompt) -> Result<Completion, BoxError> {
    let said = prompt.lines.iter().filter(|(speaker, _)| *speaker == "person");
    let said: Vec<&str> = said.map(|(_, text)| text.as_str()).collect();
    Ok(Completion { text: format!("You said: {}", said.join("; ")) })
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let leaf = ServiceBuilder::new()
        .concurrency_limit(4) // the client's own layers stay where they are
        .layer(PromptAdapter)
        .service(service_fn(existing_client));
    let mut client = ChatPipeline::builder(leaf).history(MemoryStore::new()).build()?;

    let key = ConversationKey::new("alice", "adapter");
    for text in ["My name is Alice.", "What is my name?"] {
        let request = ChatRequest::user(text).in_conversation(key.clone());
        let answer = client.ready().await?.call(request).await?.collect().await?;
        println!("{}", answer.text());
    }
    Ok(())
}
