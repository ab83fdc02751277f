//! Which conversation a request belongs to.

use std::sync::Arc;

use http::{Extensions, HeaderMap, StatusCode};
use serde_json::Value;
use tower_chat::core::ConversationKey;
use uuid::Uuid;

use crate::Refusal;

/// The header that names a conversation, in requests and answers.
pub const CONVERSATION_HEADER: &str = "x-conversation-id";

/// The request extension that says in whose name a request is made: the tenant or the user.
///
/// A layer of the host that knows who is asking puts it there.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Scope(pub Arc<str>);

/// What is known of a request when its conversation is to be named.
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
    /// A refusal, if both are there and differ, or the header is no text.
    pub fn conversation_id(&self) -> Result<Option<&'a str>, Refusal> {
        let bad = |message| Refusal::new(StatusCode::BAD_REQUEST, message);
        let header = self.headers.get(CONVERSATION_HEADER).map(|value| value.to_str());
        let header = header
            .transpose()
            .map_err(|_| bad(format!("the header {CONVERSATION_HEADER} is not plain text")))?;
        match (header.filter(|id| !id.is_empty()), self.conversation) {
            (Some(header), Some(field)) if header != field => Err(bad(format!(
                "the header {CONVERSATION_HEADER} and the field conversation name different \
                 conversations: send one of them"
            ))),
            (header, field) => Ok(header.or(field)),
        }
    }
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
