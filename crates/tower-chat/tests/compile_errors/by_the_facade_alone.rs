//! A store, a tool, a codec, a layer and a model client that use only the facade.

use tower_chat::{
    BoxError, ChatPipeline, ChatRequest, ChatResponse, ConversationKey, Finish, HistoryStore,
    MemoryStore, Message, Tool, ToolContext, ToolDefinition, Tools,
    adapt::{AdaptLayer, ClientCodec},
    async_trait, layer::BoxFuture,
    store::{self, History, StoreError},
    tool::ToolOutput,
    tower::{Layer, Service, ServiceBuilder, ServiceExt, service_fn, util::BoxCloneSyncService},
};

pub struct Counting<S>(S);

#[async_trait]
impl<S: HistoryStore> store::author::StoreWrapper for Counting<S> {
    type Inner = S;

    fn inner(&self) -> &S {
        &self.0
    }

    async fn load(&self, key: &ConversationKey) -> Result<History, StoreError> {
        println!("loads {key}");
        self.0.load(key).await
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
}

pub async fn length(store: Counting<MemoryStore>, key: &ConversationKey) -> Result<usize, StoreError> {
    use tower_chat::store::*;

    Ok(store.load(key).await?.messages.len())
}

pub struct Clock(ToolDefinition);

#[async_trait]
impl Tool for Clock {
    fn definition(&self) -> &ToolDefinition {
        &self.0
    }

    async fn call(&self, context: ToolContext) -> Result<ToolOutput, BoxError> {
        Ok(format!("noon, says {}", context.call_id()).into())
    }
}

pub struct Texts;

impl ClientCodec for Texts {
    type Request = String;
    type Response = String;

    fn encode(&self, request: ChatRequest) -> Result<String, BoxError> {
        Ok(request.messages().into_iter().map(|message| message.text()).collect())
    }

    fn decode(&self, text: String) -> BoxFuture<'static, Result<ChatResponse, BoxError>> {
        Box::pin(async { Ok(ChatResponse::whole([Message::assistant(text)], Finish::stop())) })
    }
}

pub async fn agent(clock: Clock) -> Result<ChatPipeline, BoxError> {
    let echo = service_fn(|text: String| async { Ok::<_, BoxError>(text) });
    let client = ServiceBuilder::new().layer(AdaptLayer::new(Texts)).service(echo);
    let client = BoxCloneSyncService::new(client);
    let builder = ChatPipeline::builder(client).tools(Tools::new().with(clock));
    Ok(builder.history(Counting(MemoryStore::new())).build()?)
}

pub async fn ask(mut agent: ChatPipeline, request: ChatRequest) -> Result<String, BoxError> {
    Ok(agent.ready().await?.call(request).await?.collect().await?.text())
}

pub fn layered<L: Layer<S>, S>(layer: L, service: S) -> L::Service {
    layer.layer(service)
}

fn main() {}
