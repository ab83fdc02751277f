//! Converts the history of a system that stores one row for each turn. A turn is a message of the
//! user, or all texts, calls and results up to the final answer to this message.
//!
//! A row contains the text of a turn, the calls of the turn, and their results. The conversion
//! creates three messages from a row: an assistant message with the calls, a tool message with the
//! results, and an assistant message with the text. If the row contains steps, one for each answer
//! of the model in the turn, each step becomes an assistant message with the text and the calls of
//! the step, and a tool message with their results.

mod json;
mod read;
mod row;
mod row_calls;

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use tower_chat_core::{
    Message, Messages, Part, Reasoning, Role, ToolCall, ToolResult,
    pairing::{Answers, Candidate, Ids, Matcher, UnansweredCalls},
};

use self::row_calls::{ExactResult, RowCalls};
pub use self::{
    read::{UnreadableRow, UnreadableRows, read_rows},
    row::{AggregateCall, AggregateResult, AggregateRow, AggregateStep},
};
use tower_chat_layers::replay::{DanglingCallError, DanglingCalls, Replay};

/// The error of a row that cannot be converted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RowsError {
    /// A row contains tool calls, but its role is not `Assistant`.
    #[error(
        "row {row} contains tool calls, but its role is {role:?}: only rows of the assistant can have tool calls"
    )]
    NotOfTheModel {
        /// The index of the row, from 0.
        row: usize,
        /// The role of the row.
        role: Role,
    },
    /// A call has no result, and the caller has chosen [`DanglingCalls::Fail`].
    #[error("the rows cannot be replayed")]
    Dangling(#[from] DanglingCallError),
}

/// Converts rows to messages that contain all content of the rows.
///
/// The messages include calls without results and results without calls, because a replay (the
/// conversion to the messages of a request) repairs both.
///
/// A result follows the call that it answers, even if a later row contains the result.
///
/// ```
/// use tower_chat::{Role, import::rows::{self, AggregateCall, AggregateRow}};
///
/// let row = AggregateRow::new(Role::Assistant)
///     .with_text("Let me look.")
///     .with_call(AggregateCall::new("c1", "weather", "{}")); // never answered
/// let messages = rows::messages_of_rows([row])?;
/// let calls: Vec<_> = messages.iter().flat_map(|message| message.calls()).collect();
/// assert_eq!(calls.len(), 1);
/// # Ok::<(), rows::RowsError>(())
/// ```
///
/// # Errors
///
/// Fails with [`RowsError::NotOfTheModel`] if a row with tool calls has another role than
/// `Assistant`.
pub fn messages_of_rows(
    rows: impl IntoIterator<Item = AggregateRow>,
) -> Result<Vec<Message>, RowsError> {
    let mut import = Import::default();
    for (index, row) in rows.into_iter().enumerate() {
        import.push(index, row)?;
    }
    Ok(import.entries.into_iter().flat_map(Entry::into_messages).collect())
}

/// Converts rows to the messages that a model would receive after a replay. Every provider accepts
/// these messages. `dangling` determines how calls without a result are replayed. Results without a
/// call, and any further results of a call, are omitted.
///
/// ```
/// use tower_chat::{
///     Role,
///     import::rows::{self, AggregateCall, AggregateResult, AggregateRow},
///     replay::DanglingCalls,
/// };
/// let row = AggregateRow::new(Role::Assistant)
///     .with_text("It is sunny.")
///     .with_call(AggregateCall::new("c1", "weather", "{}"))
///     .with_result(AggregateResult::new("c1", "sunny"));
/// let messages = rows::valid_messages_of_rows([row], DanglingCalls::Drop)?;
/// let roles: Vec<Role> = messages.iter().map(|message| message.role).collect();
/// assert_eq!(roles, [Role::Assistant, Role::Tool, Role::Assistant]);
/// # Ok::<(), rows::RowsError>(())
/// ```
///
/// # Errors
///
/// Fails with [`RowsError`] if a row with tool calls has another role than `Assistant`, or if a
/// call has no result and `dangling` is [`DanglingCalls::Fail`].
pub fn valid_messages_of_rows(
    rows: impl IntoIterator<Item = AggregateRow>,
    dangling: DanglingCalls,
) -> Result<Messages, RowsError> {
    let mut replay = Replay::new(dangling);
    for message in messages_of_rows(rows)? {
        replay.push(&Arc::new(message));
    }
    replay.check()?;
    Ok(replay.view())
}

#[derive(Default)]
struct Import {
    entries: Vec<Entry>,
    /// An index of the calls of the current row.
    of_row: RowCalls,
    /// An index of the calls without a result, in all entries.
    unanswered: UnansweredCalls,
}

