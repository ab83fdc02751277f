//! The matrix of cases: a scenario is written once, and runs in every case that it can concern.
//!
//! A [`Case`] is a mode of persistence, an answer whole or streamed, a store, and the kind of ids
//! that the model gives its calls. [`every_case`] runs a scenario in each mode, whole and streamed,
//! in memory and in SQLite, [`every_id`] with each kind of ids; [`Cases`] leaves cases out and says why. All
//! cases run, and a failure names those that failed; `TOWER_CHAT_CASE` runs alone the cases whose
//! names contain its value, for example `journaled, streamed`.

use std::{any::Any, fmt, panic::AssertUnwindSafe};

use futures_util::FutureExt;
use tower_chat::{Message, PersistenceMode, ToolCall, ToolResult};

mod shown;

pub(crate) use shown::{label, labelled, shorts, shorts_after};

pub(crate) const MODES: [PersistenceMode; 3] =
    [PersistenceMode::PerRun, PersistenceMode::PerServiceCall, PersistenceMode::Journaled];

/// Where the conversation is stored. Servers are tested by the contract of stores alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Backend {
    Memory,
    Sqlite,
}

/// The ids that the model gives its calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ids {
    Distinct,
    Equal,
    Missing,
    Empty,
}

impl Ids {
    pub(crate) const ALL: [Self; 4] = [Self::Distinct, Self::Equal, Self::Missing, Self::Empty];

    /// The id of the call with this label.
    pub(crate) fn of(self, label: &str) -> Option<String> {
        match self {
            Self::Distinct => Some(label.to_owned()),
            Self::Equal => Some("same".to_owned()),
            Self::Missing => None,
            Self::Empty => Some(String::new()),
        }
    }
}

/// One cell of the matrix.
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
    /// A call whose arguments name it, so that it is known whatever its id is.
    pub(crate) fn tool_call(self, name: &str, label: &str) -> ToolCall {
        let mut call = ToolCall::without_id(name, labelled(label));
        call.id = self.ids.of(label);
        call
    }

    /// A message that calls tools: `(name, label)` each.
    pub(crate) fn call_message<const N: usize>(self, calls: [(&str, &str); N]) -> Message {
        Message::tool_calls(calls.map(|(name, label)| self.tool_call(name, label)))
    }

    /// A result that the caller gives for the call with this label.
    pub(crate) fn result(self, label: &str, text: &str) -> ToolResult {
        let mut result = ToolResult::new("", text);
        result.call_id = self.ids.of(label);
        result
    }

    /// What is so in one mode alone.
    pub(crate) fn is(self, mode: PersistenceMode) -> bool {
        self.mode == mode
    }
}

/// The cases of a scenario.
#[derive(Debug, Clone)]
pub(crate) struct Cases {
    cases: Vec<Case>,
    /// Why some are left out.
    reasons: Vec<&'static str>,
}

impl Cases {
    /// Every mode, whole and streamed, in memory and in SQLite. The ids of calls are distinct.
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

    /// With every kind of ids as well: all of them in memory, and in SQLite, where a case costs ten
    /// times as much, one kind beside distinct ids in each mode and way, so that each kind occurs.
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

    /// Without the cases that the scenario does not concern, and the reason why it does not.
    #[must_use]
    pub(crate) fn only(mut self, reason: &'static str, concerns: impl Fn(&Case) -> bool) -> Self {
        self.cases.retain(concerns);
        self.reasons.push(reason);
        self
    }

    /// In some modes alone.
    #[must_use]
    pub(crate) fn modes<const N: usize>(
        self,
        modes: [PersistenceMode; N],
        reason: &'static str,
    ) -> Self {
        self.only(reason, |case| modes.contains(&case.mode))
    }

    /// In the modes in which a write that fails leaves no run open.
    #[must_use]
    pub(crate) fn unless_journaled(self) -> Self {
        let reason = "a journaled write that fails fails the call, and the run stays open";
        self.only(reason, |case| case.mode != PersistenceMode::Journaled)
    }

    /// In memory alone, for scenarios that stop tokio's clock: it jumps to the next timeout as soon
    /// as every task waits, and tasks that wait for a thread of SQLite wait too.
    #[must_use]
    pub(crate) fn with_a_stopped_clock(self) -> Self {
        self.only("tokio's clock is stopped", |case| case.backend == Backend::Memory)
    }

    /// In memory alone.
    #[must_use]
    pub(crate) fn in_memory(self, reason: &'static str) -> Self {
        self.only(reason, |case| case.backend == Backend::Memory)
    }

    /// Streamed alone: what a scenario does between the updates of an answer.
    #[must_use]
    pub(crate) fn streamed(self, reason: &'static str) -> Self {
        self.only(reason, |case| case.streamed)
    }

    /// Whole alone.
    #[must_use]
    pub(crate) fn whole(self, reason: &'static str) -> Self {
        self.only(reason, |case| !case.streamed)
    }

    /// Runs the scenario in each of the cases, and fails with all that failed.
    pub(crate) async fn check(self, scenario: impl AsyncFn(Case)) {
        assert!(!self.cases.is_empty(), "no case is left: {:?}", self.reasons);
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

/// Runs a scenario in every case, and with every kind of ids.
pub(crate) async fn every_id(scenario: impl AsyncFn(Case)) {
    Cases::all().with_all_ids().check(scenario).await;
}

/// The text of a panic.
fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("not a text")
}
