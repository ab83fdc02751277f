//! Accumulates the events of a streamed response.

use tower_chat_core::{Answer, ChatUpdate, ToolCallDelta};

use super::{answer, items::Items, kind::CUSTOM};
use crate::{
    AnswerError,
    body::AnswerContext,
    object::{self, Object, as_text, raw, take_object, text},
    openai_chat::error_in,
    refusal::{self, CodeFields},
    stream::{DONE, Frame, ResponseAccumulator},
};

/// Accumulates the events of one response, up to the event with the whole response.
#[derive(Debug)]
pub(crate) struct ResponsesAccumulator {
    context: AnswerContext,
    items: Items,
    /// The accumulated text.
    text: String,
    /// The number of reasoning summaries that have begun.
    summaries: usize,
    /// The whole response, from the event that ends the stream.
    response: Option<Object>,
}

impl ResponsesAccumulator {
    pub(crate) fn new(context: AnswerContext) -> Self {
        let (items, text) = (Items::default(), String::new());
        Self { context, items, text, summaries: 0, response: None }
    }

    fn delta(&mut self, kind: &str, event: &Object, more: String) -> Option<ChatUpdate> {
        match kind {
            "response.output_text.delta" => {
                self.items.extend(event, &more);
                self.text.push_str(&more);
                Some(ChatUpdate::TextDelta(more))
            }
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => {
                Some(ChatUpdate::ReasoningDelta(more))
            }
            "response.function_call_arguments.delta" | "response.custom_tool_call_input.delta" => {
                let index = self.items.extend(event, &more);
                let is_custom = kind == "response.custom_tool_call_input.delta";
                let is_provider_executed = is_custom && answer::runs_custom_tools(&self.context);
                let is_callers = !is_provider_executed && self.items.is_callers_call(index);
                is_callers.then(|| ChatUpdate::ToolCallDelta(ToolCallDelta::new(index, more)))
            }
            // Other items are read from the events that end them.
            _ => None,
        }
    }

    /// Handles an event without a type: an error, or a whole response instead of a stream.
    fn push_untyped(&mut self, event: Object, frame: &Frame) -> Result<(), AnswerError> {
        if let Some(error) = error_in(&event) {
            return Err(error);
        }
        if !event.contains_key("output") {
            return Err(AnswerError::malformed("an event has no type", &frame.data));
        }
        self.response = Some(event);
        Ok(())
    }
}

impl ResponseAccumulator for ResponsesAccumulator {
    fn push(&mut self, frame: &Frame) -> Result<Vec<ChatUpdate>, AnswerError> {
        if frame.data.trim() == DONE {
            return Ok(Vec::new());
        }
        let mut event = object::of_frame(frame)?;
        let Some(kind) = text(&event, "type") else {
            self.push_untyped(event, frame)?;
            return Ok(Vec::new());
        };
        if !kind.starts_with("response.") && error_in(&event).is_some() {
            return Err(refusal::parse(None, &frame.data, CodeFields::OpenAi));
        }
        let update = match kind.as_str() {
            "error" => return Err(refusal::parse(None, &frame.data, CodeFields::OpenAi)),
            "response.completed"
            | "response.incomplete"
            | "response.failed"
            | "response.cancelled" => {
                let what = "its last event has no response";
                let response = take_object(&mut event, "response");
                let mut response =
                    response.ok_or_else(|| AnswerError::malformed(what, &frame.data))?;
                let status = kind.trim_start_matches("response.");
                response.entry("status".to_owned()).or_insert_with(|| raw(status));
                self.response = Some(response);
                None
            }
            "response.output_item.added" => {
                let is_provider_executed =
                    answer::runs_custom_tools(&self.context) && is_custom(&event);
                let begun = self.items.begin(&event).filter(|_| !is_provider_executed);
                begun.map(ChatUpdate::ToolCallDelta)
            }
            "response.output_item.done" => {
                self.items.end(&event);
                None
            }
            "response.reasoning_summary_part.added" => {
                self.summaries += 1;
                let gap = || ChatUpdate::ReasoningDelta("\n\n".to_owned());
                (self.summaries > 1).then(gap)
            }
            _ => {
                let more = event.get("delta").and_then(as_text);
                more.and_then(|more| self.delta(&kind, &event, more))
            }
        };
        Ok(update.into_iter().collect())
    }

    fn is_complete(&self) -> bool {
        self.response.is_some()
    }

    fn is_last(&self) -> bool {
        self.response.is_some()
    }

    fn text(&self) -> String {
        self.text.clone()
    }

    fn finish(self: Box<Self>) -> Result<Answer, AnswerError> {
        let response = self.response.unwrap_or_default();
        let status = text(&response, "status");
        let items = self.items.into_items(status.as_deref().unwrap_or("completed"));
        answer::read_response(response, items, &self.context)
    }
}

/// Returns whether the item of an event is a call of a custom tool, whose input is free text.
fn is_custom(event: &Object) -> bool {
    let item = event.get("item").and_then(|item| item.parse::<Object>().ok());
    item.and_then(|item| text(&item, "type")).is_some_and(|kind| kind == CUSTOM)
}
