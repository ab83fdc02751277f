//! Compares observed requests, answers and stored conversations with the model.

use std::sync::Arc;

use tower_chat::{
    Answer, BoxError, ConversationKey, HistoryStore, Message, Part, PersistenceError,
    error::ToolLoopError,
    replay::effective_call_ids,
    store::{InvocationQuery, ToolCallQueries},
    tool::CallPosition,
};

use super::Driver;
use crate::contract_model::{
    model::{End, Expected, Model},
    observe, summaries,
    tools::token_in,
};

impl Driver<'_> {
    pub(super) fn compare_attempt(
        &mut self,
        expected: &Expected,
        answer: Option<Result<Answer, BoxError>>,
    ) -> Result<(), String> {
        let seen = self.world.take_seen();
        compare_requests("the request for a summary", seen.summarized, &expected.summarized)?;
        let calls = seen.shown.len();
        for (call, shown) in seen.shown.into_iter().enumerate() {
            let shown = shown.map_err(|it| format!("service call {call}: {it}"))?;
            let Some(expected) = expected.shown.get(call) else {
                return Err(format!("service call {call} is made, and shows {shown:#?}"));
            };
            match self.windowed {
                Some(_) => self.shown.push(shown.join("\n")),
                None => same(
                    &format!("service call {call} shows"),
                    &with_sorted_late_results(&shown),
                    &with_sorted_late_results(expected),
                )?,
            }
        }
        if let Some(missing) = expected.shown.get(calls) {
            let answer = match &answer {
                Some(Ok(answer)) => {
                    let messages = answer.messages.iter().map(|message| &**message);
                    format!("{:#?}", observe::texts(messages, &self.tokens))
                }
                other => format!("{other:?}"),
            };
            return Err(format!(
                "service call {calls} is missing; it should show {missing:#?}; the attempt ends with {answer}"
            ));
        }
        same("the tools that run", &seen.ran, &expected.ran)?;
        let end = match answer {
            None => End::Dropped,
            Some(Ok(answer)) => {
                self.note(answer.messages.iter());
                let messages = answer.messages.iter().map(|message| &**message);
                End::Answer(observe::texts(messages, &self.tokens))
            }
            Some(Err(error)) => end_of(&error)?,
        };
        match (&end, &expected.end) {
            (End::Answer(answer), Some(End::Answer(expected))) => {
                same("the answer", answer, expected)
            }
            (end, Some(expected)) if end == expected => Ok(()),
            (end, expected) => Err(format!("it ends with {end:#?}, not with {expected:#?}")),
        }
    }

    /// Records the calls and approval requests of messages. Later inputs can answer them.
    fn note<'m>(&mut self, messages: impl Iterator<Item = &'m Arc<Message>>) {
        for message in messages {
            let ids = effective_call_ids(message);
            let calls = (0..).zip(message.asked_calls()).zip(ids);
            for ((index, call), id) in calls {
                let token = token_in(&call.arguments).unwrap_or_default();
                let position = message.id.map(|message| CallPosition { message, index });
                if let Some(position) = position {
                    // `compare_store` calls this function again, and replaces this position by the
                    // position in the store. The two differ if a hook has removed an earlier call
                    // of the message.
                    self.calls.insert(token.to_owned(), (id, position));
                }
            }
            for part in &message.parts {
                if let Part::ApprovalRequest(request) = part {
                    let token = token_in(&request.call.arguments).unwrap_or_default();
                    self.requests.insert(token.to_owned(), request.clone());
                    self.tokens.insert(request.id.clone(), token.to_owned());
                }
            }
        }
    }

    pub(super) async fn compare_store(&mut self) -> Result<(), String> {
        let history = self.store.load(&self.key).await.map_err(|it| it.to_string())?;
        // If the request first resumed another run, the caller has not received the answer of that
        // run. Its calls are therefore read from the store.
        self.note(history.messages.iter());
        self.compare_stored(&self.key, &self.model).await
    }

    /// Compares a stored conversation with the model.
    pub(super) async fn compare_stored(
        &self,
        key: &ConversationKey,
        model: &Model<'_>,
    ) -> Result<(), String> {
        let history = self.store.load(key).await.map_err(|it| it.to_string())?;
        let messages = history.messages.iter().map(|message| &**message);
        same("the store", &observe::texts(messages, &self.tokens), &model.stored())?;
        self.compare_summaries(key, &history, model).await?;
        let rows = self.store.invocations(&InvocationQuery::of(key)).await;
        let rows = rows.map_err(|it| it.to_string())?;
        if let Some(unreadable) = rows.unreadable.first() {
            return Err(unreadable.to_string());
        }
        let is_known = |row: &String| token_in(row).is_some_and(|token| model.is_known(token));
        let mut rows: Vec<String> = rows.found.iter().map(|(_, row)| observe::row(row)).collect();
        rows.retain(|row| !is_known(row));
        let mut expected = model.record();
        expected.retain(|row| !is_known(row));
        same("the record", &rows, &expected)
    }
}

