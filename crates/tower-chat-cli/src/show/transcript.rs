//! Prints a conversation for people.
//!
//! The messages of an *open run* are *staged*: the store contains these messages, but they are not
//! part of the history yet.

use std::time::SystemTime;

use tower_chat::{Part, Role, ToolCall, ToolResult, run::RunId, store::OpenRun};
use tower_chat_explain::Explained;

use super::{
    conversation::{StoredCall, StoredConversation, StoredMessage, StoredResult},
    part::{PrintedPart, content_text},
    text::{CutText, in_line},
};
use crate::{
    figures::{in_words, json_line},
    output::{Lines, counted},
    time::{between, readable, seconds},
};

/// Formats a conversation as lines. Each line of stored text begins with a bar, so that stored text
/// cannot imitate a heading.
pub(super) struct Transcript<'a> {
    found: &'a StoredConversation,
    is_full: bool,
    lines: Vec<String>,
}

impl<'a> Transcript<'a> {
    pub(super) fn of(found: &'a StoredConversation, is_full: bool) -> Self {
        let mut transcript = Self { found, is_full, lines: Vec::new() };
        transcript.add_heading();
        let mut run = None;
        for message in &found.messages {
            let of_message = message.message.id.map(|id| id.run);
            if run != Some(of_message) {
                transcript.add_run(of_message);
                run = Some(of_message);
            }
            transcript.add_message(message);
        }
        transcript.add_partial_answer();
        transcript.add_pending_approvals();
        transcript
    }

    pub(super) fn print(self, lines: &mut Lines) {
        self.lines.iter().for_each(|line| lines.write(line));
    }

    fn add(&mut self, line: impl Into<String>) {
        self.lines.push(line.into());
    }

    fn add_heading(&mut self) {
        let summary = &self.found.summary;
        let title = summary.description.title().map(|title| format!(": {title}"));
        let (messages, runs) = (summary.messages, summary.runs);
        self.add(format!("conversation {}{}", summary.key, title.unwrap_or_default()));
        self.add(format!(
            "{}; {}, {}; {}",
            summary.state,
            counted(messages, "message"),
            counted(runs, "run"),
            in_words(&summary.usage)
        ));
        let (created, active) = (readable(summary.created_at), readable(summary.last_active_at));
        self.add(format!("created {created}, last active {active}"));
        if !summary.description.metadata().is_empty() {
            let metadata = json_line(summary.description.metadata());
            self.add(format!("metadata {}", in_line(&metadata)));
        }
        if let Some(service_id) = &self.found.head.service_id {
            self.add(format!("the service stores the history as {}", in_line(service_id)));
        }
        if let Some(parent) = &summary.parent {
            let key = in_line(&parent.key.to_string());
            self.add(format!("a branch of {key}, forked after message #{}", parent.position));
        }
        if self.found.head.pruned > 0 {
            self.add(format!("messages up to #{} were pruned", self.found.head.pruned));
        }
        if let Some(summary) = &self.found.in_force {
            let model = summary.made_by.as_deref().map(|model| format!(" by {}", in_line(model)));
            let (model, time) = (model.unwrap_or_default(), readable(summary.at));
            let covered = summary.covers_to;
            self.add(format!("the model receives this summary{model} instead of messages up to #{covered}, {time}"));
            self.add_lines("    | ", &summary.text);
        }
        if let Some(earlier) = self.found.earlier {
            self.add(format!("there are earlier messages: --before {earlier}"));
        }
    }

    fn add_run(&mut self, run: Option<RunId>) {
        self.add("");
        let Some(run) = run else { return self.add("messages without a run") };
        let Some(of_run) = self.found.runs.get(&run) else {
            return self.add(format!("run {run}, which is not in the directory"));
        };
        let mode = of_run.mode.map(|mode| format!(", {mode}")).unwrap_or_default();
        let wall = between(Some(of_run.started_at()), Some(of_run.last_written_at));
        let wall = wall.map(|wall| format!(", {}", seconds(wall))).unwrap_or_default();
        let mut lines = vec![format!("run {run}{mode}, {}{wall}", readable(of_run.started_at()))];
        for used in &of_run.usage {
            let model = used.model.as_deref().unwrap_or("unknown model");
            lines.push(format!("  {model}: {}", in_words(&used.sum)));
        }
        let open = self.found.open.as_ref().filter(|open| open.run == run);
        lines.extend(open.map(|open| format!("  {}", open_text(open))));
        self.lines.extend(lines);
    }

    fn add_message(&mut self, stored: &StoredMessage) {
        let message = &stored.message;
        let author = message.author.as_deref().map(|author| format!(" {}", in_line(author)));
        let round = stored.calls.first().map(|call| format!(", round {}", call.round));
        let time = message.time().map(|time| format!(", {}", readable(time)));
        self.add(format!(
            "  #{} {}{}{}{}{}",
            stored.number,
            role(message.role),
            author.unwrap_or_default(),
            if stored.is_staged { ", staged" } else { "" },
            time.unwrap_or_default(),
            round.unwrap_or_default(),
        ));
        self.add_reasons(stored, None);
        let (mut calls, mut results, mut paired) = (stored.calls.iter(), 0, 0);
        for (index, part) in message.parts.iter().enumerate() {
            match part {
                Part::ToolCall(call) if call.provider_executed => {
                    self.add(format!("    call {}, run by the provider", named(call)));
                    self.add_text("arguments", &call.arguments);
                }
                Part::ToolCall(call) => self.add_call(call, None, calls.next()),
                Part::ApprovalRequest(request) => {
                    self.add_call(&request.call, Some(&request.id), calls.next());
                }
                Part::ToolResult(result) => {
                    let is_paired = stored.paired_results.contains(&results);
                    results += 1;
                    if is_paired {
                        // The reasons for a paired result are printed with its call.
                        paired += 1;
                        continue;
                    }
                    self.add_result(result);
                }
                other => self.add_part(other),
            }
            self.add_reasons(stored, Some(index));
        }
        if paired > 0 {
            self.add(format!("    {}, printed with the calls", counted(paired, "result")));
        }
    }

