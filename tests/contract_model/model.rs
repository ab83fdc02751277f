//! The contract as a plain model: what a conversation holds, and what one sending of a request
//! does to it.
//!
//! It knows calls by their tokens alone. Ids, revisions, writes and leases do not occur in it.

use std::collections::{BTreeMap, BTreeSet};

use tower_chat::PersistenceMode;

use crate::{
    case::{Attempt, Case, Cut, How},
    script,
    tools::{Hook, Tool, ToolMask, arguments, stored_arguments, stored_error, stored_result},
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
    inputs: BTreeMap<usize, RunInput>,
    /// How many answers the model has given in each run.
    answered: BTreeMap<usize, usize>,
    tools: ToolMask,
}

/// A journaled run that is not committed.
struct OpenRun {
    run: usize,
    entries: Vec<Entry>,
}

/// One entry of a conversation.
#[derive(Debug, Clone)]
pub(crate) enum Entry {
    Text(String),
    Approvals {
        answers: Vec<(String, bool)>,
        text: Option<String>,
    },
    /// All messages of one answer.
    Answer(Vec<Said>),
    Results(Vec<Outcome>),
}

/// One message of an answer.
#[derive(Debug, Clone)]
pub(crate) struct Said {
    text: Option<String>,
    calls: Vec<Call>,
}

#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) token: String,
    pub(crate) tool: Tool,
    hook: Hook,
    form: Form,
}

/// What a call is in the history.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Form {
    Call,
    /// A request for approval; `true` if the call's own tool needs it.
    Request(bool),
}

/// What came out of a call.
#[derive(Debug, Clone)]
pub(crate) struct Outcome {
    pub(crate) token: String,
    text: String,
    is_error: bool,
    status: &'static str,
    error: Option<String>,
    /// Its tool ran, so that start and end are known.
    ran: bool,
    hook: Hook,
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
}

