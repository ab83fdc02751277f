//! Converts an answer to the updates of a stream.

use futures_util::{Stream, StreamExt, stream};
use tower_chat_core::{BoxError, ChatUpdate, Finish, Message, Part, Role, ToolCallDelta};

use super::step::Interruption;

/// Returns the updates of an answer: for each message of the model its deltas and the message, and
/// then the finish. Each text and each list of arguments is divided into two deltas.
pub(super) fn of_answer(messages: Vec<Message>, finish: Finish) -> Vec<ChatUpdate> {
    let mut updates = Vec::new();
    for message in messages {
        if message.role == Role::Assistant {
            deltas(&message, &mut updates);
        }
        updates.push(ChatUpdate::Message(message.into()));
    }
    updates.push(ChatUpdate::Finish(finish.into()));
    updates
}

/// Returns the updates as a stream, which is interrupted after the given number of updates.
pub(super) fn stream(
    updates: Vec<ChatUpdate>,
    interruption: Option<(usize, Interruption)>,
) -> impl Stream<Item = Result<ChatUpdate, BoxError>> + Send + 'static {
    let (after, interruption) = match interruption {
        Some((after, interruption)) => (after.min(updates.len()), Some(interruption)),
        None => (updates.len(), None),
    };
    let mut before = updates;
    let rest = before.split_off(after);
    let end = stream::once(interrupt(interruption, rest)).flatten();
    stream::iter(before.into_iter().map(Ok)).chain(end)
}

type Rest = stream::Iter<std::vec::IntoIter<Result<ChatUpdate, BoxError>>>;

async fn interrupt(interruption: Option<Interruption>, rest: Vec<ChatUpdate>) -> Rest {
    let rest = match interruption {
        None => rest.into_iter().map(Ok).collect(),
        Some(Interruption::Fail(error)) => vec![Err(error)],
        Some(Interruption::CutOff) => Vec::new(),
        Some(Interruption::Hang) => std::future::pending().await,
        Some(Interruption::Wait(gate)) => {
            gate.pass().await;
            rest.into_iter().map(Ok).collect()
        }
    };
    stream::iter(rest)
}

fn deltas(message: &Message, updates: &mut Vec<ChatUpdate>) {
    let mut calls = 0;
    for part in &message.parts {
        match part {
            Part::Text(text) => updates.extend(halves(&text.text).map(ChatUpdate::TextDelta)),
            Part::Reasoning(reasoning) => {
                updates.extend(halves(&reasoning.text).map(ChatUpdate::ReasoningDelta));
            }
            Part::ToolCall(call) => {
                let mut first = ToolCallDelta::new(calls, "").with_name(&call.name);
                first.id.clone_from(&call.id);
                updates.push(ChatUpdate::ToolCallDelta(first));
                let more = halves(&call.arguments).map(|half| ToolCallDelta::new(calls, half));
                updates.extend(more.map(ChatUpdate::ToolCallDelta));
                calls += 1;
            }
            _ => {}
        }
    }
}

/// Returns the two halves of a text. An empty half is omitted.
fn halves(text: &str) -> impl Iterator<Item = String> {
    let middle = text.char_indices().nth(text.chars().count() / 2).map_or(0, |(at, _)| at);
    let (left, right) = text.split_at(middle);
    [left, right].into_iter().filter(|half| !half.is_empty()).map(str::to_owned)
}
