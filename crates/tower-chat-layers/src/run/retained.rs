//! Determines, with the `persist` hook of a call's tool, which parts of the call's outcome are
//! stored.

use std::{collections::HashSet, sync::Arc};

use serde_json::Value;
use tower_chat_core::{Message, Part, ToolCall, ToolResult};

use super::{call_records::CallRecords, conversation::LoadedConversation, hooks::HOOKED_CALLS};
use crate::tool::{CallOfRun, Redaction, ResultSource, Retained, ToolReport, retained};

/// The text that replaces a result if the tool with the hook is no longer registered.
const WITHHELD: &str =
    "The result was not stored: the tool that decides what is stored of it is not registered.";

/// The text that replaces the result of a call of an earlier run, if the hook of the tool does not
/// allow this result to be stored.
const NOT_KEPT: &str = "The result was not stored: the tool of the call does not allow it.";

impl CallRecords {
    pub(super) fn retained_outcome(
        &self,
        conversation: &LoadedConversation,
        of_run: CallOfRun,
        call: &ToolCall,
        result: &ToolResult,
        report: Option<&ToolReport>,
    ) -> Retained {
        let source = report.map_or(ResultSource::Tool, |report| report.source);
        let had_no_tool = self.hooks.had_no_tool(of_run);
        if source == ResultSource::Record || (source == ResultSource::ToolLoop && had_no_tool) {
            return Retained::Whole;
        }
        if let Some(tool) = self.hooks.tool(of_run, call) {
            let error = report.and_then(|report| report.error.as_deref());
            let retained = retained(tool, call, Some(result), error);
            if let (Retained::Nothing(_), false) =
                (&retained, self.is_of_this_run(conversation, of_run))
            {
                // An earlier run has stored the call, which needs a result in the history.
                return Retained::Redacted(Box::new(Redaction {
                    arguments: None,
                    result: Some(withheld(result, NOT_KEPT)),
                    error: Some(None),
                }));
            }
            return retained;
        }
        if source == ResultSource::ToolLoop || !self.is_hooked(conversation, of_run) {
            return Retained::Whole;
        }
        Retained::Redacted(Box::new(Redaction {
            arguments: None,
            result: Some(withheld(result, WITHHELD)),
            error: Some(None),
        }))
    }

    /// Returns the replacement of a result whose call is not stored, because a hook may have
    /// removed the call. `None` if no hook was called in the conversation.
    pub(super) fn retained_orphan(
        &self,
        conversation: &LoadedConversation,
        result: &ToolResult,
    ) -> Option<Box<ToolResult>> {
        let may_have_removed_calls =
            self.hooks.may_have_removed_calls(conversation.added.as_slice(), &conversation.history);
        may_have_removed_calls.then(|| withheld(result, WITHHELD))
    }

    fn is_of_this_run(&self, conversation: &LoadedConversation, (message, _): CallOfRun) -> bool {
        let of_run = conversation.added.as_slice().first().and_then(|added| added.id);
        self.has_stored_calls_of(message) || of_run.is_some_and(|id| id.run == message.run)
    }

    fn is_hooked(&self, conversation: &LoadedConversation, (id, index): CallOfRun) -> bool {
        let is_marked = |hooked: &HashSet<usize>| hooked.contains(&index);
        let mut known = self.hooks.hooked.borrow_mut();
        match &*known {
            Some((message, hooked)) if *message == id => is_marked(hooked),
            _ => {
                let stored = conversation.stored_message(id);
                let hooked: HashSet<usize> = stored.into_iter().flat_map(hooked_calls).collect();
                let is_hooked = is_marked(&hooked);
                // The metadata of a message that is not stored yet may change.
                *known = stored.map(|_| (id, hooked));
                is_hooked
            }
        }
    }
}

fn withheld(result: &ToolResult, text: &str) -> Box<ToolResult> {
    let mut withheld = Box::new(result.clone());
    withheld.content = vec![Part::text(text)];
    withheld.native = None;
    withheld
}

/// Returns the indices of the stored calls of a message whose tools had hooks.
fn hooked_calls(stored: &Arc<Message>) -> impl Iterator<Item = usize> {
    let positions = stored.metadata.get(HOOKED_CALLS).and_then(Value::as_array);
    let positions = positions.into_iter().flatten();
    positions.filter_map(|position| usize::try_from(position.as_u64()?).ok())
}
