//! The page that shows a stored message completely, as JSON.

use axum::{extract::Query, response::IntoResponse as _};
use http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use serde::Deserialize;
use tower_chat_layers::store::{Directory, Journal};
use tower_chat_layers::{format, visible_json};

use super::{Answer, Asked, Failure, State};

#[derive(Debug, Deserialize)]
pub(crate) struct Number {
    number: u64,
}

/// Returns the stored JSON of the message, with escaped invisible characters.
pub(crate) async fn message(
    inspector: State,
    Query(asked): Query<Asked>,
    Query(Number { number }): Query<Number>,
) -> Answer {
    let key = asked.key(&inspector)?;
    let page = inspector.store.messages_before(&key, number.checked_add(1), 1).await?;
    let visible = page.messages.into_iter().find(|(found, _)| *found == number);
    let message = match visible {
        Some((_, message)) => Some(message),
        None => staged(&inspector, &key, number).await?,
    };
    let message = message.ok_or_else(|| Failure::missing("There is no such message."))?;
    let headers = [
        (CONTENT_TYPE, "text/plain; charset=utf-8"),
        (CONTENT_DISPOSITION, "inline; filename=\"message.json\""),
    ];
    Ok((headers, visible_json(&format::encode(&message))).into_response())
}

async fn staged(
    inspector: &crate::Inspector,
    key: &tower_chat_layers::ConversationKey,
    number: u64,
) -> Result<Option<std::sync::Arc<tower_chat_layers::Message>>, Failure> {
    let Some(content) = inspector.store.open_run(key).await? else { return Ok(None) };
    let first = content.open.visible.saturating_add(1);
    let index = number.checked_sub(first).and_then(|index| usize::try_from(index).ok());
    Ok(index.and_then(|index| content.messages.get(index).cloned()))
}
