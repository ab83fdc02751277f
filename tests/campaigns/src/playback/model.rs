//! A model client that returns the recorded answers.

use std::{
    iter::successors,
    sync::Arc,
    task::{Context, Poll},
};

use futures_util::{future::BoxFuture, stream};
use tower::Service;
use tower_chat::{
    BoxError, ChatRequest, ChatResponse, ChatUpdate, Finish, Message, Part,
    request::{FinishReason, ToolCallDelta},
};

use super::script::Script;

/// The model client of one conversation. It compares each request, and returns the answers of the
/// script.
#[derive(Clone)]
pub(super) struct RecordedModel(pub(super) Script);

impl Service<ChatRequest> for RecordedModel {
    type Response = ChatResponse;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<ChatResponse, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: ChatRequest) -> Self::Future {
        let script = self.0.clone();
        Box::pin(async move {
            // Gives other tasks time, as a request to a real model would.
            tokio::task::yield_now().await;
            request.service_id()?;
            let message = script.answer(&request)?;
            let reason = match message.calls().next() {
                Some(_) => FinishReason::ToolCalls,
                None => FinishReason::Stop,
            };
            let finish = Finish::new(reason);
            if !request.options.stream {
                return Ok(ChatResponse::whole([message], finish));
            }
            let mut updates = deltas(&message);
            updates.push(ChatUpdate::Message(message));
            updates.push(ChatUpdate::Finish(finish.into()));
            Ok(ChatResponse::stream(stream::iter(updates.into_iter().map(Ok))))
        })
    }
}

fn deltas(message: &Arc<Message>) -> Vec<ChatUpdate> {
    let mut updates = Vec::new();
    let mut index = 0;
    for part in &message.parts {
        match part {
            Part::Text(text) => {
                updates.extend(pieces(&text.text).map(|piece| ChatUpdate::TextDelta(piece.into())));
            }
            Part::Reasoning(reasoning) => {
                let pieces = pieces(&reasoning.text);
                updates.extend(pieces.map(|piece| ChatUpdate::ReasoningDelta(piece.into())));
            }
            Part::ToolCall(call) => {
                let mut head = ToolCallDelta::new(index, "").with_name(&call.name);
                head.id.clone_from(&call.id);
                let pieces = pieces(&call.arguments).map(|piece| ToolCallDelta::new(index, piece));
                let deltas = std::iter::once(head).chain(pieces);
                updates.extend(deltas.map(ChatUpdate::ToolCallDelta));
                index += 1;
            }
            _ => {}
        }
    }
    updates
}

/// Divides a text into up to four pieces, without dividing a character.
fn pieces(text: &str) -> impl Iterator<Item = &str> {
    let step = text.len().div_ceil(4).max(1);
    let split = move |rest: &str| {
        let max = step.min(rest.len());
        (max..=rest.len()).find(|&at| rest.is_char_boundary(at)).unwrap_or(rest.len())
    };
    successors(Some(("", text)), move |(_, rest)| {
        (!rest.is_empty()).then(|| rest.split_at(split(rest)))
    })
    .skip(1)
    .map(|(piece, _)| piece)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pieces_of_a_text_are_split_between_characters_and_add_up_to_the_text() {
        for text in ["", "a", "ab", "äöü", "one two three four five", "日本語🙂"] {
            let pieces: Vec<&str> = pieces(text).collect();
            assert_eq!(pieces.concat(), text);
            assert!(
                pieces.len() <= 4 && pieces.iter().all(|piece| !piece.is_empty()),
                "{pieces:?}"
            );
        }
        assert_eq!(pieces("one two three four five").count(), 4);
    }
}
