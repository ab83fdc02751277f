//! A page of a conversation as bands, one for each run.
//!
//! ```text
//! messages, records of their calls, runs ─▶ bands ─▶ rows: a message, or an answer with its calls
//! ```

use std::{collections::HashMap, sync::Arc, time::SystemTime};

use tower_chat_layers::{
    Media, MediaSource, Message, Part, Role, RunId, ToolCall, ToolInvocation, ToolResult,
    ToolStatus,
    store::{ModelUsage, RunSummary, UsageSum},
};

use super::{Excerpt, duration, moment, visible};

/// What a page shows of a conversation.
pub(crate) struct Timeline {
    pub(crate) bands: Vec<Band>,
}

/// Messages of one run that follow one another.
pub(crate) struct Band {
    /// The run, if its messages say.
    pub(crate) run: Option<String>,
    pub(crate) mode: Option<&'static str>,
    pub(crate) began: Option<String>,
    pub(crate) took: Option<String>,
    pub(crate) usage: Vec<UsageLine>,
    pub(crate) is_staged: bool,
    pub(crate) rows: Vec<Row>,
}

/// What a run has used of a model.
pub(crate) struct UsageLine {
    pub(crate) model: String,
    pub(crate) figures: String,
}

/// A stored message.
pub(crate) struct Row {
    pub(crate) number: u64,
    pub(crate) role: &'static str,
    pub(crate) time: Option<String>,
    pub(crate) author: Option<String>,
    pub(crate) parts: Vec<PartView>,
    pub(crate) calls: Vec<CallView>,
    /// Results that are shown with their calls.
    pub(crate) results: usize,
    /// Calls that ran, beside one another.
    pub(crate) bars: Vec<Bar>,
}

/// A part of a message that is neither a call nor a result of one.
pub(crate) struct PartView {
    pub(crate) kind: &'static str,
    pub(crate) text: Excerpt,
}

/// A tool call and what became of it.
pub(crate) struct CallView {
    pub(crate) name: String,
    pub(crate) id: Option<String>,
    pub(crate) arguments: Excerpt,
    pub(crate) status: &'static str,
    pub(crate) took: Option<String>,
    pub(crate) result: Option<Excerpt>,
    pub(crate) error: Option<Excerpt>,
    /// Whether a person has to decide about it.
    pub(crate) waits: bool,
}

/// When a call ran, in thousandths of the time that all calls of its message took.
pub(crate) struct Bar {
    pub(crate) label: String,
    pub(crate) status: &'static str,
    pub(crate) start: u128,
    pub(crate) width: u128,
    pub(crate) top: usize,
}

/// The bands of messages in their order; those from `staged_from` on are staged.
pub(crate) fn timeline(
    messages: &[(u64, Arc<Message>)],
    staged_from: Option<u64>,
    invocations: &[ToolInvocation],
    runs: &[RunSummary],
) -> Timeline {
    let mut of_message: HashMap<u64, Vec<&ToolInvocation>> = HashMap::new();
    for invocation in invocations {
        of_message.entry(invocation.sequence).or_default().push(invocation);
    }
    let mut bands: Vec<Band> = Vec::new();
    let mut last: Option<(Option<RunId>, bool)> = None;
    for (position, (number, message)) in messages.iter().enumerate() {
        let run = message.id.map(|id| id.run);
        let is_staged = staged_from.is_some_and(|first| *number >= first);
        if last != Some((run, is_staged)) {
            last = Some((run, is_staged));
            let summary = runs.iter().find(|summary| Some(summary.run) == run);
            bands.push(Band::new(run, is_staged, summary));
        }
        let recorded = of_message.get(number).map(Vec::as_slice).unwrap_or_default();
        let behind = messages.get(position + 1..).unwrap_or_default();
        let row = Row::new(*number, message, recorded, behind);
        if let Some(band) = bands.last_mut() {
            band.rows.push(row);
        }
    }
    Timeline { bands }
}

impl Band {
    fn new(run: Option<RunId>, is_staged: bool, summary: Option<&RunSummary>) -> Self {
        let took =
            summary.and_then(|run| run.last_written_at.duration_since(run.started_at()).ok());
        Self {
            run: run.map(|run| run.to_string()),
            mode: summary.and_then(|run| run.mode).map(|mode| mode.as_str()),
            began: summary.map(|run| moment(run.started_at())),
            took: took.map(duration),
            usage: summary
                .map(|run| run.usage.iter().map(UsageLine::of).collect())
                .unwrap_or_default(),
            is_staged,
            rows: Vec::new(),
        }
    }

