//! Tests each cell of the table in `docs/contract.md`, and generated sequences of events.

use std::time::{Duration, UNIX_EPOCH};

use tower_chat_core::{
    ConversationKey, MessageId, RunId, ToolCall, ToolResult,
    store::{Revision, author::Write},
};

use super::*;
use crate::{
    replay::Truncation,
    run::{
        call_records::CallRecords,
        conversation::LoadedConversation,
        effect::{Effect, RunWrite},
        journaled::Journal,
        recording::{Adopted, Recording},
    },
    tool::ToolReport,
};

const MODES: [PersistenceMode; 3] =
    [PersistenceMode::PerRun, PersistenceMode::PerServiceCall, PersistenceMode::Journaled];

fn run() -> RunId {
    RunId::from_bytes([7; 16])
}

/// Returns the log of a run to which no event was applied.
fn log(mode: PersistenceMode) -> RunLog {
    let mut conversation = LoadedConversation::empty(run());
    conversation.revision = Revision { incarnation: 1, sequence: 0 };
    let mut log = RunLog::new(mode, conversation, CallRecords::default());
    let journal = || Box::new(Journal::new(1, Duration::ZERO, UNIX_EPOCH, 0));
    log.journal = (mode == PersistenceMode::Journaled).then(journal);
    log
}

/// Applies the effect of an event to the run log, as if the store accepted each write. Returns the
/// summary of the effect.
fn take(log: &mut RunLog, effect: Effect) -> String {
    let wording = summary(&effect);
    if let (Effect::Leave(until), Some(journal)) = (&effect, log.journal.as_deref_mut()) {
        journal.leave_until(*until);
    }
    let write = match effect {
        Effect::Write(write) => write,
        Effect::AddUnsubmitted(messages, adopted) => {
            log.conversation.add_unsubmitted(messages, adopted, None);
            return wording;
        }
        Effect::Nothing | Effect::Leave(_) => return wording,
    };
    let RunWrite { messages, left_out, close, starts, outcomes, is_as_stored, .. } = *write;
    let messages = log.conversation.added.assign_ids(messages, is_as_stored, None);
    let revision = log.conversation.revision;
    let truncation = Truncation::default();
    let mut records =
        log.call_records.compose(&log.conversation, &messages, &left_out, None, truncation).records;
    log.call_records.outcome_rows(&log.conversation, &outcomes, truncation, &mut records);
    log.start_rows(&starts, &messages, (UNIX_EPOCH, None), &mut records);
    messages.iter().for_each(|message| log.conversation.replay.push(message));
    let id = log.conversation.added.next_id();
    let write = Write::new(ConversationKey::new("a", "b"), id, revision, messages.clone());
    log.conversation.revision = write.result();
    log.conversation.added.push_submitted(messages);
    if let Some(journal) = log.journal.as_deref_mut() {
        journal.started.extend(&starts);
        journal.stage(write, records.into_rows(), close, None);
    }
    wording
}

/// Returns a short description of the write in an effect.
fn summary(effect: &Effect) -> String {
    let write = match effect {
        // In per-run mode, a service call adds its messages to the run log and writes nothing.
        Effect::Nothing | Effect::AddUnsubmitted(..) => return "-".to_owned(),
        Effect::Leave(LeaseEnd::NotHeld) => return "leaves".to_owned(),
        Effect::Leave(LeaseEnd::Abandoned) => return "abandons".to_owned(),
        Effect::Leave(LeaseEnd::At(_)) => return "leaves until".to_owned(),
        Effect::Write(write) => write,
    };
    let texts = |messages: &[Arc<Message>]| -> Vec<String> {
        let of_results = |message: &Message| message.results().map(ToolResult::text).collect();
        messages
            .iter()
            .map(|message| match message.role {
                Role::Tool => of_results(message),
                _ if message.calls().next().is_some() => "calls".to_owned(),
                _ => message.text(),
            })
            .collect()
    };
    let mut wording = texts(&write.messages);
    wording.extend(texts(&write.left_out).into_iter().map(|text| format!("apart {text}")));
    wording
        .extend(write.outcomes.iter().map(|(_, result, _)| format!("outcome {}", result.text())));
    wording.extend(write.rows.iter().map(|row| format!("row {}", row.status.as_str())));
    wording.extend(write.starts.iter().map(|(_, index)| format!("start {index}")));
    wording.extend(write.ends_run.then(|| "ends".to_owned()));
    wording.extend(write.ended_by.map(|by| format!("by {by:?}")));
    wording.extend(write.close.map(|close| match close {
        Close::Commit => "commit".to_owned(),
        Close::Discard { .. } => "discard".to_owned(),
    }));
    wording.join(", ")
}

