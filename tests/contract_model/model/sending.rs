//! Computes the effect of a request on the conversation. A batch is the calls of one answer, and a
//! round is a batch with its results. An attempt is one execution of a run. A journaled run is open
//! until it is committed or discarded, and its staged entries are not visible. A hook of a tool
//! changes or drops what is stored of a call.

mod input;

use std::collections::BTreeSet;

use tower_chat::PersistenceMode;

use super::{
    End, Expected, Model, OpenRun, RunInput,
    compaction::received,
    entry::{AnswerMessage, Call, Entry, Form, Outcome},
    outcomes,
    replay::replay,
    summaries::InForce,
};
use crate::contract_model::{
    approvals::Decision,
    case::{AnswerPlan, Attempt, Cut, How},
    media, script,
    tools::{Hook, Tool, ToolMask},
};

/// The number of attempts after which an error of unknown retryability counts as permanent.
const ATTEMPTS: u32 = 3;

/// A run in progress.
struct ActiveRun {
    run: usize,
    mode: PersistenceMode,
    begins: usize,
    entries: Vec<Entry>,
    /// The number of entries that were stored before this attempt, which sends them in their stored
    /// form.
    resumed: usize,
    attempt: u32,
    rounds: usize,
    /// All tools that were registered during this attempt. Their hooks are also called after they
    /// were unregistered.
    had: ToolMask,
    /// Whether a tool has stopped the run.
    is_stopped: bool,
    /// The summary that was in force when the attempt began.
    summary: Option<InForce>,
}

struct Executed {
    outcomes: Vec<Outcome>,
    /// The cause, if this round has ended the run.
    end: Option<EndOfRound>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum EndOfRound {
    /// A tool has ended the run with its result.
    Tool,
    /// A tool has stopped the run through its handle.
    Stop,
}

/// Returns the results of the approved calls of a run, unless an answer or another input follows
/// them.
fn of_approved(entries: &mut [Entry]) -> Option<&mut Entry> {
    let [Entry::Approvals { .. }, results, rest @ ..] = entries else { return None };
    let has_results = matches!(results, Entry::Results(_));
    let is_queued = |entry: &Entry| matches!(entry, Entry::Queued(_));
    (has_results && rest.iter().all(is_queued)).then_some(results)
}

impl ActiveRun {
    /// Returns whether the last answer requests approval of a call that its hook does not allow to
    /// be stored.
    fn is_not_kept(&self) -> bool {
        let is_dropped =
            |call: &Call| matches!(call.form, Form::Request(_)) && call.hook == Hook::Drop;
        self.entries.last().is_some_and(|entry| entry.calls().any(is_dropped))
    }
}

impl Model<'_> {
    pub(crate) fn send(&mut self, run: usize, attempt: &Attempt) -> Expected {
        let mut expected = Expected::default();
        self.service = attempt.service;
        let end = self.sent(run, attempt, &mut expected).unwrap_or_else(|end| end);
        expected.end = Some(end);
        expected
    }

    fn sent(&mut self, run: usize, attempt: &Attempt, trace: &mut Expected) -> Result<End, End> {
        if let Some(open) = &self.open
            && (open.run != run || attempt.mode != PersistenceMode::Journaled)
        {
            // The open run is first resumed, or committed if its caller has disconnected.
            let (other, is_abandoned) = (open.run, open.is_abandoned && open.run != run);
            if is_abandoned {
                let open = self.open.take();
                open.into_iter().for_each(|open| self.commit_as_it_is(open));
            } else {
                self.recover(other, attempt.cut, trace)?;
            }
        }
        if self.ended.contains(&run) {
            return Ok(End::Answer(self.stored_answer(run)));
        }
        self.run(run, attempt.mode, attempt.cut, trace)
    }

