//! The lines of an export, in JSON.

use std::{sync::Arc, time::SystemTime};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tower_chat_core::{
    ConversationKey, MessageId, PersistenceMode, RunId, ToolResult, format,
    store::{
        Description, HistorySummary, Lease, LeaseEnd, ModelUsage, OpenRun, Parent, RunSummary,
        SequencePosition, ServiceIdChange, UsageSum,
        author::{RecordedResult, ToolRecord, milliseconds},
    },
};

use crate::{
    Counts,
    record::{Beginning, Record},
};

/// The version of the format. This release writes and reads only this version.
pub(crate) const VERSION: u64 = 1;

/// The largest attempt number of an open run in a file. An attempt is one execution of the run.
const MAX_ATTEMPTS: u32 = 1_000_000;

/// The maximum sequence number of a message in a file.
const MAX_MESSAGES: u64 = u32::MAX as u64;

/// The end of the year 9999, in milliseconds since 1970. Times before 1970 have the same limit.
const LAST_TIME: i64 = 253_402_300_799_999;

pub(crate) const FORMAT: &str = "tower-chat";

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Header {
    pub(crate) format: String,
    pub(crate) version: u64,
}

/// A line after the first. All times are in milliseconds since 1970.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Line {
    Conversation(Box<ConversationLine>),
    Run(RunLine),
    Message(MessageLine),
    Tool(ToolLine),
    Summary(SummaryLine),
    OpenRun(OpenRunLine),
    End(EndLine),
    Abandoned(AbandonedLine),
    Complete(CompleteLine),
}

/// The first line of a conversation.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ConversationLine {
    pub(crate) scope: String,
    pub(crate) id: String,
    created_at: i64,
    last_active_at: i64,
    runs: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    last_mode: Option<PersistenceMode>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    service_id: Option<Arc<str>>,
    /// The number of pruned messages, which were deleted with the oldest runs.
    pub(crate) pruned: u64,
    /// The number of the last visible message, which the messages of an open run follow.
    pub(crate) last_message: u64,
    #[serde(default, skip_serializing_if = "Description::is_empty")]
    description: Description,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    parent: Option<Parent>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RunLine {
    run: RunId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mode: Option<PersistenceMode>,
    began_at: i64,
    last_written_at: i64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    usage: Vec<ModelUsage>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_open: bool,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MessageLine {
    pub(crate) number: u64,
    id: MessageId,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) staged: bool,
    /// The stored form of the message, see [`format`].
    stored: Box<RawValue>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ToolLine {
    /// The sequence number of the message that contains the call.
    message: u64,
    /// The index of the call among the calls of the message, from 0.
    index: u32,
    /// The index of the call's round in its turn, from 0. A round is the calls of one answer; a
    /// turn is the messages from a message of the user to the final answer.
    round: u32,
    call_id: String,
    name: String,
    status: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    result: Option<ResultLine>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    started_at: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    finished_at: Option<i64>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) staged: bool,
}

/// The location of the result of a tool call.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ResultLine {
    /// The number of the message with the result, and the index of the result, from 0.
    InMessage { message: u64, index: u32 },
    /// The content of the result, because no message contains it.
    Apart(Box<ToolResult>),
}

/// A summary, which the model receives instead of the messages up to a sequence number.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SummaryLine {
    id: u64,
    /// The sequence number of the last message that the summary covers.
    covers_to: u64,
    /// The id of this message.
    last: MessageId,
    text: Arc<str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    made_by: Option<Arc<str>>,
    at: i64,
    usage: UsageSum,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct OpenRunLine {
    run: RunId,
    opened_at: i64,
    attempt: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    service_id: Option<ServiceIdLine>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    partial_text: Option<Arc<str>>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ServiceIdLine {
    Set(Arc<str>),
    Clear,
}

/// The last line of a conversation.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct EndLine {
    pub(crate) messages: u64,
    pub(crate) tool_calls: u64,
    pub(crate) runs: u64,
    /// The SHA-256 of the lines of the conversation before this line.
    pub(crate) sha256: String,
}

/// The last line of a conversation that changed or could not be read, and that an import ignores.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AbandonedLine {
    pub(crate) reason: String,
}

