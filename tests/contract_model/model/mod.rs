//! The contract as a plain model. [`Model`] computes the content of a conversation and the effect
//! of each request. In all other comments of this folder, "the model" is the language model.
//!
//! [`Model`] identifies calls only by their tokens, and has no ids, revisions, writes or leases.
//! The record is the stored rows about calls. A journaled run is open until it is committed or
//! discarded, and its staged entries are not visible. An attempt sends the request of a run once. A
//! hook of a tool changes or drops what is stored of a call.

mod branches;
mod compaction;
mod entry;
mod media;
mod replay;
mod sending;
mod summaries;

use std::collections::{BTreeMap, BTreeSet};

use tower_chat::PersistenceMode;

pub(crate) use self::{
    branches::{BranchEnd, NotAsked},
    entry::Call,
    summaries::Changed,
};
use self::{
    entry::{Entry, Form, Outcome},
    summaries::Summary,
};
use crate::contract_model::{
    approvals::Decision,
    case::Case,
    compaction::Service,
    script::UserMessage,
    tools::{Hook, ToolMask},
};

#[derive(Clone)]
pub(crate) struct Model<'a> {
    case: &'a Case,
    /// The visible entries, oldest first.
    history: Vec<(usize, Entry)>,
    /// The outcomes that are only in the record and in no message, by the tokens of their calls.
    in_record_alone: BTreeMap<String, Outcome>,
    /// The recorded outcomes of approved calls whose run has failed afterwards, before a message
    /// contained them.
    known: BTreeMap<String, Outcome>,
    open: Option<OpenRun>,
    /// The calls that are not approved, because they waited for approval when the branch was
    /// created.
    not_approved: BTreeSet<String>,
    ended: BTreeSet<usize>,
    /// The calls of rounds that ended a run, if the stored messages do not show this end.
    ended_by_tool: BTreeSet<String>,
    stopped: BTreeSet<usize>,
    inputs: BTreeMap<usize, RunInput>,
    /// The number of answers of the model in each run.
    answered: BTreeMap<usize, usize>,
    tools: ToolMask,
    tools_then: Option<ToolMask>,
    /// The service that answers the current attempt.
    service: Service,
    /// The summaries. Each covers more entries than the one before.
    summaries: Vec<Summary>,
    /// The number of requests that the service that writes summaries has received.
    written: usize,
}

/// A journaled run that is not committed.
#[derive(Clone)]
struct OpenRun {
    run: usize,
    entries: Vec<Entry>,
    attempt: u32,
    /// Whether the caller of the run has disconnected.
    is_abandoned: bool,
}

#[derive(Debug, Clone)]
pub(crate) enum RunInput {
    Text,
    /// The message of an earlier run is sent again.
    Again(UserMessage),
    /// Approvals and rejections by token, in the order in which they are sent.
    Approvals {
        answers: Vec<(String, Decision)>,
        has_text: bool,
    },
    /// The tokens of the calls whose results the caller sends.
    Results {
        tokens: Vec<String>,
        has_text: bool,
        from_record: bool,
    },
}

impl RunInput {
    fn has_text_after_results(&self) -> bool {
        matches!(self, Self::Results { has_text: true, .. })
    }
}

#[derive(Default)]
pub(crate) struct Expected {
    /// The messages of each request to the service that writes summaries.
    pub(crate) summarized: Vec<Vec<String>>,
    /// The messages of each service call.
    pub(crate) shown: Vec<Vec<String>>,
    pub(crate) ran: Vec<String>,
    pub(crate) end: Option<End>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum End {
    Answer(Vec<String>),
    Failed,
    Dropped,
    ApprovalMissing,
    /// An earlier run has already answered one of the approval requests.
    ApprovalAnswered,
    /// An answer contains calls that the caller must execute, and their results are missing.
    ResultsMissing,
    /// An approved call cannot run, because a hook has changed its stored arguments.
    ArgumentsNotKept,
    /// A call needs approval, but a hook does not allow it to be stored.
    PendingCallNotKept,
    /// The store contains a run with the same id and another input.
    RunIdReused,
}

impl<'a> Model<'a> {
    pub(crate) fn new(case: &'a Case) -> Self {
        Self {
            case,
            history: Vec::new(),
            in_record_alone: BTreeMap::new(),
            known: BTreeMap::new(),
            open: None,
            not_approved: BTreeSet::new(),
            ended: BTreeSet::new(),
            ended_by_tool: BTreeSet::new(),
            stopped: BTreeSet::new(),
            inputs: BTreeMap::new(),
            answered: BTreeMap::new(),
            tools: ToolMask::ALL,
            tools_then: None,
            service: Service::First,
            summaries: Vec::new(),
            written: 0,
        }
    }

    pub(crate) fn stored(&self) -> Vec<String> {
        self.history.iter().flat_map(|(_, entry)| entry.texts(true)).collect()
    }

    /// Returns the calls that wait for approval, in one list for each answer.
    pub(crate) fn waiting(&self) -> Vec<Vec<Call>> {
        let answered = self.answered_or_staged();
        let batch = |entry: &Entry| {
            let calls = entry.calls().filter(|call| matches!(call.form, Form::Request(_)));
            let waits =
                |token: &str| !answered.contains(token) && !self.not_approved.contains(token);
            calls.filter(|call| waits(&call.token)).cloned().collect::<Vec<_>>()
        };
        let batches = self.history.iter().map(|(_, entry)| batch(entry));
        batches.filter(|batch| !batch.is_empty()).collect()
    }

