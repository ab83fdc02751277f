//! Converts the answer of a run, which may have several messages, into one message.

use std::sync::Arc;

use tower_chat_core::{
    Answer, Message, Part, Role, ToolCall,
    pairing::{CallLog, LoggedCall},
};

/// Returns an answer as one message, for callers that expect one message of the model.
///
/// The returned message is a copy of the model's last message, in which the text and the calls are
/// replaced. The new text consists of the texts of all messages of the model in the run, separated
/// by blank lines. The new calls are those of the model's last consecutive messages, except
/// calls with a result and calls that wait for approval. The result of a call must refer to the id
/// that the call has in the returned message. This id is generated if the model set no id.
///
/// ```
/// use tower_chat::{adapt::as_one_message, *};
/// let mut asking = Message::assistant("Let me look.");
/// asking.parts.push(Part::ToolCall(ToolCall::new("c1", "look", "{}")));
/// let looked = Message::tool_results([ToolResult::new("c1", "12 degrees")]);
/// let messages = [asking, looked, Message::assistant("It is cold.")].map(Into::into);
/// let shown = as_one_message(&Answer::new(messages.into(), Finish::stop()));
/// assert_eq!(shown, Message::assistant("Let me look.\n\nIt is cold."));
/// ```
pub fn as_one_message(answer: &Answer) -> Message {
    let is_of_model = |message: &&Arc<Message>| message.role == Role::Assistant;
    let end = answer.messages.iter().rposition(|message| is_of_model(&message));
    let (before, results) = answer.messages.split_at(end.map_or(0, |last| last + 1));
    let first = before.len() - before.iter().rev().take_while(is_of_model).count();
    let last_answer = before.get(first..).unwrap_or_default();
    let Some((last, earlier)) = last_answer.split_last() else {
        return Message::new(Role::Assistant, Vec::new());
    };
    // Only the last answer, because an earlier one may contain an answered call with the same id.
    let log = CallLog::of(last_answer.iter().chain(results).map(|message| &**message));
    let mut calls = log.calls().iter();
    let mut earlier_calls = Vec::new();
    for message in earlier {
        let parts = open_parts(message, &mut calls).into_iter();
        earlier_calls.extend(parts.filter(|part| part.as_tool_call().is_some_and(is_pending)));
    }
    let mut parts = open_parts(last, &mut calls);
    let position = parts.iter().position(|part| part.as_tool_call().is_some_and(is_pending));
    let position = position.unwrap_or(parts.len());
    parts.splice(position..position, earlier_calls);
    let texts = answer.messages.iter().filter(is_of_model).map(|message| message.text());
    let texts: Vec<String> = texts.filter(|text| !text.is_empty()).collect();
    let text = texts.join("\n\n");
    if text != last.text() {
        let is_text = |part: &Part| part.as_text().is_some();
        let position = parts.iter().position(is_text).unwrap_or_else(|| {
            parts.iter().position(|part| part.as_tool_call().is_some()).unwrap_or(parts.len())
        });
        parts.retain(|part| !is_text(part));
        parts.insert(position.min(parts.len()), Part::text(text));
    }
    last.with_parts(parts)
}

fn is_pending(call: &ToolCall) -> bool {
    !call.provider_executed
}

/// Returns the parts of a message, except the calls that have a result or wait for approval. Each
/// returned call has the id to which its result must refer.
fn open_parts<'l>(
    message: &Message,
    logged: &mut impl Iterator<Item = &'l LoggedCall>,
) -> Vec<Part> {
    let mut parts = Vec::with_capacity(message.parts.len());
    for part in &message.parts {
        match part {
            Part::ToolCall(call) if is_pending(call) => {
                let Some(logged) = logged.next().filter(|it| it.result.is_none()) else { continue };
                let mut call = call.clone();
                call.id = Some(logged.call.id.clone());
                parts.push(Part::ToolCall(call));
            }
            Part::ApprovalRequest(_) => drop(logged.next()),
            part => parts.push(part.clone()),
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use tower_chat_core::{Finish, ToolResult};

    use super::*;

    fn asking(calls: &[(&str, &str)]) -> Arc<Message> {
        let calls = calls.iter().map(|(id, name)| ToolCall::new(*id, *name, "{}"));
        Message::tool_calls(calls).into()
    }

    fn visible_calls(messages: Vec<Arc<Message>>) -> Vec<(String, String)> {
        let message = as_one_message(&Answer::new(messages, Finish::default()));
        let calls = message.calls().map(|call| (call.id.clone().unwrap(), call.name.clone()));
        calls.collect()
    }

    #[test]
    fn calls_of_all_messages_of_the_last_answer_are_visible_with_distinct_ids() {
        let text = Message::assistant("Let me see.").into();
        let messages = vec![asking(&[("c", "first")]), text, asking(&[("c", "second")])];
        let calls = visible_calls(messages);
        let names: Vec<_> = calls.iter().map(|(_, name)| name.as_str()).collect();
        assert_eq!((names, &*calls[0].0), (vec!["first", "second"], "c"));
        assert_ne!(calls[0].0, calls[1].0);
    }

    #[test]
    fn a_call_is_visible_although_an_earlier_answered_call_has_the_same_id() {
        let result = Message::tool_results([ToolResult::new("c", "found")]).into();
        let messages = vec![asking(&[("c", "look")]), result, asking(&[("c", "mine")])];
        assert_eq!(visible_calls(messages), [("c".to_owned(), "mine".to_owned())]);
    }

    #[test]
    fn a_call_that_is_answered_by_a_result_without_an_id_is_not_visible() {
        let mut result = ToolResult::new("", "found");
        result.call_id = None;
        let messages = vec![
            asking(&[("", "open")]),
            asking(&[("", "answered")]),
            Message::tool_results([result]).into(),
        ];
        let names: Vec<_> = visible_calls(messages).into_iter().map(|(_, name)| name).collect();
        assert_eq!(names, ["open"]);
    }
}