/// The last line of the file.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CompleteLine {
    pub(crate) conversations: u64,
    /// The SHA-256 of all lines before this line.
    pub(crate) sha256: String,
}

impl EndLine {
    pub(crate) fn new(counts: &Counts, sha256: String) -> Self {
        let Counts { messages, tool_calls, runs, .. } = *counts;
        Self { messages, tool_calls, runs, sha256 }
    }
}

impl ConversationLine {
    pub(crate) fn new(key: &ConversationKey, beginning: &Beginning) -> Self {
        Self {
            scope: key.scope().to_owned(),
            id: key.id().to_owned(),
            created_at: milliseconds::of(beginning.created_at),
            last_active_at: milliseconds::of(beginning.last_active_at),
            runs: beginning.runs,
            last_mode: beginning.last_mode,
            service_id: beginning.service_id.clone(),
            pruned: beginning.pruned,
            last_message: beginning.visible,
            description: beginning.description.clone(),
            parent: beginning.parent.clone(),
        }
    }

    pub(crate) fn key(&self) -> ConversationKey {
        ConversationKey::new(self.scope.as_str(), self.id.as_str())
    }

    pub(crate) fn read(self) -> Result<Beginning, String> {
        if self.pruned > self.last_message {
            return Err(format!(
                "the number of pruned messages, {}, is larger than the number of messages, {}",
                self.pruned, self.last_message
            ));
        }
        if self.last_message > MAX_MESSAGES {
            return Err(format!("a conversation cannot have {} messages", self.last_message));
        }
        Ok(Beginning {
            created_at: time(self.created_at)?,
            last_active_at: time(self.last_active_at)?,
            runs: self.runs,
            last_mode: self.last_mode,
            service_id: self.service_id,
            pruned: self.pruned,
            visible: self.last_message,
            description: within_bounds(&self.description).map_err(|error| error.to_string())?,
            parent: self.parent,
        })
    }
}

/// Checks that a description from a file does not exceed the maximum size.
fn within_bounds(
    read: &Description,
) -> Result<Description, tower_chat_core::store::DescriptionTooLarge> {
    let description = Description::new().with_metadata(read.metadata().clone())?;
    match read.title() {
        Some(title) => description.with_title(title),
        None => Ok(description),
    }
}

impl Line {
    pub(crate) fn of(record: &Record) -> Result<Self, serde_json::Error> {
        Ok(match record {
            Record::Run(run) => Self::Run(RunLine::of(run)),
            Record::Message { number, message, is_staged } => Self::Message(MessageLine {
                number: *number,
                id: message.id.unwrap_or(MessageId { run: RunId::from_bytes([0; 16]), index: 0 }),
                staged: *is_staged,
                stored: RawValue::from_string(format::encode(message))?,
            }),
            Record::Tool { row, is_staged } => Self::Tool(ToolLine::of(row, *is_staged)),
            Record::Summary(summary) => Self::Summary(SummaryLine::of(summary)),
            Record::OpenRun(open) => Self::OpenRun(OpenRunLine::of(open)),
        })
    }
}

impl RunLine {
    fn of(run: &RunSummary) -> Self {
        Self {
            run: run.run,
            mode: run.mode,
            began_at: milliseconds::of(run.began_at),
            last_written_at: milliseconds::of(run.last_written_at),
            usage: run.usage.clone(),
            is_open: run.is_open,
        }
    }

    pub(crate) fn read(self) -> Result<Record, String> {
        let mut run = RunSummary::new(self.run, time(self.began_at)?);
        run.mode = self.mode;
        run.last_written_at = time(self.last_written_at)?;
        run.usage = self.usage.into_iter().map(within_count).collect();
        run.is_open = self.is_open;
        Ok(Record::Run(run))
    }
}

impl MessageLine {
    pub(crate) fn read(self) -> Result<Record, String> {
        let mut message = format::decode(self.stored.get()).map_err(|error| error.to_string())?;
        message.id = Some(self.id);
        Ok(Record::Message {
            number: self.number,
            message: Arc::new(message),
            is_staged: self.staged,
        })
    }
}

