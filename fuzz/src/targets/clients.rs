//! The clients of the providers, with a transport that returns the bytes of an input.

use aws_smithy_eventstream::frame::write_message_to;
use aws_smithy_types::event_stream::{Header, HeaderValue, Message};
use axum::body::{Body, Bytes};
use futures_util::{FutureExt, future::ready, stream};
use http::{Request, Response, header::CONTENT_TYPE};
use tower::{Service, ServiceExt, service_fn};
use tower_chat::{Answer, BoxError, ChatRequest, ChatResponse};
use tower_chat_providers::{
    Anthropic, Bedrock, Cohere, Gemini, Mistral, Ollama, OpenAiChat, OpenAiResponses, ProviderError,
};
use tower_chat_wire::body::BodyWire;

/// The client that receives the response from the transport.
#[derive(Clone, Copy)]
pub(crate) enum Client {
    Of(BodyWire),
    Mistral,
}

/// The response of a provider, from which a client reads an answer.
#[derive(Clone, Copy)]
pub(crate) struct Input<'a> {
    pub(crate) client: Client,
    /// The HTTP status.
    pub(crate) status: u16,
    pub(crate) is_streamed: bool,
    pub(crate) bytes: &'a [u8],
}

impl<'a> Input<'a> {
    /// Creates an input that contains a complete answer.
    pub(crate) fn new(client: Client, bytes: &'a [u8]) -> Self {
        Self { client, status: 200, is_streamed: false, bytes }
    }

    /// Returns the answer that the client reads from the response. The response arrives in pieces
    /// of `size` bytes.
    pub(crate) fn answer(&self, size: usize) -> Result<Answer, BoxError> {
        let content_type = match (self.is_streamed, self.client) {
            (false, _) => "application/json",
            (true, Client::Of(BodyWire::Ollama)) => "application/x-ndjson",
            (true, Client::Of(BodyWire::BedrockConverse)) => "application/vnd.amazon.eventstream",
            (true, _) => "text/event-stream",
        };
        let status = self.status;
        let pieces: Vec<Bytes> = self.bytes.chunks(size).map(Bytes::copy_from_slice).collect();
        let transport = service_fn(move |_: Request<Bytes>| {
            let pieces = pieces.clone().into_iter().map(Ok::<_, BoxError>);
            let response = Response::builder().status(status).header(CONTENT_TYPE, content_type);
            ready(response.body(Body::from_stream(stream::iter(pieces))))
        });
        let request = ChatRequest::user("Go on.");
        let mut request = if self.is_streamed { request.streamed() } else { request };
        let mut options = (*request.options).clone();
        options.model = Some("m".to_owned());
        request.options = options.into();
        let wire = match self.client {
            Client::Of(wire) => wire,
            Client::Mistral => return asked(Mistral::new(transport), request),
        };
        match wire {
            BodyWire::OpenAiChat => asked(OpenAiChat::new(transport), request),
            BodyWire::OpenAiResponses => asked(OpenAiResponses::new(transport), request),
            BodyWire::Anthropic => asked(Anthropic::new(transport), request),
            BodyWire::Gemini => asked(Gemini::new(transport), request),
            BodyWire::BedrockConverse => asked(Bedrock::new("eu-west-1", transport), request),
            BodyWire::Cohere => asked(Cohere::new(transport), request),
            BodyWire::Ollama => asked(Ollama::new(transport), request),
        }
    }
}

fn asked<C>(client: C, request: ChatRequest) -> Result<Answer, BoxError>
where
    C: Service<ChatRequest, Response = ChatResponse, Error = ProviderError>,
{
    let answer = async { client.oneshot(request).await?.collect().await };
    answer.now_or_never().expect("the whole response is in memory")
}

/// Encodes each line of an input as a message of an AWS event stream. A line contains the name of
/// the event, a tab and the payload. The checksums are valid, because the parser of the events
/// would never receive damaged lines with wrong checksums.
pub(crate) fn event_stream(lines: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for line in lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let tab = line.iter().position(|byte| *byte == b'\t').unwrap_or_default();
        let (name, payload) = line.split_at(tab);
        let payload = payload.strip_prefix(b"\t").unwrap_or(payload);
        let name = String::from_utf8_lossy(name).into_owned();
        let message = Message::new(payload.to_vec())
            .add_header(Header::new(":event-type", HeaderValue::String(name.into())));
        // A line is skipped if its event name is too long for a header.
        let length = bytes.len();
        if write_message_to(&message, &mut bytes).is_err() {
            bytes.truncate(length);
        }
    }
    bytes
}