    pub(crate) fn decided(&self) -> Vec<String> {
        let answered: BTreeSet<&str> = self.outcomes().collect();
        let calls = self.history.iter().flat_map(|(_, entry)| entry.calls());
        let requested = calls.filter(|call| matches!(call.form, Form::Request(_)));
        let decided = requested.filter(|call| answered.contains(&*call.token));
        decided.map(|call| call.token.clone()).collect()
    }

    pub(crate) fn returned(&self) -> Vec<String> {
        let answered = self.answered_or_staged();
        let calls = self.history.iter().flat_map(|(_, entry)| entry.calls());
        let open = calls.filter(|call| {
            call.form == Form::Call
                && call.hook == Hook::None
                && call.tool.hook() == Hook::None
                && !answered.contains(&*call.token)
                && !self.in_record_alone.contains_key(&call.token)
        });
        open.map(|call| call.token.clone()).collect()
    }

    pub(crate) fn pending_results(&self) -> Vec<String> {
        let answered = self.answered_or_staged();
        let calls = self.history.iter().flat_map(|(_, entry)| entry.calls());
        let pending = calls.filter(|call| {
            call.hook != Hook::Drop
                && !answered.contains(&*call.token)
                && self.in_record_alone.contains_key(&call.token)
        });
        pending.map(|call| call.token.clone()).collect()
    }

    pub(crate) fn record(&self) -> Vec<String> {
        let entries = || self.history.iter().map(|(_, entry)| entry);
        let mut outcomes: BTreeMap<&str, &Outcome> =
            self.in_record_alone.iter().map(|(token, outcome)| (&**token, outcome)).collect();
        for entry in entries() {
            if let Entry::Results(results) = entry {
                outcomes.extend(results.iter().map(|outcome| (&*outcome.token, outcome)));
            }
        }
        let returned = self.returned_by_last_answers();
        let kept = entries().flat_map(Entry::calls).filter(|call| call.hook != Hook::Drop);
        kept.map(|call| {
            let known = self.known.get(&call.token);
            match outcomes.get(&*call.token) {
                Some(outcome) => outcome.row(call),
                // The call is pending although the outcome of its tool is known.
                None if known.is_some() => format!("{} pending_approval ...", call.text(true)),
                None => {
                    let status = match call.form {
                        _ if self.not_approved.contains(&call.token) => "rejected_by_approval",
                        Form::Call if returned.contains(&*call.token) => "returned",
                        Form::Call => "pending",
                        Form::Request(_) => "pending_approval",
                    };
                    format!("{} {status} [] error=None ran=false", call.text(true))
                }
            }
        })
        .collect()
    }

    /// Returns the calls in the last answer of each run that has ended, but not by a tool.
    fn returned_by_last_answers(&self) -> BTreeSet<&str> {
        let last_of_run = |(at, (run, _)): &(usize, &(usize, Entry))| {
            self.ended.contains(run) && self.history[at + 1..].iter().all(|(of, _)| of != run)
        };
        let last = self.history.iter().enumerate().filter(last_of_run);
        let answers = last.map(|(_, (_, entry))| entry).filter(|entry| {
            !entry.calls().any(|call| self.in_record_alone.contains_key(&call.token))
        });
        answers.flat_map(Entry::calls).map(|call| &*call.token).collect()
    }

    /// Returns whether the record may already contain an outcome of the call that no visible
    /// message contains.
    pub(crate) fn is_known(&self, token: &str) -> bool {
        let staged = self.open.iter().flat_map(|open| &open.entries);
        self.known.contains_key(token) || outcomes(staged).any(|of| of == token)
    }

    /// Returns whether a request in this mode is refused if it has the id of this run but another
    /// input.
    pub(crate) fn has_input_of(&self, run: usize, mode: PersistenceMode) -> bool {
        let is_found = match &self.open {
            None => true,
            Some(open) => open.run == run && mode == PersistenceMode::Journaled,
        };
        let staged = self.open.iter().filter(|open| open.run == run);
        let staged = staged.flat_map(|open| &open.entries);
        let stored = self.history.iter().filter(|(of, _)| *of == run).map(|(_, entry)| entry);
        let input = stored.chain(staged).next();
        is_found && matches!(input, Some(Entry::Text(_) | Entry::Approvals { .. }))
    }

    pub(crate) fn has_ended(&self, run: usize) -> bool {
        self.ended.contains(&run)
    }

    pub(crate) fn begin(&mut self, run: usize, input: RunInput, tools: ToolMask) {
        self.inputs.insert(run, input);
        self.tools = tools;
    }

    fn keep(&mut self, run: usize, begins: usize, entries: Vec<Entry>) {
        self.history.truncate(begins);
        self.history.extend(entries.into_iter().map(|entry| (run, entry)));
        let answered: Vec<String> = self.outcomes().map(str::to_owned).collect();
        answered.iter().for_each(|token| _ = self.known.remove(token));
    }

    fn answered_or_staged(&self) -> BTreeSet<&str> {
        let open = self.open.iter().flat_map(|open| &open.entries);
        self.outcomes().chain(outcomes(open)).collect()
    }

    fn outcomes(&self) -> impl Iterator<Item = &str> {
        outcomes(self.history.iter().map(|(_, entry)| entry))
    }
}

fn outcomes<'e>(entries: impl Iterator<Item = &'e Entry>) -> impl Iterator<Item = &'e str> {
    let results = entries.filter_map(|entry| match entry {
        Entry::Results(outcomes) => Some(outcomes),
        _ => None,
    });
    results.flatten().map(|outcome| &*outcome.token)
}