/// Returns, for each mode, the summary of the write that follows `event` after the events `before`.
fn row(before: &[fn(&RunLog) -> Event], event: fn(&RunLog) -> Event) -> [String; 3] {
    row_by(&PersistencePolicy::default(), before, event)
}

fn row_by(
    policy: &PersistencePolicy,
    before: &[fn(&RunLog) -> Event],
    event: fn(&RunLog) -> Event,
) -> [String; 3] {
    MODES.map(|mode| {
        let mut log = log(mode);
        for event in before {
            let event = event(&log);
            let effect = apply(&mut log, policy, event);
            take(&mut log, effect);
        }
        let event = event(&log);
        summary(&apply(&mut log, policy, event))
    })
}

/// Returns messages with the ids that follow the ids of the run's messages.
fn next(log: &RunLog, messages: impl IntoIterator<Item = Message>) -> Vec<Arc<Message>> {
    let messages = messages.into_iter().map(Arc::new).collect();
    log.conversation.added.number(log.assigned_ids(), messages, None)
}

fn begun(log: &RunLog) -> Event {
    Event::Begun { input: next(log, [Message::user("q")]) }
}

/// Returns the event of an answered service call. The event contains the inputs that are not
/// staged, and the answer.
fn answered(log: &RunLog, inputs: &[Message], answer: Message, step: NextStep) -> Event {
    let is_staged = log.journal.is_some() && !log.conversation.added.has_answers();
    let inputs = if is_staged { &[] } else { inputs };
    let messages = next(log, inputs.iter().cloned().chain([answer]));
    let answer = messages[inputs.len()..].to_vec();
    let first_calls = match &step {
        NextStep::RunTools(_) => vec![(answer[0].id.unwrap(), 0)],
        _ => Vec::new(),
    };
    let adopted = Adopted { recording: Recording::History, service_id: None, change: None };
    Event::Answered(Answered {
        messages,
        answer,
        adopted,
        step: Some(step),
        first_calls,
        ended_by: None,
    })
}

fn final_answer(log: &RunLog) -> Event {
    answered(log, &[Message::user("q")], Message::assistant("a"), NextStep::Finish)
}

fn calls() -> Message {
    Message::tool_calls([ToolCall::new("c1", "look", "{}"), ToolCall::new("c2", "look", "{}")])
}

fn answer_with_calls(log: &RunLog) -> Event {
    answered(log, &[Message::user("q")], calls(), NextStep::RunTools(Vec::new()))
}

fn results() -> Message {
    Message::tool_results([ToolResult::new("c1", "r1"), ToolResult::new("c2", "r2")])
}

fn outcome(log: &RunLog, index: usize) -> ToolOutcome {
    let asking = log.conversation.added.as_slice().iter().rfind(|it| it.calls().next().is_some());
    let message = asking.map_or(MessageId { run: run(), index: 1 }, |asking| asking.id.unwrap());
    let result = ToolResult::new(format!("c{}", index + 1), format!("r{}", index + 1));
    let report = ToolReport::of_result(&result);
    ((message, index), result, report)
}

/// Returns the position of an approved call of an earlier run.
fn approved() -> CallOfRun {
    (MessageId { run: RunId::from_bytes([1; 16]), index: 1 }, 0)
}

fn unanswered(log: &RunLog, text: Option<&str>, kept: UnansweredInputs) -> Event {
    let inputs = [results(), Message::user("more")];
    let inputs = next(log, inputs);
    Event::Unanswered { ordinal: Some(1), inputs, text: text.map(Arc::from), kept }
}

#[test]
fn the_input_of_a_run_that_begins_is_written_immediately_only_in_journaled_mode() {
    assert_eq!(row(&[], begun), ["-", "-", "q"]);
    let nothing = |_: &RunLog| Event::Begun { input: Vec::new() };
    assert_eq!(row(&[], nothing), ["-", "-", "-"]);
}

