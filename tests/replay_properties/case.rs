//! A test case: a part of a transcript with random damage, and a combination of policies.

use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
};

use tower_chat::Message;
use tower_chat_testkit::Rng;

use crate::replay_properties::{
    damage::{damage, number},
    plan::Plan,
    properties,
};
use crate::search::shrunk;

/// The maximum number of messages of a case.
const MAX_MESSAGES: usize = 48;

#[derive(Clone)]
pub(crate) struct Case {
    pub(crate) messages: Vec<Message>,
    pub(crate) plan: Plan,
    /// The number of messages after which the test reads the incomplete replay.
    pub(crate) pause: usize,
}

impl Case {
    pub(crate) fn random(seed: u64, case: u64, transcripts: &[Vec<Message>]) -> Self {
        let mut rng = Rng::of(seed, case);
        let which = usize::try_from(case).expect("a small number") % transcripts.len();
        let transcript = transcripts.get(which).expect("it is within");
        let begin = if rng.one_in(2) { 0 } else { rng.below(transcript.len()) };
        let end = begin + 1 + rng.below(MAX_MESSAGES);
        let end = end.min(transcript.len());
        let mut messages = transcript.get(begin..end).unwrap_or_default().to_vec();
        damage(&mut rng, &mut messages);
        if !rng.one_in(3) {
            number(&mut rng, &mut messages);
        }
        let plan = Plan::random(&mut rng, &messages);
        let pause = rng.below(messages.len() + 1);
        Self { messages, plan, pause }
    }

    pub(crate) fn failure(&self) -> Option<String> {
        let checked = catch_unwind(AssertUnwindSafe(|| properties::check(self)));
        match checked {
            Ok(failure) => failure.err(),
            Err(_) => Some("it panicked".to_owned()),
        }
    }

    pub(crate) fn shrunk(self) -> Self {
        shrunk(self, |case| case.smaller().collect(), |case| case.failure().is_some())
    }

    fn smaller(&self) -> impl Iterator<Item = Self> {
        let count = self.messages.len();
        let halves =
            [(0, count / 2), (count / 2, count), (0, count / 4), (count - count / 4, count)];
        let cuts = halves.into_iter().chain((0..count).map(|position| (position, position + 1)));
        let shorter = cuts.filter(|(from, to)| from < to).map(|(from, to)| {
            let mut case = self.clone();
            case.messages.drain(from..to);
            case.pause = case.pause.min(case.messages.len());
            case
        });
        let fewer_parts = (0..count).flat_map(|position| {
            let parts = self.messages.get(position).map_or(0, |message| message.parts.len());
            (0..parts).filter(move |_| parts > 1).map(move |part| (position, part))
        });
        let fewer_parts = fewer_parts.filter_map(|(position, part)| {
            let mut case = self.clone();
            case.messages.get_mut(position)?.parts.remove(part);
            Some(case)
        });
        let plans = self.plan.simpler().into_iter();
        let fewer_policies = plans.map(|plan| Self { plan, ..self.clone() });
        fewer_policies.chain(shorter).chain(fewer_parts)
    }
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:?}, fold interrupted at {}", self.plan, self.pause)?;
        self.messages.iter().try_for_each(|message| writeln!(f, "  {message:?}"))
    }
}
