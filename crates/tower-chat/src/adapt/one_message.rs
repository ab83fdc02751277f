//! A whole run, for those who expect one message.

use std::{borrow::Cow, collections::HashSet};

use tower_chat_core::{Answer, Message, Part, Role};

use crate::replay::ids_of_calls;

/// What a caller sees of an answer where an answer is one message of the model.
///
/// It is the last message of the model. The texts of the messages before it, which the model wrote
/// between calls of tools that ran in the stack, come first, a blank line between two. Calls that
/// the answer itself answers are left out, and so are those that wait for approval; the others
/// have the ids by which their results will be known, also where the model gave none.
///
/// ```
/// use tower_chat::{adapt::as_one_message, core::*};
/// let mut asking = Message::assistant("Let me look.");
/// asking.parts.push(Part::ToolCall(ToolCall::new("c1", "look", "{}")));
/// let looked = Message::tool_results([ToolResult::new("c1", "12 degrees")]);
/// let messages = [asking, looked, Message::assistant("It is cold.")].map(Into::into);
/// let shown = as_one_message(&Answer::new(messages.into(), Finish::stop()));
/// assert_eq!(shown, Message::assistant("Let me look.\n\nIt is cold."));
/// ```
pub fn as_one_message(answer: &Answer) -> Message {
    let by_model = || answer.messages.iter().filter(|message| message.role == Role::Assistant);
    let Some(last) = by_model().next_back() else {
        return Message::new(Role::Assistant, Vec::new());
    };
    let answered: HashSet<&str> = answer
        .messages
        .iter()
        .flat_map(|message| message.results())
        .filter_map(|result| result.call_id.as_deref())
        .collect();
    let mut ids = ids_of_calls(last);
    let mut parts = Vec::with_capacity(last.parts.len());
    for part in &last.parts {
        match part {
            Part::ToolCall(call) if !call.provider_executed => {
                let mut call = call.clone();
                call.id = ids.next().map(Cow::into_owned);
                if !call.id.as_deref().is_some_and(|id| answered.contains(id)) {
                    parts.push(Part::ToolCall(call));
                }
            }
            Part::ApprovalRequest(_) => drop(ids.next()),
            part => parts.push(part.clone()),
        }
    }
    let texts = by_model().map(|message| message.text()).filter(|text| !text.is_empty());
    let texts: Vec<String> = texts.collect();
    let text = texts.join("\n\n");
    if text != last.text() {
        let is_text = |part: &Part| part.as_text().is_some();
        let place = parts.iter().position(is_text).unwrap_or_else(|| {
            parts.iter().position(|part| part.as_tool_call().is_some()).unwrap_or(parts.len())
        });
        parts.retain(|part| !is_text(part));
        parts.insert(place.min(parts.len()), Part::text(text));
    }
    last.with_parts(parts)
}