    /// Where the messages of the run became part of the history.
    pub(crate) fn commit(&self) -> &'static str {
        match (self.is_staged, self.mode) {
            (true, _) => "staged: not part of the history yet",
            (false, Some("per_service_call")) => "committed after each service call",
            (false, Some("journaled")) => "committed at its end, from the journal",
            (false, Some(_)) => "committed at its end, at once",
            (false, None) => "committed",
        }
    }
}

impl UsageLine {
    fn of(usage: &ModelUsage) -> Self {
        let model = usage.model.as_deref().map_or_else(|| "no model named".to_owned(), visible);
        Self { model, figures: figures(&usage.sum) }
    }
}

/// What was used, in words.
pub(crate) fn figures(sum: &UsageSum) -> String {
    let tokens = &sum.tokens;
    let mut figures = vec![
        format!("{} service calls", sum.service_calls),
        format!("{} tool calls", sum.tool_calls),
        format!("{} input tokens", tokens.input_tokens),
        format!("{} output tokens", tokens.output_tokens),
    ];
    for (count, what) in
        [(tokens.cached_input_tokens, "cached"), (tokens.reasoning_tokens, "reasoning")]
    {
        if count > 0 {
            figures.push(format!("{count} {what}"));
        }
    }
    if let Some(nanos) = sum.cost_nanos {
        figures.push(format!("cost {}.{:06}", nanos / 1_000_000_000, nanos % 1_000_000_000 / 1000));
    }
    figures.join(", ")
}

impl Row {
    fn new(
        number: u64,
        message: &Message,
        recorded: &[&ToolInvocation],
        behind: &[(u64, Arc<Message>)],
    ) -> Self {
        let parts = message.parts.iter().filter_map(PartView::of).collect();
        // The record counts the calls that are not the provider's own.
        let mut indexes = 0..;
        let calls = message.parts.iter().filter_map(asked_call).map(|(call, waits)| {
            let index = if call.provider_executed { None } else { indexes.next() };
            let record = recorded.iter().find(|record| Some(record.sequence_index) == index);
            let found = result_behind(call, behind).or_else(|| own_result(call, message));
            CallView::new(call, waits, record.copied(), found)
        });
        Self {
            number,
            role: name_of(message.role),
            time: message.added_at.map(moment),
            author: message.author.as_deref().map(visible),
            parts,
            calls: calls.collect(),
            results: message.results().count(),
            bars: bars(recorded),
        }
    }
}

fn name_of(role: Role) -> &'static str {
    match role {
        Role::System => "system",
        Role::Developer => "developer",
        Role::User => "user",
        Role::Assistant => "assistant",
        Role::Tool => "tool",
        _ => "other",
    }
}

/// A call, and whether it is part of a request for approval.
fn asked_call(part: &Part) -> Option<(&ToolCall, bool)> {
    match part {
        Part::ToolCall(call) => Some((call, false)),
        Part::ApprovalRequest(request) => Some((&request.call, true)),
        _ => None,
    }
}

/// The result that names a call, in the messages behind it up to the next answer.
fn result_behind<'m>(call: &ToolCall, behind: &'m [(u64, Arc<Message>)]) -> Option<&'m ToolResult> {
    let id = call.id.as_deref()?;
    let round = behind.iter().take_while(|(_, message)| message.calls().next().is_none());
    let mut results = round.flat_map(|(_, message)| message.results());
    results.find(|result| result.call_id.as_deref() == Some(id))
}

/// The result of a call that the provider ran itself.
fn own_result<'m>(call: &ToolCall, message: &'m Message) -> Option<&'m ToolResult> {
    let id = call.id.as_deref()?;
    message.results().find(|result| result.call_id.as_deref() == Some(id))
}