/// A message and the results that follow it. Without a message, the results answer no call.
#[derive(Default)]
struct Entry {
    message: Option<Message>,
    calls: Vec<AskedCall>,
    matcher: Matcher<String>,
    results: Vec<ToolResult>,
    /// The keys of the results in `results`, by which an equal result is found.
    held: HashSet<ExactResult>,
}

struct AskedCall {
    call: ToolCall,
    /// Whether the row contains the result inside the call.
    is_answered: bool,
}

impl Import {
    fn push(&mut self, index: usize, row: AggregateRow) -> Result<(), RowsError> {
        if row.asks() && row.role != Role::Assistant {
            return Err(RowsError::NotOfTheModel { row: index, role: row.role });
        }
        let AggregateRow { role, text, reasoning, calls, results, steps } = row;
        let first = self.entries.len();
        self.of_row = RowCalls::default();
        let text = text.filter(|text| !is_contained_in(&steps, text));
        for step in steps {
            let own = self.entries.len();
            self.push_message(role, step.reasoning, step.text, step.calls);
            self.push_results(step.results, own);
        }
        let (again, calls): (Vec<_>, Vec<_>) =
            calls.into_iter().partition(|call| self.of_row.has_asked(call));
        let (before_calls, before_text) =
            if calls.is_empty() { (Vec::new(), reasoning) } else { (reasoning, Vec::new()) };
        self.push_message(role, before_calls, None, calls);
        self.push_results(again.into_iter().filter_map(|call| call.result), first);
        self.push_results(results, first);
        if role == Role::Tool {
            // In older systems, a row with the role `Tool` contains a result as its text.
            let answer = text
                .map(|text| AggregateResult { call_id: None, ..AggregateResult::new("", text) });
            self.push_results(answer, first);
        } else {
            self.push_message(role, before_text, text, Vec::new());
        }
        Ok(())
    }

    /// Adds a message, and the results that its calls contain.
    fn push_message(
        &mut self,
        role: Role,
        reasoning: Vec<Reasoning>,
        text: Option<String>,
        calls: Vec<AggregateCall>,
    ) {
        let mut parts: Vec<Part> = reasoning.into_iter().map(Part::from).collect();
        parts.extend(text.filter(|text| !text.is_empty()).map(Part::text));
        let (calls, results) = with_own_results(calls);
        parts.extend(calls.iter().map(|asked| Part::ToolCall(asked.call.clone())));
        if parts.is_empty() {
            return;
        }
        let message = Some(Message::new(role, parts));
        for (index, asked) in calls.iter().enumerate().filter(|(_, asked)| !asked.is_answered) {
            self.unanswered.insert((self.entries.len(), index), &asked.candidate());
        }
        let candidates = calls.iter().map(AskedCall::candidate).collect();
        let matcher = Matcher::new(candidates, Ids::MayBeMissing);
        let entry = Entry { message, calls, matcher, ..Entry::default() };
        let index = self.entries.len();
        self.of_row.push(index, &entry);
        results.iter().for_each(|result| self.of_row.push_result(index, result));
        self.entries.push(entry.with_results(results));
    }

    /// Adds each result to the entry with the call that the result answers. Searches the entries of
    /// the same row or step (from the index `own` on), and then all entries for a call with the
    /// result's id and without a result. Adds the result at the end if no call is found.
    fn push_results(&mut self, results: impl IntoIterator<Item = AggregateResult>, own: usize) {
        for result in results.into_iter().map(ToolResult::from) {
            match self.near_call(&result, own).or_else(|| self.left_unanswered(&result)) {
                Some((index, call)) => self.answer(index, call, result),
                None => self.push_orphan(result),
            }
        }
    }

    /// Searches the entries from the index `own` on for the call that a result answers. Returns the
    /// index of the entry, and the index of the call within the entry. The index of the call is
    /// `None` if the entry only has a call with the result's id that already has a result.
    fn near_call(&mut self, result: &ToolResult, own: usize) -> Option<(usize, Option<usize>)> {
        let open = self.of_row.first_open(result, own);
        let held = self.of_row.first_with_result(result, own);
        if let Some(index) = held.filter(|held| open.is_none_or(|open| *held < open)) {
            return Some((index, None));
        }
        let Some(open) = open else { return Some((self.of_row.first_named(result, own)?, None)) };
        match self.entries.get_mut(open)?.matcher.find(result) {
            Answers::Call(call) => Some((open, Some(call))),
            Answers::Again | Answers::Nothing => None,
        }
    }

    /// Searches all entries, the newest first, for a call that has the same id as `result` and no
    /// result.
    fn left_unanswered(&self, result: &ToolResult) -> Option<(usize, Option<usize>)> {
        let (entry, call) = self.unanswered.find(result)?;
        Some((entry, Some(call)))
    }