impl ToolLine {
    fn of(row: &ToolRecord, is_staged: bool) -> Self {
        let result = match &row.result {
            RecordedResult::None => None,
            RecordedResult::InMessage(at) => {
                Some(ResultLine::InMessage { message: at.sequence, index: at.index })
            }
            RecordedResult::Apart(result) => Some(ResultLine::Apart(result.clone())),
        };
        Self {
            message: row.call.sequence,
            index: row.call.index,
            round: row.round_index,
            call_id: row.call_id.clone(),
            name: row.name.clone(),
            status: row.status.as_str().to_owned(),
            result,
            error: row.error.clone(),
            started_at: row.started_at.map(milliseconds::of),
            finished_at: row.finished_at.map(milliseconds::of),
            staged: is_staged,
        }
    }

    pub(crate) fn read(self) -> Result<Record, String> {
        let call = SequencePosition { sequence: self.message, index: self.index };
        let mut row = ToolRecord::pending(call, self.round, self.call_id, self.name);
        row.status = self.status.parse().map_err(|error| format!("{error}"))?;
        row.result = match self.result {
            None => RecordedResult::None,
            Some(ResultLine::InMessage { message, index }) => {
                RecordedResult::InMessage(SequencePosition { sequence: message, index })
            }
            Some(ResultLine::Apart(result)) => RecordedResult::Apart(result),
        };
        row.error = self.error;
        row.started_at = self.started_at.map(time).transpose()?;
        row.finished_at = self.finished_at.map(time).transpose()?;
        Ok(Record::Tool { row, is_staged: self.staged })
    }
}

impl SummaryLine {
    fn of(summary: &HistorySummary) -> Self {
        Self {
            id: summary.id,
            covers_to: summary.covers_to,
            last: summary.last,
            text: summary.text.clone(),
            made_by: summary.made_by.clone(),
            at: milliseconds::of(summary.at),
            usage: summary.usage,
        }
    }

    pub(crate) fn read(self) -> Result<Record, String> {
        let mut summary = HistorySummary::new(self.covers_to, self.last, self.text)
            .with_made_by(self.made_by)
            .with_time(time(self.at)?)
            .with_usage(within_count(ModelUsage::new(None, self.usage)).sum);
        summary.id = self.id;
        Ok(Record::Summary(summary))
    }
}

impl OpenRunLine {
    fn of(open: &OpenRun) -> Self {
        Self {
            run: open.run,
            opened_at: milliseconds::of(open.opened_at),
            attempt: open.lease.attempt,
            service_id: open.service_id.as_ref().map(|change| match change {
                ServiceIdChange::Set(id) => ServiceIdLine::Set(id.clone()),
                ServiceIdChange::Clear => ServiceIdLine::Clear,
            }),
            partial_text: open.partial_text.clone(),
        }
    }

    /// Converts the line to an open run after the message `visible`, with an expired lease.
    pub(crate) fn read(self, visible: u64) -> Result<Record, String> {
        if self.attempt > MAX_ATTEMPTS {
            return Err(format!("a run cannot have {} attempts", self.attempt));
        }
        let opened_at = time(self.opened_at)?;
        let lease = Lease {
            attempt: self.attempt,
            holder: 0,
            renewed_at: opened_at,
            until: LeaseEnd::NotHeld,
        };
        let mut open = OpenRun::new(self.run, lease, visible);
        open.service_id = self.service_id.map(|change| match change {
            ServiceIdLine::Set(id) => ServiceIdChange::Set(id),
            ServiceIdLine::Clear => ServiceIdChange::Clear,
        });
        open.partial_text = self.partial_text;
        Ok(Record::OpenRun(open))
    }
}

/// Limits the counts from a file to the largest count that a store can add to another one.
fn within_count(usage: ModelUsage) -> ModelUsage {
    let UsageSum { service_calls, tool_calls, tokens, cost_nanos, .. } = usage.sum;
    let sum = UsageSum::of_calls(service_calls, tool_calls);
    ModelUsage::new(usage.model, sum.with_tokens(tokens).with_cost_nanos(cost_nanos))
}

fn time(at: i64) -> Result<SystemTime, String> {
    let is_known = (-LAST_TIME..=LAST_TIME).contains(&at);
    let time = is_known.then(|| milliseconds::time(at)).flatten();
    time.ok_or_else(|| format!("the time {at} is out of the range of this machine"))
}
