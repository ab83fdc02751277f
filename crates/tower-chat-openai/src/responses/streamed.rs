//! A streamed response.

use std::collections::VecDeque;

use futures_util::{Stream, StreamExt, stream};
use tower_chat_core::{BoxError, ChatUpdate, RawJson, ToolCallDelta};

use super::{
    answer::{self, Asked},
    draft::Draft,
};
use crate::{
    OpenAiError, completion,
    object::{Object, as_text, raw},
    transport::Events,
};

/// The updates that the events of a stream make, up to the event that ends it.
pub(super) fn updates(
    events: Events,
    asked: Asked,
) -> impl Stream<Item = Result<ChatUpdate, BoxError>> + Send + 'static {
    let reader = Reader {
        events: Some(events),
        asked,
        ready: VecDeque::new(),
        draft: Draft::default(),
        text: String::new(),
        summaries: 0,
    };
    stream::unfold(Some(reader), |reader| async move {
        let mut reader = reader?;
        match reader.next().await {
            Ok(Some(update)) => Some((Ok(update), Some(reader))),
            Ok(None) => None,
            Err(error) => Some((Err(error.into()), None)),
        }
    })
}

struct Reader {
    /// `None` once they have ended.
    events: Option<Events>,
    asked: Asked,
    ready: VecDeque<ChatUpdate>,
    draft: Draft,
    /// The text so far.
    text: String,
    /// How many pieces of readable reasoning have begun.
    summaries: usize,
}

impl Reader {
    async fn next(&mut self) -> Result<Option<ChatUpdate>, OpenAiError> {
        loop {
            if let Some(update) = self.ready.pop_front() {
                return Ok(Some(update));
            }
            let Some(events) = &mut self.events else { return Ok(None) };
            match events.next().await {
                Some(Ok(event)) => self.accept(&event)?,
                Some(Err(error)) => return Err(error.after(&self.text)),
                None => {
                    let reason = "its stream ended before the event of its end".to_owned();
                    return Err(OpenAiError::Truncated { text: self.text.clone(), reason });
                }
            }
        }
    }

    fn accept(&mut self, json: &RawJson) -> Result<(), OpenAiError> {
        let malformed = |what: &str| OpenAiError::malformed(what, json.get());
        let event: Object = json.parse().map_err(|_| malformed("an event is no JSON object"))?;
        let Some(kind) = event.get("type").and_then(as_text) else {
            if let Some(error) = completion::error_in(&event) {
                return Err(error);
            }
            if event.contains_key("output") {
                // A service that cannot stream answers with the whole response.
                return self.end(event);
            }
            return Err(malformed("an event has no type"));
        };
        match kind.as_str() {
            "error" => {
                return Err(completion::refusal(None, None, json.get()));
            }
            "response.completed"
            | "response.incomplete"
            | "response.failed"
            | "response.cancelled" => {
                let response = event.get("response").map(RawJson::parse::<Object>);
                let mut response = response
                    .and_then(Result::ok)
                    .ok_or_else(|| malformed("the event of its end has no response"))?;
                let status = kind.trim_start_matches("response.");
                response.entry("status".to_owned()).or_insert_with(|| raw(status));
                return self.end(response);
            }
            "response.output_item.added" => {
                let call = self.draft.begin(&event);
                self.ready.extend(call.map(ChatUpdate::ToolCallDelta));
            }
            "response.output_item.done" => self.draft.end(&event),
            "response.reasoning_summary_part.added" => {
                if self.summaries > 0 {
                    self.ready.push_back(ChatUpdate::ReasoningDelta("\n\n".to_owned()));
                }
                self.summaries += 1;
            }
            _ => {
                if let Some(more) = event.get("delta").and_then(as_text) {
                    self.delta(&kind, &event, more);
                }
            }
        }
        Ok(())
    }

    fn delta(&mut self, kind: &str, event: &Object, more: String) {
        let update = match kind {
            "response.output_text.delta" => {
                self.draft.extend(event, &more);
                self.text.push_str(&more);
                ChatUpdate::TextDelta(more)
            }
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => {
                ChatUpdate::ReasoningDelta(more)
            }
            "response.function_call_arguments.delta" | "response.custom_tool_call_input.delta" => {
                let index = self.draft.extend(event, &more);
                ChatUpdate::ToolCallDelta(ToolCallDelta::new(index, more))
            }
            // Pieces of what the provider's own tools do are whole in their items.
            _ => return,
        };
        self.ready.push_back(update);
    }

    /// The response as a whole, which ends the stream.
    fn end(&mut self, response: Object) -> Result<(), OpenAiError> {
        self.events = None;
        let status = response.get("status").and_then(as_text);
        let status = status.as_deref().unwrap_or("completed");
        let items = std::mem::take(&mut self.draft).into_items(status);
        let answer = answer::read(response, items, &self.asked)?;
        self.ready.extend(answer.messages.into_iter().map(ChatUpdate::Message));
        self.ready.push_back(ChatUpdate::Finish(answer.finish));
        Ok(())
    }
}
