//! The kinds of damage to a stored history.
#![allow(clippy::ptr_arg, reason = "all kinds of damage have one type")]

use tower_chat::replay::Truncation;
use tower_chat::{
    Message, Part, Role, ToolCall, ToolResult,
    message::{MessageId, Reasoning},
    run::RunId,
    tool::ApprovalRequest,
};
use tower_chat_testkit::Rng;

type Damage = fn(&mut Rng, &mut Vec<Message>);

const ALL: [Damage; 22] = [
    drop_result,
    drop_call,
    duplicate_result,
    swap_neighbours,
    swap_results,
    move_row,
    move_result,
    change_ids_of_round,
    change_ids_of_results,
    find_sources,
    find_sources,
    cut_text,
    truncate_results,
    aggregate_rows,
    ask_approval,
    add_empty_message,
    empty_message,
    merge_results,
    queue_words,
    run_by_provider,
    misplace_call,
    change_speaker,
];

/// Damages a history several times, or not at all.
pub(crate) fn damage(rng: &mut Rng, messages: &mut Vec<Message>) {
    for _ in 0..rng.below(7) {
        if let Some(damage) = rng.one_of(&ALL) {
            damage(rng, messages);
        }
    }
}

/// Assigns message ids as a store does, with a new run at each user message.
pub(crate) fn number(rng: &mut Rng, messages: &mut [Message]) {
    let mut run = RunId::from_bytes([1; 16]);
    let mut index = 0;
    for message in messages {
        if message.role == Role::User && !rng.one_in(5) {
            let mut bytes = [1; 16];
            bytes[8..].copy_from_slice(&rng.next().to_be_bytes());
            run = RunId::from_bytes(bytes);
            index = 0;
        }
        message.id = Some(MessageId { run, index });
        index += 1;
    }
}

/// Returns the position of a random message that satisfies the condition, if any.
fn any(rng: &mut Rng, messages: &[Message], is: impl Fn(&Message) -> bool) -> Option<usize> {
    let positions: Vec<usize> =
        (0..messages.len()).filter(|&position| messages.get(position).is_some_and(&is)).collect();
    rng.one_of(&positions).copied()
}

fn any_results(rng: &mut Rng, messages: &[Message]) -> Option<usize> {
    any(rng, messages, |message| message.role == Role::Tool && message.results().next().is_some())
}

fn any_asking(rng: &mut Rng, messages: &[Message]) -> Option<usize> {
    any(rng, messages, |message| message.calls().next().is_some())
}

fn take_result(rng: &mut Rng, messages: &mut Vec<Message>) -> Option<(usize, Part)> {
    let position = any_results(rng, messages)?;
    let message = messages.get_mut(position)?;
    let part = message.parts.remove(rng.below(message.parts.len()));
    if message.parts.is_empty() {
        messages.remove(position);
    }
    Some((position, part))
}

fn misplace_call(rng: &mut Rng, messages: &mut Vec<Message>) {
    let Some(from) = any_asking(rng, messages) else { return };
    let Some(call) = messages.get(from).and_then(|message| message.calls().next().cloned()) else {
        return;
    };
    let to = rng.below(messages.len());
    let Some(message) = messages.get_mut(to) else { return };
    let part = match rng.one_in(3) {
        true => Part::ApprovalRequest(ApprovalRequest::new(format!("a{to}"), call, true)),
        false => call.into(),
    };
    message.parts.push(part);
}

fn change_speaker(rng: &mut Rng, messages: &mut Vec<Message>) {
    let Some(position) = any_asking(rng, messages) else { return };
    let Some(message) = messages.get_mut(position) else { return };
    if let Some(role) = rng.one_of(&[Role::User, Role::System, Role::Developer]) {
        message.role = *role;
        // Other messages cannot contain native items of a provider.
        message.parts.retain(|part| !matches!(part, Part::Native(_) | Part::Reasoning(_)));
    }
}

fn drop_result(rng: &mut Rng, messages: &mut Vec<Message>) {
    take_result(rng, messages);
}

fn drop_call(rng: &mut Rng, messages: &mut Vec<Message>) {
    let Some(position) = any_asking(rng, messages) else { return };
    let Some(message) = messages.get_mut(position) else { return };
    let calls: Vec<usize> = (0..message.parts.len())
        .filter(|&part| message.parts.get(part).is_some_and(|part| part.as_tool_call().is_some()))
        .collect();
    if let Some(&call) = rng.one_of(&calls) {
        message.parts.remove(call);
    }
}

