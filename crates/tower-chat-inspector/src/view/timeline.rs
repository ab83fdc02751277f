//! Converts the messages of a page to a timeline with one band for each run.
//!
//! The record of tool calls contains a row for each call that the provider did not execute, with
//! its status, times and result. The messages of an *open run* are *staged*: the store contains
//! these messages, but they are not part of the history until the run is committed.
//!
//! ```text
//! messages, recorded calls, runs ─▶ bands ─▶ rows: a message, or an answer with its calls
//! ```

use std::{borrow::Cow, collections::HashMap, sync::Arc, time::SystemTime};

use tower_chat_layers::{
    Media, MediaSource, Message, Part, Role, RunId, ToolCall, ToolInvocation, ToolResult,
    ToolStatus,
    store::{ModelUsage, RunSummary, UsageSum},
};

use super::{Excerpt, PageBudget, counted, duration, moment, visible};

/// The maximum number of parts, and of calls, that the page shows of one message.
const OF_MESSAGE: usize = 100;

/// The maximum number of models for which the page shows the usage of a run.
const MODELS: usize = 20;

/// The messages of a conversation's page, grouped by run.
pub(crate) struct Timeline {
    pub(crate) bands: Vec<Band>,
}

/// Consecutive messages of one run.
pub(crate) struct Band {
    /// The id of the run. `None` if the messages have no ids.
    pub(crate) run: Option<String>,
    pub(crate) mode: Option<&'static str>,
    pub(crate) began: Option<String>,
    pub(crate) took: Option<String>,
    pub(crate) usage: Vec<UsageLine>,
    pub(crate) is_staged: bool,
    pub(crate) rows: Vec<Row>,
}

pub(crate) struct UsageLine {
    pub(crate) model: String,
    pub(crate) figures: String,
}

/// The messages that were read for a page, and the selection of those that the page shows.
pub(crate) struct Page<'p> {
    pub(crate) messages: &'p [(u64, Arc<Message>)],
    /// The number of the first staged message. All later messages are staged too.
    pub(crate) staged_from: Option<u64>,
    /// The number of the message that the page shows. `None` if the page shows all messages.
    pub(crate) only: Option<u64>,
    /// The index, from 0, of the first call that the page shows of the message `only`.
    pub(crate) from_call: usize,
}

/// A stored message, as a row of the timeline.
pub(crate) struct Row {
    pub(crate) number: u64,
    pub(crate) role: &'static str,
    pub(crate) time: Option<String>,
    pub(crate) author: Option<String>,
    pub(crate) parts: Vec<PartView>,
    pub(crate) calls: Vec<CallView>,
    /// The number of results in the message. The page shows each result next to its call, and not
    /// in this row.
    pub(crate) results: usize,
    pub(crate) bars: Vec<Bar>,
    /// The number of parts that the page does not show.
    pub(crate) hidden_parts: usize,
    /// The ordinal numbers, from 1, of the first and of the last shown call, and the total number
    /// of calls in the message.
    pub(crate) call_range: (usize, usize, usize),
}

/// A part of a message that is neither a call nor a result.
pub(crate) struct PartView {
    pub(crate) kind: &'static str,
    pub(crate) text: Excerpt,
}

/// A tool call with its status and its result.
pub(crate) struct CallView {
    pub(crate) name: String,
    pub(crate) id: Option<String>,
    pub(crate) arguments: Excerpt,
    pub(crate) status: &'static str,
    pub(crate) took: Option<String>,
    pub(crate) result: Option<Excerpt>,
    pub(crate) error: Option<Excerpt>,
    pub(crate) waits: bool,
}

/// The time in which a call ran, as a bar of a chart.
pub(crate) struct Bar {
    pub(crate) label: String,
    pub(crate) status: &'static str,
    /// The start of the call, in thousandths of the time from the first start to the last end.
    pub(crate) start: u128,
    /// The duration of the call in the unit of `start`, at least 4.
    pub(crate) width: u128,
    /// The vertical position of the bar in the chart.
    pub(crate) top: usize,
}