#[test]
fn a_successful_service_call_causes_the_write_of_its_mode() {
    assert_eq!(row(&[begun], final_answer), ["-", "q, a, ends", "a, ends, commit"]);
    assert_eq!(row(&[begun], answer_with_calls), ["-", "q, calls", "calls, start 0"]);
    let paused: fn(&RunLog) -> Event = |log| {
        answered(log, &[Message::user("q")], Message::assistant("a"), NextStep::ContinuePaused)
    };
    assert_eq!(row(&[begun], paused), ["-", "q, a", "a"]);
    let asking: fn(&RunLog) -> Event = |log| answered(log, &[], calls(), NextStep::AskApproval);
    assert_eq!(row(&[begun], asking), ["-", "calls, ends", "calls, ends, commit"]);
}

/// Returns the log of a run in per-run mode after these events.
fn per_run(events: &[fn(&RunLog) -> Event]) -> RunLog {
    let mut log = log(PersistenceMode::PerRun);
    for event in events {
        let event = event(&log);
        let effect = apply(&mut log, &PersistencePolicy::default(), event);
        take(&mut log, effect);
    }
    log
}

/// Completes the run with this answer, and returns the summary of the write.
fn at_end(log: &mut RunLog, answer: &[Arc<Message>], ended_by: Option<EndedBy>) -> String {
    let answer = log.conversation.added.number_answer(answer.to_vec(), None);
    let completed = Event::Completed { answer, before: 0, ended_by };
    let effect = apply(log, &PersistencePolicy::default(), completed);
    take(log, effect)
}

#[test]
fn per_run_mode_stores_results_at_the_end_only_if_no_tool_has_ended_the_run() {
    let ended_by = |ended_by| {
        let mut log = per_run(&[begun, answer_with_calls]);
        let answer: Vec<_> = [calls(), results()].map(Arc::new).into();
        at_end(&mut log, &answer, ended_by)
    };
    let by_tool = ended_by(Some(EndedBy::Tool));
    assert_eq!(by_tool, "q, calls, apart r1r2, ends, by Tool");
    assert_eq!(ended_by(Some(EndedBy::Stop)), "q, calls, r1r2, ends, by Stop");
}

#[test]
fn the_stored_run_has_the_rounds_of_its_service_calls_if_the_answer_of_the_loop_lacks_them() {
    let last: fn(&RunLog) -> Event =
        |log| answered(log, &[results()], Message::assistant("a"), NextStep::Finish);
    let rounds: [fn(&RunLog) -> Event; 3] = [begun, answer_with_calls, last];
    let only_last = [Arc::new(Message::assistant("a"))];
    let mut log = per_run(&rounds);
    assert_eq!(at_end(&mut log, &only_last, None), "q, calls, r1r2, a, ends");
    let ids: Vec<_> =
        log.conversation.added.as_slice().iter().map(|it| it.id.unwrap().index).collect();
    assert_eq!(ids, [0, 1, 2, 3]);
    // The answer of the loop contains changed rounds.
    let own = [calls(), results(), Message::assistant("b")].map(Arc::new);
    assert_eq!(at_end(&mut per_run(&rounds), &own, None), "q, calls, r1r2, b, ends");
    // The messages of a service call do not continue the messages of the earlier service calls.
    let mut log = per_run(&rounds[..2]);
    log.conversation.added.is_discontinuous = true;
    let event = last(&log);
    let effect = apply(&mut log, &PersistencePolicy::default(), event);
    take(&mut log, effect);
    assert_eq!(at_end(&mut log, &only_last, None), "q, a, ends");
}

#[test]
fn a_repeated_service_call_replaces_the_answer_that_is_not_stored_yet() {
    let mut log = per_run(&[begun, answer_with_calls]);
    log.conversation.drop_last_answer();
    let again: fn(&RunLog) -> Event =
        |log| answered(log, &[], Message::assistant("a"), NextStep::Finish);
    let event = again(&log);
    let effect = apply(&mut log, &PersistencePolicy::default(), event);
    take(&mut log, effect);
    let added: Vec<_> =
        log.conversation.added.as_slice().iter().map(|message| wording(message)).collect();
    assert_eq!(added, ["q", "a"]);
    assert_eq!(log.assigned_ids(), 2);
    assert_eq!(log.conversation.replay.view().len(), 2);
    assert_eq!(log.saved().messages, 0);
}

