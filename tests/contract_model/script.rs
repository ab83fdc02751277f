//! The answers of the model. Each answer, call and input has a unique text.

use crate::contract_model::{
    case::{AnswerPlan, Case, Ids},
    media::{self, Medium},
    tools::Tool,
};

pub(crate) struct Scripted {
    pub(crate) text: Option<String>,
    pub(crate) calls: Vec<ScriptedCall>,
}

pub(crate) struct ScriptedCall {
    /// A text that is part of the arguments, the result and the error of this call.
    pub(crate) token: String,
    pub(crate) tool: Tool,
    /// The id of the call in the answer of the model.
    pub(crate) id: Option<String>,
}

/// A message of the user.
#[derive(Debug, Clone)]
pub(crate) struct UserMessage {
    pub(crate) text: String,
    pub(crate) media: Vec<Medium>,
}

/// Returns the message of the user in the input of a run.
pub(crate) fn input(case: &Case, run: usize) -> UserMessage {
    UserMessage { text: format!("u{run}"), media: media::of_input(case, run) }
}

pub(crate) fn answer(case: &Case, run: usize, index: usize) -> Vec<Scripted> {
    match case.steps[run].answers.get(index) {
        Some(plan) => of_plan(plan, run, index),
        None => vec![Scripted { text: Some(format!("a{run}_{index}_0")), calls: Vec::new() }],
    }
}

fn of_plan(plan: &AnswerPlan, run: usize, index: usize) -> Vec<Scripted> {
    let mut next = 0;
    let message = |(of, message): (usize, &crate::contract_model::case::MessagePlan)| {
        let calls = message.calls.iter().map(|tool| {
            let token = format!("t{run}_{index}_{next}");
            next += 1;
            ScriptedCall { id: id(plan.ids, &token, next - 1), token, tool: *tool }
        });
        let calls = calls.collect();
        Scripted { text: message.has_text.then(|| format!("a{run}_{index}_{of}")), calls }
    };
    plan.messages.iter().enumerate().map(message).collect()
}

fn id(ids: Ids, token: &str, position: usize) -> Option<String> {
    match ids {
        Ids::Distinct => Some(format!("id_{token}")),
        Ids::Missing => None,
        Ids::Empty => Some(String::new()),
        Ids::Equal => Some("call".to_owned()),
        Ids::Counted => Some(format!("call_{position}")),
        Ids::Mixed => {
            let kinds = [Ids::Distinct, Ids::Missing, Ids::Equal, Ids::Empty, Ids::Counted];
            id(kinds[token.bytes().map(usize::from).sum::<usize>() % 5], token, position)
        }
    }
}
