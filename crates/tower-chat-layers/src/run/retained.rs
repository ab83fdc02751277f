//! Determines, with the `persist` hook of a call's tool, which parts of the call's outcome are
//! stored.

use tower_chat_core::{Part, ToolCall, ToolResult};

use super::{
    call_records::CallRecords, conversation::LoadedConversation, hooks::HOOKED_CALLS,
    redact::indices_in,
};
use crate::tool::{CallOfRun, Redaction, ResultSource, Retained, ToolReport, retained};

/// The text that replaces a result if the tool with the hook is no longer registered.
pub(super) const WITHHELD: &str =
    "The result was not stored: the tool that decides what is stored of it is not registered.";

/// The text that replaces the result of a call of an earlier run, if the hook of the tool does not
/// allow this result to be stored.
const NOT_KEPT: &str = "The result was not stored: the tool of the call does not allow it.";

impl CallRecords {
    /// Returns what the hook of a call's tool has changed in the call's outcome. `None` if the
    /// outcome is not stored.
    pub(super) fn retained_outcome(
        &self,
        conversation: &LoadedConversation,
        of_run: CallOfRun,
        call: &ToolCall,
        result: &ToolResult,
        report: Option<&ToolReport>,
    ) -> Option<Redaction> {
        let withheld = |text| Redaction {
            arguments: None,
            result: Some(withheld(result, text)),
            error: Some(None),
        };
        let source = report.map_or(ResultSource::Tool, |report| report.source);
        let had_no_tool = self.hooks.had_no_tool(of_run);
        if source == ResultSource::Record || (source == ResultSource::ToolLoop && had_no_tool) {
            return Some(Redaction::default());
        }
        if let Some(tool) = self.hooks.tool(of_run, call) {
            let error = report.and_then(|report| report.error.as_deref());
            return match retained(tool, call, Some(result), error) {
                Retained::Whole => Some(Redaction::default()),
                Retained::Redacted(redaction) => Some(*redaction),
                Retained::Nothing(_) if self.is_of_this_run(conversation, of_run) => None,
                // An earlier run has stored the call, which needs a result in the history.
                Retained::Nothing(_) => Some(withheld(NOT_KEPT)),
            };
        }
        if source == ResultSource::ToolLoop || !is_hooked(conversation, of_run) {
            return Some(Redaction::default());
        }
        Some(withheld(WITHHELD))
    }

    fn is_of_this_run(&self, conversation: &LoadedConversation, (message, _): CallOfRun) -> bool {
        let of_run = conversation.added.as_slice().first().and_then(|added| added.id);
        self.asking.contains_key(&message) || of_run.is_some_and(|id| id.run == message.run)
    }
}

/// Returns whether the tool of a stored call had a hook when the call was stored.
fn is_hooked(conversation: &LoadedConversation, (message, index): CallOfRun) -> bool {
    let stored = conversation.stored_message(message).into_iter();
    stored.flat_map(|stored| indices_in(stored, HOOKED_CALLS)).any(|hooked| hooked == index)
}

pub(super) fn withheld(result: &ToolResult, text: &str) -> Box<ToolResult> {
    let mut withheld = Box::new(result.clone());
    withheld.content = vec![Part::text(text)];
    withheld.native = None;
    withheld
}
