//! Executes one call: sends the request, reads the answer, and adds the request id and other data
//! to errors.
//!
//! An exchange is the one or two HTTP requests of a call. A frame is one event of a streamed
//! answer.

use std::{future::poll_fn, pin::pin, sync::Arc, time::SystemTime};

use bytes::Bytes;
use http::{HeaderMap, Request, Response, header::CONTENT_ENCODING};
use http_body::Body;
use http_body_util::{BodyExt, Full};
use tower_chat_core::{BoxError, ChatRequest, ChatResponse};
use tower_chat_wire::{
    body::{AnswerContext, BodyWire},
    rules::{Fitted, ServiceRules, check_new, fit},
    stream::{BodyReader, Limits, check_depth},
};
use tower_service::Service;

use crate::{
    auth::SentSecrets,
    body_kind::{self, BodyKind},
    error::{Errors, ProviderError, ProviderErrorKind},
    frames::StreamFraming,
    provider::{Exchange, Provider, Settings, Step},
    retry_after::retry_after,
    streamed,
};

/// Sends a request, as one or two HTTP requests, and returns the answer. `transport` must have been
/// polled to readiness.
pub(crate) async fn answer<P, T, B>(
    provider: P,
    settings: Settings,
    mut transport: T,
    request: ChatRequest,
) -> Result<ChatResponse, ProviderError>
where
    P: Provider,
    T: Service<Request<Bytes>, Response = Response<B>>,
    T::Error: Into<BoxError>,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let errors = settings.errors;
    let service_id = request.service_id();
    let service_id =
        service_id.map_err(|error| errors.with_kind(ProviderErrorKind::Sentinel(error)))?;
    let service_id = service_id.cloned();
    let rules = settings.rules.clone();
    let rules = rules.or_else(|| provider.rules(&request, &settings).map(Arc::new));
    let fitted = rules.map(|rules| fit_request(&request, &rules, errors)).transpose()?;
    let (request, answer_context) = fitted.unwrap_or_else(|| (request, AnswerContext::default()));
    let mut exchange = provider.exchange(&request, &settings)?;
    // Frees the history, which is not needed while the answer is read.
    drop(request);
    loop {
        let Exchange { request, step } = exchange;
        let response = transport.call(request).await;
        let response = response.map_err(|error| errors.transport(error))?;
        let issuer = answer_context.issuer.clone();
        let context =
            ResponseContext::of_response(&response, &settings, service_id.clone(), issuer);
        match step {
            Step::Answer(mut expected) => {
                let AnswerContext { issuer, names, changes, .. } = answer_context;
                let expected_context = &mut expected.context;
                (expected_context.issuer, expected_context.names) = (issuer, names);
                expected_context.changes = changes;
                return respond(response, context, expected).await;
            }
            Step::First { wire, then } => {
                let read = async {
                    let body = accepted_body(response, &context, wire).await?;
                    then(&read_text(body, &context).await?)
                };
                exchange = read.await.map_err(|error| context.complete(error))?;
            }
        }
        poll_fn(|cx| transport.poll_ready(cx)).await.map_err(|error| errors.transport(error))?;
    }
}

/// Changes the request so that it complies with the rules of the service. Returns the changed
/// request, and the context with which its answer is read. Fails if a new message contains media
/// that the service does not accept.
fn fit_request(
    request: &ChatRequest,
    rules: &ServiceRules,
    errors: Errors,
) -> Result<(ChatRequest, AnswerContext), ProviderError> {
    check_new(request, rules)
        .map_err(|error| errors.with_kind(ProviderErrorKind::UnsupportedMedia(error)))?;
    let Fitted { request, names, changes, .. } = fit(request, rules);
    let answer_context = AnswerContext::default().with_issuer(Arc::clone(&rules.issuer));
    Ok((request, answer_context.with_changes(names, changes)))
}

/// The format in which the body of an answer is read.
#[derive(Debug, Clone)]
pub(crate) struct Expected {
    pub(crate) wire: BodyWire,
    /// The format that divides a streamed answer into frames. `None` for a whole answer.
    pub(crate) framing: Option<StreamFraming>,
    pub(crate) context: AnswerContext,
}

async fn respond<B>(
    response: Response<B>,
    context: ResponseContext,
    expected: Expected,
) -> Result<ChatResponse, ProviderError>
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let Expected { wire, framing, context: answer_context } = expected;
    let read = async {
        let body = accepted_body(response, &context, wire).await?;
        let (beginning, body) = body_kind::peek(body).await;
        // The first bytes of the body decide, because some services send a whole answer instead of
        // a stream, or a stream with the content type of JSON.
        let frames = match BodyKind::of_prefix(&beginning).framing(framing) {
            Some(framing) => framing.frames(body, context.limits),
            None => {
                let text = read_text(body, &context).await?;
                let Some(framing) = body_kind::framing_of_text(&text, wire) else {
                    let text = text.trim_start_matches('\u{feff}');
                    let answer = wire.parse_answer_to(text, &answer_context);
                    let answer = answer.map_err(|error| context.errors.answer_error(error))?;
                    return Ok(streamed::StartedAnswer::Whole(answer));
                };
                framing.frames(Full::new(Bytes::from(text)), context.limits)
            }
        };
        let accumulator = wire.accumulator_to(answer_context);
        Ok(streamed::StartedAnswer::Stream(streamed::start(frames, accumulator).await))
    };
    match read.await.map_err(|error| context.complete(error))? {
        streamed::StartedAnswer::Whole(answer) => Ok(answer.into()),
        streamed::StartedAnswer::Stream(started) => started.into_response(context),
    }
}

