//! What the sending of a request does to a conversation.

use std::collections::BTreeMap;

use tower_chat::PersistenceMode;

use super::{
    End, Expected, Model, OpenRun, RunInput,
    entry::{Call, Entry, Form, Outcome, Said},
    replay::replay,
};
use crate::{
    case::{Attempt, Cut, How},
    script,
    tools::{Hook, Tool, ToolMask},
};

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

impl Model<'_> {
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
                if answers.iter().any(|(token, _)| self.is_settled(token)) {
                    return Err(End::ApprovalAnswered);
                }
                let calls: Vec<(Call, bool)> = chosen
                    .into_iter()
                    .flatten()
                    .map(|call| (call.clone(), decisions[&*call.token]))
                    .collect();
                let text = has_text.then_some(text);
                under_way.entries.push(Entry::Approvals { answers, text });
                let (outcomes, stops) = self.execute(calls, self.tools, trace);
                // Of what has its result already, nothing comes again.
                let results = (!outcomes.is_empty()).then_some(Entry::Results(outcomes));
                under_way.entries.extend(results);
                return Ok(!stops);
            }
        }
        Ok(true)
    }

    /// Whether a call has its result, and the model has said something since.
    fn is_settled(&self, token: &str) -> bool {
        let has_result = |entry: &Entry| match entry {
            Entry::Results(outcomes) => outcomes.iter().any(|outcome| outcome.token == token),
            _ => false,
        };
        let mut since = self.history.iter().skip_while(|(_, entry)| !has_result(entry));
        since.any(|(_, entry)| matches!(entry, Entry::Answer(_)))
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
}