/// A run under way.
struct UnderWay {
    run: usize,
    mode: PersistenceMode,
    /// Where in the history the run begins.
    begins: usize,
    entries: Vec<Entry>,
    /// How many entries were stored before this attempt: it knows them as they are stored.
    resumed: usize,
    /// How many entries are stored.
    stored: usize,
    rounds: usize,
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
            inputs: BTreeMap::new(),
            answered: BTreeMap::new(),
            tools: ToolMask::ALL,
        }
    }

    /// The messages that readers see.
    pub(crate) fn stored(&self) -> Vec<String> {
        self.history.iter().flat_map(|(_, entry)| entry.said(true)).collect()
    }

    /// The calls that wait for approval, batch by batch.
    pub(crate) fn waiting(&self) -> Vec<Vec<Call>> {
        let open = self.open.iter().flat_map(|open| &open.entries);
        let answered: BTreeSet<&str> = self.outcomes().chain(outcomes(open)).collect();
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
        let answered: BTreeSet<&str> = self.outcomes().collect();
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
        let answered: BTreeSet<&str> = self.outcomes().collect();
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

    pub(crate) fn has_ended(&self, run: usize) -> bool {
        self.ended.contains(&run)
    }

    /// A run begins: its input, and the tools that are registered.
    pub(crate) fn begin(&mut self, run: usize, input: RunInput, tools: ToolMask) {
        self.inputs.insert(run, input);
        self.tools = tools;
    }

    /// The request of a run is sent.
    pub(crate) fn send(&mut self, run: usize, attempt: &Attempt) -> Expected {
        let mut expected = Expected::default();
        let end = self.sent(run, attempt, &mut expected).unwrap_or_else(|end| end);
        expected.end = Some(end);
        expected
    }

    fn sent(&mut self, run: usize, attempt: &Attempt, trace: &mut Expected) -> Result<End, End> {
        if let Some(open) = &self.open
            && (open.run != run || attempt.mode != PersistenceMode::Journaled)
        {
            // What is open is resumed to its end first.
            let other = open.run;
            self.run(other, PersistenceMode::Journaled, attempt.cut, trace)?;
        }
        if self.ended.contains(&run) {
            let of_run = self.history.iter().filter(|(of, entry)| *of == run && entry.is_answer());
            let answer = of_run.flat_map(|(_, entry)| entry.said(true));
            return Ok(End::Answer(answer.collect()));
        }
        self.run(run, attempt.mode, attempt.cut, trace)
    }

    /// Runs to the end what is not ended yet.
    fn run(
        &mut self,
        run: usize,
        mode: PersistenceMode,
        cut: Option<Cut>,
        trace: &mut Expected,
    ) -> Result<End, End> {
        let mut under_way = self.taken_up(run, mode);
        let mut goes_on = true;
        if under_way.entries.is_empty() {
            goes_on = self.take_input(&mut under_way, trace)?;
        }
        while goes_on {
            self.show(&under_way, trace);
            if let Some(cut) = cut.filter(|cut| cut.at_call + 1 == trace.shown.len()) {
                return Err(self.cut_short(under_way, cut.how));
            }
            goes_on = self.answer(&mut under_way, trace);
        }
        Ok(self.end(under_way))
    }

    /// The run with what is stored of it.
    fn taken_up(&mut self, run: usize, mode: PersistenceMode) -> UnderWay {
        let begins = self.history.iter().position(|(of, _)| *of == run);
        let begins = begins.unwrap_or(self.history.len());
        let mut entries: Vec<Entry> =
            self.history[begins..].iter().map(|(_, entry)| entry.clone()).collect();
        if let Some(open) = self.open.take_if(|open| open.run == run) {
            entries.extend(open.entries);
        }
        let resumed = entries.len();
        let is_round = |entry: &&Entry| entry.calls().next().is_some() && !entry.is_without_calls();
        let rounds = entries.iter().filter(is_round).count();
        UnderWay { run, mode, begins, entries, resumed, stored: resumed, rounds }
    }

    /// Adds the run's input; runs what it approves. Says whether the model is to be asked.
    fn take_input(&mut self, under_way: &mut UnderWay, trace: &mut Expected) -> Result<bool, End> {
        let text = script::input_text(under_way.run);
        match self.inputs[&under_way.run].clone() {
            RunInput::Text => under_way.entries.push(Entry::Text(text)),
            RunInput::Results { tokens, has_text, from_record } => {
                let outcomes = tokens.iter().map(|token| self.late(token, from_record)).collect();
                under_way.entries.push(Entry::Results(outcomes));
                under_way.entries.extend(has_text.then_some(Entry::Text(text)));
            }
            RunInput::Approvals { answers, has_text } => {
                let decisions: BTreeMap<&str, bool> =
                    answers.iter().map(|(token, approved)| (&**token, *approved)).collect();
                let chosen: Vec<Vec<Call>> = self
                    .waiting()
                    .into_iter()
                    .filter(|batch| batch.iter().any(|call| decisions.contains_key(&*call.token)))
                    .collect();
                if chosen.iter().flatten().any(|call| !decisions.contains_key(&*call.token)) {
                    return Err(End::ApprovalMissing);
                }
                let calls: Vec<(Call, bool)> = chosen
                    .into_iter()
                    .flatten()
                    .map(|call| (call.clone(), decisions[&*call.token]))
                    .collect();
                let text = has_text.then_some(text);
                under_way.entries.push(Entry::Approvals { answers, text });
                let (outcomes, stops) = self.execute(calls, self.tools, trace);
                under_way.entries.push(Entry::Results(outcomes));
                return Ok(!stops);
            }
        }
        Ok(true)
    }

    /// The result of a call that its caller brings.
    fn late(&self, token: &str, from_record: bool) -> Outcome {
        match self.in_record_alone.get(token).filter(|_| from_record) {
            Some(outcome) => {
                Outcome { text: outcome.words(true), hook: Hook::None, ..outcome.clone() }
            }
            None => Outcome::new(token, format!("late {token}"), "ok"),
        }
    }

    /// Runs or rejects calls, in order. A tool that ends the run keeps later ones from running,
    /// unless all run at the same time. Says too whether one has.
    fn execute(
        &mut self,
        calls: Vec<(Call, bool)>,
        registered: ToolMask,
        trace: &mut Expected,
    ) -> (Vec<Outcome>, bool) {
        let mut outcomes = Vec::new();
        let mut stops = false;
        for (call, is_approved) in calls {
            let token = &*call.token;
            if let Some(known) = self.known.get(token) {
                // It has run, whatever is said now.
                outcomes.push(known.clone());
            } else if !is_approved {
                let text = format!("The call was rejected, and not run: no {token}");
                outcomes.push(Outcome::new(token, text, "rejected_by_approval"));
            } else if !registered.has(call.tool) {
                let text = format!("There is no tool named {:?}.", call.tool.name(token));
                let unknown = Outcome::new(token, text, "unknown_tool");
                outcomes.push(Outcome { is_error: true, hook: call.hook, ..unknown });
            } else if !stops || self.case.concurrent {
                trace.ran.push(call.text(false));
                outcomes.push(Outcome::of_tool(&call));
                stops |= call.tool == Tool::Stop;
            }
        }
        (outcomes, stops)
    }

    /// The model is asked.
    fn show(&self, under_way: &UnderWay, trace: &mut Expected) {
        let before = self.history[..under_way.begins].iter().map(|(_, entry)| (entry, true));
        let own = under_way.entries.iter().enumerate();
        let own = own.filter(|(at, entry)| !(*at < under_way.resumed && entry.is_without_calls()));
        let own = own.map(|(at, entry)| (entry, at < under_way.resumed));
        trace.shown.push(replay(before.chain(own)));
    }

    /// The model answers, and the tools of its answer run. Says whether it is asked again.
    fn answer(&mut self, under_way: &mut UnderWay, trace: &mut Expected) -> bool {
        let run = under_way.run;
        let index = *self.answered.entry(run).or_default();
        self.answered.insert(run, index + 1);
        let is_last_call = self.case.max_rounds.is_some_and(|most| under_way.rounds >= most);
        let told = self.tools;
        let change = self.case.steps[run].answers.get(index).and_then(|plan| plan.tools_then);
        if let Some(change) = change.filter(|change| !change.while_tool_runs) {
            self.tools = change.tools;
        }
        let scripted = script::answer(self.case, run, index);
        let kinds: Vec<Tool> =
            scripted.iter().flat_map(|said| said.calls.iter().map(|call| call.tool)).collect();
        let needs = |tool: &Tool| !is_last_call && told.has(*tool) && tool.needs_approval();
        let is_returned = |tool: &Tool| *tool == Tool::Ask && told.has(*tool);
        let requests = kinds.iter().any(needs);
        let finishes =
            kinds.is_empty() || is_last_call || requests || kinds.iter().any(is_returned);
        let call = |call: script::ScriptedCall| Call {
            form: if requests { Form::Request(needs(&call.tool)) } else { Form::Call },
            hook: if told.has(call.tool) { call.tool.hook() } else { Hook::None },
            token: call.token,
            tool: call.tool,
        };
        let said = scripted.into_iter().map(|said| Said {
            text: said.text,
            calls: said.calls.into_iter().map(call).collect(),
        });
        let said: Vec<Said> = said.collect();
        let calls: Vec<Call> = said.iter().flat_map(|said| said.calls.clone()).collect();
        under_way.entries.push(Entry::Answer(said));
        under_way.stored = under_way.entries.len();
        if finishes {
            return false;
        }
        under_way.rounds += 1;
        let ran_before = trace.ran.len();
        let calls = calls.into_iter().map(|call| (call, true)).collect();
        let (outcomes, stops) = self.execute(calls, told, trace);
        under_way.entries.push(Entry::Results(outcomes));
        if let Some(change) = change.filter(|change| change.while_tool_runs)
            && trace.ran.len() > ran_before
        {
            self.tools = change.tools;
        }
        !stops
    }

    /// A service call comes to no answer.
    fn cut_short(&mut self, under_way: UnderWay, how: How) -> End {
        let UnderWay { run, mode, begins, mut entries, stored, .. } = under_way;
        let is_dropped = matches!(how, How::Hangs | How::HangsAfter(_));
        match mode {
            PersistenceMode::Journaled => {
                entries.drain(..self.history.len() - begins);
                self.open = Some(OpenRun { run, entries });
            }
            PersistenceMode::PerServiceCall => {
                // Results of tools that have run are kept, with what stands before them.
                let keeps_all = is_dropped
                    || matches!(entries.last(), Some(Entry::Results(outcomes))
                        if outcomes.iter().any(|outcome| outcome.status != "late"));
                if !keeps_all {
                    entries.truncate(stored);
                }
                self.keep(run, begins, entries);
            }
            _ => {
                // What came out of approved calls is known, and they still wait.
                if let Some(Entry::Approvals { .. }) = entries.first()
                    && let Some(Entry::Results(outcomes)) = entries.get(1)
                {
                    let ran = outcomes.iter().filter(|outcome| outcome.ran);
                    self.known.extend(ran.map(|outcome| (outcome.token.clone(), outcome.stored())));
                }
            }
        }
        if is_dropped { End::Dropped } else { End::Failed }
    }

    /// The run is complete.
    fn end(&mut self, under_way: UnderWay) -> End {
        let UnderWay { run, begins, mut entries, resumed, .. } = under_way;
        let own = entries.iter().enumerate().filter(|(_, entry)| entry.is_answer());
        let first = matches!(self.inputs[&run], RunInput::Results { .. });
        let own = own.filter(|(at, _)| !(first && *at == 0));
        let answer = own.flat_map(|(at, entry)| entry.said(at < resumed)).collect();
        let asks = |entry: &Entry| matches!(entry, Entry::Answer(_));
        if let Some(Entry::Results(outcomes)) = entries.last()
            && entries.iter().any(asks)
        {
            // No service call has seen them.
            let trailing = outcomes.iter().map(|outcome| (outcome.token.clone(), outcome.clone()));
            self.in_record_alone.extend(trailing);
            entries.pop();
        }
        self.keep(run, begins, entries);
        self.ended.insert(run);
        End::Answer(answer)
    }

    fn keep(&mut self, run: usize, begins: usize, entries: Vec<Entry>) {
        self.history.truncate(begins);
        self.history.extend(entries.into_iter().map(|entry| (run, entry)));
        let answered: Vec<String> = self.outcomes().map(str::to_owned).collect();
        answered.iter().for_each(|token| _ = self.known.remove(token));
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

/// What the model is shown of entries, each as it is stored or as it happened: every text, and
/// every call that has a result. A call that is answered after other messages stands where its
/// result is.
pub(crate) fn replay<'e>(entries: impl Iterator<Item = (&'e Entry, bool)>) -> Vec<String> {
    struct Pair {
        token: String,
        call: String,
        result: Option<String>,
    }
    enum Item {
        Text(String),
        Pair(Pair),
    }
    let mut items: Vec<Item> = Vec::new();
    let mut calls: BTreeMap<String, String> = BTreeMap::new();
    let mut round = 0;
    let mut beside_approvals = None;
    for (entry, is_stored) in entries {
        match entry {
            Entry::Text(text) => {
                items.push(Item::Text(format!("user: {text}")));
                round = items.len();
            }
            Entry::Approvals { text: Some(text), .. } => {
                let text = Item::Text(format!("user: {text}"));
                let waits = |item: &Item| matches!(item, Item::Pair(pair) if pair.result.is_none());
                if items[round..].iter().any(waits) {
                    // It belongs to the round that waits, and stands after its results.
                    beside_approvals = Some(text);
                } else {
                    items.push(text);
                }
            }
            Entry::Approvals { text: None, .. } => {}
            Entry::Answer(said) => {
                round = items.len();
                for said in said {
                    let text =
                        said.text.iter().map(|text| Item::Text(format!("assistant: {text}")));
                    items.extend(text);
                    for call in
                        said.calls.iter().filter(|call| !(is_stored && call.hook == Hook::Drop))
                    {
                        calls.insert(call.token.clone(), call.text(is_stored));
                        let (token, call) = (call.token.clone(), call.text(is_stored));
                        items.push(Item::Pair(Pair { token, call, result: None }));
                    }
                }
            }
            Entry::Results(outcomes) => {
                for outcome in outcomes.iter().filter(|it| !(is_stored && it.hook == Hook::Drop)) {
                    let result = Some(outcome.text(is_stored));
                    let of_round = items[round..].iter_mut().find_map(|item| match item {
                        Item::Pair(pair) if pair.token == outcome.token => Some(pair),
                        _ => None,
                    });
                    match of_round {
                        Some(pair) => pair.result = result,
                        None => {
                            let token = outcome.token.clone();
                            let call = calls.get(&token).cloned().unwrap_or_default();
                            items.push(Item::Pair(Pair { token, call, result }));
                        }
                    }
                }
                items.extend(beside_approvals.take());
            }
        }
    }
    let shown = items.into_iter().filter_map(|item| match item {
        Item::Text(text) => Some(text),
        Item::Pair(Pair { call, result, .. }) => Some(format!("{call} = {}", result?)),
    });
    shown.collect()
}

