//! Converts observed messages, and rows of the record of tool calls, to the notation of the model.

use std::collections::{HashMap, HashSet};

use tower_chat::{
    Message, Part, Role, ToolResult, message::Messages, tool::ToolInvocation,
    validate::validate_messages,
};

use crate::contract_model::{approvals::Decision, compaction, media, tools::token_in};

/// Returns the texts of a request, and its calls with their results.
///
/// # Errors
///
/// Fails if a result matches no call or several calls, or if a call has no result or occurs twice.
pub(crate) fn shown(messages: &Messages) -> Result<Vec<String>, String> {
    validate_messages(messages.iter().map(|message| &**message)).map_err(|it| it.to_string())?;
    let mut items: Vec<(String, Option<String>)> = Vec::new();
    let mut round: Vec<(String, usize)> = Vec::new();
    let mut seen: HashSet<String> = HashSet::new();
    let mut is_in_round = false;
    for message in messages.iter() {
        let is_assistant = message.role == Role::Assistant;
        if message.role != Role::Tool && !(is_assistant && is_in_round) {
            round.clear();
        }
        is_in_round = is_assistant;
        for part in &message.parts {
            match part {
                Part::Text(text) if is_assistant => {
                    items.push((format!("assistant: {}", text.text), Some(String::new())));
                }
                Part::Text(text) => {
                    items.push((format!("user: {}", text.text), Some(String::new())))
                }
                Part::Media(medium) if !is_assistant => {
                    items.push((format!("user: {}", media::shown(medium)), Some(String::new())))
                }
                Part::Native(native) if is_assistant => {
                    let text = compaction::text(native);
                    items.push((format!("assistant: {text}"), Some(String::new())));
                }
                Part::ToolCall(call) => {
                    let id = call.id.clone().filter(|id| !id.is_empty());
                    let id =
                        id.ok_or_else(|| format!("the request contains {call:?} without an id"))?;
                    let token = token_in(&call.arguments).unwrap_or_default().to_owned();
                    if !seen.insert(token) {
                        return Err(format!("{call:?} is shown twice"));
                    }
                    round.push((id, items.len()));
                    items.push((format!("{}({})", call.name, call.arguments), None));
                }
                Part::ToolResult(result) => {
                    let id = result.call_id.as_deref().unwrap_or_default();
                    let mut of_round = round.iter().filter(|(known, _)| known == id);
                    let (Some((_, at)), None) = (of_round.next(), of_round.next()) else {
                        return Err(format!("{result:?} does not answer exactly one of {round:?}"));
                    };
                    let answer = &mut items[*at].1;
                    if answer.replace(format!(" = {}", result_text(result))).is_some() {
                        return Err(format!("{result:?} answers a call for the second time"));
                    }
                }
                other => return Err(format!("the request contains an unexpected part: {other:?}")),
            }
        }
    }
    let item = |(item, result): (String, Option<String>)| match result {
        Some(result) => Ok(format!("{item}{result}")),
        None => Err(format!("the request contains {item} without a result")),
    };
    items.into_iter().map(item).collect()
}

/// Formats stored or returned messages. `requests` contains the tokens of approval requests.
pub(crate) fn texts<'m>(
    messages: impl IntoIterator<Item = &'m Message>,
    requests: &HashMap<String, String>,
) -> Vec<String> {
    let answers = messages.into_iter().filter_map(|message| {
        let role = match message.role {
            Role::User => "user",
            Role::Assistant => "assistant",
            Role::Tool => "tool",
            _ => "other",
        };
        let parts = message.parts.iter().map(|part| match part {
            Part::Text(text) => format!("text {}", text.text),
            Part::Media(medium) => format!("media {}", media::shown(medium)),
            Part::Native(native) => compaction::text(native),
            Part::ToolCall(call) => format!("call {}({})", call.name, call.arguments),
            Part::ToolResult(result) => format!("result {}", result_text(result)),
            Part::ApprovalRequest(request) => {
                let call = &request.call;
                format!("ask {}({}) {}", call.name, call.arguments, request.required)
            }
            Part::ApprovalResponse(answer) => {
                let token = requests.get(&answer.request_id).map_or("?", |it| it);
                Decision::text(token, answer.approved, answer.arguments.as_deref())
            }
            other => format!("{other:?}"),
        });
        let parts: Vec<String> = parts.collect();
        (!parts.is_empty()).then(|| format!("{role} {}", parts.join(" | ")))
    });
    answers.collect()
}

pub(crate) fn row(row: &ToolInvocation) -> String {
    let result = row.result.as_ref().map(result_text).unwrap_or_default();
    let ran = match (row.started_at, row.finished_at) {
        (Some(_), Some(_)) => "true",
        (None, None) => "false",
        (Some(_), None) => "started",
        (None, Some(_)) => "finished",
    };
    format!(
        "{}({}) {} [{result}] error={:?} ran={ran}",
        row.name, row.arguments, row.status, row.error
    )
}

fn result_text(result: &ToolResult) -> String {
    let mark = if result.is_error { "!" } else { "" };
    let content = result.content.iter().map(|part| match part {
        Part::Text(text) => text.text.clone(),
        Part::Media(medium) => media::shown(medium),
        other => format!("{other:?}"),
    });
    content.chain([mark.to_owned()]).collect()
}
