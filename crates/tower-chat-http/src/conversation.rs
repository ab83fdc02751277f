//! Determines the conversation of a request.
//!
//! The key of a conversation consists of a scope, such as the user, and an id.

use std::sync::Arc;

use http::{Extensions, HeaderMap, HeaderValue, StatusCode};
use serde_json::Value;
use tower_chat_layers::ConversationKey;
use uuid::Uuid;

use crate::ErrorResponse;

/// The header of requests and responses that contains the conversation id.
pub const CONVERSATION_HEADER: &str = "x-conversation-id";

/// Returns the value of [`CONVERSATION_HEADER`] for a conversation id. Returns `None` if the id
/// begins or ends with white space, or contains characters other than visible ASCII, spaces and
/// tabs, because a client could not send this id back in the header.
pub(crate) fn header_of(id: &str) -> Option<HeaderValue> {
    let value = HeaderValue::from_str(id).ok().filter(|value| value.to_str().is_ok());
    value.filter(|_| id.trim_ascii() == id)
}

/// The request extension that contains the scope of a request, such as the tenant or the user. The
/// application that serves the endpoint must insert this extension, in a layer that authenticates
/// the client.
///
/// ```
/// use axum::{Router, extract::Request, middleware::{self, Next}, response::Response};
/// use http::{StatusCode, header::AUTHORIZATION};
/// use tower_chat_http::Scope;
///
/// /// Returns the user of a token. A real server queries a database.
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
/// // `endpoint` is the result of `ChatEndpoint::into_router`.
/// let server = endpoint.layer(middleware::from_fn(identify));
/// # let _: Router = server;
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Scope(pub Arc<str>);

/// The parts of a request from which the rule of
/// [`ChatEndpoint::keyed_by`](crate::ChatEndpoint::keyed_by) determines the conversation.
///
/// ```
/// use http::StatusCode;
/// use tower_chat::ConversationKey;
/// use tower_chat_http::{ChatEndpoint, ErrorResponse};
/// # fn with(endpoint: ChatEndpoint) -> ChatEndpoint {
/// // Each tenant has its own host name. A proxy has checked that the client may use this host name.
/// endpoint.keyed_by(|asked| {
///     let tenant = asked.headers.get("host").and_then(|value| value.to_str().ok());
///     let tenant = tenant.ok_or_else(|| ErrorResponse::new(StatusCode::BAD_REQUEST, "no host"))?;
///     let id = asked.conversation_id()?;
///     let id = id.ok_or_else(|| ErrorResponse::new(StatusCode::BAD_REQUEST, "name a conversation"))?;
///     Ok(ConversationKey::new(tenant, id))
/// })
/// # }
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct Asked<'a> {
    /// The headers of the request.
    pub headers: &'a HeaderMap,
    /// The extensions of the request, including those that the application's layers have inserted.
    pub extensions: &'a Extensions,
    /// The conversation id in the field `conversation` of the body. For a request that reads or
    /// stops a run, the conversation id in the path.
    pub conversation: Option<&'a str>,
}

impl<'a> Asked<'a> {
    /// Returns the conversation id that the client sent, in the header [`CONVERSATION_HEADER`] or
    /// in the field `conversation`. Returns `None` if the client sent no id or an empty header.
    ///
    /// # Errors
    ///
    /// Fails with an error response if the header and the field have different ids, if the header
    /// contains characters other than visible ASCII, or if the header occurs twice.
    pub fn conversation_id(&self) -> Result<Option<&'a str>, ErrorResponse> {
        let header = single_header(self.headers, CONVERSATION_HEADER)?;
        match (header.filter(|id| !id.is_empty()), self.conversation) {
            (Some(header), Some(field)) if header != field => {
                Err(ErrorResponse::bad_request(format!(
                    "the header {CONVERSATION_HEADER} and the field conversation name different \
                 conversations: send one of them"
                )))
            }
            (header, field) => Ok(header.or(field)),
        }
    }
}

/// Returns the value of a header that may occur only once. Returns `None` if the request does not
/// have the header.
///
/// # Errors
///
/// Fails with an error response if the value contains characters other than visible ASCII, or if
/// the header occurs twice, even with equal values. A proxy might check only one of two headers
/// while the endpoint uses the other one.
pub(crate) fn single_header<'a>(
    headers: &'a HeaderMap,
    name: &'static str,
) -> Result<Option<&'a str>, ErrorResponse> {
    let mut values = headers.get_all(name).iter();
    let value = values.next();
    if values.next().is_some() {
        let message = format!("the request has the header {name} twice: send it once");
        return Err(ErrorResponse::bad_request(message).with_code("repeated_header"));
    }
    value.map(|value| value.to_str()).transpose().map_err(|_| {
        let message = format!("the header {name} is not plain text");
        ErrorResponse::bad_request(message).with_code("invalid_header")
    })
}

/// Returns the key of the conversation whose id the client sent. If the client sent no id, returns
/// the key of a new conversation with a random id.
pub(crate) fn key_in_scope(
    asked: &Asked<'_>,
    scope: Arc<str>,
) -> Result<ConversationKey, ErrorResponse> {
    let id = asked.conversation_id()?;
    let id = id.map_or_else(|| Uuid::now_v7().to_string(), str::to_owned);
    Ok(ConversationKey::new(scope, id))
}

/// Returns the id that the field `conversation` contains. Returns `None` if the field is missing or
/// `null`, and fails if the value contains no id.
pub(crate) fn id_in_body(field: Option<&Value>) -> Result<Option<&str>, ErrorResponse> {
    let Some(field) = field.filter(|field| !field.is_null()) else { return Ok(None) };
    let id = field.as_str().or_else(|| field.get("id")?.as_str());
    id.filter(|id| !id.is_empty()).map(Some).ok_or_else(|| {
        let message = "the field conversation is neither a string nor an object with an id: send the id as a string";
        ErrorResponse::new(StatusCode::BAD_REQUEST, message).with_param("conversation")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_conversation_ids_that_are_valid_in_a_header_are_sent_in_the_header() {
        let sent_back = |id: &str| header_of(id).is_some();
        for id in ["c", "a chat", "c~0190-4f", "a/b?c=%20"] {
            assert!(sent_back(id), "{id}");
        }
        for id in ["gespräch", " c", "c ", "a\nb", "\u{7f}"] {
            assert!(!sent_back(id), "{id:?}");
        }
    }
}
