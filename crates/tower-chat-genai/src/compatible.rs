//! Services compatible with OpenAI's Chat Completions: genai says where and as who they are asked,
//! and the OpenAI leaf asks them, which loses nothing.

use std::sync::OnceLock;

use futures_util::StreamExt;
use genai::{ServiceTarget, resolver::AuthData};
use http::HeaderMap;
use tower_chat_core::{BoxError, ChatRequest, ChatResponse};
use tower_chat_openai::{OpenAiChat, OpenAiError};
use tower_chat_wire::stream::Limits;
use tower_service::Service;

use crate::{GenAiError, Provider, mistral};

/// What the leaf is made with.
pub(crate) struct Settings<'a> {
    pub(crate) provider: Provider,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) limits: Limits,
    pub(crate) takes_gzip: bool,
}

/// Answers a request by the leaf, which is made where it is not there yet.
pub(crate) async fn answer(
    leaf: &OnceLock<OpenAiChat>,
    settings: &Settings<'_>,
    model: &str,
    target: ServiceTarget,
    mut request: ChatRequest,
) -> Result<ChatResponse, GenAiError> {
    let mut options = (*request.options).clone();
    options.model = Some(model.to_owned());
    request.options = options.into();
    if settings.provider == Provider::Mistral {
        request.messages = mistral::with_acceptable_ids(&request.messages);
    }
    let mut leaf = match leaf.get() {
        Some(leaf) => leaf.clone(),
        None => {
            let made = make(&target, settings)?;
            leaf.get_or_init(|| made).clone()
        }
    };
    let response = leaf.call(request).await.map_err(error)?;
    Ok(match response.try_into_answer() {
        Ok(answer) => ChatResponse::whole(answer.messages, answer.finish),
        Err(stream) => ChatResponse::forward(stream.map(|update| update.map_err(in_stream))),
    })
}

/// The error of a stream, of the type that the stream's own call would have had.
fn in_stream(found: BoxError) -> BoxError {
    match found.downcast::<OpenAiError>() {
        Ok(found) => error(*found).into(),
        Err(other) => other,
    }
}

fn make(target: &ServiceTarget, settings: &Settings<'_>) -> Result<OpenAiChat, GenAiError> {
    let key = match &target.auth {
        AuthData::None => None,
        auth => Some(
            auth.single_key_value().map_err(|error| GenAiError::configuration("the key", error))?,
        ),
    };
    let mut leaf =
        OpenAiChat::compatible(target.endpoint.base_url(), key.as_deref()).map_err(error)?;
    leaf = leaf.with_limits(settings.limits);
    if settings.takes_gzip {
        leaf = leaf.with_gzip().map_err(error)?;
    }
    for (name, value) in settings.headers {
        let value = value.to_str().map_err(|error| GenAiError::configuration("a header", error))?;
        leaf = leaf.with_header(name.as_str(), value).map_err(error)?;
    }
    Ok(leaf)
}

fn error(error: OpenAiError) -> GenAiError {
    GenAiError::Compatible(error)
}
