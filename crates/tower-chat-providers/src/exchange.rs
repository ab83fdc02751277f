//! One call: a request, its answer, and what can be wrong with it.

use std::{pin::pin, time::SystemTime};

use bytes::Bytes;
use http::{HeaderMap, Request, Response, header::CONTENT_ENCODING};
use http_body::Body;
use http_body_util::BodyExt;
use tower_chat_core::{BoxError, ChatRequest, ChatResponse};
use tower_chat_wire::{
    body::{BodyError, BodyWire},
    stream::{BodyReader, Limits, check_depth},
};
use tower_service::Service;

use crate::{
    auth::SentSecrets,
    error::{Errors, ProviderError, ProviderErrorKind, Refusal},
    provider::{Provider, Settings},
    retry_after::retry_after,
};

/// Answers a request by a transport that is ready.
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
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let errors = settings.errors;
    request.service_id().map_err(|error| errors.make(ProviderErrorKind::Sentinel(error)))?;
    let exchange = provider.exchange(&request, &settings)?;
    let response = transport.call(exchange.request).await;
    let response = response.map_err(|error| errors.transport(error))?;
    let context = ResponseContext::of(&response, provider.request_id_header(), &settings);
    let read = async {
        let body = accepted(response, &context, exchange.wire).await?;
        whole(body, &context, exchange.wire).await
    };
    read.await.map_err(|error| context.complete(error))
}

/// What an error of a response has to say besides, and to hide.
struct ResponseContext {
    errors: Errors,
    limits: Limits,
    headers: HeaderMap,
    request_id: Option<String>,
    secrets: SentSecrets,
}

impl ResponseContext {
    fn of<B>(response: &Response<B>, request_id: &str, settings: &Settings) -> Self {
        let header = |name: &str| response.headers().get(name)?.to_str().ok().map(str::to_owned);
        Self {
            errors: settings.errors,
            limits: settings.limits,
            headers: response.headers().clone(),
            request_id: header(request_id).or_else(|| header("x-request-id")),
            secrets: response.extensions().get().cloned().unwrap_or_default(),
        }
    }

    fn complete(&self, error: ProviderError) -> ProviderError {
        error
            .with_request_id(self.request_id.as_deref())
            .map_texts(|text| self.secrets.redact(text))
    }
}

/// The body of the answer, if the service gave one, in a form that can be read.
async fn accepted<B>(
    response: Response<B>,
    context: &ResponseContext,
    wire: BodyWire,
) -> Result<B, ProviderError>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    if !response.status().is_success() {
        return Err(refused(response, context, wire).await);
    }
    // A layer that has decompressed the body has removed the header.
    let encoding = response.headers().get(CONTENT_ENCODING).map(|name| name.to_str());
    match encoding {
        None | Some(Ok("identity")) => Ok(response.into_body()),
        Some(name) => {
            let name = name.unwrap_or("an unknown name");
            let what = format!("its body is compressed ({name}), and no layer decompresses it");
            Err(context.errors.malformed(what, ""))
        }
    }
}

/// The error of a status other than success. What there is of the body counts: it is an error in any
/// case.
async fn refused<B>(
    response: Response<B>,
    context: &ResponseContext,
    _wire: BodyWire,
) -> ProviderError
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let status = response.status().as_u16();
    let reader = BodyReader::refusal(context.limits);
    let (text, cut_off) = read(response.into_body(), reader, context.errors).await;
    let message = match cut_off {
        Some(error) => format!("its reason was cut off: {error}"),
        None => text.clone(),
    };
    let refusal = Refusal {
        status: Some(status),
        code: None,
        message,
        retry_after: retry_after(&context.headers, SystemTime::now()),
        body: text,
    };
    context.errors.make(ProviderErrorKind::Refused(refusal))
}

/// The answer that a whole body is.
async fn whole<B>(
    body: B,
    context: &ResponseContext,
    wire: BodyWire,
) -> Result<ChatResponse, ProviderError>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let errors = context.errors;
    let (text, cut_off) = read(body, BodyReader::answer(context.limits), errors).await;
    if let Some(error) = cut_off {
        return Err(error);
    }
    check_depth(&text, &context.limits).map_err(|error| errors.limit(error))?;
    let json = serde_json::from_str(&text).map_err(|source| {
        let (what, source) = ("it is not JSON".to_owned(), Some(source.into()));
        errors.make(ProviderErrorKind::Malformed { what, body: text.clone(), source })
    })?;
    let answer = wire.parse_answer(json).map_err(|error| unreadable(errors, error, text))?;
    Ok(answer.into())
}

fn unreadable(errors: Errors, error: BodyError, body: String) -> ProviderError {
    match error {
        BodyError::Refused { error } => {
            let refusal = Refusal { message: error, body, ..Refusal::default() };
            errors.make(ProviderErrorKind::Refused(refusal))
        }
        error => {
            let (what, source) = (error.to_string(), Some(error.into()));
            errors.make(ProviderErrorKind::Malformed { what, body, source })
        }
    }
}

/// The text of a body up to the limit of its reader, and why it is not whole, if it is not.
async fn read<B>(body: B, mut reader: BodyReader, errors: Errors) -> (String, Option<ProviderError>)
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
                    break Some(errors.limit(error));
                }
            }
        }
    };
    (reader.into_text(), cut_off)
}