impl Entry {
    fn is_answer(&self) -> bool {
        matches!(self, Self::Answer(_) | Self::Results(_))
    }

    /// Whether hooks have kept none of an answer's calls. Who resumes its run is not shown what is
    /// left of it.
    fn is_without_calls(&self) -> bool {
        let mut calls = self.calls().peekable();
        calls.peek().is_some() && calls.all(|call| call.hook == Hook::Drop)
    }

    fn calls(&self) -> impl Iterator<Item = &Call> {
        let said = match self {
            Self::Answer(said) => &said[..],
            _ => &[],
        };
        said.iter().flat_map(|said| &said.calls)
    }

    /// The entry's messages, as they are stored or as they happened.
    fn said(&self, is_stored: bool) -> Vec<String> {
        let message = |role: &str, parts: Vec<String>| {
            (!parts.is_empty()).then(|| format!("{role} {}", parts.join(" | ")))
        };
        let text = |text: &String| format!("text {text}");
        match self {
            Self::Text(of) => message("user", vec![text(of)]).into_iter().collect(),
            Self::Approvals { answers, text: of } => {
                let answers = answers.iter().map(|(token, is)| format!("approval {token} {is}"));
                message("user", answers.chain(of.iter().map(text)).collect()).into_iter().collect()
            }
            Self::Answer(said) => {
                let said = said.iter().filter_map(|said| {
                    let calls = said.calls.iter();
                    let calls = calls.filter(|call| !(is_stored && call.hook == Hook::Drop));
                    let calls = calls.map(|call| match call.form {
                        Form::Call => format!("call {}", call.text(is_stored)),
                        Form::Request(needs) => format!("ask {} {needs}", call.text(is_stored)),
                    });
                    message("assistant", said.text.iter().map(text).chain(calls).collect())
                });
                said.collect()
            }
            Self::Results(outcomes) => {
                let kept = outcomes.iter().filter(|it| !(is_stored && it.hook == Hook::Drop));
                let results = kept.map(|outcome| format!("result {}", outcome.text(is_stored)));
                message("tool", results.collect()).into_iter().collect()
            }
        }
    }
}