    /// Resumes an open run and runs it to its end. If it fails permanently, its staged entries are
    /// committed.
    fn recover(&mut self, run: usize, cut: Option<Cut>, trace: &mut Expected) -> Result<(), End> {
        let end = match self.run(run, PersistenceMode::Journaled, cut, trace) {
            // In the error cases, the approved calls cannot run, and the staged input is discarded.
            Ok(_) | Err(End::ArgumentsNotKept | End::ResultsMissing) => return Ok(()),
            Err(end) => end,
        };
        if self.open.as_ref().is_some_and(|open| open.attempt < ATTEMPTS) || end != End::Failed {
            return Err(end);
        }
        let open = self.open.take();
        open.into_iter().for_each(|open| self.commit_as_it_is(open));
        Ok(())
    }

    fn commit_as_it_is(&mut self, open: OpenRun) {
        let OpenRun { run, mut entries, .. } = open;
        if let Some(Entry::Results(outcomes)) = of_approved(&mut entries) {
            let outcomes = std::mem::take(outcomes);
            let (waiting, reported) = self.waiting_and_reported(outcomes);
            let ran = waiting.into_iter().filter(|outcome| outcome.ran);
            self.known.extend(ran.map(|outcome| (outcome.token.clone(), outcome.stored())));
            entries.truncate(1);
            let queued: Vec<_> = reported.iter().filter_map(|it| it.queued.clone()).collect();
            entries.extend((!reported.is_empty()).then_some(Entry::Results(reported)));
            entries.extend(queued.into_iter().map(Entry::Queued));
        }
        self.keep(run, self.history.len(), entries);
    }

    /// Separates the outcomes into two lists. The first list has the outcomes of batches that remain
    /// pending, because the tool of one of their calls is not registered.
    fn waiting_and_reported(&self, outcomes: Vec<Outcome>) -> (Vec<Outcome>, Vec<Outcome>) {
        let has_not_begun = |token: &str| {
            outcomes.iter().any(|it| it.token == token && it.status == "unknown_tool")
        };
        let batches = self.history.iter().map(|(_, entry)| entry.calls().collect::<Vec<_>>());
        let waiting = batches.filter(|batch| batch.iter().any(|call| has_not_begun(&call.token)));
        let waiting: BTreeSet<String> = waiting.flatten().map(|call| call.token.clone()).collect();
        outcomes.into_iter().partition(|outcome| waiting.contains(&outcome.token))
    }

    /// Returns the answer of an ended run: its stored entries, and the results of its last round
    /// that only the record contains.
    fn stored_answer(&self, run: usize) -> Vec<String> {
        let of_run = self.history.iter().filter(|(of, _)| *of == run).map(|(_, entry)| entry);
        let input = usize::from(matches!(self.inputs[&run], RunInput::Results { .. }));
        let answer = of_run.skip(input).filter(|entry| entry.is_answer());
        let last = answer.clone().last().into_iter().flat_map(Entry::calls);
        let recorded = last.filter_map(|call| self.in_record_alone.get(&call.token));
        let recorded = Entry::Results(recorded.cloned().collect());
        answer.chain([&recorded]).flat_map(|entry| entry.texts(true)).collect()
    }

    fn run(
        &mut self,
        run: usize,
        mode: PersistenceMode,
        cut: Option<Cut>,
        trace: &mut Expected,
    ) -> Result<End, End> {
        let mut active_run = self.begun_or_resumed(run, mode);
        let takes_input = matches!(&active_run.entries[..], [] | [Entry::Approvals { .. }]);
        if takes_input {
            self.chosen_batches(run)?;
        }
        self.use_summary(&mut active_run, trace);
        let mut continues = true;
        if takes_input {
            active_run.entries.clear();
            continues = self.take_input(&mut active_run, trace)?;
        } else if active_run.entries.len() == 1 && self.inputs[&run].has_text_after_results() {
            active_run.entries.push(Entry::Text(script::input(self.case, run)));
        }
        while continues {
            self.show(&active_run, trace);
            if let Some(cut) = cut.filter(|cut| cut.at_call + 1 == trace.shown.len()) {
                let is_dropped = matches!(cut.how, How::Hangs | How::HangsAfter(_));
                let end = if is_dropped { End::Dropped } else { End::Failed };
                return Err(self.cut_short(active_run, end));
            }
            continues = self.answer(&mut active_run, trace);
            if active_run.is_not_kept() {
                active_run.entries.pop();
                return Err(self.cut_short(active_run, End::PendingCallNotKept));
            }
        }
        Ok(self.end(active_run))
    }

