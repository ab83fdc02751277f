//! Finds the tool whose `persist` hook decides what is stored of a call.

use std::{
    cell::RefCell,
    collections::{HashMap, HashSet},
    fmt,
    sync::Arc,
};

use serde_json::Value;
use tower_chat_core::{Message, MessageId, Messages, Part, ToolCall, ToolResult};

use super::RunLog;
use crate::tool::{
    CallOfRun, Redaction, ResultSource, Retained, Tool, ToolReport, ToolSource, Tools, retained,
};

/// The metadata key of a stored message for the positions of its calls whose tools have hooks. Without
/// the hook of its tool, the unchanged result of such a call must not be stored.
const HOOKED_CALLS: &str = "hooked_calls";

/// The stored text of a result whose hook is not registered any more.
const WITHHELD: &str =
    "The result was not stored: the tool that decides what is stored of it is not registered.";

/// The stored text of a result of a stored call, if the hook does not allow the result to be stored.
const NOT_KEPT: &str = "The result was not stored: the tool of the call does not let it be stored.";

/// The tools of a run, whose hooks the run calls.
///
/// The set of tools may change during a run. Until its result is stored, a call uses the hook of the
/// tool that was registered when the call was planned. The last tool of a name remains in use after it
/// was unregistered.
#[derive(Default)]
pub(super) struct Hooks {
    /// The source of the tools, until a tool loop sets its tools.
    source: Option<Arc<dyn ToolSource>>,
    /// The most recent set, which is not added again.
    newest: Option<Tools>,
    /// The last tool of each name in the run.
    known: HashMap<String, Arc<dyn Tool>>,
    pinned: HashMap<CallOfRun, Arc<dyn Tool>>,
    /// The calls whose name had no tool when they were planned or stored. The results that the tool
    /// loop writes for such a call are stored unchanged, also if a tool was registered later.
    without_tool: HashSet<CallOfRun>,
    /// A cache of one entry: the message of the most recent query, and the positions of its calls whose
    /// tools had hooks.
    hooked: RefCell<Option<(MessageId, HashSet<usize>)>>,
    forgotten: RefCell<MayBeForgotten>,
}

/// A cache: whether hooks were called for the calls of stored messages.
#[derive(Debug, Default)]
struct MayBeForgotten {
    /// The value for the loaded history, which does not change.
    of_history: Option<bool>,
    of_added: bool,
    added: usize,
}

impl Hooks {
    /// Reads the tools from a source until a tool loop sets them.
    pub(super) fn of_source(source: Option<Arc<dyn ToolSource>>) -> Self {
        let mut hooks = Self { source, ..Self::default() };
        hooks.ask_source();
        hooks
    }

    /// Adds the current tools of the source, if no tool loop has set tools.
    pub(super) fn ask_source(&mut self) {
        if let Some(tools) = self.source.as_ref().map(|source| source.tools()) {
            self.add(&tools);
        }
    }

    /// Adds the tools that a tool loop uses from now on.
    pub(super) fn use_tools(&mut self, tools: &Tools) {
        self.source = None;
        self.add(tools);
    }

    fn add(&mut self, tools: &Tools) {
        if self.newest.as_ref().is_some_and(|newest| newest.is_same(tools)) {
            return;
        }
        self.newest = Some(tools.clone());
        let named = tools.runnable().map(|tool| (tool.definition().name.clone(), tool.clone()));
        self.known.extend(named);
    }

    /// Pins the current tools of a message's calls.
    pub(super) fn pin_calls(&mut self, message: &Message) {
        let Some(id) = message.id else { return };
        for (index, call) in message.asked_calls().enumerate() {
            match self.known.get(&call.name) {
                Some(_) if self.without_tool.contains(&(id, index)) => {}
                Some(tool) => _ = self.pinned.entry((id, index)).or_insert_with(|| tool.clone()),
                None => _ = self.without_tool.insert((id, index)),
            }
        }
    }

    /// Pins the tool with which a call is about to run, or records that the call has no tool.
    pub(super) fn pin(&mut self, call: CallOfRun, tool: Option<Arc<dyn Tool>>) {
        match tool {
            Some(tool) => _ = self.pinned.insert(call, tool),
            None => _ = self.without_tool.insert(call),
        }
    }

    /// Returns whether the name of a call had no tool when the call was planned or stored.
    pub(super) fn had_no_tool(&self, call: CallOfRun) -> bool {
        self.without_tool.contains(&call)
    }

    /// Returns the tool whose hook decides about a call.
    pub(super) fn tool(&self, of_run: CallOfRun, call: &ToolCall) -> Option<&dyn Tool> {
        let tool = self.pinned.get(&of_run).or_else(|| self.known.get(&call.name));
        tool.map(|tool| &**tool)
    }
}