#[test]
fn the_policy_decides_which_inputs_of_an_unanswered_service_call_are_stored() {
    let before: [fn(&RunLog) -> Event; 2] = [begun, answer_with_calls];
    let all: fn(&RunLog) -> Event = |log| unanswered(log, None, UnansweredInputs::All);
    assert_eq!(row(&before, all), ["-", "r1r2, more", "-"]);
    let of_tools: fn(&RunLog) -> Event = |log| unanswered(log, None, UnansweredInputs::Results);
    assert_eq!(row(&before, of_tools), ["-", "r1r2", "-"]);
    let none: fn(&RunLog) -> Event = |log| unanswered(log, None, UnansweredInputs::None);
    assert_eq!(row(&before, none), ["-", "-", "-"]);
}

#[test]
fn a_partial_text_is_stored_at_the_end_of_the_run_after_all_inputs_of_its_service_call() {
    let before: [fn(&RunLog) -> Event; 2] = [begun, answer_with_calls];
    let cut_off: fn(&RunLog) -> Event =
        |log| unanswered(log, Some("so far"), UnansweredInputs::None);
    assert_eq!(row(&before, cut_off), ["-", "r1r2, more", "-"]);
    let left: fn(&RunLog) -> Event = |_| Event::Left { cause: LeaveCause::Failed };
    let after = [begun, answer_with_calls, cut_off];
    assert_eq!(row(&after, left), ["-", "so far", "leaves"]);
    let committed: fn(&RunLog) -> Event =
        |_| Event::EndedAsItStands { end: RunEnd::Commit, of_prior_calls: OfPriorCalls::default() };
    let interrupted = "The call was not run: its run was interrupted before the call started.";
    let [_, _, journaled] = row(&after, committed);
    assert!(journaled.ends_with("row error, commit"), "{journaled}");
    assert!(journaled.contains(interrupted) && journaled.contains("so far"), "{journaled}");
}

#[test]
fn a_second_attempt_at_a_service_call_does_not_submit_the_same_inputs_again() {
    let mut log = log(PersistenceMode::PerServiceCall);
    let policy = PersistencePolicy::default();
    let inputs = next(&log, [Message::user("q")]);
    let attempt = || Event::Unanswered {
        ordinal: Some(0),
        inputs: inputs.clone(),
        text: None,
        kept: UnansweredInputs::All,
    };
    let first = apply(&mut log, &policy, attempt());
    assert_eq!(take(&mut log, first), "q");
    assert_eq!(summary(&apply(&mut log, &policy, attempt())), "-");
}

#[test]
fn the_results_before_a_refused_answer_are_stored_only_in_the_record() {
    let refused: fn(&RunLog) -> Event =
        |log| Event::AnswerRefused { inputs: next(log, [results()]) };
    assert_eq!(row(&[begun, answer_with_calls], refused), ["-", "outcome r1, outcome r2", "-"]);
    let policy =
        PersistencePolicy { inputs_of_failed_call: UnansweredInputs::None, ..Default::default() };
    assert_eq!(row_by(&policy, &[begun, answer_with_calls], refused), ["-", "-", "-"]);
}

#[test]
fn claims_of_approved_calls_are_written_in_every_mode_and_other_starts_only_in_journaled_mode() {
    let own: fn(&RunLog) -> Event = |log| Event::ToolsStart { calls: vec![outcome(log, 1).0] };
    assert_eq!(row(&[begun, answer_with_calls], own), ["-", "-", "start 1"]);
    let known: fn(&RunLog) -> Event = |log| Event::ToolsStart { calls: vec![outcome(log, 0).0] };
    assert_eq!(row(&[begun, answer_with_calls], known), ["-", "-", "-"]);
    // Claims are written immediately in every mode.
    let claim: fn(&RunLog) -> Event = |_| Event::ToolsStart { calls: vec![approved()] };
    assert_eq!(row(&[begun], claim), ["start 0", "start 0", "start 0"]);
}

fn finished(outcome: ToolOutcome, beside: Vec<ToolOutcome>, ends_run: bool) -> Event {
    let next = Some((outcome.0.0, 1));
    Event::ToolFinished { outcome, beside, next, ends_run }
}

