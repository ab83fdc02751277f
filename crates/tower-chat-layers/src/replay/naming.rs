//! Adds the position of the call to a result ([`ToolResult::call`]) if a match by id and order
//! would be wrong. In the modules of replay, a result is *named* after this.
//!
//! Two kinds of results need a position. The result of an omitted call could be matched with a call
//! of the open round. The result of an approved or rejected call could be matched with another call
//! that has the same id.
//!
//! A round consists of the calls of one answer of the model and their results. The open round is
//! the last one, if results may still arrive for it.

use std::{borrow::Cow, collections::HashSet, sync::Arc};

use tower_chat_core::{
    Message, Part, ToolResult,
    pairing::{Answers, Ids, Matcher, RoundMatcher, Target},
};

use super::{
    omitted_calls::OmittedCalls,
    round::{Round, RoundCall},
};

/// Adds call positions to the results in consecutive messages.
pub(super) struct Naming<'a> {
    earlier: &'a OmittedCalls,
    /// The calls of the open round and its results so far.
    round: Option<RoundMatcher<&'a str>>,
    decided: Option<Decided<'a>>,
}

/// The calls that were approved or rejected since the model's last answer.
struct Decided<'a> {
    calls: Matcher<&'a str>,
    /// The index in `calls` of the first call of the open round. The calls before this index are
    /// omitted calls of earlier rounds.
    of_round: usize,
    /// For each call of the open round in `calls`, its index among all calls of this round.
    calls_of_round: Vec<usize>,
    /// For each call of the open round, its index in `calls`, or `None` if the call was neither
    /// approved nor rejected.
    by_call: Vec<Option<usize>>,
}

impl<'a> Naming<'a> {
    /// `round` is the open round with its calls. `decided` contains the ids of the approval requests
    /// that were answered since the model's last answer.
    pub(super) fn new(
        earlier: &'a OmittedCalls,
        round: Option<(&'a [RoundCall], &Round)>,
        decided: &[String],
    ) -> Self {
        let round_calls = round.map(|(calls, _)| calls).unwrap_or_default();
        let round = round.map(|(calls, round)| {
            round.matcher(calls, round.results().iter().flat_map(|message| message.results()))
        });
        let decided = (!decided.is_empty()).then(|| {
            let requests: HashSet<&str> = decided.iter().map(String::as_str).collect();
            Decided::new(earlier, round_calls, round.as_ref(), &requests)
        });
        Self { earlier, round, decided }
    }

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

    /// Adds a position to each result with the id of an omitted call. The result could otherwise be
    /// matched with a call of the open round without an id.
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

impl<'a> Decided<'a> {
    fn new(
        earlier: &'a OmittedCalls,
        calls: &'a [RoundCall],
        round: Option<&RoundMatcher<&'a str>>,
        requests: &HashSet<&str>,
    ) -> Self {
        let is_decided = |call: &RoundCall| {
            call.approval.as_ref().is_some_and(|request| requests.contains(request.id.as_str()))
        };
        let earlier = earlier.iter().map(|call| &**call).filter(|call| is_decided(call));
        let mut asked: Vec<_> = earlier.map(RoundCall::candidate).collect();
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

    /// Adds the results of a message to the matcher of the open round. The decided calls that they
    /// answer are not matched again.
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

    /// Adds a position to each result of an approved or rejected call. The result could otherwise
    /// be matched with another call with the same id.
    fn name(
        &mut self,
        message: &mut Cow<'_, Arc<Message>>,
        mut round: Option<&mut RoundMatcher<&'a str>>,
        earlier: &OmittedCalls,
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
                // The result is for another call, which has this id. `calls.answer` could match it
                // with a decided call without an id.
                continue;
            }
            if let Answers::Call(call) = self.calls.answer(&*result) {
                answered.push(call);
                result.call = self.calls.calls().get(call).and_then(|call| call.position);
            }
        }
        // `calls.answer` has marked these calls as answered too early. A call is answered when
        // `follow` adds its result.
        answered.into_iter().for_each(|call| self.calls.set_answered(call, false));
    }
}
