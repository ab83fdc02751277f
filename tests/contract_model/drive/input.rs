//! Creates the inputs of runs.

use tower_chat::{Message, Part, ToolResult, tool::pending_results};

use super::Driver;
use crate::contract_model::{
    approvals::{ApprovalInput, Extent},
    case::{Input, ResultInput, Step},
    media::{self, Medium},
    model::RunInput,
    script,
};

impl Driver<'_> {
    pub(super) fn input(&self, run: usize, step: &Step) -> RunInput {
        match &step.input {
            Input::Text => None,
            Input::Approvals(input) => self.approvals(run, input),
            Input::Results(input) => self.results(input),
        }
        .unwrap_or(RunInput::Text)
    }

    fn approvals(&self, run: usize, input: &ApprovalInput) -> Option<RunInput> {
        let tokens: Vec<String> = match input.extent {
            Extent::Again => self.model.decided(),
            Extent::Whole | Extent::Partial => {
                let waiting = self.model.waiting().into_iter();
                let chosen = waiting.skip(input.skipped).take(input.batches).flatten();
                chosen.map(|call| call.token).collect()
            }
        };
        let answer = |(index, token): (usize, String)| {
            let decision = input.decision(run, index, &token);
            (token, decision)
        };
        let mut answers: Vec<_> = tokens.into_iter().enumerate().map(answer).collect();
        if input.extent == Extent::Partial {
            answers.pop();
        }
        if input.reversed {
            answers.reverse();
        }
        (!answers.is_empty()).then_some(RunInput::Approvals { answers, has_text: input.has_text })
    }

    fn results(&self, input: &ResultInput) -> Option<RunInput> {
        let tokens = match input.from_record {
            true => self.model.pending_results(),
            false => {
                let returned = self.model.returned().into_iter();
                returned.skip(input.skipped).take(input.calls).collect()
            }
        };
        let (has_text, from_record) = (input.has_text, input.from_record);
        (!tokens.is_empty()).then_some(RunInput::Results { tokens, has_text, from_record })
    }

    pub(super) fn text(&self, run: usize) -> Message {
        script::input(self.case, run).into_message()
    }

    pub(super) async fn messages(
        &self,
        run: usize,
        input: &RunInput,
    ) -> Result<Vec<Message>, String> {
        let text = || self.text(run);
        Ok(match input {
            RunInput::Text => vec![text()],
            RunInput::Again(message) => vec![message.clone().into_message()],
            RunInput::Approvals { answers, has_text } => {
                let mut message = text();
                let text = std::mem::take(&mut message.parts);
                for (token, decision) in answers {
                    let request = self.requests.get(token);
                    let request = request.ok_or_else(|| {
                        format!("no caller received an approval request for {token}")
                    })?;
                    let response = decision.response(request, token);
                    message.parts.push(Part::ApprovalResponse(response));
                }
                message.parts.extend(text.into_iter().filter(|_| *has_text));
                vec![message]
            }
            RunInput::Results { tokens, has_text, from_record } => {
                let results = if *from_record {
                    let found = pending_results(&self.store, &self.key).await;
                    let found = found.map_err(|it| it.to_string())?;
                    found.ok_or("pending_results finds none")?
                } else {
                    let results: Option<Vec<_>> =
                        tokens.iter().map(|token| self.late_result(token)).collect();
                    Message::tool_results(results.ok_or("no caller received one of the calls")?)
                };
                let mut messages = vec![results];
                messages.extend(has_text.then(text));
                messages
            }
        })
    }

    /// Creates a result of a call in an earlier run. The result refers to the call by id if the id
    /// is unique, and otherwise by position.
    fn late_result(&self, token: &str) -> Option<ToolResult> {
        let (id, position) = self.calls.get(token)?;
        let mut result = ToolResult::new(&**id, format!("late {token}"));
        result.content.extend(media::of_caller(self.case, token).map(Medium::part));
        let is_distinct = id.strip_prefix("id_") == Some(token);
        Some(if is_distinct { result } else { result.answering(*position) })
    }
}