#[test]
fn the_outcome_of_a_call_is_written_immediately_in_journaled_mode_or_if_it_was_approved() {
    let before: [fn(&RunLog) -> Event; 2] = [begun, answer_with_calls];
    let own: fn(&RunLog) -> Event = |log| finished(outcome(log, 0), vec![outcome(log, 1)], false);
    assert_eq!(row(&before, own), ["-", "-", "outcome r2, outcome r1, start 1"]);
    let last: fn(&RunLog) -> Event = |log| finished(outcome(log, 0), Vec::new(), true);
    assert_eq!(row(&before, last), ["-", "-", "outcome r1, start 1, ends, commit"]);
    let policy = PersistencePolicy { keep_trailing_results: true, ..Default::default() };
    assert_eq!(row_by(&policy, &before, last), ["-", "-", "outcome r1, start 1"]);
    let of_earlier_run: fn(&RunLog) -> Event = |log| {
        let (_, result, report) = outcome(log, 0);
        finished((approved(), result, report), Vec::new(), true)
    };
    assert_eq!(row(&[begun], of_earlier_run), ["outcome r1, start 1"; 3]);
}

#[test]
fn outcomes_of_calls_that_were_not_run_are_written_immediately_in_journaled_mode() {
    let before: [fn(&RunLog) -> Event; 2] = [begun, answer_with_calls];
    let refused: fn(&RunLog) -> Event =
        |log| Event::ToolsNotRun { outcomes: vec![outcome(log, 0), outcome(log, 1)] };
    assert_eq!(row(&before, refused), ["-", "-", "outcome r1, outcome r2"]);
    let known: fn(&RunLog) -> Event = |log| {
        let mut known = outcome(log, 0);
        known.2.source = ResultSource::Record;
        let (_, result, report) = outcome(log, 1);
        Event::ToolsNotRun { outcomes: vec![known, (approved(), result, report)] }
    };
    assert_eq!(row(&before, known), ["-", "-", "-"]);
}

#[test]
fn dropped_tools_are_recorded_as_interrupted_in_per_service_call_mode() {
    let dropped: fn(&RunLog) -> Event =
        |log| Event::ToolsDropped { calls: vec![(outcome(log, 0).0, UNIX_EPOCH)] };
    assert_eq!(row(&[begun, answer_with_calls], dropped), ["-", "row interrupted", "-"]);
    let claimed: fn(&RunLog) -> Event =
        |_| Event::ToolsDropped { calls: vec![(approved(), UNIX_EPOCH)] };
    assert_eq!(row(&[begun, answer_with_calls], claimed), ["-", "-", "-"]);
}

#[test]
fn results_that_no_service_call_has_sent_are_written_except_in_per_run_mode() {
    let unsent: fn(&RunLog) -> Event =
        |_| Event::ResultsUnsent { messages: vec![results().into()] };
    assert_eq!(row(&[begun, answer_with_calls], unsent), ["-", "r1r2", "r1r2"]);
}

#[test]
fn a_stopped_run_writes_its_results_and_partial_answer_except_in_per_run_mode() {
    let stopped: fn(&RunLog) -> Event = |_| Event::Stopped {
        unsent: vec![results().into()],
        answer: vec![Message::assistant("so far").into()],
    };
    let ends = ["-", "r1r2, so far, ends, by Stop", "r1r2, so far, ends, by Stop, commit"];
    assert_eq!(row(&[begun, answer_with_calls], stopped), ends);
}

#[test]
fn a_run_writes_no_results_if_no_layer_has_stored_its_calls() {
    let mut log = log(PersistenceMode::PerServiceCall);
    log.persister = Persister::Missing;
    let policy = PersistencePolicy::default();
    let calls = vec![((MessageId { run: run(), index: 1 }, 0), UNIX_EPOCH)];
    for event in [
        Event::Stopped { unsent: vec![results().into()], answer: Vec::new() },
        Event::ResultsUnsent { messages: vec![results().into()] },
        Event::ToolsDropped { calls },
    ] {
        assert_eq!(summary(&apply(&mut log, &policy, event)), "-");
    }
}

/// Returns the event of a run that a tool has ended.
fn ended_by_tool(log: &RunLog) -> Event {
    let mut answer = log.conversation.added.as_slice().to_vec();
    answer.extend(next(log, [results()]));
    let answer = answer.into_iter().filter(|message| message.role != Role::User).collect();
    Event::Completed { answer, before: 0, ended_by: Some(EndedBy::Tool) }
}

