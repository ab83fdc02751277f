//! The contract as a plain model: what a conversation holds, and what one sending of a request
//! does to it.
//!
//! It knows calls by their tokens alone. Ids, revisions, writes and leases do not occur in it.

mod entry;
mod replay;
mod sending;

use std::collections::{BTreeMap, BTreeSet};

use tower_chat::PersistenceMode;

pub(crate) use self::entry::Call;
use self::entry::{Entry, Form, Outcome};
use crate::contract_model::{
    case::Case,
    tools::{Hook, ToolMask},
};

/// What a conversation holds.
pub(crate) struct Model<'a> {
    case: &'a Case,
    /// What readers see, oldest first.
    history: Vec<(usize, Entry)>,
    /// Outcomes that are in no message, by the tokens of their calls.
    in_record_alone: BTreeMap<String, Outcome>,
    /// Outcomes of approved calls whose run then failed.
    known: BTreeMap<String, Outcome>,
    open: Option<OpenRun>,
    ended: BTreeSet<usize>,
    /// Those of them that were stopped.
    stopped: BTreeSet<usize>,
    inputs: BTreeMap<usize, RunInput>,
    /// How many answers the model has given in each run.
    answered: BTreeMap<usize, usize>,
    tools: ToolMask,
    /// From the next tool that runs on.
    tools_then: Option<ToolMask>,
}

/// A journaled run that is not committed.
struct OpenRun {
    run: usize,
    entries: Vec<Entry>,
    /// How often somebody has had it.
    attempt: u32,
    /// Its caller has disconnected.
    is_abandoned: bool,
}

/// A run's input, as its caller sends it.
#[derive(Debug, Clone)]
pub(crate) enum RunInput {
    Text,
    /// By token, in the order in which they are sent.
    Approvals {
        answers: Vec<(String, bool)>,
        has_text: bool,
    },
    /// The tokens of the calls.
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

/// What one sending of a request comes to.
#[derive(Default)]
pub(crate) struct Expected {
    /// What each service call shows the model.
    pub(crate) shown: Vec<Vec<String>>,
    /// The calls whose tools ran.
    pub(crate) ran: Vec<String>,
    pub(crate) end: Option<End>,
}

/// How the sending of a request ends.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum End {
    Answer(Vec<String>),
    /// The service failed.
    Failed,
    /// The caller dropped the response.
    Dropped,
    ApprovalMissing,
    /// A request was answered by an earlier run.
    ApprovalAnswered,
    /// The caller has not brought the results of its part of a batch.
    ResultsMissing,
    /// An approved call cannot run with what is stored of its arguments.
    ArgumentsNotKept,
    /// A call that would wait for approval cannot be stored.
    PendingCallNotKept,
    /// The run is stored with another input.
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
            ended: BTreeSet::new(),
            stopped: BTreeSet::new(),
            inputs: BTreeMap::new(),
            answered: BTreeMap::new(),
            tools: ToolMask::ALL,
            tools_then: None,
        }
    }

    /// The messages that readers see.
    pub(crate) fn stored(&self) -> Vec<String> {
        self.history.iter().flat_map(|(_, entry)| entry.texts(true)).collect()
    }

    /// The calls that wait for approval, batch by batch.
    pub(crate) fn waiting(&self) -> Vec<Vec<Call>> {
        let answered = self.answered_or_staged();
        let batch = |entry: &Entry| {
            let calls = entry.calls().filter(|call| matches!(call.form, Form::Request(_)));
            calls.filter(|call| !answered.contains(&*call.token)).cloned().collect::<Vec<_>>()
        };
        let batches = self.history.iter().map(|(_, entry)| batch(entry));
        batches.filter(|batch| !batch.is_empty()).collect()
    }

    /// The calls whose approval requests were answered.
    pub(crate) fn decided(&self) -> Vec<String> {
        let answered: BTreeSet<&str> = self.outcomes().collect();
        let calls = self.history.iter().flat_map(|(_, entry)| entry.calls());
        let requested = calls.filter(|call| matches!(call.form, Form::Request(_)));
        let decided = requested.filter(|call| answered.contains(&*call.token));
        decided.map(|call| call.token.clone()).collect()
    }

    /// The calls that nobody has run or answered, and that a caller may answer.
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

    /// The calls whose results are in the record alone, in their order.
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

    /// The record of tool calls, row by row.
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
                // Its result is not part of any message, and the call still waits.
                None if known.is_some() => format!("{} pending_approval ...", call.text(true)),
                None => {
                    let status = match call.form {
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

    /// The calls of the answers with which runs have ended, unless a tool has ended the run.
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

    /// Whether an outcome of the call is known that no message holds yet: the record may have it.
    pub(crate) fn is_known(&self, token: &str) -> bool {
        let staged = self.open.iter().flat_map(|open| &open.entries);
        self.known.contains_key(token) || outcomes(staged).any(|of| of == token)
    }

    /// Whether a request of this mode with the run's id and another input finds the run's own input,
    /// before anything else is done.
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

    /// A run begins: its input, and the tools that are registered.
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

    /// The tokens of all calls with a result that is stored or staged.
    fn answered_or_staged(&self) -> BTreeSet<&str> {
        let open = self.open.iter().flat_map(|open| &open.entries);
        self.outcomes().chain(outcomes(open)).collect()
    }

    /// The tokens of all calls with a result that readers see.
    fn outcomes(&self) -> impl Iterator<Item = &str> {
        outcomes(self.history.iter().map(|(_, entry)| entry))
    }
}

/// The tokens of the calls with results among these entries.
fn outcomes<'e>(entries: impl Iterator<Item = &'e Entry>) -> impl Iterator<Item = &'e str> {
    let results = entries.filter_map(|entry| match entry {
        Entry::Results(outcomes) => Some(outcomes),
        _ => None,
    });
    results.flatten().map(|outcome| &*outcome.token)
}