    fn begun_or_resumed(&mut self, run: usize, mode: PersistenceMode) -> ActiveRun {
        let begins = self.history.iter().position(|(of, _)| *of == run);
        let begins = begins.unwrap_or(self.history.len());
        let mut entries: Vec<Entry> =
            self.history[begins..].iter().map(|(_, entry)| entry.clone()).collect();
        let mut attempt = 1;
        if let Some(open) = self.open.take_if(|open| open.run == run) {
            entries.extend(open.entries);
            attempt += open.attempt;
            if of_approved(&mut entries).is_some() {
                // Calls that have already run are not repeated, because their outcomes are in
                // `known`. The others are executed with the tools that are registered now.
                self.know(&entries);
                entries.truncate(1);
            }
        }
        let resumed = entries.len();
        let is_round = |entry: &&Entry| entry.calls().next().is_some() && !entry.is_without_calls();
        // Without the layer for runs, the tool loop counts the rounds of each attempt from 0.
        let rounds =
            if self.case.has_run_layer { entries.iter().filter(is_round).count() } else { 0 };
        ActiveRun {
            run,
            mode,
            begins,
            entries,
            resumed,
            attempt,
            rounds,
            had: self.tools,
            is_stopped: false,
            summary: None,
        }
    }

    /// Makes summaries, if necessary, and uses the one that is then in force. A run makes none if
    /// it continues after an answer, or if it is a resumed journaled run.
    fn use_summary(&mut self, active_run: &mut ActiveRun, trace: &mut Expected) {
        let ActiveRun { run, begins, resumed, attempt, .. } = *active_run;
        let has_answers = active_run.entries.iter().any(|it| matches!(it, Entry::Answer(_)));
        if attempt == 1 && !has_answers {
            trace.summarized.extend(self.summarize_before(run, begins, resumed));
        }
        active_run.summary = self.in_force();
    }

    /// Executes or rejects calls, in order. After a tool that stops the run, no call is executed.
    /// After a tool that ends the run, later calls are executed only if the calls of a round are
    /// concurrent.
    fn execute(
        &mut self,
        calls: Vec<(Call, Decision)>,
        registered: ToolMask,
        trace: &mut Expected,
    ) -> Executed {
        let mut outcomes = Vec::new();
        let (mut ends, mut stops) = (false, false);
        for (call, decision) in calls {
            let token = &*call.token;
            if let Some(known) = self.known.get(token) {
                // The tool of this call has already run. The decision has no effect.
                outcomes.push(known.clone());
            } else if !decision.is_approved() {
                let text = format!("The call was rejected, and not run: no {token}");
                outcomes.push(Outcome::new(token, text, "rejected_by_approval"));
            } else if !registered.has(call.tool) {
                let text = format!("There is no tool named {:?}.", call.tool.name(token));
                let unknown = Outcome::new(token, text, "unknown_tool");
                outcomes.push(Outcome { is_error: true, hook: call.hook, ..unknown });
            } else if stops {
                let stopped = Outcome::stopped(&call);
                outcomes.push(match call.form {
                    // The call is already stored. A hook can no longer drop it.
                    Form::Request(_) => Outcome { hook: call.tool.hook().of_result(), ..stopped },
                    Form::Call => stopped,
                });
            } else if !ends || self.case.concurrent {
                // An approved call runs with its stored arguments, or with those of its decision.
                trace.ran.push(match decision.arguments() {
                    Some(arguments) => format!("{}({arguments})", call.tool.name(token)),
                    None => call.text(matches!(call.form, Form::Request(_))),
                });
                self.tools = self.tools_then.take().unwrap_or(self.tools);
                let medium = media::of_tool(self.case, token);
                outcomes.push(match call.form {
                    Form::Request(_) => Outcome::of_approved(&call, &decision, medium),
                    Form::Call => Outcome::of_tool(&call, medium),
                });
                ends |= call.tool == Tool::Stop;
                stops |= call.tool == Tool::Halt;
            }
        }
        let end = match (ends, stops) {
            (true, _) => Some(EndOfRound::Tool),
            (false, true) => Some(EndOfRound::Stop),
            (false, false) => None,
        };
        Executed { outcomes, end }
    }