    /// Adds the reasons why the next request to the model would change or omit this part, or the
    /// whole message if `part` is `None`.
    fn add_reasons(&mut self, stored: &StoredMessage, part: Option<usize>) {
        let Some(explained) = &stored.explained else { return };
        let reasons = explained.reasons().iter().filter(|reason| reason.part == part);
        let lines: Vec<String> = reasons.map(|reason| format!("    ! {}", reason.kind)).collect();
        if part.is_none() && matches!(explained, Explained::LeftOut { .. }) {
            self.add("    ! nothing of it is sent to the model");
        }
        self.lines.extend(lines);
    }

    fn add_call(&mut self, call: &ToolCall, approval: Option<&str>, stored: Option<&StoredCall>) {
        let status = stored.map(|it| format!(", {}", it.status)).unwrap_or_default();
        let approval = approval.map(|id| format!(", approval {id}")).unwrap_or_default();
        let taken = stored.and_then(|it| between(it.started_at, it.finished_at));
        let taken = match (taken, stored.and_then(|it| it.started_at)) {
            (Some(taken), _) => format!(", {}", seconds(taken)),
            (None, Some(started)) => format!(", started {}", readable(started)),
            (None, None) => String::new(),
        };
        self.add(format!("    call {}{status}{approval}{taken}", named(call)));
        self.add_text("arguments", &call.arguments);
        let Some(stored) = stored else { return };
        if let Some(StoredResult { number, result, reasons }) = &stored.result {
            let what = if result.is_error { "error" } else { "result" };
            let label = number.map(|number| format!("{what} #{number}"));
            let label = label.as_deref().unwrap_or(what);
            self.add_text(label, &content_text(&result.content, self.is_full));
            if number.is_none() {
                self.add("      it is in the record of tool calls alone");
            }
            self.lines.extend(reasons.iter().map(|reason| format!("      ! {reason}")));
        }
        if let Some(error) = &stored.error {
            self.add_text("failure", error);
        }
    }

    /// Adds a result whose call is not on the page.
    fn add_result(&mut self, result: &ToolResult) {
        let what = if result.is_error { "error" } else { "result" };
        let id = result.call_id.as_deref().map(|id| format!(" of {id}")).unwrap_or_default();
        let text = content_text(&result.content, self.is_full);
        self.add(format!("    {what}{}", in_line(&id)));
        self.add_lines("      | ", &text);
    }

    fn add_part(&mut self, part: &Part) {
        let PrintedPart { label, text } = PrintedPart::of(part, self.is_full);
        let margin = if label.is_some() { "      | " } else { "    | " };
        self.lines.extend(label.map(|label| format!("    {label}")));
        if let Some(text) = text {
            self.add_lines(margin, &text);
        }
    }

    /// Adds a text. The label precedes the first line of the text.
    fn add_text(&mut self, label: &str, text: &str) {
        let from = self.lines.len();
        self.add_lines("                | ", text);
        if let Some(first) = self.lines.get_mut(from) {
            let (_, text) = first.split_once('|').unwrap_or_default();
            *first = format!("      {label:<10}|{text}");
        }
    }

    fn add_lines(&mut self, margin: &str, text: &str) {
        let CutText { lines, note } = CutText::of(text, self.is_full);
        self.lines.extend(lines.into_iter().map(|line| format!("{margin}{line}")));
        let indent = margin.trim_end_matches("| ");
        self.lines.extend(note.map(|note| format!("{indent}{note}")));
    }

    /// Adds the staged beginning of an answer that was interrupted.
    fn add_partial_answer(&mut self) {
        let open = self.found.open.as_ref();
        if let Some(text) = open.and_then(|open| open.partial_text.clone()) {
            self.add("  the beginning of an answer, staged");
            self.add_lines("    | ", &text);
        }
    }

    /// Adds the calls that wait for approval but are in messages outside of the page.
    fn add_pending_approvals(&mut self) {
        let pending = self.found.head.pending_approvals.iter().flatten();
        let is_printed = |id: &str| {
            let parts = self.found.messages.iter().flat_map(|stored| &stored.message.parts);
            parts.into_iter().any(|it| matches!(it, Part::ApprovalRequest(it) if it.id == id))
        };
        let elsewhere: Vec<_> = pending.filter(|request| !is_printed(&request.id)).collect();
        if elsewhere.is_empty() {
            return;
        }
        self.add("");
        self.add("waiting for approval, in messages that are not printed");
        for request in elsewhere {
            self.add(format!("    call {}, approval {}", named(&request.call), request.id));
            self.add_text("arguments", &request.call.arguments);
        }
    }
}

fn role(role: Role) -> &'static str {
    match role {
        Role::System => "system",
        Role::Developer => "developer",
        Role::User => "user",
        Role::Assistant => "assistant",
        Role::Tool => "tool",
        _ => "another role",
    }
}

fn named(call: &ToolCall) -> String {
    let id = call.id.as_deref().map(|id| format!(" ({})", in_line(id))).unwrap_or_default();
    format!("{}{id}", in_line(&call.name))
}

fn open_text(open: &OpenRun) -> String {
    let attempt = open.lease.attempt;
    let held = match open.lease.until.time() {
        Some(until) if open.is_held_at(SystemTime::now()) => {
            format!("its lease ends at {}", readable(until))
        }
        _ => "no process has its lease".to_owned(),
    };
    format!("open: its messages are staged, attempt {attempt}, {held}")
}
