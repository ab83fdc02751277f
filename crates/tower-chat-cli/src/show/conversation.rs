//! Reads the data of the conversation to print.
//!
//! - The messages of an *open run* are *staged*: the store contains them, but they are not part of
//!   the history yet.
//! - The *directory* is the part of a store that contains titles, times, counts and usage of
//!   conversations and runs.
//! - The *record of tool calls* has one row for each call, with its status, times and result.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
    time::SystemTime,
};

use tower_chat::{
    ConversationKey, HistoryStore, Message, ToolResult,
    message::Messages,
    replay::{ReplayContext, ReplayPolicy},
    run::RunId,
    store::{
        CallSelection, ConversationSummary, Directory, Head, HistorySummary, Journal, OpenRun,
        RunSummary, SequencePosition, StoreError, Summaries,
        author::{OpenRunContent, RecordedResult, ToolRecord},
    },
    tool::ToolStatus,
};
use tower_chat_explain::{Explained, ReasonKind, explain_stored};
use tower_chat_repair::extract;

use crate::error::CliError;

/// Selects the last `limit` messages of the conversation, or of the messages before `before`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Page {
    pub(super) before: Option<u64>,
    pub(super) limit: usize,
}

/// The messages to print, with data about their runs and calls.
pub(super) struct StoredConversation {
    pub(super) summary: ConversationSummary,
    pub(super) head: Head,
    /// The summary that a model receives instead of the oldest messages.
    pub(super) in_force: Option<HistorySummary>,
    /// The messages of the page, the oldest first. Staged messages are at the end.
    pub(super) messages: Vec<StoredMessage>,
    /// The number of the first message of the page, if the conversation has earlier messages.
    pub(super) earlier: Option<u64>,
    /// The entries that the directory has for the runs of the messages.
    pub(super) runs: HashMap<RunId, RunSummary>,
    pub(super) open: Option<OpenRun>,
}

/// A message to print, with data about its calls and results.
pub(super) struct StoredMessage {
    pub(super) number: u64,
    pub(super) message: Arc<Message>,
    pub(super) is_staged: bool,
    /// The form of the message in the next request to the model, if it is known.
    pub(super) explained: Option<Explained>,
    pub(super) calls: Vec<StoredCall>,
    /// The indices, from 0, of the results that are printed with their calls.
    pub(super) paired_results: HashSet<u32>,
}

/// A call of a message, with its status and its result.
pub(super) struct StoredCall {
    pub(super) round: u32,
    pub(super) status: ToolStatus,
    pub(super) error: Option<String>,
    pub(super) started_at: Option<SystemTime>,
    pub(super) finished_at: Option<SystemTime>,
    pub(super) result: Option<StoredResult>,
}

pub(super) struct StoredResult {
    /// The number of the message with the result. `None` if only the record of tool calls has it.
    pub(super) number: Option<u64>,
    pub(super) result: ToolResult,
    /// The reasons why the next request to the model would change or omit the result.
    pub(super) reasons: Vec<ReasonKind>,
}

impl StoredResult {
    fn of_record(result: ToolResult) -> Self {
        Self { number: None, result, reasons: Vec::new() }
    }
}