/// Data of a request and its response that are added to every error in reading the response.
#[derive(Debug)]
pub(crate) struct ResponseContext {
    pub(crate) errors: Errors,
    limits: Limits,
    headers: HeaderMap,
    request_id: Option<String>,
    /// The service id of the request: the id of the history that the service stores.
    service_id: Option<Arc<str>>,
    /// The name of the service. `None` if the client has no rules for the service.
    issuer: Option<Arc<str>>,
    secrets: SentSecrets,
}

/// The headers in which services send the id of a request. In this order: OpenAI and others,
/// Anthropic, AWS, Azure, Mistral, DeepSeek, Cohere.
const REQUEST_ID: [&str; 7] = [
    "x-request-id",
    "request-id",
    "x-amzn-requestid",
    "apim-request-id",
    "mistral-correlation-id",
    "x-ds-trace-id",
    "x-debug-trace-id",
];

impl ResponseContext {
    fn of_response<B>(
        response: &Response<B>,
        settings: &Settings,
        service_id: Option<Arc<str>>,
        issuer: Option<Arc<str>>,
    ) -> Self {
        let header = |name: &str| response.headers().get(name)?.to_str().ok().map(str::to_owned);
        let secrets = response.extensions().get::<SentSecrets>();
        let mut secrets = secrets.cloned().unwrap_or_default();
        settings.collect_secrets(&mut secrets);
        Self {
            errors: settings.errors,
            limits: settings.limits,
            headers: response.headers().clone(),
            request_id: REQUEST_ID.into_iter().find_map(header),
            service_id,
            issuer,
            secrets,
        }
    }

    /// Adds the id of the request to an error, and removes the secrets of the request from its
    /// texts. Marks a refusal whose cause is a lost history or the content of the messages.
    pub(crate) fn complete(&self, error: ProviderError) -> ProviderError {
        error
            .with_request_id(self.request_id.as_deref())
            .with_service_id(self.service_id.as_deref())
            .with_issuer(self.issuer.as_ref())
            .map_texts(|text| self.secrets.redact(text))
    }
}

/// Returns the body of a response. Fails if the status is not 2xx, or if the body is compressed.
async fn accepted_body<B>(
    response: Response<B>,
    context: &ResponseContext,
    wire: BodyWire,
) -> Result<B, ProviderError>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    if !response.status().is_success() {
        return Err(read_refusal(response, context, wire).await);
    }
    // A layer that has decompressed the body has also removed this header.
    let encoding = response.headers().get(CONTENT_ENCODING).map(|name| name.to_str());
    match encoding {
        None | Some(Ok("identity")) => Ok(response.into_body()),
        Some(name) => {
            let name = name.unwrap_or("an unknown name");
            let what = format!("its body is compressed ({name}): add a layer that decompresses it");
            Err(context.errors.malformed(what, ""))
        }
    }
}

/// Reads the error in a response whose status is not 2xx. If the body cannot be read to its end,
/// the error contains the part that was read, and its message says why the rest is missing.
async fn read_refusal<B>(
    response: Response<B>,
    context: &ResponseContext,
    wire: BodyWire,
) -> ProviderError
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let status = response.status().as_u16();
    let reader = BodyReader::refusal(context.limits);
    let (text, cut_off) = read_until_error(response.into_body(), reader, context.errors).await;
    let mut refusal = context.errors.refusal(wire.parse_error(status, &text), text);
    refusal.status = Some(status);
    if let Some(error) = cut_off {
        refusal.message = format!("its error message was cut off: {error}");
    }
    // Bedrock sends the code of the error in this header, followed by a colon and more text.
    let named = context.headers.get("x-amzn-errortype").and_then(|value| value.to_str().ok());
    if let Some(code) = named.and_then(|name| name.split(':').next()) {
        refusal.code = Some(code.to_owned());
    }
    let header_retry_after = retry_after(&context.headers, SystemTime::now());
    refusal.retry_after = header_retry_after.or(refusal.retry_after);
    context.errors.with_kind(ProviderErrorKind::Refused(refusal))
}

/// Reads a whole body as text.
async fn read_text<B>(body: B, context: &ResponseContext) -> Result<String, ProviderError>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let errors = context.errors;
    let (text, cut_off) = read_until_error(body, BodyReader::answer(context.limits), errors).await;
    if let Some(error) = cut_off {
        return Err(error);
    }
    check_depth(&text, &context.limits).map_err(|error| errors.limit_error(error))?;
    Ok(text)
}

/// Reads a body as text. The second value is the reason why the text is not the whole body, if any.
async fn read_until_error<B>(
    body: B,
    mut reader: BodyReader,
    errors: Errors,
) -> (String, Option<ProviderError>)
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let mut body = pin!(body);
    let cut_off = loop {
        match body.frame().await {
            None => break None,
            Some(Err(error)) => break Some(errors.transport(error)),
            Some(Ok(frame)) => {
                let Some(data) = frame.data_ref() else { continue };
                if let Err(error) = reader.push(data) {
                    break Some(errors.limit_error(error));
                }
            }
        }
    };
    (reader.into_text(), cut_off)
}
