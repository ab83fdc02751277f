//! The layer that creates the spans of runs and service calls.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use futures_core::Stream;
use tower_chat_core::{BoxError, ChatRequest, ChatResponse, ChatUpdate, telemetry::is_recorded};
use tower_layer::Layer;
use tower_service::Service;
use tracing::{Instrument, Span};

use super::{
    measured::Measured,
    open_span::OpenSpan,
    run_span::{RunSpan, records_content},
    spans,
};
use crate::ResponseFuture;

/// Creates a span for each run or for each service call. The [module](super) describes the spans.
#[derive(Debug, Clone)]
pub struct TelemetryLayer {
    operation: Operation,
    name: Option<Arc<str>>,
    records_content: bool,
}

#[derive(Debug, Clone, Copy)]
enum Operation {
    Agent,
    Chat,
}

impl TelemetryLayer {
    /// Creates the layer for the spans `invoke_agent` of runs. The layer must be above the
    /// persistence layers and the tool loop.
    pub fn agent() -> Self {
        Self::of(Operation::Agent)
    }

    /// Creates the layer for the spans `chat` of service calls. The layer must be directly above
    /// the client.
    pub fn chat() -> Self {
        Self::of(Operation::Chat)
    }

    fn of(operation: Operation) -> Self {
        Self { operation, name: None, records_content: false }
    }

    /// Sets a name in the spans. A layer for runs sets the name of the agent, `gen_ai.agent.name`.
    /// A layer for service calls sets the name of the provider, `gen_ai.provider.name`, such as
    /// `openai`, `anthropic`, `aws.bedrock` or `gcp.gemini`.
    #[must_use]
    pub fn with_name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Sets whether spans contain the text of users, models and tools. If a layer for runs enables
    /// content, the spans of the service calls and tools below this layer also contain content.
    #[must_use]
    pub fn with_content(mut self, records_content: bool) -> Self {
        self.records_content = records_content;
        self
    }

    fn span(&self, request: &ChatRequest) -> Span {
        let name = self.name.as_deref();
        match self.operation {
            Operation::Agent => spans::agent(request, name),
            Operation::Chat => spans::chat(request, name),
        }
    }
}

impl<S> Layer<S> for TelemetryLayer {
    type Service = Telemetry<S>;

    fn layer(&self, inner: S) -> Telemetry<S> {
        Telemetry { inner, layer: self.clone() }
    }
}

/// The service that [`TelemetryLayer`] creates.
#[derive(Debug, Clone)]
pub struct Telemetry<S> {
    inner: S,
    layer: TelemetryLayer,
}

impl<S> Telemetry<S> {
    tower_chat_core::__inner_service_accessors!(S);
}

impl<S> Service<ChatRequest> for Telemetry<S>
where
    S: Service<ChatRequest, Response = ChatResponse>,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
{
    type Response = ChatResponse;
    type Error = BoxError;
    type Future = ResponseFuture;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, mut request: ChatRequest) -> ResponseFuture {
        let span = self.layer.span(&request);
        if span.is_disabled() && !is_recorded() {
            let response = self.inner.call(request);
            return ResponseFuture::new(async { response.await.map_err(Into::into) });
        }
        let has_content = self.layer.records_content || records_content(&request.extensions);
        if has_content {
            spans::record_input(&span, request.messages().iter().map(|message| &**message));
        }
        let name = self.layer.name.as_ref();
        let open = match self.layer.operation {
            Operation::Agent => {
                let of_run = RunSpan::new(has_content);
                request.extensions.insert(of_run.clone());
                let measured = Measured::run(&request, name, &of_run);
                OpenSpan::new(span.clone(), measured).with_run(of_run)
            }
            Operation::Chat => OpenSpan::new(span.clone(), Measured::service_call(&request, name)),
        };
        let open = open.with_content(has_content);
        let response = span.in_scope(|| self.inner.call(request));
        let response = async { response.await.map_err(Into::into) };
        ResponseFuture::new(traced(response, open).instrument(span))
    }
}

async fn traced(
    response: impl Future<Output = Result<ChatResponse, BoxError>>,
    mut open: OpenSpan,
) -> Result<ChatResponse, BoxError> {
    let response = response.await.inspect_err(|error| open.failed(error))?;
    match response.try_into_answer() {
        Ok(answer) => {
            answer.messages.iter().for_each(|message| open.message(message));
            open.finished(&answer.finish);
            Ok(answer.into())
        }
        Err(response) => Ok(ChatResponse::forward(TracedUpdates { response, open })),
    }
}

/// The updates of an answer. Each poll of the response enters the span.
struct TracedUpdates {
    response: ChatResponse,
    open: OpenSpan,
}

impl Stream for TracedUpdates {
    type Item = Result<ChatUpdate, BoxError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Self { response, open } = &mut *self;
        let span = open.span().clone();
        let _entered = span.enter();
        let update = ready!(Pin::new(response).poll_next(cx));
        if let Some(Ok(_)) = &update {
            open.chunk();
        }
        match &update {
            Some(Ok(ChatUpdate::Message(message))) => open.message(message),
            Some(Ok(ChatUpdate::Finish(finish))) => open.finished(finish),
            Some(Err(error)) => open.failed(error),
            Some(Ok(_)) | None => {}
        }
        Poll::Ready(update)
    }
}