    /// Adds the outcomes of a round, and the messages that its tools have queued. If a tool ends
    /// the run, the queued messages are not added.
    fn add_results(&mut self, active_run: &mut ActiveRun, executed: Executed) {
        let Executed { outcomes, end } = executed;
        let queued: Vec<Entry> = match end {
            Some(EndOfRound::Tool) => Vec::new(),
            Some(EndOfRound::Stop) | None => {
                outcomes.iter().filter_map(|it| it.queued.clone()).map(Entry::Queued).collect()
            }
        };
        active_run.entries.push(Entry::Results(outcomes));
        active_run.entries.extend(queued);
        active_run.is_stopped = end == Some(EndOfRound::Stop);
    }

    /// Adds the messages of the next service call to the expected effect.
    fn show(&self, active_run: &ActiveRun, trace: &mut Expected) {
        let begins = active_run.begins;
        let before = self.history[..begins].iter().enumerate();
        let before = before.map(|(index, (run, entry))| (index, *run, entry, true));
        let own = active_run.entries.iter().enumerate();
        let own = own.filter(|(at, entry)| !(*at < active_run.resumed && entry.is_without_calls()));
        let run = active_run.run;
        let own = own.map(|(at, entry)| (begins + at, run, entry, at < active_run.resumed));
        let stored = &active_run.entries[..active_run.resumed];
        let interrupted = self.interrupted(&self.history[..begins], stored);
        let summary = active_run.summary.as_ref();
        let shown = replay(before.chain(own), &interrupted, summary);
        let shown = received(self.without_old_media(shown, begins), self.service);
        trace.shown.push(shown.into_iter().map(|shown| shown.text).collect());
    }

