//! The properties of every replay.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use serde_json::{Value, json, value::RawValue};
use tower_chat::{
    Message, Part, Role, ToolCall,
    message::Messages,
    replay::{DanglingCalls, FinishTimes, Replay, ReplayContext, ReplayPolicy},
    validate::validate_messages,
};
use tower_chat_testkit::validate::{Wire, validate};
use tower_chat_wire::openai_chat::{self, Audience};

use crate::replay_properties::{
    case::Case,
    plan::{Plan, UNCITED},
};

pub(crate) fn check(case: &Case) -> Result<(), String> {
    let stored: Messages = case.messages.iter().cloned().collect();
    let times = case.plan.finish_times(&case.messages);
    let shown = replay(&stored, &case.plan, &times);
    is_valid(&shown)?;
    let again = replay(&stored, &case.plan, &times);
    require(shown == again, || format!("not the same again: {shown:?}\nthen {again:?}"))?;
    let twice = replay(&shown, &case.plan, &times);
    require(shown == twice, || format!("it changes again: {shown:?}\nthen {twice:?}"))?;
    folds_alike_in_pieces(&stored, case)?;
    fails_only_if_asked_to(&stored, &case.plan)?;
    says_nothing_new(&stored, &shown)?;
    keeps_all_texts(&stored, &shown, &case.plan.policy)
}

fn replay(stored: &Messages, plan: &Plan, times: &FinishTimes) -> Messages {
    let mut fold = Replay::new(plan.policy.dangling_calls);
    fold.push_from(stored, 0);
    let names: Option<Vec<&str>> =
        plan.tools.as_ref().map(|names| names.iter().map(String::as_str).collect());
    let mut context =
        ReplayContext::at(plan.now).with_channel(plan.channel.as_ref()).with_finish_times(times);
    if let Some(names) = &names {
        context = context.with_tools(names);
    }
    plan.policy.apply(&fold.view(), &context)
}

fn is_valid(shown: &Messages) -> Result<(), String> {
    let messages = || shown.iter().map(|message| &**message);
    validate_messages(messages()).map_err(|fault| format!("{fault} in {shown:?}"))?;
    let body = openai_chat::render_messages(messages(), Audience::Model);
    let body = body.iter().map(|message| message.parse::<Value>().expect("JSON"));
    let body = json!({ "messages": body.collect::<Vec<_>>() });
    validate(Wire::OpenAiChat, &body).map_err(|invalid| format!("{invalid} in {body}"))
}

/// Checks that two operations do not change the result of a [`Replay`]:
///
/// - The replay is read before the last messages are added.
/// - The part that may still change is split off ([`Replay::split_open`]) and appended again.
fn folds_alike_in_pieces(stored: &Messages, case: &Case) -> Result<(), String> {
    let mut at_once = Replay::new(case.plan.policy.dangling_calls);
    at_once.push_from(stored, 0);
    let mut looked_at = Replay::new(case.plan.policy.dangling_calls);
    looked_at.push_from(&stored.take(case.pause), 0);
    is_valid(&looked_at.view())?;
    looked_at.push_from(stored, case.pause);
    require(at_once.view() == looked_at.view(), || "looking at the fold changed it".to_owned())?;
    let open = looked_at.split_open();
    let mut joined = looked_at.view();
    joined.append(&open.view());
    require(at_once.view() == joined, || "splitting the fold changed it".to_owned())
}

fn fails_only_if_asked_to(stored: &Messages, plan: &Plan) -> Result<(), String> {
    let mut fold = Replay::new(plan.policy.dangling_calls);
    fold.push_from(stored, 0);
    let asked = plan.policy.dangling_calls == DanglingCalls::Fail;
    let failed = fold.check().is_err();
    require(asked || !failed, || "a dangling call failed the replay".to_owned())
}

/// Checks that each text occurs in the replay at most as often as in the stored messages.
fn says_nothing_new(stored: &Messages, shown: &Messages) -> Result<(), String> {
    let interrupted = interrupted();
    let mut known: HashMap<(&str, &str), usize> = HashMap::new();
    for text in stored.iter().flat_map(|message| texts(message)) {
        *known.entry(text).or_default() += 1;
    }
    for (kind, text) in shown.iter().flat_map(|message| texts(message)) {
        if let Some(left) = known.get_mut(&(kind, text)).filter(|left| **left > 0) {
            *left -= 1;
            continue;
        }
        let is_ours = kind == "result"
            && (text == UNCITED || text == interrupted || is_compacted(text, stored));
        require(is_ours, || format!("the {kind} {text:?} is new"))?;
    }
    Ok(())
}

/// Returns whether a text is a list of items that also occur in one list of the stored messages.
fn is_compacted(text: &str, stored: &Messages) -> bool {
    let Ok(items) = serde_json::from_str::<Vec<&RawValue>>(text) else { return false };
    let mut texts = stored.iter().flat_map(|message| texts(message));
    texts.any(|(kind, text)| {
        let Ok(found) = serde_json::from_str::<Vec<&RawValue>>(text) else { return false };
        let found: HashSet<&str> = found.iter().map(|item| item.get()).collect();
        kind == "result" && !found.is_empty() && items.iter().all(|item| found.contains(item.get()))
    })
}

/// Returns the result text that replay adds for an interrupted call.
fn interrupted() -> String {
    let mut fold = Replay::new(DanglingCalls::Interrupted);
    fold.push(&Arc::new(Message::tool_calls([ToolCall::new("c", "look", "{}")])));
    let view = fold.view();
    view.iter().flat_map(|message| message.results()).map(|result| result.text()).collect()
}

/// Checks that the replay contains every text, unless [`ReplayPolicy::window`] limits it to the
/// last runs.
fn keeps_all_texts(
    stored: &Messages,
    shown: &Messages,
    policy: &ReplayPolicy,
) -> Result<(), String> {
    if policy.window.is_some() {
        return Ok(());
    }
    let texts_of = |messages: &Messages| -> Vec<String> {
        let spoken = messages.iter().filter(|message| message.role != Role::Tool);
        let mut texts: Vec<String> = spoken
            .flat_map(|message| message.parts.iter().filter_map(Part::as_text))
            .filter(|text| !text.is_empty())
            .map(str::to_owned)
            .collect();
        texts.sort();
        texts
    };
    let (stored, shown) = (texts_of(stored), texts_of(shown));
    require(stored == shown, || format!("texts {stored:?}\nshown {shown:?}"))
}

fn texts(message: &Message) -> Vec<(&'static str, &str)> {
    message.parts.iter().flat_map(texts_of).collect()
}

fn texts_of(part: &Part) -> Vec<(&'static str, &str)> {
    match part {
        Part::Text(text) => vec![("text", text.text.as_str())],
        Part::Reasoning(reasoning) => vec![("reasoning", reasoning.text.as_str())],
        Part::ToolCall(call) => texts_of_call(call),
        Part::ApprovalRequest(request) => texts_of_call(&request.call),
        Part::ToolResult(result) => {
            result.content.iter().filter_map(Part::as_text).map(|text| ("result", text)).collect()
        }
        _ => Vec::new(),
    }
}

fn texts_of_call(call: &ToolCall) -> Vec<(&'static str, &str)> {
    vec![("tool", call.name.as_str()), ("arguments", call.arguments.as_str())]
}

fn require(holds: bool, failure: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(failure()) }
}