impl StoredConversation {
    /// Reads a page of a conversation, and returns it with a list of errors. If the calls, the
    /// results, or the form that the model receives cannot be read, the page lacks this data.
    pub(super) async fn read(
        store: &dyn HistoryStore,
        key: &ConversationKey,
        asked: Page,
        policy: &ReplayPolicy,
    ) -> Result<(Self, Vec<CliError>), CliError> {
        let directory = |source| CliError::DirectoryOf { key: key.clone(), source };
        let Some(summary) = store.summary(key).await.map_err(directory)? else {
            return Err(CliError::NoConversation { key: key.clone() });
        };
        let unreadable = |source| CliError::Show { key: key.clone(), source };
        let mut problems = Vec::new();
        let head = store.head(key).await.map_err(unreadable)?;
        let in_force = match head.summary {
            Some(in_force) => store.history_summary(key, in_force.id).await.map_err(unreadable)?,
            None => None,
        };
        let page = store.messages_before(key, asked.before, asked.limit).await;
        let page = page.map_err(unreadable)?;
        let staged = match asked.before {
            None => store.open_run(key).await.map_err(unreadable)?,
            Some(_) => None,
        };
        let context = ReplayContext::at(SystemTime::now());
        let explained = match explain_stored(store, key, policy, &context).await {
            Ok(explained) => explained.into_iter().collect(),
            Err(source) => {
                problems.push(CliError::Explain { key: key.clone(), source });
                BTreeMap::new()
            }
        };
        let mut messages = page.messages;
        let first_staged = messages.last().map_or(head.pruned + 1, |(number, _)| number + 1);
        let first_staged = staged.as_ref().map_or(first_staged, |it| it.open.visible + 1);
        messages.extend((first_staged..).zip(staged.iter().flat_map(|it| &it.messages).cloned()));
        let known = Known::read(store, key, &messages, staged.as_ref(), &mut problems).await;
        let runs = runs_of(store, key, &messages).await.map_err(directory)?;
        let open = staged.map(|staged| staged.open);
        let mut found = Self {
            summary,
            head,
            in_force,
            messages: Vec::new(),
            earlier: page.earlier,
            runs,
            open,
        };
        found.messages =
            known.into_messages(messages, first_staged, found.open.is_some(), explained);
        Ok((found, problems))
    }
}

/// The data about the calls in the messages of a page.
struct Known {
    /// The calls in the messages, each with the position of its result.
    calls: Vec<ToolRecord>,
    /// The calls according to the record of tool calls, including results that are in no message.
    recorded: HashMap<SequencePosition, StoredCall>,
}

impl Known {
    async fn read(
        store: &dyn HistoryStore,
        key: &ConversationKey,
        messages: &[(u64, Arc<Message>)],
        staged: Option<&OpenRunContent>,
        problems: &mut Vec<CliError>,
    ) -> Self {
        let calls = calls_of_page(store, key, messages).await;
        let asking = messages.iter().filter(|(_, it)| it.asked_calls().next().is_some());
        let asking = CallSelection::in_messages(asking.map(|(number, _)| *number));
        let mut recorded = HashMap::new();
        match store.calls(key, &asking).await {
            Ok(invocations) => {
                for (_, call) in invocations.found {
                    let position =
                        SequencePosition { sequence: call.sequence, index: call.sequence_index };
                    let result = call.result.map(StoredResult::of_record);
                    let call = StoredCall {
                        round: call.round_index,
                        status: call.status,
                        error: call.error,
                        started_at: call.started_at,
                        finished_at: call.finished_at,
                        result,
                    };
                    recorded.insert(position, call);
                }
                problems.extend(invocations.unreadable.into_iter().map(CliError::UnreadableCall));
            }
            Err(source) => problems.push(CliError::Tools { key: key.clone(), source }),
        }
        let staged = staged.map(|staged| &staged.tools[..]).unwrap_or_default();
        recorded.extend(staged.iter().map(|row| (row.call, of_record(row))));
        Self { calls, recorded }
    }