impl Call {
    fn text(&self, is_stored: bool) -> String {
        let hides = is_stored && matches!(self.hook, Hook::Arguments | Hook::Both);
        let arguments = if hides { stored_arguments(&self.token) } else { arguments(&self.token) };
        format!("{}({arguments})", self.tool.name(&self.token))
    }
}

impl Outcome {
    fn new(token: &str, text: String, status: &'static str) -> Self {
        let token = token.to_owned();
        Self { token, text, is_error: false, status, error: None, ran: false, hook: Hook::None }
    }

    fn of_tool(call: &Call) -> Self {
        let token = &*call.token;
        let outcome = match call.tool {
            tool if tool.fails() => Self {
                is_error: true,
                error: Some(format!("broken {token}")),
                ..Self::new(token, format!("The tool failed: broken {token}"), "error")
            },
            Tool::Stop => Self::new(token, format!("stopped {token}"), "ok"),
            _ => Self::new(token, format!("found {token}"), "ok"),
        };
        Self { ran: true, hook: call.tool.hook(), ..outcome }
    }

    /// The outcome as whoever reads it from the store knows it.
    fn stored(&self) -> Self {
        let hides = matches!(self.hook, Hook::Result | Hook::Both);
        let error = self.error.clone();
        let error = error.map(|it| if hides { stored_error(&self.token) } else { it });
        Self { text: self.words(true), error, ..self.clone() }
    }

    fn words(&self, is_stored: bool) -> String {
        let hides = is_stored && matches!(self.hook, Hook::Result | Hook::Both);
        if hides { stored_result(&self.token) } else { self.text.clone() }
    }

    /// Marked if it is an error.
    fn text(&self, is_stored: bool) -> String {
        format!("{}{}", self.words(is_stored), if self.is_error { "!" } else { "" })
    }

    fn row(&self, call: &Call) -> String {
        let error = self.error.as_ref().map(|error| match self.hook {
            Hook::Result | Hook::Both => stored_error(&self.token),
            Hook::None | Hook::Arguments | Hook::Drop => error.clone(),
        });
        format!(
            "{} {} [{}] error={error:?} ran={}",
            call.text(true),
            self.status,
            self.text(true),
            self.ran
        )
    }
}