fn duplicate_result(rng: &mut Rng, messages: &mut Vec<Message>) {
    let Some(position) = any_results(rng, messages) else { return };
    let Some(copy) = messages.get(position).cloned() else { return };
    let later = position + 1 + rng.below(messages.len() - position);
    messages.insert(later.min(messages.len()), copy);
}

fn swap_neighbours(rng: &mut Rng, messages: &mut Vec<Message>) {
    if messages.len() > 1 {
        let position = rng.below(messages.len() - 1);
        messages.swap(position, position + 1);
    }
}

fn swap_results(rng: &mut Rng, messages: &mut Vec<Message>) {
    let Some(position) = any_results(rng, messages) else { return };
    if messages.get(position + 1).is_some_and(|next| next.role == Role::Tool) {
        messages.swap(position, position + 1);
    } else if let Some(message) = messages.get_mut(position) {
        message.parts.reverse();
    }
}

fn move_row(rng: &mut Rng, messages: &mut Vec<Message>) {
    if !messages.is_empty() {
        let row = messages.remove(rng.below(messages.len()));
        messages.insert(rng.below(messages.len() + 1), row);
    }
}

fn move_result(rng: &mut Rng, messages: &mut Vec<Message>) {
    let Some((position, part)) = take_result(rng, messages) else { return };
    let later = position + rng.below(messages.len() + 1 - position.min(messages.len()));
    match messages.get_mut(later) {
        Some(message) if rng.one_in(2) => message.parts.push(part),
        _ => messages.insert(later.min(messages.len()), Message::new(Role::Tool, vec![part])),
    }
}

fn any_id(rng: &mut Rng) -> Option<String> {
    let ids = [None, Some(""), Some("same"), Some("call_1_0"), Some("call_0_1")];
    rng.one_of(&ids).copied().flatten().map(str::to_owned)
}

fn change_ids_of_round(rng: &mut Rng, messages: &mut Vec<Message>) {
    let Some(position) = any_asking(rng, messages) else { return };
    let id = any_id(rng);
    let with_results = !rng.one_in(4);
    let mut round = messages.iter_mut().skip(position);
    for part in round.next().iter_mut().flat_map(|message| &mut message.parts) {
        if let Part::ToolCall(call) = part {
            call.id.clone_from(&id);
        }
    }
    if with_results {
        for part in round.take_while(|next| next.role == Role::Tool).flat_map(|m| &mut m.parts) {
            if let Part::ToolResult(result) = part {
                result.call_id.clone_from(&id);
            }
        }
    }
}

fn change_ids_of_results(rng: &mut Rng, messages: &mut Vec<Message>) {
    let Some(position) = any_results(rng, messages) else { return };
    let id = any_id(rng);
    for part in messages.get_mut(position).into_iter().flat_map(|message| &mut message.parts) {
        if let Part::ToolResult(result) = part {
            result.call_id.clone_from(&id);
        }
    }
}