impl Hooks {
    /// Returns whether a result without a stored call may answer a call that a hook has removed.
    fn may_be_forgotten(&self, added: &[Arc<Message>], history: &Messages) -> bool {
        let mut known = self.forgotten.borrow_mut();
        let new = added.get(known.added..).unwrap_or_default();
        known.of_added |= new.iter().any(|message| has_asked_hooks(message));
        known.added = added.len();
        known.of_added
            || *known
                .of_history
                .get_or_insert_with(|| history.iter().any(|message| has_asked_hooks(message)))
    }
}

impl RunLog {
    /// Returns what is stored of a call's outcome.
    pub(super) fn retained_outcome(
        &self,
        of_run: CallOfRun,
        call: &ToolCall,
        result: &ToolResult,
        report: Option<&ToolReport>,
    ) -> Retained {
        let source = report.map_or(ResultSource::Tool, |report| report.source);
        let had_no_tool = self.call_records.hooks.had_no_tool(of_run);
        if source == ResultSource::Record || (source == ResultSource::ToolLoop && had_no_tool) {
            return Retained::Whole;
        }
        if let Some(tool) = self.call_records.hooks.tool(of_run, call) {
            let error = report.and_then(|report| report.error.as_deref());
            let retained = retained(tool, call, Some(result), error);
            if let (Retained::Nothing(_), false) = (&retained, self.is_of_this_run(of_run)) {
                // The call is in the history of an earlier run and needs a result there.
                return Retained::Redacted(Box::new(Redaction {
                    arguments: None,
                    result: Some(withheld(result, NOT_KEPT)),
                    error: Some(None),
                }));
            }
            return retained;
        }
        if source == ResultSource::ToolLoop || !self.is_hooked(of_run) {
            return Retained::Whole;
        }
        Retained::Redacted(Box::new(Redaction {
            arguments: None,
            result: Some(withheld(result, WITHHELD)),
            error: Some(None),
        }))
    }

    /// Returns the replacement of a result without a stored call, which may answer a call that a hook
    /// has removed. `None` if the result is stored unchanged.
    pub(super) fn retained_orphan(&self, result: &ToolResult) -> Option<Box<ToolResult>> {
        let may_be_forgotten = self
            .call_records
            .hooks
            .may_be_forgotten(&self.conversation.added, &self.conversation.history);
        may_be_forgotten.then(|| withheld(result, WITHHELD))
    }

    fn is_of_this_run(&self, (message, _): CallOfRun) -> bool {
        let of_run = self.conversation.added.first().and_then(|added| added.id);
        self.call_records.has_stored_calls_of(message)
            || of_run.is_some_and(|id| id.run == message.run)
    }

    /// Returns whether a call had a tool with a hook when it was stored.
    fn is_hooked(&self, (id, index): CallOfRun) -> bool {
        let is_marked = |hooked: &HashSet<usize>| hooked.contains(&index);
        let mut known = self.call_records.hooks.hooked.borrow_mut();
        match &*known {
            Some((message, hooked)) if *message == id => is_marked(hooked),
            _ => {
                let stored = self.stored_message(id);
                let hooked: HashSet<usize> = stored.into_iter().flat_map(hooked_calls).collect();
                let is_hooked = is_marked(&hooked);
                // A message that is not stored yet is not cached.
                *known = stored.map(|_| (id, hooked));
                is_hooked
            }
        }
    }
}

/// Returns a result whose content is replaced by `text`.
fn withheld(result: &ToolResult, text: &str) -> Box<ToolResult> {
    let mut withheld = Box::new(result.clone());
    withheld.content = vec![Part::text(text)];
    withheld.native = None;
    withheld
}

/// Stores in the metadata of a message which of its calls have tools with hooks. The list may be empty.
pub(super) fn mark_hooked(message: &mut Arc<Message>, positions: Vec<u32>) {
    let positions = positions.into_iter().map(Value::from).collect();
    let metadata = &mut Arc::make_mut(message).metadata;
    metadata.insert(HOOKED_CALLS.to_owned(), Value::Array(positions));
}

/// Returns the positions of the calls in a stored message whose tools had hooks.
fn hooked_calls(stored: &Arc<Message>) -> impl Iterator<Item = usize> {
    let positions = stored.metadata.get(HOOKED_CALLS).and_then(Value::as_array);
    let positions = positions.into_iter().flatten();
    positions.filter_map(|position| usize::try_from(position.as_u64()?).ok())
}

/// Returns whether hooks were called for the calls of a stored message. The message may then differ
/// from the model's answer.
pub(crate) fn has_asked_hooks(stored: &Message) -> bool {
    stored.metadata.contains_key(HOOKED_CALLS)
}

impl fmt::Debug for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hooks").field("newest", &self.newest).finish_non_exhaustive()
    }
}