#[test]
fn the_completion_of_a_run_causes_the_write_of_its_mode() {
    let answer: fn(&RunLog) -> Event = |log| {
        let answer = log.conversation.added.as_slice().last().cloned().into_iter().collect();
        Event::Completed { answer, before: 0, ended_by: None }
    };
    assert_eq!(row(&[begun, final_answer], answer), ["q, a, ends", "-", "-"]);
    let before: [fn(&RunLog) -> Event; 2] = [begun, answer_with_calls];
    let whole = "q, calls, apart r1r2, ends, by Tool";
    let apart = [whole, "apart r1r2, ends", "apart r1r2, ends, commit"];
    assert_eq!(row(&before, ended_by_tool), apart);
    let policy = PersistencePolicy { keep_trailing_results: true, ..Default::default() };
    let kept = ["q, calls, r1r2, ends, by Tool", "apart r1r2, ends", "r1r2, ends, commit"];
    assert_eq!(row_by(&policy, &before, ended_by_tool), kept);
}

#[test]
fn a_journaled_run_that_is_found_complete_is_committed() {
    let found: fn(&RunLog) -> Event =
        |log| Event::FoundComplete { answer: log.conversation.added.as_slice().to_vec() };
    let paused: fn(&RunLog) -> Event = |log| {
        answered(log, &[Message::user("q")], Message::assistant("a"), NextStep::ContinuePaused)
    };
    assert_eq!(row(&[begun, paused], found), ["-", "-", "ends, commit"]);
    assert_eq!(row(&[begun, final_answer], found), ["-", "-", "-"]);
}

#[test]
fn a_journaled_run_is_discarded_if_its_input_is_refused_before_an_answer() {
    let refused: fn(&RunLog) -> Event = |_| Event::InputRefused;
    assert_eq!(row(&[], refused), ["-", "-", "-"]);
    assert_eq!(row(&[begun], refused), ["-", "-", "discard"]);
    assert_eq!(row(&[begun, answer_with_calls], refused), ["-", "-", "-"]);
}

#[test]
fn a_failed_run_stays_open_and_the_policy_decides_how_a_dropped_run_ends() {
    let before: [fn(&RunLog) -> Event; 2] = [begun, answer_with_calls];
    let failed: fn(&RunLog) -> Event = |_| Event::Left { cause: LeaveCause::Failed };
    assert_eq!(row(&before, failed), ["-", "-", "leaves"]);
    let dropped: fn(&RunLog) -> Event = |_| Event::Left { cause: LeaveCause::Disconnected };
    assert_eq!(row(&before, dropped), ["-", "-", "abandons"]);
    let mut policy = PersistencePolicy::default();
    policy.journal.on_disconnect = OnDisconnect::Discard;
    assert_eq!(row_by(&policy, &before, dropped), ["-", "-", "discard"]);
    policy.journal.on_disconnect = OnDisconnect::Commit;
    let [.., committed] = row_by(&policy, &before, dropped);
    assert!(committed.ends_with("commit") && committed.contains("row interrupted"), "{committed}");
}

/// A run with generated events, and the messages that the contract requires in the store.
struct Generated {
    log: RunLog,
    seed: u64,
    /// The messages that the store must contain after the last event.
    stored: Vec<String>,
    /// The messages of the next service call.
    unsent: Vec<Message>,
    /// In per-run mode, the messages that the run stores at its end.
    unstored: Vec<String>,
}

