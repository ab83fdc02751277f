//! Converts messages to items.
//!
//! A provider-executed call is a call of a tool that the provider runs itself.

use std::collections::HashSet;

use tower_chat_core::{Message, Part, RawJson, Role, ToolCall, ToolResult};

use super::{
    call,
    call_ids::CallIds,
    content,
    item::{Item, ItemKind},
    native::NativeForm,
    order, parse, reasoning, result,
};
use crate::{
    fields::{Fields, raw},
    provider_calls::provider_call_ids,
};

/// Writes messages as the items of an `input`.
///
/// A call and its result are written with the same id, even if their original ids differ. How an
/// item is written depends only on its message and on earlier messages, with one exception: if
/// there are messages between a call and its output, the output is moved before these messages.
///
/// ```
/// use tower_chat_core::{Message, ToolCall, ToolResult};
/// use tower_chat_wire::openai_responses::render_input;
/// let input = render_input(&[
///     Message::tool_calls([ToolCall::new("toolu_1", "look", "{}")]),
///     Message::tool_results([ToolResult::new("toolu_1", "12 degrees")]),
/// ]);
/// assert_eq!(
///     input[1].get(),
///     r#"{"type":"function_call_output","call_id":"toolu_1","output":"12 degrees"}"#
/// );
/// ```
pub fn render_input<'a>(messages: impl IntoIterator<Item = &'a Message>) -> Vec<RawJson> {
    let mut writer = Writer::default();
    messages.into_iter().for_each(|message| writer.write_message(message));
    order::ordered_items(writer.items).into_iter().map(|item| item.json).collect()
}

#[derive(Debug, Default)]
struct Writer<'a> {
    items: Vec<Item>,
    call_ids: CallIds<'a>,
}

impl<'a> Writer<'a> {
    fn write_message(&mut self, message: &'a Message) {
        if message.parts.is_empty() && !matches!(message.role, Role::Assistant | Role::Tool) {
            let nothing = Fields::default();
            self.push_message(message.role, nothing, Some(raw("")));
        }
        let provider_call_ids = provider_call_ids(message);
        let mut rest = message.parts.as_slice();
        while let Some((part, after)) = rest.split_first() {
            rest = after;
            let own_fields = match part {
                Part::ToolCall(call) => {
                    self.write_call(call);
                    continue;
                }
                Part::ToolResult(result) if !is_provider_executed(&provider_call_ids, result) => {
                    self.write_result(result);
                    continue;
                }
                Part::Reasoning(reasoning) => {
                    if let Some(json) = reasoning::render(reasoning) {
                        self.items.push(Item { json, kind: ItemKind::Reasoning });
                    }
                    continue;
                }
                Part::Native(native) => match NativeForm::of_native(native) {
                    Some(NativeForm::Item) => {
                        self.write_item(native.item.clone());
                        continue;
                    }
                    Some(NativeForm::Message(fields)) => Some(fields),
                    Some(NativeForm::Content(_)) => None,
                    None => continue,
                },
                Part::Text(_) | Part::Media(_) => None,
                _ => continue,
            };
            let begun = own_fields.is_none().then_some(part);
            let count = rest.iter().take_while(|part| continues_content(part)).count();
            let (more, after) = rest.split_at(count);
            rest = after;
            let parts = begun.into_iter().chain(more);
            let content = content::render(parts, parse::text_type(message.role));
            self.push_message(message.role, own_fields.unwrap_or_default(), content);
        }
    }

    /// Writes a message item. Without `content`, writes only an item that was read with an empty
    /// content.
    fn push_message(&mut self, role: Role, mut fields: Fields, content: Option<RawJson>) {
        if role == Role::Tool || content.is_none() && !fields.contains("content") {
            return;
        }
        fields.set("role", raw(&role));
        if let Some(content) = content {
            fields.set("content", content);
        }
        let kind = if role == Role::Assistant {
            ItemKind::AssistantMessage
        } else {
            ItemKind::OtherMessage
        };
        self.items.push(Item { json: raw(&fields), kind });
    }

    fn write_call(&mut self, call: &'a ToolCall) {
        let id = if call.provider_executed {
            call.id.clone()
        } else {
            let id = call.id.as_deref();
            Some(self.call_ids.call(id, self.items.len(), call::kind_of(call)))
        };
        if let Some(json) = call::render(call, id.as_deref()) {
            self.items.push(Item { json, kind: ItemKind::ModelOutput });
        }
    }

    fn write_result(&mut self, result: &ToolResult) {
        let own = result.call_id.as_deref();
        let call = self.call_ids.result(own);
        let id = call.as_ref().map_or(own, |call| Some(&call.id));
        let json = result::render(result, id, call.as_ref().map(|call| call.kind));
        let call = call.map(|call| call.index);
        self.items.push(Item { json, kind: ItemKind::Output { call } });
    }

    fn write_item(&mut self, json: RawJson) {
        let kind = json.parse::<Fields>().ok().and_then(|fields| fields.text("type"));
        let kind = if kind.is_some_and(|kind| kind.ends_with("_output")) {
            ItemKind::Output { call: None }
        } else {
            ItemKind::ModelOutput
        };
        self.items.push(Item { json, kind });
    }
}

/// Returns whether this part continues the content of the current message item. A part that is not
/// written, such as an approval, does not end the item.
fn continues_content(part: &Part) -> bool {
    match part {
        Part::ToolCall(_) | Part::ToolResult(_) | Part::Reasoning(_) => false,
        Part::Native(native) => {
            matches!(NativeForm::of_native(native), Some(NativeForm::Content(_)) | None)
        }
        _ => true,
    }
}

/// Returns whether the result answers one of the provider-executed calls with these ids.
fn is_provider_executed(provider_call_ids: &HashSet<Option<&str>>, result: &ToolResult) -> bool {
    result.call_id.is_some() && provider_call_ids.contains(&result.call_id.as_deref())
}