    fn answer(&mut self, index: usize, call: Option<usize>, result: ToolResult) {
        let Some(entry) = self.entries.get_mut(index) else { return };
        if let Some((call, asked)) = call.and_then(|call| Some((call, entry.calls.get(call)?))) {
            entry.matcher.set_answered(call, true);
            self.of_row.remove(index, &asked.call);
            self.unanswered.remove((index, call), &asked.candidate());
        }
        // The results of a row may repeat the results of its steps.
        if call.is_some() || !entry.holds(&result) {
            self.of_row.push_result(index, &result);
            entry.push_result(result);
        }
    }

    fn push_orphan(&mut self, result: ToolResult) {
        match self.entries.last_mut() {
            Some(entry) if entry.message.is_none() => entry.push_result(result),
            _ => self.entries.push(Entry::default().with_results(vec![result])),
        }
    }
}

impl AskedCall {
    fn candidate(&self) -> Candidate<String> {
        let id = self.call.id.as_deref().unwrap_or_default();
        Candidate::new(&self.call, None, id).answered(self.is_answered).into_owned()
    }
}

impl Entry {
    fn with_results(mut self, results: Vec<ToolResult>) -> Self {
        results.into_iter().for_each(|result| self.push_result(result));
        self
    }

    fn push_result(&mut self, result: ToolResult) {
        self.held.insert(ExactResult::of(&result));
        self.results.push(result);
    }

    fn holds(&self, result: &ToolResult) -> bool {
        self.held.contains(&ExactResult::of(result))
    }

    fn into_messages(self) -> impl Iterator<Item = Message> {
        let results = (!self.results.is_empty()).then(|| Message::tool_results(self.results));
        self.message.into_iter().chain(results)
    }
}

impl From<AggregateCall> for ToolCall {
    fn from(call: AggregateCall) -> Self {
        let mut asked = Self::without_id(call.name, call.arguments);
        asked.id = call.id;
        asked.native = call.native;
        asked
    }
}

impl From<AggregateResult> for ToolResult {
    fn from(result: AggregateResult) -> Self {
        let mut answer = Self::new("", result.content);
        answer.call_id = result.call_id;
        answer.name = result.name;
        answer.is_error = result.failed;
        answer.native = result.native;
        answer
    }
}

/// Returns the calls of one message, and the results that these calls contain.
///
/// If one of the calls contains no result, each call that contains a result and has no unique id
/// receives a generated id. A later row may contain the missing result. A replay matches by order
/// if ids are missing or not unique, and would match this result with the wrong call.
fn with_own_results(calls: Vec<AggregateCall>) -> (Vec<AskedCall>, Vec<ToolResult>) {
    let ids: Vec<Option<String>> = calls.iter().map(|call| call.id.clone()).collect();
    let mut counts: HashMap<Option<&str>, usize> = HashMap::new();
    for id in &ids {
        *counts.entry(id.as_deref()).or_default() += 1;
    }
    let is_own = |id: &Option<String>| {
        id.as_deref().is_some_and(|id| !id.is_empty() && counts.get(&Some(id)) == Some(&1))
    };
    let has_gap = calls.iter().any(|call| call.result.is_none());
    let (mut asked, mut results) = (Vec::with_capacity(calls.len()), Vec::new());
    for (index, call) in calls.into_iter().enumerate() {
        let result = call.result.clone();
        let needs_id = has_gap && result.is_some() && !is_own(&call.id);
        let mut call = ToolCall::from(call);
        if needs_id {
            call.id = Some(unused_id(index, &counts));
        }
        let is_answered = result.is_some();
        if let Some(mut result) = result.map(ToolResult::from) {
            result.call_id.clone_from(&call.id);
            results.push(result);
        }
        asked.push(AskedCall { call, is_answered });
    }
    (asked, results)
}

/// Generates an id for the call at this index that is no key of `counts`.
fn unused_id(index: usize, counts: &HashMap<Option<&str>, usize>) -> String {
    let mut id = format!("call_{index}");
    while counts.contains_key(&Some(id.as_str())) {
        id.push('_');
    }
    id
}

/// Returns whether a text equals that of the last step or of all steps, except for white space.
fn is_contained_in(steps: &[AggregateStep], text: &str) -> bool {
    let words = |text: &str| text.split_whitespace().collect::<String>();
    let texts = || steps.iter().filter_map(|step| step.text.as_deref());
    let all: String = texts().map(words).collect();
    !steps.is_empty()
        && (texts().next_back().is_some_and(|last| words(last) == words(text))
            || all == words(text))
}

#[cfg(test)]
mod tests;
