//! Whose `persist` hook decides what is stored of a call.

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

/// The key of a stored message's metadata under which the positions of those of its calls are kept
/// whose tool has a hook: without that hook nothing raw of their results may be stored.
const HOOKED_CALLS: &str = "hooked_calls";

/// What is stored of a result whose hook is not known any more.
const WITHHELD: &str =
    "The result was not stored: the tool that decides what is stored of it is not registered.";

/// What is stored of the result of a stored call of which its hook keeps nothing.
const NOT_KEPT: &str = "The result was not stored: the tool of the call does not let it be stored.";

/// The tools of a run, for their hooks.
///
/// The set of a run may change while it is under way. A call keeps the tool that it was planned
/// with until its result is stored, and a name that was unregistered keeps the last tool it had.
#[derive(Default)]
pub(super) struct Hooks {
    /// Where the tools come from, as long as no tool loop says which it uses.
    source: Option<Arc<dyn ToolSource>>,
    /// The newest set, so that the same one is not taken in again.
    newest: Option<Tools>,
    /// The last tool of each name that the run has had.
    known: HashMap<String, Arc<dyn Tool>>,
    pinned: HashMap<CallOfRun, Arc<dyn Tool>>,
    /// The calls of names that had no tool yet when they were planned or stored. Words of the tool
    /// loop about such a call are stored as they are, whatever is registered by then.
    without_tool: HashSet<CallOfRun>,
    /// The message whose calls were asked about last, and which of them had tools with hooks.
    hooked: RefCell<Option<(MessageId, HashSet<usize>)>>,
    forgotten: RefCell<MayBeForgotten>,
}

/// Whether stored messages were asked about their hooks, so far as it was looked.
#[derive(Debug, Default)]
struct MayBeForgotten {
    /// Of the loaded history, which does not change.
    of_history: Option<bool>,
    of_added: bool,
    added: usize,
}

impl Hooks {
    /// Asks a source for the tools until a tool loop names them.
    pub(super) fn of_source(source: Option<Arc<dyn ToolSource>>) -> Self {
        let mut hooks = Self { source, ..Self::default() };
        hooks.ask_source();
        hooks
    }

    /// Takes in the tools as they are now, where no tool loop names them.
    pub(super) fn ask_source(&mut self) {
        if let Some(tools) = self.source.as_ref().map(|source| source.tools()) {
            self.add(&tools);
        }
    }

    /// Takes in the tools that a tool loop uses from now on.
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

    /// Keeps the tools of a message's calls as they are now.
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

    /// Keeps the tool that a call is about to run with, or that there was none.
    pub(super) fn pin(&mut self, call: CallOfRun, tool: Option<Arc<dyn Tool>>) {
        match tool {
            Some(tool) => _ = self.pinned.insert(call, tool),
            None => _ = self.without_tool.insert(call),
        }
    }

    /// Whether no tool of a call's name was known when the call was planned or stored.
    pub(super) fn had_no_tool(&self, call: CallOfRun) -> bool {
        self.without_tool.contains(&call)
    }

    /// The tool whose hook decides about a call.
    pub(super) fn tool(&self, of_run: CallOfRun, call: &ToolCall) -> Option<&dyn Tool> {
        let tool = self.pinned.get(&of_run).or_else(|| self.known.get(&call.name));
        tool.map(|tool| &**tool)
    }
}

impl Hooks {
    /// Whether a result that answers no stored call may be that of one which a hook has kept out.
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
    /// What of a call's outcome is stored.
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
                // The call is in the history of an earlier run, and waits for its result there.
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

    /// What is stored in place of a result that answers no stored call: it may be that of a call
    /// which a hook has kept out. `None` if the result is stored as it is.
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

    /// Whether a stored call had a tool with a hook when it was stored.
    fn is_hooked(&self, (id, index): CallOfRun) -> bool {
        let is_marked = |hooked: &HashSet<usize>| hooked.contains(&index);
        let mut known = self.call_records.hooks.hooked.borrow_mut();
        match &*known {
            Some((message, hooked)) if *message == id => is_marked(hooked),
            _ => {
                let stored = self.stored_message(id);
                let hooked: HashSet<usize> = stored.into_iter().flat_map(hooked_calls).collect();
                let is_hooked = is_marked(&hooked);
                // Of a message that is not stored yet nothing is known.
                *known = stored.map(|_| (id, hooked));
                is_hooked
            }
        }
    }
}

/// A result without anything that its tool has said.
fn withheld(result: &ToolResult, text: &str) -> Box<ToolResult> {
    let mut withheld = Box::new(result.clone());
    withheld.content = vec![Part::text(text)];
    withheld.native = None;
    withheld
}

/// Says in a message about to be stored which of its calls have tools with hooks; there may be none
/// left.
pub(super) fn mark_hooked(message: &mut Arc<Message>, positions: Vec<u32>) {
    let positions = positions.into_iter().map(Value::from).collect();
    let metadata = &mut Arc::make_mut(message).metadata;
    metadata.insert(HOOKED_CALLS.to_owned(), Value::Array(positions));
}

/// The positions of the calls in a stored message whose tools had hooks.
fn hooked_calls(stored: &Arc<Message>) -> impl Iterator<Item = usize> {
    let positions = stored.metadata.get(HOOKED_CALLS).and_then(Value::as_array);
    let positions = positions.into_iter().flatten();
    positions.filter_map(|position| usize::try_from(position.as_u64()?).ok())
}

/// Whether hooks were asked about the calls of a stored message, which so may differ from the one
/// that the model gave.
pub(crate) fn has_asked_hooks(stored: &Message) -> bool {
    stored.metadata.contains_key(HOOKED_CALLS)
}

impl fmt::Debug for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hooks").field("newest", &self.newest).finish_non_exhaustive()
    }
}