impl PartView {
    fn of(part: &Part) -> Option<Self> {
        let (kind, text) = match part {
            Part::Text(text) if text.text.is_empty() => return None,
            Part::Text(text) => ("text", Excerpt::of(&text.text)),
            Part::Reasoning(reasoning) => ("reasoning", Excerpt::of(&reasoning.text)),
            Part::Media(media) => ("media", Excerpt::of(&described(media))),
            Part::Error(error) => ("error", Excerpt::of(&error.message)),
            Part::ApprovalResponse(decision) => {
                let verdict = if decision.approved { "approved" } else { "rejected" };
                let reason =
                    decision.reason.as_deref().map_or(String::new(), |it| format!(": {it}"));
                ("decision", Excerpt::of(&format!("{verdict} {}{reason}", decision.request_id)))
            }
            Part::Native(native) => ("native", Excerpt::of(native.item.get())),
            _ => return None,
        };
        Some(Self { kind, text })
    }
}

fn described(media: &Media) -> String {
    match &media.source {
        MediaSource::Url(url) => format!("{} at {url}", media.media_type),
        MediaSource::Base64(data) => {
            format!("{}, {} bytes in base64", media.media_type, data.len())
        }
        MediaSource::File(file) => format!("{} in file {file}", media.media_type),
        _ => media.media_type.clone(),
    }
}

impl CallView {
    fn new(
        call: &ToolCall,
        waits: bool,
        record: Option<&ToolInvocation>,
        found: Option<&ToolResult>,
    ) -> Self {
        let result = record.and_then(|record| record.result.as_ref()).or(found);
        let status = match (record, result) {
            (Some(record), _) => record.status.as_str(),
            (None, Some(result)) if result.is_error => ToolStatus::Error.as_str(),
            (None, Some(_)) => ToolStatus::Ok.as_str(),
            (None, None) if call.provider_executed => "run by the provider",
            (None, None) => "without a result",
        };
        let pending = ToolStatus::PendingApproval.as_str();
        Self {
            name: visible(&call.name),
            id: call.id.as_deref().map(visible),
            arguments: Excerpt::of(&call.arguments),
            status,
            took: record.and_then(|record| elapsed(record.started_at, record.finished_at)),
            result: result.map(|result| Excerpt::of(&content(result))),
            error: record.and_then(|record| record.error.as_deref()).map(Excerpt::of),
            waits: waits && (record.is_none() || status == pending) && result.is_none(),
        }
    }

    /// The class of its colours.
    pub(crate) fn class(&self) -> &'static str {
        class_of(self.status)
    }
}

impl Bar {
    /// The class of its colours.
    pub(crate) fn class(&self) -> &'static str {
        class_of(self.status)
    }
}

fn class_of(status: &str) -> &'static str {
    match status {
        "ok" | "returned" | "run by the provider" => "good",
        "error" | "rejected_arguments" | "unknown_tool" => "bad",
        _ => "open",
    }
}

fn content(result: &ToolResult) -> String {
    let mut text = String::new();
    for part in &result.content {
        match part {
            Part::Text(part) => text.push_str(&part.text),
            Part::Media(media) => text.push_str(&format!("[{}]", described(media))),
            Part::Native(native) => text.push_str(native.item.get()),
            _ => {}
        }
    }
    text
}

fn elapsed(from: Option<SystemTime>, to: Option<SystemTime>) -> Option<String> {
    to?.duration_since(from?).ok().map(duration)
}

/// Where the calls of a message that have run lie in the time of all of them; none for less than two.
fn bars(recorded: &[&ToolInvocation]) -> Vec<Bar> {
    let timed = recorded.iter().filter_map(|record| {
        let (start, end) = (record.started_at?, record.finished_at?);
        (end >= start).then_some((*record, start, end))
    });
    let timed: Vec<_> = timed.collect();
    let first = timed.iter().map(|(_, start, _)| *start).min();
    let last = timed.iter().map(|(_, _, end)| *end).max();
    let (Some(first), Some(last), true) = (first, last, timed.len() > 1) else { return Vec::new() };
    let since = |from, to: SystemTime| to.duration_since(from).unwrap_or_default().as_millis();
    let all = since(first, last).max(1);
    let bar =
        |(top, (record, start, end)): (usize, (&ToolInvocation, SystemTime, SystemTime))| Bar {
            label: format!(
                "{}, {}",
                visible(&record.name),
                elapsed(Some(start), Some(end)).unwrap_or_default()
            ),
            status: record.status.as_str(),
            start: since(first, start) * 1000 / all,
            width: (since(start, end) * 1000 / all).max(4),
            top: top * 14,
        };
    timed.into_iter().enumerate().map(bar).collect()
}
