//! A generated conversation of an application's own tool loop. A turn is one question of the user
//! and everything up to its answer. A round consists of the calls of one answer and their results.

use std::fmt;

use tower_chat::{Message, PersistenceMode, ToolCall, ToolResult, message::Reasoning};
use tower_chat_testkit::{Rng, Step};

use super::words;

/// Which messages the loop sends with each service call.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Sends {
    All,
    Run,
    New,
    TwoTurns,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Ids {
    Distinct,
    Equal,
    Missing,
}

#[derive(Debug, Clone)]
pub(super) struct Case {
    /// The mode of the layer above the loop, if any.
    pub(super) above: Option<PersistenceMode>,
    pub(super) sends: Sends,
    /// Whether each request has the run id of its turn, and not a new one.
    pub(super) keeps_run: bool,
    pub(super) keeps_all: bool,
    joins: bool,
    pub(super) has_system: bool,
    pub(super) streamed: bool,
    ids: Ids,
    pub(super) turns: Vec<Turn>,
}

#[derive(Debug, Clone)]
pub(super) struct Turn {
    /// Selects the texts of the user and of the model. There are only two numbers, so that texts
    /// repeat.
    pub(super) text: usize,
    /// The number of calls in each round.
    pub(super) rounds: Vec<usize>,
    /// The round in which a tool queues a message of the user.
    pub(super) queues: Option<usize>,
    /// If set, the loop stops the turn in its last round, when this number of its tools have
    /// finished. If it is 0, the calls of the round wait for approval.
    pub(super) stops: Option<usize>,
    fails: Option<usize>,
    /// Whether the last answer is lost and its request is sent again.
    pub(super) loses_answer: bool,
    /// Whether each service call is made in another process.
    pub(super) restarts: bool,
    /// Whether the run id of the turn is used again with another text. Such a request is refused
    /// only with a layer above the loop. Without it, the persister (`PerServiceCallPersistence`)
    /// treats the text as a continuation of the run.
    pub(super) reuses_id: bool,
    /// Whether the conversation is copied after the turn, and the user continues in the copy.
    pub(super) forks: bool,
}

#[derive(Debug, Clone)]
pub(super) struct Spoken {
    pub(super) text: String,
    /// Whether the text is stored. The result that replay adds for a call without a stored result
    /// is only sent.
    pub(super) is_stored: bool,
}

#[derive(Debug, Default)]
pub(super) struct Expected {
    pub(super) spoken: Vec<Spoken>,
    /// The texts of each service call.
    pub(super) calls: Vec<Vec<String>>,
}

pub(super) const IN_COPY: &str = "say it in the copy";
const ANSWER_IN_COPY: &str = "ok in the copy";
pub(super) const QUEUED: &str = "note this";
/// The result that replay adds for a call without a stored result.
const INTERRUPTED: &str =
    "tool The call was interrupted. It may or may not have taken effect; its result is unknown.";

impl Case {
    pub(super) fn random(seed: u64, number: u64) -> Self {
        let mut rng = Rng::of(seed, number);
        let above = [
            None,
            Some(PersistenceMode::PerRun),
            Some(PersistenceMode::PerServiceCall),
            Some(PersistenceMode::Journaled),
        ];
        let above = above[rng.below(4)];
        let count = 1 + rng.below(4);
        let keeps_run = rng.one_in(2);
        let is_alone = above.is_none();
        let mut turns: Vec<Turn> = (0..count).map(|_| Turn::random(&mut rng, is_alone)).collect();
        for number in 1..turns.len() {
            if is_repeated(&turns[number - 1..=number]) {
                turns[number].text += 1;
            }
        }
        Self {
            above,
            sends: [Sends::All, Sends::Run, Sends::New, Sends::TwoTurns][rng.below(4)],
            keeps_run,
            keeps_all: rng.one_in(3),
            joins: rng.one_in(2),
            has_system: rng.one_in(3),
            streamed: rng.one_in(2),
            ids: [Ids::Distinct, Ids::Equal, Ids::Missing][rng.below(3)],
            turns,
        }
    }

