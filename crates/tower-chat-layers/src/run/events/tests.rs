//! The table of `docs/contract.md`, cell by cell, and orders of events that a run can have.

use std::time::{Duration, UNIX_EPOCH};

use tower_chat_core::{
    ConversationKey, MessageId, Messages, RunId, ToolCall, ToolResult,
    store::{Revision, author::Write},
};

use super::*;
use crate::{
    replay::{Replay, Truncation},
    run::{
        call_records::CallRecords, journaled::Journal, service_id::Recording,
        state::LoadedConversation,
    },
    tool::ToolReport,
};

const MODES: [PersistenceMode; 3] =
    [PersistenceMode::PerRun, PersistenceMode::PerServiceCall, PersistenceMode::Journaled];

fn run() -> RunId {
    RunId::from_bytes([7; 16])
}

/// A run of which nothing has happened yet.
fn log(mode: PersistenceMode) -> State {
    let conversation = LoadedConversation {
        history: Messages::new(),
        pruned: 0,
        replay: Replay::lenient(),
        revision: Revision { incarnation: 1, sequence: 0 },
        service_id: None,
        stored_service_id: None,
        recording: Recording::History,
        added: Vec::new(),
        taken: 0,
    };
    let mut log = State::new(run(), mode, conversation, CallRecords::default());
    let journal = || Box::new(Journal::new(1, Duration::ZERO, UNIX_EPOCH, 0));
    log.journal = (mode == PersistenceMode::Journaled).then(journal);
    log
}

/// Takes what an event writes into the run, as a store that takes every write.
fn take(log: &mut State, effect: Effect) -> String {
    let said = summary(&effect);
    let Effect::Write(write) = effect else { return said };
    let RunWrite { messages, left_out, close, starts, outcomes, .. } = *write;
    let revision = log.conversation.revision;
    let truncation = Truncation::default();
    let mut records = log.compose(&messages, &left_out, None, truncation).records;
    log.outcome_rows(&outcomes, truncation, &mut records);
    log.conversation.taken += messages.len();
    messages.iter().for_each(|message| log.conversation.replay.push(message));
    let id = log.conversation.next_id(log.run);
    let write = Write::new(ConversationKey::new("a", "b"), id, revision, messages.clone());
    log.conversation.revision = write.result();
    log.conversation.added.extend(messages);
    if let Some(journal) = log.journal.as_deref_mut() {
        journal.note_started(&starts);
        journal.stage(write, records.into_rows(), close, None);
    }
    said
}

