//! The answers of the model. Each answer, call and input has a unique text.

use tower_chat::Message;

use crate::contract_model::{
    case::{AnswerPlan, Case, Ids},
    compaction::{self, Service},
    media::{self, Medium},
    tools::Tool,
};

pub(crate) struct Scripted {
    pub(crate) text: Option<String>,
    pub(crate) calls: Vec<ScriptedCall>,
    /// The summary of the earlier messages, if any.
    pub(crate) compaction: Option<compaction::Item>,
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

impl UserMessage {
    pub(crate) fn into_message(self) -> Message {
        let mut message = Message::user(self.text);
        message.parts.extend(self.media.into_iter().map(Medium::part));
        message
    }
}

/// Returns the message of the user in the input of a run.
pub(crate) fn input(case: &Case, run: usize) -> UserMessage {
    UserMessage { text: format!("u{run}"), media: media::of_input(case, run) }
}

/// Returns the messages of an answer of this service.
pub(crate) fn answer(case: &Case, run: usize, index: usize, service: Service) -> Vec<Scripted> {
    match case.steps[run].answers.get(index) {
        Some(plan) => of_plan(plan, run, index, service),
        None => {
            let text = Some(format!("a{run}_{index}_0"));
            vec![Scripted { text, calls: Vec::new(), compaction: None }]
        }
    }
}

fn of_plan(plan: &AnswerPlan, run: usize, index: usize, service: Service) -> Vec<Scripted> {
    let mut next = 0;
    let message = |(of, message): (usize, &crate::contract_model::case::MessagePlan)| {
        let calls = message.calls.iter().map(|tool| {
            let token = format!("t{run}_{index}_{next}");
            next += 1;
            ScriptedCall { id: id(plan.ids, &token, next - 1), token, tool: *tool }
        });
        let calls = calls.collect();
        let item = plan.compaction.filter(|item| item.message % plan.messages.len().max(1) == of);
        let compaction = item.map(|item| compaction::Item {
            name: format!("s{run}_{index}"),
            issuer: service,
            is_last: item.is_last,
        });
        let text = message.has_text.then(|| format!("a{run}_{index}_{of}"));
        Scripted { text, calls, compaction }
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