    fn into_messages(
        mut self,
        messages: Vec<(u64, Arc<Message>)>,
        first_staged: u64,
        is_open: bool,
        mut explained: BTreeMap<u64, Explained>,
    ) -> Vec<StoredMessage> {
        let on_page: HashMap<u64, Arc<Message>> = messages.iter().cloned().collect();
        let mut paired: HashMap<u64, HashSet<u32>> = HashMap::new();
        let mut calls: HashMap<u64, Vec<StoredCall>> = HashMap::new();
        for row in std::mem::take(&mut self.calls) {
            let mut call = self.recorded.remove(&row.call).unwrap_or_else(|| of_record(&row));
            if let RecordedResult::InMessage(position) = row.result {
                let message = on_page.get(&position.sequence);
                let result = message.and_then(|it| result_at(it, position.index));
                if let Some((part, result)) = result {
                    let reasons = explained.get(&position.sequence).map(Explained::reasons);
                    let reasons = reasons.unwrap_or_default().iter();
                    let reasons = reasons.filter(|reason| reason.part == Some(part));
                    call.result = Some(StoredResult {
                        number: Some(position.sequence),
                        result: result.clone(),
                        reasons: reasons.map(|reason| reason.kind).collect(),
                    });
                    paired.entry(position.sequence).or_default().insert(position.index);
                } else if let Some(result) = &mut call.result {
                    // The message with the result is not on this page.
                    result.number = Some(position.sequence);
                }
            }
            calls.entry(row.call.sequence).or_default().push(call);
        }
        let stored = messages.into_iter().map(|(number, message)| StoredMessage {
            is_staged: is_open && number >= first_staged,
            explained: explained.remove(&number),
            calls: calls.remove(&number).unwrap_or_default(),
            paired_results: paired.remove(&number).unwrap_or_default(),
            number,
            message,
        });
        stored.collect()
    }
}

/// Returns the calls in the messages of a page. Searches their results in all messages of the
/// conversation or, if the conversation cannot be loaded, in the page.
async fn calls_of_page(
    store: &dyn HistoryStore,
    key: &ConversationKey,
    page: &[(u64, Arc<Message>)],
) -> Vec<ToolRecord> {
    let Some((first, _)) = page.first() else { return Vec::new() };
    let numbers: HashSet<u64> = page.iter().map(|(number, _)| *number).collect();
    let of_page = || page.iter().map(|(_, message)| message.clone());
    let calls = match store.load(key).await {
        Ok(history) => {
            let begins = history.head.pruned + 1;
            let stored = history.messages.len() as u64;
            let staged = page.iter().filter(|(number, _)| *number >= begins + stored);
            let staged = staged.map(|(_, message)| message.clone());
            let all: Messages = history.messages.iter().cloned().chain(staged).collect();
            extract(&all, begins, 0)
        }
        Err(_) => extract(&of_page().collect(), *first, 0),
    };
    calls.into_iter().filter(|call| numbers.contains(&call.call.sequence)).collect()
}

/// Returns a result of a message by its index, and the index of its part.
fn result_at(message: &Message, index: u32) -> Option<(usize, &ToolResult)> {
    let parts = message.parts.iter().enumerate();
    let mut results = parts.filter_map(|(part, it)| Some((part, it.as_tool_result()?)));
    results.nth(index as usize)
}

fn of_record(row: &ToolRecord) -> StoredCall {
    let result = match &row.result {
        RecordedResult::Apart(result) => Some(StoredResult::of_record((**result).clone())),
        RecordedResult::None | RecordedResult::InMessage(_) => None,
    };
    StoredCall {
        round: row.round_index,
        status: row.status,
        error: row.error.clone(),
        started_at: row.started_at,
        finished_at: row.finished_at,
        result,
    }
}

/// Returns the entries that the directory has for the runs of these messages.
async fn runs_of(
    store: &dyn HistoryStore,
    key: &ConversationKey,
    messages: &[(u64, Arc<Message>)],
) -> Result<HashMap<RunId, RunSummary>, StoreError> {
    /// The maximum number of runs that one query to the store returns.
    const PAGE: usize = 200;
    let mut wanted: HashSet<RunId> =
        messages.iter().filter_map(|(_, message)| Some(message.id?.run)).collect();
    let (mut found, mut after) = (HashMap::new(), None);
    while !wanted.is_empty() {
        let page = store.runs(key, after, PAGE).await?;
        let Some(last) = page.last() else { break };
        after = Some(last.run);
        let asked = page.into_iter().filter(|run| wanted.remove(&run.run));
        found.extend(asked.map(|run| (run.run, run)));
    }
    Ok(found)
}