/// A write in a few words.
fn summary(effect: &Effect) -> String {
    let write = match effect {
        Effect::Nothing => return "-".to_owned(),
        Effect::Leave(None) => return "leaves".to_owned(),
        Effect::Leave(Some(until)) if *until == Lease::ABANDONED => return "abandons".to_owned(),
        Effect::Leave(Some(_)) => return "leaves until".to_owned(),
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
    let mut said = texts(&write.messages);
    said.extend(texts(&write.left_out).into_iter().map(|text| format!("apart {text}")));
    said.extend(write.outcomes.iter().map(|(_, result, _)| format!("outcome {}", result.text())));
    said.extend(write.rows.iter().map(|row| format!("row {}", row.status.as_str())));
    said.extend(write.starts.iter().map(|(_, index)| format!("start {index}")));
    said.extend(write.ends_run.then(|| "ends".to_owned()));
    said.extend(write.ended_by.map(|by| format!("by {by:?}")));
    said.extend(write.close.map(|close| match close {
        Close::Commit => "commit".to_owned(),
        Close::Discard { .. } => "discard".to_owned(),
    }));
    said.join(", ")
}

/// What each mode does with an event after others.
fn row(before: &[fn(&State) -> Event], event: fn(&State) -> Event) -> [String; 3] {
    row_by(&PersistencePolicy::default(), before, event)
}

fn row_by(
    policy: &PersistencePolicy,
    before: &[fn(&State) -> Event],
    event: fn(&State) -> Event,
) -> [String; 3] {
    MODES.map(|mode| {
        let mut log = log(mode);
        for event in before {
            let event = event(&log);
            let effect = apply(&mut log, policy, None, event);
            take(&mut log, effect);
        }
        let event = event(&log);
        summary(&apply(&mut log, policy, None, event))
    })
}

fn at(index: usize, mut message: Message) -> Arc<Message> {
    message.id = Some(MessageId { run: run(), index: u32::try_from(index).unwrap() });
    Arc::new(message)
}

/// Messages after what the run has taken in.
fn next(log: &State, messages: impl IntoIterator<Item = Message>) -> Vec<Arc<Message>> {
    log.number(log.conversation.taken, messages.into_iter().map(Arc::new).collect(), None)
}

fn begun(log: &State) -> Event {
    Event::Begun { input: next(log, [Message::user("q")]) }
}

/// The messages of a service call: its inputs, unless they are staged, and what it answers.
fn answered(log: &State, inputs: &[Message], answer: Message, step: NextStep) -> Event {
    let is_staged = log.mode == PersistenceMode::Journaled && log.conversation.taken > 0;
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

fn final_answer(log: &State) -> Event {
    answered(log, &[Message::user("q")], Message::assistant("a"), NextStep::Finish)
}

fn calls() -> Message {
    Message::tool_calls([ToolCall::new("c1", "look", "{}"), ToolCall::new("c2", "look", "{}")])
}

fn answer_with_calls(log: &State) -> Event {
    answered(log, &[Message::user("q")], calls(), NextStep::RunTools(Vec::new()))
}

fn results() -> Message {
    Message::tool_results([ToolResult::new("c1", "r1"), ToolResult::new("c2", "r2")])
}

fn outcome(log: &State, index: usize) -> ToolOutcome {
    let asking = log.conversation.added.iter().rfind(|it| it.calls().next().is_some());
    let message = asking.map_or(MessageId { run: run(), index: 1 }, |asking| asking.id.unwrap());
    let result = ToolResult::new(format!("c{}", index + 1), format!("r{}", index + 1));
    let report = ToolReport::of(&result);
    ((message, index), result, report)
}

/// A call of an earlier run that was approved.
fn approved() -> CallOfRun {
    (MessageId { run: RunId::from_bytes([1; 16]), index: 1 }, 0)
}

fn unanswered(log: &State, kept: UnansweredInputs) -> Event {
    let inputs = [results(), Message::user("more")];
    let inputs = next(log, inputs);
    Event::Unanswered { ordinal: Some(1), inputs, text: Some("so far".into()), kept }
}

#[test]
fn a_run_begins() {
    assert_eq!(row(&[], begun), ["-", "-", "q"]);
    let nothing = |_: &State| Event::Begun { input: Vec::new() };
    assert_eq!(row(&[], nothing), ["-", "-", "-"]);
}

#[test]
fn a_service_call_succeeds() {
    assert_eq!(row(&[begun], final_answer), ["q, a, ends", "q, a, ends", "a, ends, commit"]);
    assert_eq!(row(&[begun], answer_with_calls)[1..], ["q, calls", "calls, start 0"]);
    let paused: fn(&State) -> Event =
        |log| answered(log, &[Message::user("q")], Message::assistant("a"), NextStep::GoOn);
    assert_eq!(row(&[begun], paused)[1..], ["q, a", "a"]);
    let asking: fn(&State) -> Event = |log| answered(log, &[], calls(), NextStep::AskApproval);
    assert_eq!(row(&[begun], asking)[1..], ["calls, ends", "calls, ends, commit"]);
}

#[test]
fn a_whole_run_leaves_out_results_at_its_end() {
    let ended_by = |ended_by| {
        let mut log = log(PersistenceMode::PerRun);
        let messages = next(&log, [Message::user("q"), calls(), results()]);
        let answer = messages[1..].to_vec();
        let adopted = Adopted { recording: Recording::History, service_id: None, change: None };
        let (step, first_calls) = (None, Vec::new());
        let answered = Answered { messages, answer, adopted, step, first_calls, ended_by };
        let policy = PersistencePolicy::default();
        summary(&apply(&mut log, &policy, None, Event::Answered(answered)))
    };
    let by_tool = ended_by(Some(EndedBy::Tool));
    assert_eq!(by_tool, "q, calls, apart r1r2, ends, by Tool");
    assert_eq!(ended_by(Some(EndedBy::Stop)), "q, calls, r1r2, ends, by Stop");
}

#[test]
fn a_service_call_fails_or_is_dropped() {
    let before: [fn(&State) -> Event; 2] = [begun, answer_with_calls];
    let all: fn(&State) -> Event = |log| unanswered(log, UnansweredInputs::All);
    assert_eq!(row(&before, all), ["-", "r1r2, more", "-"]);
    let of_tools: fn(&State) -> Event = |log| unanswered(log, UnansweredInputs::Results);
    assert_eq!(row(&before, of_tools), ["-", "r1r2", "-"]);
    let none: fn(&State) -> Event = |log| unanswered(log, UnansweredInputs::None);
    assert_eq!(row(&before, none), ["-", "-", "-"]);
    // The text is kept until the run goes, after what was not stored.
    let left: fn(&State) -> Event = |_| Event::Left { cause: LeaveCause::Failed };
    let after = [begun, answer_with_calls, of_tools];
    assert_eq!(row(&after, left), ["-", "more, so far", "leaves"]);
    let committed: fn(&State) -> Event =
        |_| Event::EndedAsItStands { end: RunEnd::Commit, of_prior_calls: OfPriorCalls::default() };
    let interrupted = "The call was not run: its run was interrupted before.";
    let [_, _, journaled] = row(&after, committed);
    assert!(journaled.ends_with("row error, commit"), "{journaled}");
    assert!(journaled.contains(interrupted) && journaled.contains("so far"), "{journaled}");
}

#[test]
fn what_another_attempt_at_a_call_has_submitted_is_not_submitted_again() {
    let mut log = log(PersistenceMode::PerServiceCall);
    let policy = PersistencePolicy::default();
    let inputs = next(&log, [Message::user("q")]);
    let attempt = || Event::Unanswered {
        ordinal: Some(0),
        inputs: inputs.clone(),
        text: None,
        kept: UnansweredInputs::All,
    };
    let first = apply(&mut log, &policy, None, attempt());
    assert_eq!(take(&mut log, first), "q");
    assert_eq!(summary(&apply(&mut log, &policy, None, attempt())), "-");
}

#[test]
fn the_results_of_a_refused_answer_are_in_the_record_alone() {
    let refused: fn(&State) -> Event =
        |log| Event::AnswerRefused { inputs: next(log, [results()]) };
    assert_eq!(row(&[begun, answer_with_calls], refused), ["-", "outcome r1, outcome r2", "-"]);
    let policy =
        PersistencePolicy { inputs_of_failed_call: UnansweredInputs::None, ..Default::default() };
    assert_eq!(row_by(&policy, &[begun, answer_with_calls], refused), ["-", "-", "-"]);
}

#[test]
fn a_tool_starts() {
    let own: fn(&State) -> Event = |log| Event::ToolsStart { calls: vec![outcome(log, 1).0] };
    assert_eq!(row(&[begun, answer_with_calls], own), ["-", "-", "start 1"]);
    let known: fn(&State) -> Event = |log| Event::ToolsStart { calls: vec![outcome(log, 0).0] };
    assert_eq!(row(&[begun, answer_with_calls], known), ["-", "-", "-"]);
    // Claims are written at once in every mode.
    let claim: fn(&State) -> Event = |_| Event::ToolsStart { calls: vec![approved()] };
    assert_eq!(row(&[begun], claim), ["start 0", "start 0", "start 0"]);
}

fn finished(outcome: ToolOutcome, beside: Vec<ToolOutcome>, ends_run: bool) -> Event {
    let next = Some((outcome.0.0, 1));
    Event::ToolFinished { outcome, beside, next, ends_run }
}

#[test]
fn a_tool_finishes() {
    let before: [fn(&State) -> Event; 2] = [begun, answer_with_calls];
    let own: fn(&State) -> Event = |log| finished(outcome(log, 0), vec![outcome(log, 1)], false);
    assert_eq!(row(&before, own), ["-", "-", "outcome r2, outcome r1, start 1"]);
    let last: fn(&State) -> Event = |log| finished(outcome(log, 0), Vec::new(), true);
    assert_eq!(row(&before, last), ["-", "-", "outcome r1, start 1, ends, commit"]);
    let policy = PersistencePolicy { keep_trailing_results: true, ..Default::default() };
    assert_eq!(row_by(&policy, &before, last), ["-", "-", "outcome r1, start 1"]);
    let of_earlier_run: fn(&State) -> Event = |log| {
        let (_, result, report) = outcome(log, 0);
        finished((approved(), result, report), Vec::new(), true)
    };
    assert_eq!(row(&[begun], of_earlier_run), ["outcome r1, start 1"; 3]);
}

#[test]
fn no_tool_of_a_round_runs() {
    let before: [fn(&State) -> Event; 2] = [begun, answer_with_calls];
    let refused: fn(&State) -> Event =
        |log| Event::ToolsNotRun { outcomes: vec![outcome(log, 0), outcome(log, 1)] };
    assert_eq!(row(&before, refused), ["-", "-", "outcome r1, outcome r2"]);
    let known: fn(&State) -> Event = |log| {
        let mut known = outcome(log, 0);
        known.2.source = ResultSource::Record;
        let (_, result, report) = outcome(log, 1);
        Event::ToolsNotRun { outcomes: vec![known, (approved(), result, report)] }
    };
    assert_eq!(row(&before, known), ["-", "-", "-"]);
}

#[test]
fn tools_are_dropped_while_they_run() {
    let dropped: fn(&State) -> Event =
        |log| Event::ToolsDropped { calls: vec![(outcome(log, 0).0, UNIX_EPOCH)] };
    assert_eq!(row(&[begun, answer_with_calls], dropped), ["-", "row interrupted", "-"]);
    let claimed: fn(&State) -> Event =
        |_| Event::ToolsDropped { calls: vec![(approved(), UNIX_EPOCH)] };
    assert_eq!(row(&[begun, answer_with_calls], claimed), ["-", "-", "-"]);
}

#[test]
fn no_service_call_carries_results() {
    let unsent: fn(&State) -> Event = |_| Event::ResultsUnsent { messages: vec![results().into()] };
    assert_eq!(row(&[begun, answer_with_calls], unsent), ["-", "r1r2", "r1r2"]);
}

#[test]
fn a_run_is_stopped() {
    let stopped: fn(&State) -> Event = |_| Event::Stopped {
        unsent: vec![results().into()],
        answer: vec![Message::assistant("so far").into()],
    };
    let ends = ["-", "r1r2, so far, ends, by Stop", "r1r2, so far, ends, by Stop, commit"];
    assert_eq!(row(&[begun, answer_with_calls], stopped), ends);
}

#[test]
fn nothing_is_stored_of_a_run_whose_calls_no_layer_has_stored() {
    let mut log = log(PersistenceMode::PerServiceCall);
    log.is_persister_missed = true;
    let policy = PersistencePolicy::default();
    let calls = vec![((MessageId { run: run(), index: 1 }, 0), UNIX_EPOCH)];
    for event in [
        Event::Stopped { unsent: vec![results().into()], answer: Vec::new() },
        Event::ResultsUnsent { messages: vec![results().into()] },
        Event::ToolsDropped { calls },
    ] {
        assert_eq!(summary(&apply(&mut log, &policy, None, event)), "-");
    }
}

/// The answer of a run that a tool has ended.
fn ended_by_tool(log: &State) -> Event {
    let mut answer = log.conversation.added.clone();
    answer.extend(next(log, [results()]));
    Event::Completed { answer, before: 0 }
}

#[test]
fn a_run_completes() {
    let answer: fn(&State) -> Event =
        |log| Event::Completed { answer: log.conversation.added.clone(), before: 0 };
    assert_eq!(row(&[begun, final_answer], answer), ["-", "-", "-"]);
    let before: [fn(&State) -> Event; 2] = [begun, answer_with_calls];
    let apart = ["-", "apart r1r2, ends", "apart r1r2, ends, commit"];
    assert_eq!(row(&before, ended_by_tool), apart);
    let policy = PersistencePolicy { keep_trailing_results: true, ..Default::default() };
    let kept = ["-", "apart r1r2, ends", "r1r2, ends, commit"];
    assert_eq!(row_by(&policy, &before, ended_by_tool), kept);
}

#[test]
fn a_run_is_found_complete() {
    let found: fn(&State) -> Event =
        |log| Event::FoundComplete { answer: log.conversation.added.clone() };
    let paused: fn(&State) -> Event =
        |log| answered(log, &[Message::user("q")], Message::assistant("a"), NextStep::GoOn);
    assert_eq!(row(&[begun, paused], found), ["-", "-", "ends, commit"]);
    assert_eq!(row(&[begun, final_answer], found), ["-", "-", "-"]);
}

#[test]
fn the_input_of_a_refused_run_is_taken_back() {
    let refused: fn(&State) -> Event = |_| Event::InputRefused;
    assert_eq!(row(&[], refused), ["-", "-", "-"]);
    assert_eq!(row(&[begun], refused), ["-", "-", "discard"]);
    assert_eq!(row(&[begun, answer_with_calls], refused), ["-", "-", "-"]);
}

#[test]
fn a_run_is_left() {
    let before: [fn(&State) -> Event; 2] = [begun, answer_with_calls];
    let failed: fn(&State) -> Event = |_| Event::Left { cause: LeaveCause::Failed };
    assert_eq!(row(&before, failed), ["-", "-", "leaves"]);
    let dropped: fn(&State) -> Event = |_| Event::Left { cause: LeaveCause::Disconnected };
    assert_eq!(row(&before, dropped), ["-", "-", "abandons"]);
    let mut policy = PersistencePolicy::default();
    policy.journal.on_disconnect = OnDisconnect::Discard;
    assert_eq!(row_by(&policy, &before, dropped), ["-", "-", "discard"]);
    policy.journal.on_disconnect = OnDisconnect::Commit;
    let [.., committed] = row_by(&policy, &before, dropped);
    assert!(committed.ends_with("commit") && committed.contains("row interrupted"), "{committed}");
}