/// Groups consecutive messages of the same run in bands. The running time is linear.
pub(crate) fn timeline(
    page: &Page<'_>,
    invocations: &[ToolInvocation],
    runs: &[RunSummary],
) -> Timeline {
    let mut of_message: HashMap<u64, Vec<&ToolInvocation>> = HashMap::new();
    for invocation in invocations {
        of_message.entry(invocation.sequence).or_default().push(invocation);
    }
    let mut budget = PageBudget::of_page();
    let mut rows = Vec::new();
    // The loop visits the messages from the last to the first. For each message, the map contains
    // the results between this message and the next message with calls, by call id.
    let mut behind: HashMap<&str, &ToolResult> = HashMap::new();
    for (number, message) in page.messages.iter().rev() {
        if page.only.is_none_or(|only| only == *number) {
            let recorded = of_message.get(number).map(Vec::as_slice).unwrap_or_default();
            let run = message.id.map(|id| id.run);
            let row = Row::new(*number, message, recorded, &behind, page.from_call, &mut budget);
            rows.push((run, page.staged_from.is_some_and(|first| *number >= first), row));
        }
        if message.calls().next().is_some() {
            behind = HashMap::new();
        } else {
            add_results(message, &mut behind);
        }
    }
    let of_run: HashMap<RunId, &RunSummary> = runs.iter().map(|run| (run.run, run)).collect();
    let mut bands: Vec<Band> = Vec::new();
    let mut last: Option<(Option<RunId>, bool)> = None;
    for (run, is_staged, row) in rows.into_iter().rev() {
        if last != Some((run, is_staged)) {
            last = Some((run, is_staged));
            let summary = run.and_then(|run| of_run.get(&run).copied());
            bands.push(Band::new(run, is_staged, summary));
        }
        if let Some(band) = bands.last_mut() {
            band.rows.push(row);
        }
    }
    Timeline { bands }
}

/// Adds the results of a message to the map, from the last to the first. A result replaces a later
/// result of the same call, because the page shows the first result of each call.
fn add_results<'m>(message: &'m Message, results: &mut HashMap<&'m str, &'m ToolResult>) {
    let of_message: Vec<_> = message.results().collect();
    for result in of_message.into_iter().rev() {
        if let Some(id) = result.call_id.as_deref() {
            results.insert(id, result);
        }
    }
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
                .map(|run| run.usage.iter().take(MODELS).map(UsageLine::of).collect())
                .unwrap_or_default(),
            is_staged,
            rows: Vec::new(),
        }
    }

    /// Returns a text that says when the messages of the run became part of the history.
    pub(crate) fn commit_label(&self) -> &'static str {
        match (self.is_staged, self.mode) {
            (true, _) => "staged: not part of the history yet",
            (false, Some("per_service_call")) => "committed after each service call",
            (false, Some("journaled")) => "committed at the end of the run, from the journal",
            (false, Some(_)) => "committed at the end of the run",
            (false, None) => "committed",
        }
    }
}

impl UsageLine {
    fn of(usage: &ModelUsage) -> Self {
        let model = usage.model.as_deref().map_or_else(|| "unknown model".to_owned(), visible);
        Self { model, figures: figures(&usage.sum) }
    }
}

