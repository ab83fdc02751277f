//! The matrix of cases: a scenario is written once, and runs in every case to which it applies.
//!
//! A [`Case`] consists of a persistence mode, whole or streamed answers, a store, and the kind of
//! ids that the model gives its tool calls:
//!
//! - [`every_case`] runs a scenario in each mode, whole and streamed, in memory and in SQLite.
//! - [`every_id`] also varies the kind of ids.
//! - A test excludes cases from [`Cases`], with a reason.
//!
//! If a case fails, the other cases still run, and the failure message contains the names of all
//! failed cases. `TOWER_CHAT_CASE` selects the cases whose names contain its value, such as
//! `journaled, streamed`.

use std::{any::Any, fmt, panic::AssertUnwindSafe};

use futures_util::FutureExt;
use tower_chat::{Message, PersistenceMode, ToolCall, ToolResult};

mod shown;

pub(crate) use shown::{label, labelled, shorts, shorts_after};

pub(crate) const MODES: [PersistenceMode; 3] =
    [PersistenceMode::PerRun, PersistenceMode::PerServiceCall, PersistenceMode::Journaled];

/// The store of the conversation. Servers are tested with the store contract instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Backend {
    Memory,
    Sqlite,
}

/// The ids that the model gives its tool calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ids {
    Distinct,
    Equal,
    Missing,
    Empty,
}

impl Ids {
    pub(crate) const ALL: [Self; 4] = [Self::Distinct, Self::Equal, Self::Missing, Self::Empty];

    pub(crate) fn of(self, label: &str) -> Option<String> {
        match self {
            Self::Distinct => Some(label.to_owned()),
            Self::Equal => Some("same".to_owned()),
            Self::Missing => None,
            Self::Empty => Some(String::new()),
        }
    }
}

/// One case of the matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Case {
    pub(crate) mode: PersistenceMode,
    pub(crate) streamed: bool,
    pub(crate) backend: Backend,
    pub(crate) ids: Ids,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mode = match self.mode {
            PersistenceMode::PerRun => "per run",
            PersistenceMode::PerServiceCall => "per service call",
            PersistenceMode::Journaled => "journaled",
        };
        let way = if self.streamed { "streamed" } else { "whole" };
        write!(f, "{mode}, {way}, {:?}, {:?} ids", self.backend, self.ids)
    }
}

impl Case {
    /// Returns a call with a label in its arguments. The label identifies the call even if its id
    /// is missing or shared.
    pub(crate) fn tool_call(self, name: &str, label: &str) -> ToolCall {
        let mut call = ToolCall::without_id(name, labelled(label));
        call.id = self.ids.of(label);
        call
    }

    /// Returns a message with these tool calls, each given as `(name, label)`.
    pub(crate) fn call_message<const N: usize>(self, calls: [(&str, &str); N]) -> Message {
        Message::tool_calls(calls.map(|(name, label)| self.tool_call(name, label)))
    }

    pub(crate) fn result(self, label: &str, text: &str) -> ToolResult {
        let mut result = ToolResult::new("", text);
        result.call_id = self.ids.of(label);
        result
    }

    pub(crate) fn is(self, mode: PersistenceMode) -> bool {
        self.mode == mode
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Cases {
    cases: Vec<Case>,
    /// Why cases were excluded.
    reasons: Vec<&'static str>,
}

impl Cases {
    /// Returns every mode, whole and streamed, in memory and in SQLite, with distinct ids.
    pub(crate) fn all() -> Self {
        let mut cases = Vec::new();
        for mode in MODES {
            for streamed in [false, true] {
                for backend in [Backend::Memory, Backend::Sqlite] {
                    cases.push(Case { mode, streamed, backend, ids: Ids::Distinct });
                }
            }
        }
        Self { cases, reasons: Vec::new() }
    }

    /// Adds cases with the other kinds of ids. In memory, each case runs with each kind. A case in
    /// SQLite takes ten times as long, and runs only with distinct ids and with one other kind.
    #[must_use]
    pub(crate) fn with_all_ids(mut self) -> Self {
        let kinds = |case: &Case| match case.backend {
            Backend::Memory => Ids::ALL.to_vec(),
            Backend::Sqlite => {
                let mode = MODES.iter().position(|mode| *mode == case.mode).unwrap_or_default();
                let other = (mode + usize::from(case.streamed)) % 3;
                vec![Ids::Distinct, Ids::ALL[1 + other]]
            }
        };
        let of_case = |case: Case| kinds(&case).into_iter().map(move |ids| Case { ids, ..case });
        self.cases = self.cases.into_iter().flat_map(of_case).collect();
        self
    }

    /// Excludes the cases to which the scenario does not apply, with the reason.
    #[must_use]
    pub(crate) fn only(mut self, reason: &'static str, concerns: impl Fn(&Case) -> bool) -> Self {
        self.cases.retain(concerns);
        self.reasons.push(reason);
        self
    }

    #[must_use]
    pub(crate) fn modes<const N: usize>(
        self,
        modes: [PersistenceMode; N],
        reason: &'static str,
    ) -> Self {
        self.only(reason, |case| modes.contains(&case.mode))
    }

    /// Restricts the scenario to the modes in which a failed write leaves no run open.
    #[must_use]
    pub(crate) fn unless_journaled(self) -> Self {
        let reason = "in journaled mode, a failed write fails the call, and the run remains open";
        self.only(reason, |case| case.mode != PersistenceMode::Journaled)
    }

    /// Restricts a scenario with a paused tokio clock to the memory store. The paused clock
    /// advances to the next timeout when all tasks wait, even if one waits for a thread of SQLite.
    #[must_use]
    pub(crate) fn with_a_stopped_clock(self) -> Self {
        self.only("tokio's clock is paused", |case| case.backend == Backend::Memory)
    }

    #[must_use]
    pub(crate) fn in_memory(self, reason: &'static str) -> Self {
        self.only(reason, |case| case.backend == Backend::Memory)
    }

    /// Restricts the scenario to streamed answers.
    #[must_use]
    pub(crate) fn streamed(self, reason: &'static str) -> Self {
        self.only(reason, |case| case.streamed)
    }

    #[must_use]
    pub(crate) fn whole(self, reason: &'static str) -> Self {
        self.only(reason, |case| !case.streamed)
    }

    /// Runs the scenario in each case, and panics with the names of all cases that failed.
    pub(crate) async fn check(self, scenario: impl AsyncFn(Case)) {
        assert!(!self.cases.is_empty(), "all cases are excluded: {:?}", self.reasons);
        let chosen = std::env::var("TOWER_CHAT_CASE").unwrap_or_default();
        let mut failed = Vec::new();
        for case in self.cases.iter().filter(|case| case.to_string().contains(&chosen)) {
            if let Err(panic) = AssertUnwindSafe(scenario(*case)).catch_unwind().await {
                failed.push(format!("{case}: {}", message(&*panic)));
            }
        }
        let (count, all) = (failed.len(), self.cases.len());
        assert!(failed.is_empty(), "failed in {count} of {all} cases:\n{}", failed.join("\n"));
    }
}

/// Runs a scenario in every mode, whole and streamed, in memory and in SQLite.
pub(crate) async fn every_case(scenario: impl AsyncFn(Case)) {
    Cases::all().check(scenario).await;
}

pub(crate) async fn every_id(scenario: impl AsyncFn(Case)) {
    Cases::all().with_all_ids().check(scenario).await;
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("not a text")
}