    pub(super) fn simpler(&self) -> Vec<Self> {
        let mut simpler = Vec::new();
        let mut with = |change: &dyn Fn(&mut Self)| {
            let mut case = self.clone();
            change(&mut case);
            if case.to_string() != self.to_string() {
                simpler.push(case);
            }
        };
        for turn in 0..self.turns.len() {
            with(&|case| {
                case.turns.remove(turn);
            });
            with(&|case| {
                case.turns[turn].rounds.pop();
            });
            with(&|case| case.turns[turn].rounds.iter_mut().for_each(|calls| *calls = 1));
            with(&|case| case.turns[turn].queues = None);
            with(&|case| case.turns[turn].stops = None);
            with(&|case| case.turns[turn].fails = None);
            with(&|case| case.turns[turn].loses_answer = false);
            with(&|case| case.turns[turn].restarts = false);
            with(&|case| case.turns[turn].reuses_id = false);
            with(&|case| case.turns[turn].forks = false);
        }
        with(&|case| case.has_system = false);
        with(&|case| case.streamed = false);
        with(&|case| case.ids = Ids::Distinct);
        simpler.retain(|case| {
            let turns = &*case.turns;
            !turns.is_empty()
                && turns.iter().all(Turn::is_valid)
                && !turns.windows(2).any(is_repeated)
        });
        simpler
    }

    pub(super) fn script(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        for (number, turn) in self.turns.iter().enumerate() {
            for call in 0..turn.service_calls() {
                if turn.fails == Some(call) {
                    steps.push(Step::error("overloaded"));
                }
                steps.push(Step::message(self.answer(number, call)));
            }
            if turn.forks {
                steps.push(Step::message(Message::assistant(ANSWER_IN_COPY)));
            }
        }
        steps
    }

    fn answer(&self, number: usize, call: usize) -> Message {
        let turn = &self.turns[number];
        let Some(calls) = turn.rounds.get(call) else {
            return Message::assistant(format!("ok {}", turn.text));
        };
        let calls = (0..*calls).map(|index| {
            let mut call_of = ToolCall::without_id("look", "{}");
            call_of.id = match self.ids {
                Ids::Distinct => Some(format!("id_{number}_{call}_{index}")),
                Ids::Equal => Some("same".to_owned()),
                Ids::Missing => None,
            };
            call_of
        });
        let mut message = Message::tool_calls(calls);
        message.parts.insert(0, Reasoning::new("hm").into());
        message
    }

    /// Returns the results of a round, and the message that one of its tools queues.
    pub(super) fn results(&self, number: usize, call: usize) -> Vec<Message> {
        let turn = &self.turns[number];
        let asking = self.answer(number, call);
        let results = asking.calls().enumerate().map(|(index, asked)| {
            let mut result = ToolResult::new("", format!("result {number} {call} {index}"));
            result.call_id.clone_from(&asked.id);
            result
        });
        let results = results.take(turn.finished_tools(call));
        let mut messages: Vec<Message> = match self.joins {
            true => vec![Message::tool_results(results)],
            false => results.map(|result| Message::tool_results([result])).collect(),
        };
        messages.retain(|message| !message.parts.is_empty());
        messages.extend((turn.queues == Some(call)).then(|| Message::user(QUEUED)));
        messages
    }

