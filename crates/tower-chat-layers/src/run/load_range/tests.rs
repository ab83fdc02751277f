use std::time::{Duration, SystemTime};

use tower_chat_core::{
    ApprovalRequest, Media, MediaSource, ToolCall, ToolResult,
    store::{HistorySummary, Revision, SummaryInForce},
};
use tower_chat_testkit::Rng;

use super::*;
use crate::replay::{
    Freshness, OldMedia, OutdatedCalls, ReplayContext, Window, end_marker, mark_ended,
};

/// The number of generated conversations.
const CASES: u64 = 60;

/// A generated conversation. The runs are added one after the other.
struct Conversation {
    rng: Rng,
    texts: usize,
    /// The calls that have no result yet, with the approval request if there is one.
    open_calls: Vec<(ToolCall, Option<ApprovalRequest>)>,
}

impl Conversation {
    fn text(&mut self) -> String {
        self.texts += 1;
        format!("text {}", self.texts)
    }

    fn picture(&mut self) -> Part {
        Part::Media(Media::new("image/png", MediaSource::Base64(self.text())))
    }

    fn user(&mut self) -> Message {
        let mut message = Message::user(self.text());
        if self.rng.one_in(4) {
            message.parts.push(self.picture());
        }
        message
    }

    /// Returns a call with a unique id, with an id that other calls have too, or without an id.
    fn call(&mut self) -> ToolCall {
        let arguments = format!("{{\"n\":\"{}\"}}", self.text());
        let id = match self.rng.below(4) {
            0 => "same".to_owned(),
            1 => String::new(),
            _ => self.text(),
        };
        let mut call = ToolCall::new(id, "look", arguments);
        if self.rng.one_in(6) {
            call.id = None;
        }
        call
    }

    fn result(&mut self, call: &ToolCall) -> ToolResult {
        let mut result = ToolResult::new("", self.text());
        result.call_id.clone_from(&call.id);
        result
    }

    /// Returns messages with calls and results, which end with the last result.
    fn round(&mut self) -> Vec<Message> {
        let calls: Vec<_> = (0..=self.rng.below(2)).map(|_| self.call()).collect();
        let mut asking = Message::tool_calls(calls.clone());
        if self.rng.one_in(3) {
            asking.parts.insert(0, Part::text(self.text()));
        }
        let results: Vec<_> = calls.iter().map(|call| self.result(call)).collect();
        let mut messages = vec![asking, Message::tool_results(results)];
        if self.rng.one_in(5) {
            let queued = self.user();
            messages.push(queued);
        }
        messages
    }

    /// Returns the messages of the next run. The first message is its input.
    fn run(&mut self, is_first: bool) -> Vec<Message> {
        let mut messages = Vec::new();
        if is_first {
            let leading = self.rng.below(3);
            for _ in 0..leading {
                let mut system = Message::system(self.text());
                if self.rng.one_in(6) {
                    system.parts.push(self.picture());
                }
                messages.push(system);
            }
        }
        if !self.open_calls.is_empty() && self.rng.one_in(3) {
            let chosen = self.rng.below(self.open_calls.len());
            let (call, request) = match self.rng.one_in(5) {
                // The call may get a second result later.
                true => self.open_calls[chosen].clone(),
                false => self.open_calls.remove(chosen),
            };
            let result = Message::tool_results([self.result(&call)]);
            messages.extend(request.map(|request| {
                Message::new(Role::User, vec![Part::ApprovalResponse(request.approve())])
            }));
            messages.push(result);
        } else {
            let input = match self.rng.one_in(12) {
                true => Message::system(self.text()),
                false => self.user(),
            };
            messages.push(input);
        }
        for _ in 0..self.rng.below(3) {
            messages.extend(self.round());
        }
        let call = self.call();
        match self.rng.below(10) {
            0 => {
                // The run was interrupted, or has returned its call to the caller.
                let mut asking = Arc::new(Message::tool_calls([call.clone()]));
                if self.rng.one_in(2) {
                    mark_ended(&mut asking);
                }
                messages.push(Arc::unwrap_or_clone(asking));
                self.open_calls.push((call, None));
            }
            1 => {
                let request = ApprovalRequest::new(self.text(), call.clone(), true);
                let parts = vec![Part::ApprovalRequest(request.clone())];
                messages.push(Message::new(Role::Assistant, parts));
                self.open_calls.push((call, Some(request)));
            }
            2 => messages.push(end_marker()),
            3 => {}
            4 => {
                let (answer, input) = (self.text(), self.user());
                messages.extend([Message::assistant(answer), input]);
                messages.push(Message::assistant(self.text()));
            }
            _ => messages.push(Message::assistant(self.text())),
        }
        messages
    }