impl Generated {
    fn below(&mut self, count: u64) -> u64 {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.seed >> 33) % count
    }

    fn apply(&mut self, event: Event) {
        let effect = apply(&mut self.log, &PersistencePolicy::default(), event);
        take(&mut self.log, effect);
    }

    fn expect(&mut self, messages: &[Message]) {
        let messages = messages.iter().map(wording);
        match self.log.mode {
            PersistenceMode::PerRun => self.unstored.extend(messages),
            PersistenceMode::PerServiceCall | PersistenceMode::Journaled => {
                self.stored.extend(messages);
            }
        }
    }

    /// Applies the event of a service call with this answer.
    fn call(&mut self, answer: Message, step: NextStep) {
        let unsent = std::mem::take(&mut self.unsent);
        self.expect(&unsent);
        self.expect(std::slice::from_ref(&answer));
        let is_last = matches!(step, NextStep::Finish);
        let event = answered(&self.log, &unsent, answer, step);
        self.apply(event);
        if is_last {
            self.complete(Vec::new(), None);
        }
    }

    /// Completes the run. The answer consists of the messages of the run's service calls after the
    /// input, followed by `unsent`.
    fn complete(&mut self, unsent: Vec<Message>, ended_by: Option<EndedBy>) {
        let mut answer: Vec<_> =
            self.log.conversation.added.as_slice().iter().skip(1).cloned().collect();
        if self.log.mode == PersistenceMode::PerRun {
            answer.extend(next(&self.log, unsent));
        }
        self.stored.append(&mut self.unstored);
        self.apply(Event::Completed { answer, before: 0, ended_by });
    }

    /// Applies the events of the tools of a round.
    fn tools(&mut self) {
        let calls = vec![outcome(&self.log, 0).0, outcome(&self.log, 1).0];
        self.apply(Event::ToolsStart { calls });
        for index in 0..2 {
            let outcome = outcome(&self.log, index);
            let (beside, next, ends_run) = (Vec::new(), None, false);
            self.apply(Event::ToolFinished { outcome, beside, next, ends_run });
        }
        self.unsent.push(results());
        if self.below(3) == 0 {
            self.unsent.push(Message::user("queued"));
        }
    }

    /// Fails the service call and ends the attempt.
    fn fail(&mut self) {
        let inputs = next(&self.log, std::mem::take(&mut self.unsent));
        let kept = [UnansweredInputs::All, UnansweredInputs::Results, UnansweredInputs::None];
        let kept = kept[usize::try_from(self.below(3)).unwrap()];
        if self.log.mode == PersistenceMode::PerServiceCall {
            let count = match kept {
                UnansweredInputs::All => inputs.len(),
                UnansweredInputs::Results => {
                    inputs.iter().filter(|it| it.role == Role::Tool).count()
                }
                UnansweredInputs::None => 0,
            };
            self.stored.extend(inputs.iter().take(count).map(|message| wording(message)));
        }
        self.apply(Event::Unanswered { ordinal: Some(9), inputs, text: None, kept });
        let cause = [LeaveCause::Failed, LeaveCause::Disconnected];
        let cause = cause[usize::try_from(self.below(2)).unwrap()];
        self.apply(Event::Left { cause });
    }

    fn stop(&mut self) {
        let unsent = std::mem::take(&mut self.unsent);
        self.expect(&unsent);
        let of_call = unsent.iter().cloned().map(Arc::new).collect();
        self.apply(Event::Stopped { unsent: of_call, answer: Vec::new() });
        let is_input = self.log.conversation.added.is_empty();
        let unsent = unsent.into_iter().skip(usize::from(is_input)).collect();
        self.complete(unsent, Some(EndedBy::Stop));
    }
}

fn wording(message: &Message) -> String {
    match message.role {
        Role::Tool => message.results().map(ToolResult::text).collect(),
        _ if message.calls().next().is_some() => "calls".to_owned(),
        _ => message.text(),
    }
}

#[test]
fn messages_of_a_run_are_stored_once_in_every_valid_order_of_events() {
    for (seed, mode) in (0..600_u64).zip(MODES.into_iter().cycle()) {
        let (stored, unsent, unstored) = (Vec::new(), Vec::new(), Vec::new());
        let mut run = Generated { log: log(mode), seed, stored, unsent, unstored };
        let input = next(&run.log, [Message::user("q")]);
        match mode {
            PersistenceMode::Journaled => run.stored.push("q".to_owned()),
            PersistenceMode::PerRun | PersistenceMode::PerServiceCall => {
                run.unsent.push(Message::user("q"));
            }
        }
        run.apply(Event::Begun { input });
        let mut is_open = true;
        while is_open {
            match run.below(6) {
                0 => run.fail(),
                1 => run.stop(),
                2 => run.call(Message::assistant("a"), NextStep::Finish),
                _ => {
                    run.call(calls(), NextStep::RunTools(Vec::new()));
                    run.tools();
                    continue;
                }
            }
            is_open = false;
        }
        let added: Vec<_> = run
            .log
            .conversation
            .added
            .as_slice()
            .iter()
            .take(run.log.conversation.added.submitted())
            .collect();
        let stored: Vec<_> = added.iter().map(|message| wording(message)).collect();
        assert_eq!(stored, run.stored, "{mode:?}, seed {seed}");
        let ids: Vec<_> = added.iter().map(|message| message.id.unwrap().index).collect();
        assert_eq!(ids, (0..).take(ids.len()).collect::<Vec<u32>>(), "{mode:?}, seed {seed}");
        assert!(!run.log.is_open(), "{mode:?}, seed {seed}: the run is still open");
    }
}