/// Converts results to sources, and cites some of them in answers.
fn find_sources(rng: &mut Rng, messages: &mut Vec<Message>) {
    let mut source = 0;
    for message in messages {
        for part in &mut message.parts {
            match part {
                Part::ToolResult(result) if rng.one_in(2) => {
                    let items: Vec<String> = (0..rng.below(4))
                        .map(|item| {
                            let number = source + item;
                            format!(r#"{{"source_number": {number}, "content": "é {number}"}}"#)
                        })
                        .collect();
                    source += items.len();
                    let list = format!("[{}]", items.join(", "));
                    *result = result.with_content(vec![Part::text(list)]);
                }
                Part::Text(text) if message.role == Role::Assistant && rng.one_in(2) => {
                    let cited = rng.below(source + 1);
                    *text =
                        tower_chat::message::Text::new(format!("{} [Source{cited}]", text.text));
                }
                _ => {}
            }
        }
    }
}

fn cut_text(rng: &mut Rng, messages: &mut Vec<Message>) {
    let Some(position) = any_results(rng, messages) else { return };
    for part in messages.get_mut(position).into_iter().flat_map(|message| &mut message.parts) {
        let Part::ToolResult(result) = part else { continue };
        let text: Vec<char> = result.text().chars().collect();
        let cut: String = text.iter().take(rng.below(text.len() + 1)).collect();
        *result = result.with_content(vec![Part::text(cut)]);
    }
}

fn truncate_results(rng: &mut Rng, messages: &mut Vec<Message>) {
    let limit = Truncation::to(rng.below(200));
    for part in messages.iter_mut().flat_map(|message| &mut message.parts) {
        if let Part::ToolResult(result) = part {
            limit.apply(result);
        }
    }
}

/// Merges calls, their results, and sometimes the text after the results, into one message.
fn aggregate_rows(rng: &mut Rng, messages: &mut Vec<Message>) {
    let Some(position) = any_asking(rng, messages) else { return };
    let following = messages.iter().skip(position + 1);
    let results = following.take_while(|next| next.role == Role::Tool).count();
    let mut end = position + 1 + results;
    let is_text = |message: &Message| {
        message.role == Role::Assistant && message.asked_calls().next().is_none()
    };
    if messages.get(end).is_some_and(is_text) && !rng.one_in(3) {
        end += 1;
    }
    let rest: Vec<Part> = messages.drain(position + 1..end).flat_map(|row| row.parts).collect();
    if let Some(row) = messages.get_mut(position) {
        row.parts.extend(rest);
        row.parts.retain(|part| !matches!(part, Part::Native(_)));
    }
}

/// Converts the calls of a message to approval requests. Then removes the results of the calls, or
/// adds approvals before them.
fn ask_approval(rng: &mut Rng, messages: &mut Vec<Message>) {
    let Some(position) = any_asking(rng, messages) else { return };
    let Some(message) = messages.get_mut(position) else { return };
    let mut requests = Vec::new();
    for part in &mut message.parts {
        if let Part::ToolCall(call) = part
            && !call.provider_executed
        {
            let id = format!("approval {position} {}", requests.len());
            let request = ApprovalRequest::new(id, call.clone(), true);
            requests.push(request.clone());
            *part = request.into();
        }
    }
    let answer = |request: &ApprovalRequest| Part::ApprovalResponse(request.approve());
    match rng.below(3) {
        0 => {
            let following = messages.iter().skip(position + 1);
            let results = following.take_while(|next| next.role == Role::Tool).count();
            messages.drain(position + 1..position + 1 + results);
        }
        1 => {
            let answers = requests.iter().map(answer).collect();
            messages.insert(position + 1, Message::new(Role::User, answers));
        }
        _ => {
            let mut answers: Vec<Part> = requests.iter().map(answer).collect();
            answers.push(Part::text("Go ahead."));
            messages.insert(position + 1, Message::new(Role::User, answers));
        }
    }
}

fn add_empty_message(rng: &mut Rng, messages: &mut Vec<Message>) {
    let empty = match rng.below(5) {
        0 => Message::new(Role::Assistant, Vec::new()),
        1 => Message::assistant(""),
        2 => Message::tool_results([]),
        3 => Message::new(Role::Assistant, vec![Part::text(""), Part::text("")]),
        _ => Message::user(""),
    };
    messages.insert(rng.below(messages.len() + 1), empty);
}

fn empty_message(rng: &mut Rng, messages: &mut Vec<Message>) {
    let Some(position) = any(rng, messages, |message| message.role == Role::Assistant) else {
        return;
    };
    for part in messages.get_mut(position).into_iter().flat_map(|message| &mut message.parts) {
        if let Part::Text(text) = part {
            text.text.clear();
        }
    }
}

/// Merges the results of an answer's calls into one message, or into the next user message.
fn merge_results(rng: &mut Rng, messages: &mut Vec<Message>) {
    let Some(position) = any_results(rng, messages) else { return };
    let Some(next) = messages.get(position + 1) else { return };
    if matches!(next.role, Role::Tool | Role::User) {
        let results = messages.remove(position);
        if let Some(next) = messages.get_mut(position) {
            next.parts.splice(0..0, results.parts);
        }
    }
}

fn queue_words(rng: &mut Rng, messages: &mut Vec<Message>) {
    if let Some(position) = any_asking(rng, messages) {
        messages.insert(position + 1, Message::user("Wait."));
    }
}

/// Adds a call that the provider has executed, and reasoning before this call.
fn run_by_provider(rng: &mut Rng, messages: &mut Vec<Message>) {
    let Some(position) = any(rng, messages, |message| message.role == Role::Assistant) else {
        return;
    };
    let Some(message) = messages.get_mut(position) else { return };
    let mut call = ToolCall::new("ws_1", "web_search", "{}");
    call.provider_executed = true;
    let added: [Part; 3] = [
        Reasoning::new("I should look it up.").into(),
        call.into(),
        ToolResult::new("ws_1", "pages").into(),
    ];
    message.parts.splice(0..0, added);
}