    pub(super) fn expected(&self) -> Expected {
        let mut expected = Expected::default();
        // The unstored results of the last stopped turn, and the number of its calls without a
        // result.
        let mut waiting: (Vec<String>, usize) = Default::default();
        for (number, turn) in self.turns.iter().enumerate() {
            expected.resume(&mut waiting, self.sends);
            expected.say([format!("user say {}", turn.text)]);
            for call in 0..turn.service_calls() {
                let times = if turn.fails == Some(call) { 2 } else { 1 };
                let texts = expected.texts();
                expected.calls.extend(std::iter::repeat_n(texts, times));
                expected.say(words(&self.answer(number, call)));
                let Some(calls) = turn.rounds.get(call) else { continue };
                let results: Vec<String> =
                    self.results(number, call).iter().flat_map(words).collect();
                match turn.is_stopped_in(call) {
                    true => waiting = (results, *calls - turn.finished_tools(call)),
                    false => expected.say(results),
                }
            }
            if turn.forks {
                let mut copy = Expected { spoken: expected.spoken.clone(), calls: Vec::new() };
                copy.resume(&mut waiting.clone(), self.sends);
                copy.say([format!("user {IN_COPY}")]);
                expected.calls.push(copy.texts());
            }
        }
        expected
    }
}

/// Returns whether the user repeats the text of a stopped turn. The persister then treats the
/// request as a retry of the turn, because it cannot distinguish the two. Such cases are not
/// generated.
fn is_repeated(turns: &[Turn]) -> bool {
    turns[0].stops.is_some() && turns[0].text == turns[1].text
}

impl Expected {
    fn say(&mut self, texts: impl IntoIterator<Item = String>) {
        let texts = texts.into_iter().map(|text| Spoken { text, is_stored: true });
        self.spoken.extend(texts);
    }

    /// Adds the results of a stopped turn when the next turn begins. A loop that sends only the
    /// current run never sends them.
    fn resume(&mut self, waiting: &mut (Vec<String>, usize), sends: Sends) {
        let (mut results, mut missing) = std::mem::take(waiting);
        if sends == Sends::Run {
            missing += results.len();
            results.clear();
        }
        self.say(results);
        let interrupted = Spoken { text: INTERRUPTED.to_owned(), is_stored: false };
        self.spoken.extend(std::iter::repeat_n(interrupted, missing));
    }

    fn texts(&self) -> Vec<String> {
        self.spoken.iter().map(|spoken| spoken.text.clone()).collect()
    }
}

impl Turn {
    fn random(rng: &mut Rng, is_alone: bool) -> Self {
        let count = rng.below(4);
        let rounds: Vec<usize> = (0..count).map(|_| 1 + rng.below(3)).collect();
        let stops = rounds.last().filter(|_| is_alone && rng.one_in(4));
        let stops = stops.map(|calls| rng.below(*calls));
        let completed = rounds.len() - usize::from(stops.is_some());
        let is_answered = is_alone && stops.is_none();
        Self {
            text: rng.below(2),
            queues: (completed > 0 && rng.one_in(3)).then(|| rng.below(completed)),
            stops,
            fails: rng.one_in(3).then(|| rng.below(completed + 1)),
            loses_answer: is_answered && !rounds.is_empty() && rng.one_in(4),
            restarts: rng.one_in(2),
            reuses_id: !is_alone && rng.one_in(4),
            forks: is_alone && rng.one_in(4),
            rounds,
        }
    }

    fn is_valid(&self) -> bool {
        let calls = self.rounds.last().copied().unwrap_or_default();
        self.stops.is_none_or(|finished| finished < calls)
            && self.queues.is_none_or(|round| round + 1 < self.service_calls())
            && self.fails.is_none_or(|call| call < self.service_calls())
            && !(self.loses_answer && self.rounds.is_empty())
    }

    pub(super) fn service_calls(&self) -> usize {
        self.rounds.len() + usize::from(self.stops.is_none())
    }

    pub(super) fn is_stopped_in(&self, call: usize) -> bool {
        self.stops.is_some() && call + 1 == self.rounds.len()
    }

    /// Returns the number of tools that finish in a round.
    fn finished_tools(&self, call: usize) -> usize {
        let calls = self.rounds.get(call).copied().unwrap_or_default();
        self.stops.filter(|_| self.is_stopped_in(call)).unwrap_or(calls)
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:#?}")
    }
}
