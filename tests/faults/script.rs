//! The script of a conversation: its runs, and the calls of the model in each run.

use tower_chat::{ChatRequest, Message, Role};
use tower_chat_testkit::Rng;

use crate::faults::pictures;

/// The input of a run, and the calls of the model before its last answer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RunScript {
    pub(crate) input: Input,
    /// The tools that each round calls. A round is an answer with calls, and their results.
    pub(crate) rounds: Vec<Vec<&'static str>>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Input {
    /// Only a text.
    Text,
    /// A text, and approvals of all waiting calls.
    Approve,
    /// A text, and rejections of all waiting calls.
    Refuse,
}

/// `look` succeeds, `again` may be executed again, `fail` fails, `pay` needs approval, and `stop`
/// ends the run.
pub(crate) const TOOLS: [&str; 5] = ["look", "again", "fail", "pay", "stop"];

impl RunScript {
    pub(crate) fn random(rng: &mut Rng) -> Self {
        let input = match rng.below(6) {
            0..3 => Input::Text,
            3 | 4 => Input::Approve,
            _ => Input::Refuse,
        };
        let rounds = (0..rng.below(3)).map(|_| round(rng)).collect();
        Self { input, rounds }
    }

    pub(crate) fn waits(&self, round: usize) -> bool {
        self.rounds.get(round).is_some_and(|calls| calls.contains(&"pay"))
    }

    pub(crate) fn simpler(&self) -> Vec<Self> {
        let mut simpler = Vec::new();
        for round in 0..self.rounds.len() {
            let mut fewer = self.clone();
            fewer.rounds.remove(round);
            simpler.push(fewer);
            for call in 0..self.rounds[round].len() {
                if self.rounds[round].len() > 1 {
                    let mut fewer = self.clone();
                    fewer.rounds[round].remove(call);
                    simpler.push(fewer);
                }
                if self.rounds[round][call] != "look" {
                    let mut plainer = self.clone();
                    plainer.rounds[round][call] = "look";
                    simpler.push(plainer);
                }
            }
        }
        if self.input != Input::Text {
            simpler.push(Self { input: Input::Text, ..self.clone() });
        }
        simpler
    }
}

fn round(rng: &mut Rng) -> Vec<&'static str> {
    let calls = 1 + rng.below(3);
    let tool = |rng: &mut Rng| match rng.below(16) {
        0 => "pay",
        1 => "stop",
        2 | 3 => "fail",
        4..8 => "again",
        _ => "look",
    };
    (0..calls).map(|_| tool(rng)).collect()
}

pub(crate) fn input_text(run: usize) -> String {
    format!("run {run}")
}

/// Returns the run of a request and the number of its next round. The text of the input contains
/// the run, and the arguments of a call contain the run and the round.
pub(crate) fn run_and_round(request: &ChatRequest) -> Option<(usize, usize)> {
    let messages: Vec<&Message> = request.messages().iter().map(|message| &**message).collect();
    let run = |message: &&Message| -> Option<usize> {
        let text = message.text();
        let text = text.strip_suffix(pictures::SENTENCE).unwrap_or(&text);
        (message.role == Role::User).then(|| text.strip_prefix("run ")?.parse().ok())?
    };
    let run = messages.iter().rev().find_map(run)?;
    let rounds = messages.iter().flat_map(|message| message.calls()).filter_map(|call| {
        let (of, round): (usize, usize) = call.parse_arguments().ok()?;
        (of == run).then_some(round)
    });
    Some((run, rounds.max().map_or(0, |last| last + 1)))
}

pub(crate) fn arguments(run: usize, round: usize) -> String {
    format!("[{run},{round}]")
}