/// Sorts the calls directly after a summary. Their results are stored after the covered messages, and
/// the contract does not state their order.
fn with_sorted_late_results(shown: &[String]) -> Vec<String> {
    let mut sorted = shown.to_vec();
    let is_call = |text: &&mut String| text.contains(") = ");
    let summary = sorted.iter().position(|text| summaries::is_request_text(text));
    let after = summary.map_or(sorted.len(), |summary| summary + 1);
    let calls = sorted[after..].iter_mut().take_while(is_call).count();
    sorted[after..after + calls].sort();
    sorted
}

/// Compares the messages of requests with those that the model expects.
pub(super) fn compare_requests(
    what: &str,
    found: Vec<Result<Vec<String>, String>>,
    expected: &[Vec<String>],
) -> Result<(), String> {
    let text = |request: &[String]| with_sorted_late_results(request).join("\n    ");
    let texts: Result<Vec<String>, String> =
        found.into_iter().map(|request| Ok(text(&request?))).collect();
    let expected: Vec<String> = expected.iter().map(|request| text(request)).collect();
    same(what, &texts.map_err(|it| format!("{what}: {it}"))?, &expected)
}

fn end_of(error: &BoxError) -> Result<End, String> {
    if let Some(ToolLoopError::ApprovalMissing { .. }) = error.downcast_ref() {
        return Ok(End::ApprovalMissing);
    }
    if let Some(ToolLoopError::ApprovalAnswered { .. }) = error.downcast_ref() {
        return Ok(End::ApprovalAnswered);
    }
    match error.downcast_ref() {
        Some(ToolLoopError::ResultsMissing { .. }) => return Ok(End::ResultsMissing),
        Some(ToolLoopError::ArgumentsNotKept { .. }) => return Ok(End::ArgumentsNotKept),
        _ => {}
    }
    match error.downcast_ref() {
        Some(PersistenceError::PendingCallNotKept { .. }) => return Ok(End::PendingCallNotKept),
        Some(PersistenceError::RunIdReused { .. }) => return Ok(End::RunIdReused),
        _ => {}
    }
    if error.to_string() == "overloaded" {
        return Ok(End::Failed);
    }
    Err(format!("it fails: {error:?}"))
}

pub(super) fn same(what: &str, found: &[String], expected: &[String]) -> Result<(), String> {
    if found == expected {
        return Ok(());
    }
    let mut text = format!("{what} (- the model's, + found)\n");
    let begin = found.iter().zip(expected).take_while(|(a, b)| a == b).count();
    found[..begin].iter().for_each(|line| text.push_str(&format!("    {line}\n")));
    expected[begin..].iter().for_each(|line| text.push_str(&format!("  - {line}\n")));
    found[begin..].iter().for_each(|line| text.push_str(&format!("  + {line}\n")));
    Err(text)
}
