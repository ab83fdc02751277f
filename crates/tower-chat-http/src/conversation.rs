//! Which conversation a request belongs to.

use std::sync::Arc;

use http::{Extensions, HeaderMap, StatusCode};
use serde_json::Value;
use tower_chat_layers::ConversationKey;
use uuid::Uuid;

use crate::Refusal;

/// The header that names a conversation, in requests and answers.
pub const CONVERSATION_HEADER: &str = "x-conversation-id";

/// The request extension that says in whose name a request is made: the tenant or the user.
///
/// A layer of the host that knows who is asking puts it there.
///
/// ```
/// use axum::{Router, extract::Request, middleware::{self, Next}, response::Response};
/// use http::{StatusCode, header::AUTHORIZATION};
/// use tower_chat_http::Scope;
///
/// /// Looks a token up; yours asks a database.
/// fn user_of(token: &str) -> Option<&'static str> {
///     (token == "Bearer alices-token").then_some("alice")
/// }
///
/// async fn identify(mut request: Request, next: Next) -> Result<Response, StatusCode> {
///     let token = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
///     let user = token.and_then(user_of).ok_or(StatusCode::UNAUTHORIZED)?;
///     request.extensions_mut().insert(Scope(user.into()));
///     Ok(next.run(request).await)
/// }
///
/// # let endpoint: Router = Router::new();
/// // `endpoint` is what `ChatEndpoint::into_router` gives.
/// let server = endpoint.layer(middleware::from_fn(identify));
/// # let _: Router = server;
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Scope(pub Arc<str>);

/// What is known of a request when its conversation is to be named.
///
/// ```
/// use http::StatusCode;
/// use tower_chat::ConversationKey;
/// use tower_chat_http::{ChatEndpoint, Refusal};
/// # fn with(endpoint: ChatEndpoint) -> ChatEndpoint {
/// // Every tenant is a host name of its own; a proxy in front has checked who may use it.
/// endpoint.keyed_by(|asked| {
///     let tenant = asked.headers.get("host").and_then(|value| value.to_str().ok());
///     let tenant = tenant.ok_or_else(|| Refusal::new(StatusCode::BAD_REQUEST, "no host"))?;
///     let id = asked.conversation_id()?;
///     let id = id.ok_or_else(|| Refusal::new(StatusCode::BAD_REQUEST, "name a conversation"))?;
///     Ok(ConversationKey::new(tenant, id))
/// })
/// # }
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct Asked<'a> {
    /// The headers.
    pub headers: &'a HeaderMap,
    /// What layers of the host have put there.
    pub extensions: &'a Extensions,
    /// The field `conversation` of the body, or its `id`.
    pub conversation: Option<&'a str>,
}

impl<'a> Asked<'a> {
    /// The id that the client gives: the header, or else the field.
    ///
    /// # Errors
    ///
    /// A refusal, if both are there and differ, or the header is no text or was sent twice.
    pub fn conversation_id(&self) -> Result<Option<&'a str>, Refusal> {
        let header = single_header(self.headers, CONVERSATION_HEADER)?;
        match (header.filter(|id| !id.is_empty()), self.conversation) {
            (Some(header), Some(field)) if header != field => Err(Refusal::bad_request(format!(
                "the header {CONVERSATION_HEADER} and the field conversation name different \
                 conversations: send one of them"
            ))),
            (header, field) => Ok(header.or(field)),
        }
    }
}

/// The value of a header that means something only once.
///
/// # Errors
///
/// A refusal, if the request has the header twice, also with equal values: proxies disagree on
/// which of them counts, and one that checks the first must not let the second through.
pub(crate) fn single_header<'a>(
    headers: &'a HeaderMap,
    name: &'static str,
) -> Result<Option<&'a str>, Refusal> {
    let mut values = headers.get_all(name).iter();
    let value = values.next();
    if values.next().is_some() {
        let message = format!("the header {name} is there twice: send it once");
        return Err(Refusal::bad_request(message).with_code("repeated_header"));
    }
    value.map(|value| value.to_str()).transpose().map_err(|_| {
        let message = format!("the header {name} is not plain text");
        Refusal::bad_request(message).with_code("invalid_header")
    })
}

/// The conversation that the client names, or a new one.
pub(crate) fn key_in_scope(asked: &Asked<'_>, scope: Arc<str>) -> Result<ConversationKey, Refusal> {
    let id = asked.conversation_id()?;
    let id = id.map_or_else(|| Uuid::now_v7().to_string(), str::to_owned);
    Ok(ConversationKey::new(scope, id))
}

/// The id that a `conversation` field holds.
pub(crate) fn id_in_body(field: Option<&Value>) -> Result<Option<&str>, Refusal> {
    let Some(field) = field.filter(|field| !field.is_null()) else { return Ok(None) };
    let id = field.as_str().or_else(|| field.get("id")?.as_str());
    id.filter(|id| !id.is_empty()).map(Some).ok_or_else(|| {
        let message = "the field conversation is neither a text nor an object with an id";
        Refusal::new(StatusCode::BAD_REQUEST, message).with_param("conversation")
    })
}