    /// Returns the calls of rounds that ended their run, without the replay detecting this end. The
    /// replay reads the record for calls without a result, to find out whether a tool ended the
    /// run. It does not read the record if a later message contains results for all calls of the
    /// round. A run in per-run mode marks its end in the stored messages instead.
    pub(super) fn interrupted<'h>(
        &self,
        before: &'h [(usize, Entry)],
        own: &'h [Entry],
    ) -> BTreeSet<&'h str> {
        let before = before.iter().map(|(_, entry)| entry);
        let answered: BTreeSet<&str> = outcomes(before.clone().chain(own)).collect();
        let stored = |entry: &'h Entry| entry.calls().filter(|call| call.hook != Hook::Drop);
        let rounds = before.map(|entry| stored(entry).map(|call| &*call.token).collect());
        let ended = rounds.filter(|round: &Vec<&str>| {
            round.iter().any(|token| self.ended_by_tool.contains(*token))
                && round.iter().all(|token| answered.contains(token))
        });
        ended.flatten().collect()
    }

    /// Adds an answer of the model, and executes its calls. Returns whether another service call
    /// follows.
    fn answer(&mut self, active_run: &mut ActiveRun, trace: &mut Expected) -> bool {
        let run = active_run.run;
        let index = *self.answered.entry(run).or_default();
        self.answered.insert(run, index + 1);
        let is_last_call = self.case.max_rounds.is_some_and(|max| active_run.rounds >= max);
        let tools = self.tools;
        active_run.had = active_run.had.or(tools);
        let had = active_run.had;
        let change = self.case.steps[run].answers.get(index).and_then(|plan| plan.tools_then);
        self.tools_then = change.filter(|it| it.while_tool_runs).map(|change| change.tools);
        if let Some(change) = change.filter(|change| !change.while_tool_runs) {
            self.tools = change.tools;
        }
        let scripted = script::answer(self.case, run, index, self.service);
        let kinds: Vec<Tool> =
            scripted.iter().flat_map(|answer| answer.calls.iter().map(|call| call.tool)).collect();
        let needs = |tool: &Tool| !is_last_call && tools.has(*tool) && tool.needs_approval();
        let is_returned = |tool: &Tool| *tool == Tool::Ask && tools.has(*tool);
        let requests = kinds.iter().any(needs);
        let finishes =
            kinds.is_empty() || is_last_call || requests || kinds.iter().any(is_returned);
        let call = |call: script::ScriptedCall| Call {
            form: match requests && !is_returned(&call.tool) {
                true => Form::Request(needs(&call.tool)),
                false => Form::Call,
            },
            hook: if had.has(call.tool) { call.tool.hook() } else { Hook::None },
            is_over_limit: is_last_call,
            token: call.token,
            tool: call.tool,
        };
        let answers = scripted.into_iter().map(|answer| AnswerMessage {
            text: answer.text,
            compaction: answer.compaction,
            calls: answer.calls.into_iter().map(call).collect(),
        });
        let answers: Vec<AnswerMessage> = answers.collect();
        let calls: Vec<Call> = answers.iter().flat_map(|answer| answer.calls.clone()).collect();
        active_run.entries.push(Entry::Answer(answers));
        let plan = self.case.steps[run].answers.get(index);
        if plan.is_some_and(AnswerPlan::is_paused) {
            return true;
        }
        if finishes {
            return false;
        }
        active_run.rounds += 1;
        let calls = calls.into_iter().map(|call| (call, Decision::Approved)).collect();
        let executed = self.execute(calls, tools, trace);
        let continues = executed.end.is_none();
        self.add_results(active_run, executed);
        continues
    }

    fn cut_short(&mut self, active_run: ActiveRun, end: End) -> End {
        let ActiveRun { run, mode, begins, mut entries, attempt, .. } = active_run;
        let is_dropped = end == End::Dropped;
        match mode {
            PersistenceMode::Journaled => {
                let has_answers = entries.iter().any(|entry| matches!(entry, Entry::Answer(_)));
                let is_refused = end == End::Failed && attempt >= ATTEMPTS && !has_answers;
                entries.drain(..self.history.len() - begins);
                if !entries.is_empty() {
                    let open = OpenRun { run, entries, attempt, is_abandoned: is_dropped };
                    match is_refused {
                        true => self.commit_as_it_is(open),
                        false => self.open = Some(open),
                    }
                }
            }
            PersistenceMode::PerServiceCall => self.keep(run, begins, entries),
            _ => {
                self.know(&entries);
            }
        }
        end
    }

    fn know(&mut self, entries: &[Entry]) {
        if let [Entry::Approvals { .. }, Entry::Results(outcomes), ..] = entries {
            let ran = outcomes.iter().filter(|outcome| outcome.ran);
            self.known.extend(ran.map(|outcome| (outcome.token.clone(), outcome.stored())));
        }
    }

    fn end(&mut self, active_run: ActiveRun) -> End {
        let ActiveRun { run, mode, begins, mut entries, resumed, is_stopped, .. } = active_run;
        let own = entries.iter().enumerate().filter(|(_, entry)| entry.is_answer());
        let first = matches!(self.inputs[&run], RunInput::Results { .. });
        let own = own.filter(|(at, _)| !(first && *at == 0));
        // Without the layer for runs, the answer contains only the entries of this attempt.
        let own = own.filter(|(at, _)| self.case.has_run_layer || *at >= resumed);
        let answer = own.flat_map(|(at, entry)| entry.texts(at < resumed)).collect();
        let asks = |entry: &Entry| matches!(entry, Entry::Answer(_));
        if is_stopped {
            self.stopped.insert(run);
        } else if let Some(Entry::Results(outcomes)) = entries.last()
            && entries.iter().any(asks)
        {
            let trailing = outcomes.iter().map(|outcome| (outcome.token.clone(), outcome.clone()));
            if mode != PersistenceMode::PerRun {
                self.ended_by_tool.extend(outcomes.iter().map(|outcome| outcome.token.clone()));
            }
            self.in_record_alone.extend(trailing);
            entries.pop();
        }
        self.keep(run, begins, entries);
        self.ended.insert(run);
        End::Answer(answer)
    }
}