    /// Returns a policy whose steps leave out the beginning of a conversation.
    fn policy(&mut self) -> PersistencePolicy {
        let mut replay = ReplayPolicy::default();
        if self.rng.one_in(2) {
            let turns = 1 + self.rng.below(6);
            let window = Window::turns(turns);
            replay = replay.with_window(match self.rng.one_in(3) {
                true => window.with_low_water(self.rng.below(turns + 1)),
                false => window,
            });
        }
        if self.rng.one_in(4) {
            let media = 1 + self.rng.below(3);
            replay = replay.with_old_media(match self.rng.one_in(2) {
                true => OldMedia::keep_last(media),
                false => OldMedia::keep_turns(media),
            });
        }
        match self.rng.below(8) {
            0 => replay = replay.with_tool_history(ToolHistory::Omit),
            1 => replay = replay.with_freshness(Freshness::within(Duration::ZERO)),
            2 => replay = replay.with_dangling_calls(DanglingCalls::Drop),
            _ => {}
        }
        PersistencePolicy::default().with_replay(replay)
    }
}

fn numbered(run: u16, messages: Vec<Message>) -> Vec<Arc<Message>> {
    let [high, low] = run.to_be_bytes();
    let run = RunId::from_bytes([high, low, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let numbered = (0..).zip(messages).map(|(index, mut message)| {
        message.id = Some(MessageId { run, index });
        Arc::new(message)
    });
    numbered.collect()
}

/// Returns the replay of a loaded history, as a run computes it.
fn replayed(
    policy: &PersistencePolicy,
    history: &History,
    summary: Option<&HistorySummary>,
) -> (Replay, Option<ReplaySummary>) {
    let mut replay = Replay::of_history(history, policy.replay.dangling_calls);
    if !history.leading.is_empty() {
        let mut leading = Replay::new(policy.replay.dangling_calls);
        leading.push_from(&history.leading, 0);
        replay = replay.after_prefix(&leading.view());
    }
    let summary = summary.and_then(|summary| ReplaySummary::of(history, summary.clone()));
    let context = ReplayContext::at(SystemTime::UNIX_EPOCH).with_summary(summary.as_ref());
    policy.replay.edit(&mut replay, &context);
    (replay, summary)
}

/// Returns a summary of whole runs, of which no call waits for a result.
fn summary_of(rng: &mut Rng, whole: &History) -> Option<HistorySummary> {
    let covers_to = 1 + rng.below(whole.messages.len()) as u64;
    let (last, next) = (whole.message(covers_to)?, whole.message(covers_to + 1)?);
    let mut covered = Replay::new(DanglingCalls::default());
    covered.push_from(&whole.messages.take(usize::try_from(covers_to).ok()?), 0);
    covered.push(next);
    let is_boundary = last.id?.run != next.id?.run && !covered.awaits_results();
    let summary = HistorySummary::new(covers_to, last.id?, format!("the first {covers_to}"));
    is_boundary.then_some(summary)
}

#[test]
fn the_replay_of_a_range_is_the_end_of_the_whole_replay() {
    let (mut ranges, mut skipped, mut loads) = (0, 0, 0);
    let cases = std::env::var("TOWER_CHAT_CASES").ok().and_then(|cases| cases.parse().ok());
    for case in 0..cases.unwrap_or(CASES) {
        let rng = Rng::of(9, case);
        let mut conversation = Conversation { rng, texts: 0, open_calls: Vec::new() };
        let policies = [conversation.policy(), conversation.policy()];
        let mut whole = History::empty();
        let mut summary: Option<HistorySummary> = None;
        for run in 1..40 {
            let policy = &policies[usize::from(conversation.rng.one_in(6))];
            let messages = numbered(run, conversation.run(run == 1));
            let own = messages.first().into_iter().cloned().collect::<Vec<_>>();
            let id = own[0].id.unwrap().run;
            let range = range_of(policy, &whole.head, id).filter(|_| !answers_calls(&own));
            let part = range.map_or_else(|| whole.clone(), |from| whole.range(from));
            let context = format!("case {case}, run {run}, {policy:?}, after {}", part.skipped());
            let (mut expected, _) = replayed(policy, &whole, summary.as_ref());
            let (mut found, in_force) = replayed(policy, &part, summary.as_ref());
            assert_eq!(found.view(), expected.view(), "{context}");
            assert_eq!(found.pending_approvals(), expected.pending_approvals(), "{context}");
            let next = next_range(policy, &part, &found, in_force.as_ref());
            let next = match answers_earlier_calls(&messages, id, &[]) {
                true => Some(all_messages()),
                false => next,
            };
            for message in &messages {
                expected.push(message);
                found.push(message);
                assert_eq!(found.view(), expected.view(), "{context}");
            }
            loads += 1;
            ranges += usize::from(!part.is_whole());
            skipped += part.skipped();
            whole.extend(messages);
            whole.head.revision =
                Revision { incarnation: 1, sequence: whole.messages.len() as u64 };
            whole.head.load_from = next.or(whole.head.load_from);
            if conversation.rng.one_in(8) {
                let added = summary_of(&mut conversation.rng, &whole);
                let covers = summary.as_ref().map_or(0, |summary| summary.covers_to);
                summary = added.filter(|added| added.covers_to > covers).or(summary);
                if conversation.rng.one_in(10) {
                    summary = None;
                }
                let in_force = summary.as_ref().map(|it| SummaryInForce::new(it.id, it.covers_to));
                whole.head.summary = in_force;
            }
        }
    }
    assert!(ranges > loads / 12, "{ranges} of {loads} loads were ranges");
    assert!(skipped > 10 * ranges as u64, "{skipped} messages were skipped in {ranges} ranges");
}

#[test]
fn a_window_is_in_force_if_no_earlier_step_removes_calls_by_their_age_or_by_the_tools() {
    let replay = || ReplayPolicy::default().with_window(Window::turns(2));
    let is_in_force = |replay: ReplayPolicy| {
        WindowInForce::of(&PersistencePolicy::default().with_replay(replay), None).is_some()
    };
    assert!(is_in_force(replay()));
    assert!(!is_in_force(replay().with_freshness(Freshness::within(Duration::ZERO))));
    assert!(!is_in_force(replay().with_outdated_calls(OutdatedCalls::keep().drop_unregistered())));
    assert!(!is_in_force(ReplayPolicy::default().with_window(Window::messages(2))));
    assert!(!is_in_force(ReplayPolicy::default()));
}

#[test]
fn a_range_begins_with_a_message_of_the_user_after_an_answer() {
    let replay = ReplayPolicy::default().with_window(Window::turns(1));
    let policy = PersistencePolicy::default().with_replay(replay);
    let answered = || vec![Message::user("q1"), Message::assistant("a1")];
    for (first, input, after) in [
        (answered(), Message::user("q2"), Some(2)),
        (answered(), Message::system("now"), None),
        (vec![Message::user("q1")], Message::user("q2"), None),
    ] {
        let mut whole = History::empty();
        whole.extend(numbered(1, first));
        whole.extend(numbered(2, vec![input, Message::assistant("a2")]));
        let (replay, summary) = replayed(&policy, &whole, None);
        let range = new_range(&policy, &whole, &replay, summary.as_ref());
        assert_eq!(range.map(|range| range.after), after);
    }
}
