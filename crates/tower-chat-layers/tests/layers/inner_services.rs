//! Tests the access to the inner service of each layer.

use std::time::Duration;

use futures_util::future::BoxFuture;
use tower::Layer;
use tower_chat_layers::{
    BoxError, ChatRequest, ChatResponse, MemoryStore, PerRunPersistence, PerServiceCallPersistence,
    ToolLoopLayer, Tools,
    adapt::{AdaptLayer, ClientCodec, ExposeLayer, ServerCodec},
    idle_timeout::IdleTimeoutLayer,
    telemetry::TelemetryLayer,
    validate::ValidateTranscriptLayer,
};

/// A codec that does not change requests and responses.
struct Unchanged;

impl ClientCodec for Unchanged {
    type Request = ChatRequest;
    type Response = ChatResponse;

    fn encode(&self, request: ChatRequest) -> Result<ChatRequest, BoxError> {
        Ok(request)
    }

    fn decode(&self, response: ChatResponse) -> BoxFuture<'static, Result<ChatResponse, BoxError>> {
        Box::pin(std::future::ready(Ok(response)))
    }
}

impl ServerCodec for Unchanged {
    type Request = ChatRequest;
    type Response = ChatResponse;

    fn decode(&self, request: ChatRequest) -> Result<ChatRequest, BoxError> {
        Ok(request)
    }

    fn encode(&self, response: ChatResponse) -> BoxFuture<'static, Result<ChatResponse, BoxError>> {
        Box::pin(std::future::ready(Ok(response)))
    }
}

macro_rules! gives_access {
    ($($layer:expr),+ $(,)?) => {$(
        let mut service = $layer.layer(1);
        *service.get_mut() += 1;
        assert_eq!(service.get_ref(), &2, "{}", stringify!($layer));
        assert_eq!(service.into_inner(), 2, "{}", stringify!($layer));
    )+};
}

#[test]
fn every_service_of_a_layer_gives_access_to_the_inner_service() {
    gives_access!(
        PerRunPersistence::new(MemoryStore::new()),
        ToolLoopLayer::new(Tools::new()),
        PerServiceCallPersistence::new(MemoryStore::new()),
        IdleTimeoutLayer::new(Duration::from_secs(1)),
        ValidateTranscriptLayer::new(),
        TelemetryLayer::chat(),
        AdaptLayer::new(Unchanged),
        ExposeLayer::new(Unchanged),
    );
}
