//! Decides whether a request may enable thinking.

use tower_chat_core::{Message, Part, Role};

/// Returns whether the messages end inside a round whose first answer does not begin with a
/// thinking block.
///
/// With `thinking` enabled, the service refuses to continue such a round: an assistant's turn with tool calls
/// must begin with a thinking block
/// (<https://docs.claude.com/en/docs/build-with-claude/extended-thinking#preserving-thinking-blocks>). The
/// turn has no thinking block if another provider made it, or if its request did not enable thinking. `wire`
/// is the wire of the request. Thinking of other wires does not count, because it is not sent.
pub fn goes_on_without_thinking<'a>(
    messages: impl DoubleEndedIterator<Item = &'a Message>,
    wire: &str,
) -> bool {
    let mut has_results = false;
    let mut begins_with_thinking = None;
    for message in messages.rev() {
        match message.role {
            // A turn may consist of several messages; the first one decides.
            Role::Assistant => begins_with_thinking = Some(begins(message, wire)),
            _ if begins_with_thinking.is_some() => break,
            _ => has_results |= message.results().next().is_some(),
        }
    }
    has_results && begins_with_thinking == Some(false)
}

fn begins(message: &Message, wire: &str) -> bool {
    let mut parts = message.parts.iter().filter(|part| !matches!(part, Part::Native(_)));
    let Some(Part::Reasoning(reasoning)) = parts.next() else { return false };
    reasoning.native.as_ref().is_some_and(|native| &*native.wire == wire)
}
