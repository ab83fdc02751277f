//! Results that name the calls that they answer, where the open round would take them for those of
//! its own calls.

use std::{borrow::Cow, collections::HashSet, sync::Arc};

use tower_chat_core::{Message, Part, ToolResult};

use super::{
    left_out::LeftOut,
    pairing::{Answers, Asked, Pairing, RoundPairing},
    round::Unanswered,
};

/// Names the calls in messages of results that follow each other.
pub(super) struct Naming<'a> {
    earlier: &'a LeftOut,
    round: Option<OpenRound<'a>>,
    decided: Option<Decided<'a>>,
}

/// The calls of the open round, where those of its last message begin, and its results so far.
type RoundSoFar<'a, 'r> = (&'a [Unanswered], usize, &'r [Arc<Message>]);

/// The calls of the open round, and the results that it has so far.
struct OpenRound<'a> {
    calls: Vec<Asked<&'a str>>,
    last: usize,
    results: Vec<Arc<Message>>,
    pairing: RoundPairing<&'a str>,
}

/// The calls that were approved or rejected since the model spoke last.
struct Decided<'a> {
    pairing: Pairing<&'a str>,
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
            OpenRound::new(calls.iter().map(|call| call.asked(false)).collect(), last, results)
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
            decided.name(&mut named, self.round.as_ref(), self.earlier);
        }
        self.name_earlier(&mut named);
        if let (Some(round), Some(decided)) = (&mut self.round, &mut self.decided) {
            round.push(&named, decided);
        }
        named.into_owned()
    }

    /// Results name earlier calls that were left out: those whose ids say so, where the open round
    /// could take them for calls of its own that have no ids.
    fn name_earlier(&self, message: &mut Cow<'_, Arc<Message>>) {
        let Some(round) = self.round.as_ref().filter(|_| !self.earlier.is_empty()) else { return };
        let is_late =
            |result: &ToolResult| result.call.is_none() && !round.pairing.has_named(result);
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

impl<'a> OpenRound<'a> {
    fn new(calls: Vec<Asked<&'a str>>, last: usize, results: &[Arc<Message>]) -> Self {
        let pairing = paired(&calls, last, results);
        Self { calls, last, results: results.to_vec(), pairing }
    }

    /// Takes the results of a message.
    fn push(&mut self, message: &Arc<Message>, decided: &mut Decided<'a>) {
        self.results.push(message.clone());
        for result in message.results() {
            match self.pairing.push(result) {
                Some(Answers::Call(call)) => decided.hide(call),
                Some(Answers::Again | Answers::Nothing) => {}
                None => {
                    self.pairing = paired(&self.calls, self.last, &self.results);
                    decided.update(&self.pairing);
                    return;
                }
            }
        }
    }
}

fn paired<'a>(
    calls: &[Asked<&'a str>],
    last: usize,
    results: &[Arc<Message>],
) -> RoundPairing<&'a str> {
    let results: Vec<&ToolResult> = results.iter().flat_map(|it| it.results()).collect();
    RoundPairing::of(calls.to_vec(), last, &results).0
}

impl<'a> Decided<'a> {
    fn new(
        earlier: &'a LeftOut,
        calls: &'a [Unanswered],
        round: Option<&OpenRound<'a>>,
        requests: &HashSet<&str>,
    ) -> Self {
        let is_decided = |call: &Unanswered| {
            call.approval.as_ref().is_some_and(|request| requests.contains(request.id.as_str()))
        };
        let earlier = earlier.iter().map(|call| &**call).filter(|call| is_decided(call));
        let mut asked: Vec<_> = earlier.map(|call| call.asked(false)).collect();
        let of_round = asked.len();
        let mut calls_of_round = Vec::new();
        let mut by_call = vec![None; calls.len()];
        for (index, (call, decided)) in calls.iter().zip(&mut by_call).enumerate() {
            if is_decided(call) {
                *decided = Some(asked.len());
                calls_of_round.push(index);
                asked.push(call.asked(false));
            }
        }
        let pairing = Pairing::new(asked);
        let mut decided = Self { pairing, of_round, calls_of_round, by_call };
        if let Some(round) = round {
            decided.update(&round.pairing);
        }
        decided
    }

    /// A call of the open round that has its result is not waited for any more.
    fn hide(&mut self, call: usize) {
        if let Some(decided) = self.by_call.get(call).copied().flatten() {
            self.pairing.set_hidden(decided, true);
        }
    }

    fn update(&mut self, round: &RoundPairing<&'a str>) {
        for (decided, call) in (self.of_round..).zip(&self.calls_of_round) {
            self.pairing.set_hidden(decided, round.is_answered(*call));
        }
    }

    /// The results of a message name the calls that were approved or rejected right before it,
    /// where they would be taken for those of other calls with the same ids.
    fn name(
        &mut self,
        message: &mut Cow<'_, Arc<Message>>,
        round: Option<&OpenRound<'a>>,
        earlier: &LeftOut,
    ) {
        if message.results().all(|result| result.call.is_some()) {
            return;
        }
        let mut answered = Vec::new();
        for part in &mut Arc::make_mut(message.to_mut()).parts {
            let Part::ToolResult(result) = part else { continue };
            let is_of_other = !self.pairing.has_named(result)
                && (round.is_some_and(|round| round.pairing.has_named(result))
                    || earlier.find(result).is_some());
            if is_of_other {
                // Its id says so; by order it might be taken for a decided call without an id.
                continue;
            }
            if let Answers::Call(call) = self.pairing.answer(result) {
                answered.push(call);
                result.call = self.pairing.calls().get(call).and_then(|call| call.position);
            }
        }
        // A call that was left out goes on waiting until its result is paired with it.
        answered.into_iter().for_each(|call| self.pairing.set_answered(call, false));
    }
}
