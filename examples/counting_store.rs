//! A store that wraps another store and counts the loads of conversations.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use async_trait::async_trait;
use tower::service_fn;
use tower_chat::{
    BoxError, ChatPipeline, ChatRequest, ChatResponse, ConversationKey, Finish, HistoryStore,
    MemoryStore, Message,
    store::{self, History, StoreError},
};

/// Counts loads. The inner store executes all operations.
struct CountingStore<S> {
    inner: S,
    loads: Arc<AtomicUsize>,
}

#[async_trait]
impl<S: HistoryStore> store::author::StoreWrapper for CountingStore<S> {
    type Inner = S;

    fn inner(&self) -> &S {
        &self.inner
    }

    async fn load(&self, key: &ConversationKey) -> Result<History, StoreError> {
        self.loads.fetch_add(1, Ordering::Relaxed);
        self.inner().load(key).await
    }

    fn journal(&self) -> Option<&dyn store::Journal> {
        self.inner().journal()
    }

    fn directory(&self) -> Option<&dyn store::Directory> {
        self.inner().directory()
    }

    fn tool_calls(&self) -> Option<&dyn store::ToolCallQueries> {
        self.inner().tool_calls()
    }

    fn maintenance(&self) -> Option<&dyn store::Maintenance> {
        self.inner().maintenance()
    }

    fn summaries(&self) -> Option<&dyn store::Summaries> {
        self.inner().summaries()
    }
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let loads = Arc::new(AtomicUsize::new(0));
    let store = CountingStore { inner: MemoryStore::new(), loads: loads.clone() };
    let pipeline = ChatPipeline::builder(service_fn(echo)).history(store).build()?;
    let key = ConversationKey::new("alice", "diary");
    for text in ["Good morning.", "Good evening."] {
        let answer = pipeline.ask(key.clone(), text).await?;
        println!("{} Loads: {}", answer.text(), loads.load(Ordering::Relaxed));
    }
    Ok(())
}

/// A model client that reports the number of messages in the request.
async fn echo(request: ChatRequest) -> Result<ChatResponse, BoxError> {
    let answer = Message::assistant(format!("Messages read: {}.", request.messages().len()));
    Ok(ChatResponse::whole([answer], Finish::default()))
}
