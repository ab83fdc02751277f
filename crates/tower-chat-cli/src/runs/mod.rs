//! `tower-chat runs`.
//!
//! The messages of an *open run* are *staged*: the store contains these messages, but they are not
//! part of the history yet. The *lease* of an open run is the time until which no other process may
//! continue or end the run.

mod conversation;

use std::{process::ExitCode, time::SystemTime};

use serde::Serialize;
use tower_chat::{
    ConversationKey, HistoryStore,
    recovery::{CallState, OpenRunReport, ReportedCall, open_run},
    store::{Journal, OpenRun},
};

use crate::{
    arguments::RunsArguments,
    error::CliError,
    output::{Lines, print_error, table},
    store::{OpenedStore, scopes},
};

/// Lists the open runs of a store, or all runs of a conversation.
pub(crate) async fn runs(arguments: RunsArguments) -> Result<ExitCode, CliError> {
    let store = arguments.store.open_to_read("list").await?;
    if let Some((scope, id)) = arguments.of_scope.zip(arguments.id) {
        let key = ConversationKey::new(scope, id);
        return conversation::print(&store, &key, arguments.json).await;
    }
    let now = SystemTime::now();
    let mut listed = Vec::new();
    let mut is_damaged = false;
    for key in open_runs(&store, arguments.scope, arguments.conversation.as_deref()).await? {
        match open_run(store.history(), &key).await {
            // The run may have ended after it was listed.
            Ok(report) => listed.extend(report.map(|report| ListedRun::of(&report, now))),
            Err(error) if error.is_damage() => {
                is_damaged = true;
                print_error(&CliError::OpenRun { key: key.clone(), source: error });
                let open = store.history().head(&key).await.ok().and_then(|head| head.open_run);
                listed.extend(open.map(|open| ListedRun::without_content(&key, &open, now)));
            }
            Err(source) => return Err(CliError::OpenRun { key, source }),
        }
    }
    let mut lines = Lines::default();
    if arguments.json {
        listed.iter().for_each(|run| lines.write_json(&run.to_json()));
    } else if listed.is_empty() {
        lines.write("no open runs");
    } else {
        let heading = [
            "conversation",
            "run",
            "seconds",
            "held",
            "messages",
            "done",
            "failed",
            "never started",
            "unknown",
        ];
        let mut rows = vec![heading.map(str::to_owned)];
        rows.extend(listed.iter().map(ListedRun::to_row));
        table(&rows).iter().for_each(|line| lines.write(line));
    }
    lines.finish().map_err(CliError::Output)?;
    Ok(ExitCode::from(u8::from(is_damaged)))
}

/// Returns the keys of the conversations with an open run, ordered by scope and then by id.
pub(crate) async fn open_runs(
    store: &OpenedStore,
    scope: Option<String>,
    conversation: Option<&str>,
) -> Result<Vec<ConversationKey>, CliError> {
    const PAGE: usize = 1000;
    let mut runs: Vec<ConversationKey> = Vec::new();
    for scope in scopes(store, scope).await? {
        let mut after: Option<String> = None;
        loop {
            let page = store.history().open_runs(&scope, after.as_deref(), PAGE).await;
            let page = page.map_err(|source| CliError::List { scope: scope.clone(), source })?;
            let Some(last) = page.last() else { break };
            after = Some(last.id().to_owned());
            let is_asked_for = |id: &str| conversation.is_none_or(|asked| id == asked);
            runs.extend(page.into_iter().filter(|key| is_asked_for(key.id())));
        }
    }
    Ok(runs)
}

#[derive(Debug, Serialize)]
struct ListedRun {
    scope: String,
    conversation: String,
    run: String,
    attempt: u32,
    open_seconds: u64,
    /// Whether a process may have a lease on the run.
    held: bool,
    /// The number of staged messages, or `None` if the staged messages are unreadable.
    messages: Option<usize>,
    done: usize,
    failed: usize,
    never_started: usize,
    unknown: usize,
    calls: Vec<ListedCall>,
}

#[derive(Debug, Serialize)]
struct ListedCall {
    tool: String,
    call_id: String,
    state: &'static str,
}

impl ListedRun {
    fn of(report: &OpenRunReport, now: SystemTime) -> Self {
        let count = |state| report.calls.iter().filter(|call| call.state == state).count();
        let OpenRunReport { key, open, messages, calls, .. } = report;
        Self {
            messages: Some(messages.len()),
            done: count(CallState::Done),
            failed: count(CallState::Failed),
            never_started: count(CallState::NeverStarted),
            unknown: count(CallState::Unknown),
            calls: calls.iter().map(ListedCall::of).collect(),
            ..Self::without_content(key, open, now)
        }
    }

    /// Creates the entry for a run whose staged messages are unreadable.
    fn without_content(key: &ConversationKey, open: &OpenRun, now: SystemTime) -> Self {
        Self {
            scope: key.scope().to_owned(),
            conversation: key.id().to_owned(),
            run: open.run.to_string(),
            attempt: open.lease.attempt,
            open_seconds: now.duration_since(open.opened_at).map_or(0, |since| since.as_secs()),
            held: open.is_held_at(now),
            messages: None,
            done: 0,
            failed: 0,
            never_started: 0,
            unknown: 0,
            calls: Vec::new(),
        }
    }

    fn to_json(&self) -> String {
        #[allow(clippy::expect_used, reason = "texts and numbers have a JSON form")]
        serde_json::to_string(self).expect("it has a JSON form")
    }

    fn to_row(&self) -> [String; 9] {
        [
            format!("{}/{}", self.scope, self.conversation),
            self.run.clone(),
            self.open_seconds.to_string(),
            if self.held { "yes" } else { "no" }.to_owned(),
            self.messages.map_or_else(|| "damaged".to_owned(), |messages| messages.to_string()),
            self.done.to_string(),
            self.failed.to_string(),
            self.never_started.to_string(),
            self.unknown.to_string(),
        ]
    }
}

impl ListedCall {
    fn of(call: &ReportedCall) -> Self {
        let state = match call.state {
            CallState::Done => "done",
            CallState::Failed => "failed",
            CallState::NeverStarted => "never_started",
            CallState::Unknown => "unknown",
        };
        Self { tool: call.tool.clone(), call_id: call.call_id.clone(), state }
    }
}
