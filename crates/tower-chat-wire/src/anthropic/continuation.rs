//! Whether a request may ask for thinking.

use tower_chat_core::{Message, Part, Role};

/// Whether the messages end in the middle of a round that the wire did not begin with thinking.
///
/// With `thinking` enabled the service refuses to go on with an assistant's turn of tool calls
/// that does not begin with a thinking block
/// (<https://docs.claude.com/en/docs/build-with-claude/extended-thinking#preserving-thinking-blocks>):
/// one that another provider wrote, or that was asked for without thinking.
pub fn goes_on_without_thinking<'a>(
    messages: impl DoubleEndedIterator<Item = &'a Message>,
    wire: &str,
) -> bool {
    let mut has_results = false;
    let mut begins_with_thinking = None;
    for message in messages.rev() {
        match message.role {
            // One turn may be several messages; the first of them counts.
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
