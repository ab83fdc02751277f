//! Results that name the calls that they answer, where the open round would take them for those of
//! its own calls.

use std::{borrow::Cow, collections::HashSet, sync::Arc};

use tower_chat_core::{
    Message, Part, ToolResult,
    pairing::{Answers, Candidate, Ids, Matcher, RoundMatcher, Target},
};

use super::{left_out::LeftOut, round::Unanswered};

/// Names the calls in messages of results that follow each other.
pub(super) struct Naming<'a> {
    earlier: &'a LeftOut,
    /// The calls of the open round, and the results that it has so far.
    round: Option<RoundMatcher<&'a str>>,
    decided: Option<Decided<'a>>,
}

/// The calls of the open round, where those of its last message begin, and its results so far.
type RoundSoFar<'a, 'r> = (&'a [Unanswered], usize, &'r [Arc<Message>]);

/// The calls that were approved or rejected since the model spoke last.
struct Decided<'a> {
    calls: Matcher<&'a str>,
    /// Where those of the open round begin among them; before are calls that were left out.
    of_round: usize,
    /// Which calls of the open round they are.
    calls_of_round: Vec<usize>,
    /// Which of them a call of the open round is, if it is one.
    by_call: Vec<Option<usize>>,
}

impl<'a> Naming<'a> {
    /// `round` are the calls of the open round, where those of its last message begin, and its
    /// results so far; `decided` are the requests for approval that were answered since the model
    /// spoke last.
    pub(super) fn new(
        earlier: &'a LeftOut,
        round: Option<RoundSoFar<'a, '_>>,
        decided: &[String],
    ) -> Self {
        let round_calls = round.map(|(calls, ..)| calls).unwrap_or_default();
        let round = round.map(|(calls, last, results)| {
            let mut round = RoundMatcher::new(candidates(calls), last);
            round.extend(targets(results));
            round
        });
        let decided = (!decided.is_empty()).then(|| {
            let requests: HashSet<&str> = decided.iter().map(String::as_str).collect();
            Decided::new(earlier, round_calls, round.as_ref(), &requests)
        });
        Self { earlier, round, decided }
    }

    /// The next message of results.
    pub(super) fn name(&mut self, message: &Arc<Message>) -> Arc<Message> {
        let mut named = Cow::Borrowed(message);
        if let Some(decided) = &mut self.decided {
            decided.name(&mut named, self.round.as_mut(), self.earlier);
        }
        self.name_earlier(&mut named);
        if let (Some(round), Some(decided)) = (&mut self.round, &mut self.decided) {
            decided.follow(round, &named);
        }
        named.into_owned()
    }

    /// Results name earlier calls that were left out: those whose ids say so, where the open round
    /// could take them for calls of its own that have no ids.
    fn name_earlier(&mut self, message: &mut Cow<'_, Arc<Message>>) {
        let Some(round) = &mut self.round else { return };
        let mut is_late =
            |result: &ToolResult| result.call.is_none() && !round.has_id(result.call_id.as_deref());
        let has_late = message.results().any(|it| is_late(it) && self.earlier.find(it).is_some());
        if !has_late {
            return;
        }
        let mut earlier = self.earlier.clone();
        for part in &mut Arc::make_mut(message.to_mut()).parts {
            let Part::ToolResult(result) = part else { continue };
            if is_late(result)
                && let Some(call) = earlier.find(result).and_then(|number| earlier.remove(number))
            {
                result.call = Some(call.named_by);
            }
        }
    }
}

fn candidates(calls: &[Unanswered]) -> Vec<Candidate<&str>> {
    calls.iter().map(Unanswered::candidate).collect()
}

fn targets(messages: &[Arc<Message>]) -> impl Iterator<Item = Target<'_>> {
    messages.iter().flat_map(|message| message.results()).map(Target::from)
}

impl<'a> Decided<'a> {
    fn new(
        earlier: &'a LeftOut,
        calls: &'a [Unanswered],
        round: Option<&RoundMatcher<&'a str>>,
        requests: &HashSet<&str>,
    ) -> Self {
        let is_decided = |call: &Unanswered| {
            call.approval.as_ref().is_some_and(|request| requests.contains(request.id.as_str()))
        };
        let earlier = earlier.iter().map(|call| &**call).filter(|call| is_decided(call));
        let mut asked: Vec<_> = earlier.map(Unanswered::candidate).collect();
        let of_round = asked.len();
        let mut calls_of_round = Vec::new();
        let mut by_call = vec![None; calls.len()];
        for (index, (call, decided)) in calls.iter().zip(&mut by_call).enumerate() {
            if is_decided(call) {
                *decided = Some(asked.len());
                calls_of_round.push(index);
                asked.push(call.candidate());
            }
        }
        let calls = Matcher::new(asked, Ids::MayBeMissing);
        let mut decided = Self { calls, of_round, calls_of_round, by_call };
        if let Some(round) = round {
            decided.update(round);
        }
        decided
    }

    /// The open round takes the results of a message: a call that has its result does not wait any
    /// more.
    fn follow(&mut self, round: &mut RoundMatcher<&'a str>, message: &Message) {
        let before = round.answers().len();
        if !round.extend(message.results().map(Target::from)) {
            return self.update(round);
        }
        for answers in round.answers().get(before..).unwrap_or_default() {
            if let Answers::Call(call) = answers
                && let Some(decided) = self.by_call.get(*call).copied().flatten()
            {
                self.calls.set_hidden(decided, true);
            }
        }
    }

    fn update(&mut self, round: &RoundMatcher<&'a str>) {
        for (decided, call) in (self.of_round..).zip(&self.calls_of_round) {
            self.calls.set_hidden(decided, round.is_answered(*call));
        }
    }

    /// The results of a message name the calls that were approved or rejected right before it,
    /// where they would be taken for those of other calls with the same ids.
    fn name(
        &mut self,
        message: &mut Cow<'_, Arc<Message>>,
        mut round: Option<&mut RoundMatcher<&'a str>>,
        earlier: &LeftOut,
    ) {
        if message.results().all(|result| result.call.is_some()) {
            return;
        }
        let mut answered = Vec::new();
        for part in &mut Arc::make_mut(message.to_mut()).parts {
            let Part::ToolResult(result) = part else { continue };
            let id = result.call_id.as_deref();
            let is_of_other = !self.calls.has_id(id)
                && (round.as_mut().is_some_and(|round| round.has_id(id))
                    || earlier.find(result).is_some());
            if is_of_other {
                // Its id says so; by order it might be taken for a decided call without an id.
                continue;
            }
            if let Answers::Call(call) = self.calls.answer(&*result) {
                answered.push(call);
                result.call = self.calls.calls().get(call).and_then(|call| call.position);
            }
        }
        // A call that was left out goes on waiting until its result is paired with it.
        answered.into_iter().for_each(|call| self.calls.set_answered(call, false));
    }
}