/// Formats the usage as a list of numbers for people.
pub(crate) fn figures(sum: &UsageSum) -> String {
    let tokens = &sum.tokens;
    let mut figures = vec![
        counted(&sum.service_calls, "service call"),
        counted(&sum.tool_calls, "tool call"),
        counted(&tokens.input_tokens, "input token"),
        counted(&tokens.output_tokens, "output token"),
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
        behind: &HashMap<&str, &ToolResult>,
        from_call: usize,
        budget: &mut PageBudget,
    ) -> Self {
        let parts = message.parts.iter().filter(|part| part_text(part).is_some()).count();
        let shown_parts = budget.items(parts.min(OF_MESSAGE));
        let shown = message.parts.iter().filter_map(part_text).take(shown_parts);
        let shown = shown.map(|(kind, text)| PartView { kind, text: budget.excerpt(&text) });
        let shown: Vec<_> = shown.collect();

        let calls = message.parts.iter().filter_map(asked_call).count();
        let shown_calls = budget.items(calls.saturating_sub(from_call).min(OF_MESSAGE));
        let of_index: HashMap<u32, &ToolInvocation> =
            recorded.iter().rev().map(|record| (record.sequence_index, *record)).collect();
        let mut own = HashMap::new();
        add_results(message, &mut own);
        // The record of tool calls has no rows for calls that the provider executed.
        let mut indexes = 0..;
        let asked = message.parts.iter().filter_map(asked_call).map(|(call, waits)| {
            let index = if call.provider_executed { None } else { indexes.next() };
            (call, waits, index.and_then(|index| of_index.get(&index).copied()))
        });
        let asked: Vec<_> = asked.skip(from_call).take(shown_calls).collect();
        let records: Vec<_> = asked.iter().filter_map(|(_, _, record)| *record).collect();
        let view = |(call, waits, record): (&ToolCall, bool, Option<&ToolInvocation>)| {
            let id = call.id.as_deref();
            let found = id.and_then(|id| behind.get(id).or_else(|| own.get(id)).copied());
            CallView::new(call, waits, record, found, budget)
        };
        Self {
            number,
            role: name_of(message.role),
            time: message.added_at.map(moment),
            author: message.author.as_deref().map(visible),
            parts: shown,
            calls: asked.into_iter().map(view).collect(),
            results: message.results().count(),
            bars: bars(&records),
            hidden_parts: parts - shown_parts,
            call_range: (from_call.saturating_add(1), from_call.saturating_add(shown_calls), calls),
        }
    }

    /// Returns whether the page does not show all calls of the message.
    pub(crate) fn hides_calls(&self) -> bool {
        let (_, _, all) = self.call_range;
        self.calls.len() < all
    }

    /// Returns the index, from 0, of the first call after the shown calls, if there is one.
    pub(crate) fn next_call(&self) -> Option<usize> {
        let (_, last, all) = self.call_range;
        (last < all).then_some(last)
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

/// Returns the call in a part, and whether the part is a request for its approval.
fn asked_call(part: &Part) -> Option<(&ToolCall, bool)> {
    match part {
        Part::ToolCall(call) => Some((call, false)),
        Part::ApprovalRequest(request) => Some((&request.call, true)),
        _ => None,
    }
}

/// Returns the kind and the text of a part. Returns `None` for calls, results and empty texts.
fn part_text(part: &Part) -> Option<(&'static str, Cow<'_, str>)> {
    let (kind, text): (_, Cow<'_, str>) = match part {
        Part::Text(text) if text.text.is_empty() => return None,
        Part::Text(text) => ("text", Cow::Borrowed(&text.text)),
        Part::Reasoning(reasoning) => ("reasoning", Cow::Borrowed(&reasoning.text)),
        Part::Media(media) => ("media", described(media).into()),
        Part::Error(error) => ("error", Cow::Borrowed(&error.message)),
        Part::ApprovalResponse(decision) => {
            let verdict = if decision.approved { "approved" } else { "rejected" };
            let reason = decision.reason.as_deref().map_or(String::new(), |it| format!(": {it}"));
            let arguments = decision.arguments.as_deref();
            let arguments =
                arguments.map_or(String::new(), |it| format!(" with the arguments {it}"));
            ("decision", format!("{verdict} {}{arguments}{reason}", decision.request_id).into())
        }
        Part::Native(native) => ("native", Cow::Borrowed(native.item.get())),
        _ => return None,
    };
    Some((kind, text))
}

fn described(media: &Media) -> String {
    match &media.source {
        MediaSource::Url(url) => format!("{} at {url}", media.media_type),
        MediaSource::Base64(data) => {
            format!("{}, {} in base64", media.media_type, counted(&data.len(), "byte"))
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
        budget: &mut PageBudget,
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
            arguments: budget.excerpt(&call.arguments),
            status,
            took: record.and_then(|record| elapsed(record.started_at, record.finished_at)),
            result: result.map(|result| budget.excerpt(&content(result))),
            error: record.and_then(|record| record.error.as_deref()).map(|it| budget.excerpt(it)),
            waits: waits && (record.is_none() || status == pending) && result.is_none(),
        }
    }

    /// Returns the CSS class for the status of the call.
    pub(crate) fn class(&self) -> &'static str {
        class_of(self.status)
    }
}

impl Bar {
    /// Returns the CSS class for the status of the call.
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

/// Returns one bar for each call with a start and an end, if there are at least two.
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

#[cfg(test)]
mod tests {
    use tower_chat_layers::ApprovalRequest;

    use super::*;

    fn numbered(messages: impl IntoIterator<Item = Message>) -> Vec<(u64, Arc<Message>)> {
        (1..).zip(messages.into_iter().map(Arc::new)).collect()
    }

    fn page(messages: &[(u64, Arc<Message>)]) -> Page<'_> {
        Page { messages, staged_from: None, only: None, from_call: 0 }
    }

    fn asking(timeline: Timeline) -> Vec<Row> {
        let rows = timeline.bands.into_iter().flat_map(|band| band.rows);
        rows.filter(|row| !row.calls.is_empty()).collect()
    }

    fn results(row: &Row) -> Vec<Option<&str>> {
        row.calls.iter().map(|call| call.result.as_ref().map(|it| it.text.as_str())).collect()
    }

    #[test]
    fn the_timeline_shows_the_first_result_between_a_call_and_the_next_calls() {
        let call = |id: &str| ToolCall::new(id, "look", "{}");
        let result = |id: &str, text: &str| ToolResult::new(id, text);
        let messages = numbered([
            Message::tool_calls([call("a"), call("b")]),
            Message::tool_results([result("a", "1"), result("a", "2")]),
            Message::user("Wait."),
            Message::tool_results([result("b", "3"), result("a", "4")]),
            Message::tool_calls([call("a"), call("b")]),
            Message::tool_results([result("a", "5")]),
        ]);
        let rows = asking(timeline(&page(&messages), &[], &[]));
        let found: Vec<_> = rows.iter().map(results).collect();
        assert_eq!(found, [[Some("1"), Some("3")], [Some("5"), None]]);
    }

    #[test]
    fn the_calls_of_a_long_message_are_shown_in_pages() {
        let calls = (0..100_000).map(|number| ToolCall::new(format!("c{number}"), "look", "{}"));
        let results_of = (0..100_000).map(|number| ToolResult::new(format!("c{number}"), "seen"));
        let messages = numbered([Message::tool_calls(calls), Message::tool_results(results_of)]);
        let first = asking(timeline(&page(&messages), &[], &[]));
        assert_eq!((first[0].call_range, first[0].next_call()), ((1, 100, 100_000), Some(100)));
        let last = Page { only: Some(1), from_call: 99_950, ..page(&messages) };
        let last = asking(timeline(&last, &[], &[]));
        assert_eq!((last[0].call_range, last[0].next_call()), ((99_951, 100_000, 100_000), None));
        assert!(results(&last[0]).iter().all(|result| *result == Some("seen")));
    }

    #[test]
    fn messages_with_only_requests_for_approval_are_shown_in_linear_time() {
        // The results of each request may be in any later message. A separate search for each
        // request would take quadratic time.
        let request = |number: usize| {
            let call = ToolCall::new(format!("c{number}"), "pay", "{}");
            let request = ApprovalRequest::new(format!("r{number}"), call, true);
            Message::new(Role::Assistant, vec![Part::ApprovalRequest(request)])
        };
        let messages = numbered((0..100_000).map(request));
        assert_eq!(asking(timeline(&page(&messages), &[], &[])).len(), 100_000);
    }
}
