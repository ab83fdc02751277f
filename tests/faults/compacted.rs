//! Answers with a summary by the service: a native item that only this service can read, and that
//! covers all messages before the item. The layers store the item with its answer. A request to the
//! service omits the covered messages, and a request to another service contains them.

use std::sync::Arc;

use serde_json::{Value, json};
use tower_chat::{
    ChatRequest, Message, Part, Role,
    message::{Messages, Native},
};
use tower_chat_testkit::Rng;
use tower_chat_wire::{
    body::BodyWire,
    openai_responses,
    rules::{ServiceRules, fit},
};

use crate::faults::{
    rules::require,
    trace::{Event, label},
    trace_index::TraceIndex,
    world::World,
};

/// The service that creates the items.
const ISSUER: &str = "llm.example.com";
/// The sign of an item in the label of an answer.
pub(crate) const SIGN: char = '^';

/// Returns whether the answer to a service call contains an item.
pub(crate) fn has_item(seed: u64, serial: u32) -> bool {
    Rng::of(!seed, u64::from(serial)).one_in(3)
}

pub(crate) fn item(serial: u32) -> Part {
    let item = json!({
        "type": "compaction",
        "id": format!("cmp_{serial}"),
        "encrypted_content": format!("the messages before answer {serial}"),
    });
    let mut native = Native::new(openai_responses::WIRE, item.to_string().parse().expect("JSON"));
    native.issuer = Some(Arc::from(ISSUER));
    Part::Native(native)
}

/// Checks a request that the layers have made from the history. Every answer in the request has the
/// item with which it was stored. Also checks the requests that this service and two other services
/// would receive.
pub(crate) fn check_request(
    world: &World,
    request: &ChatRequest,
    index: &TraceIndex<'_>,
) -> Result<(), String> {
    for message in request.messages() {
        let label = label(message);
        let Some(serial) = serial_of(message) else { continue };
        let Some(answer) = index.answers.get(&serial) else { continue };
        require(label.contains(SIGN) == answer.has_item, || {
            format!(
                "the request contains the answer {label:?}; it has an item: {}",
                answer.has_item
            )
        })?;
    }
    let own = ServiceRules::unknown(BodyWire::OpenAiResponses, ISSUER);
    let sent = fit(request, &own).request;
    check_own(request.messages(), sent.messages())?;
    let omitted = request.messages().len() - sent.messages().len();
    if omitted > 0 {
        world.note(Event::Compacted { omitted });
    }
    let others = [
        ServiceRules::unknown(BodyWire::OpenAiResponses, "other.example.com"),
        ServiceRules::unknown(BodyWire::OpenAiChat, ISSUER),
    ];
    for other in others {
        check_other(request.messages(), fit(request, &other).request.messages())?;
    }
    Ok(())
}

/// Returns the number of the service call that returned an answer.
fn serial_of(message: &Message) -> Option<u32> {
    let text = message.text();
    if message.role != Role::Assistant {
        return None;
    }
    text.strip_prefix('a')?.parse().ok()
}

/// Checks a request to the service that creates the items.
fn check_own(messages: &Messages, sent: &Messages) -> Result<(), String> {
    let messages: Vec<&Message> = messages.iter().map(|message| &**message).collect();
    let (covered, used) = covered(&messages);
    let expected = texts(messages[covered..].iter().copied());
    let found = texts(sent.iter().map(|message| &**message));
    require(found == expected, || {
        format!("the service receives {found:?} instead of {expected:?}, covered by {used:?}")
    })?;
    let found: Vec<String> = sent.iter().flat_map(|message| items(message)).collect();
    require(found == used, || format!("the service receives the items {found:?}, not {used:?}"))
}

/// Checks a request to a service that cannot read the items.
fn check_other(messages: &Messages, sent: &Messages) -> Result<(), String> {
    let expected = texts(messages.iter().map(|message| &**message));
    let found = texts(sent.iter().map(|message| &**message));
    require(found == expected, || {
        format!("another service receives {found:?} instead of {expected:?}")
    })
}

/// Returns the number of messages that the service does not receive, and the items that it receives.
///
/// If the last message has an item, the service continues this answer and receives all messages.
/// Otherwise the last item counts after which no result answers a call before the item.
fn covered(messages: &[&Message]) -> (usize, Vec<String>) {
    let has_item = |index: &usize| !items(messages[*index]).is_empty();
    let with_items: Vec<usize> = (0..messages.len()).filter(has_item).collect();
    if with_items.last().is_some_and(|last| last + 1 == messages.len()) {
        return (0, messages.iter().flat_map(|message| items(message)).collect());
    }
    let is_usable = |index: &&usize| {
        let mut later = messages[**index..].iter();
        let calls: Vec<_> =
            messages[**index..].iter().flat_map(|message| message.calls()).collect();
        later.all(|message| {
            message.results().all(|result| calls.iter().any(|call| call.id == result.call_id))
        })
    };
    match with_items.iter().rev().find(is_usable) {
        Some(index) => (*index, items(messages[*index])),
        None => (0, Vec::new()),
    }
}

/// Returns the contents of the items in a message.
fn items(message: &Message) -> Vec<String> {
    let native = |part: &Part| match part {
        Part::Native(native) => {
            let item: Value = native.item.parse().expect("JSON");
            item["encrypted_content"].as_str().map(str::to_owned)
        }
        _ => None,
    };
    message.parts.iter().filter_map(native).collect()
}

/// Returns the role and the texts of each message.
fn texts<'m>(messages: impl IntoIterator<Item = &'m Message>) -> Vec<(Role, String)> {
    let text = |message: &Message| {
        let results = message.results().map(|result| result.text());
        std::iter::once(message.text()).chain(results).collect::<Vec<_>>().join("\n")
    };
    messages.into_iter().map(|message| (message.role, text(message))).collect()
}

#[test]
fn a_request_that_omits_too_much_or_too_little_is_found() {
    let answer = |serial| {
        let mut answer = Message::assistant(format!("a{serial}"));
        answer.parts.push(item(serial));
        answer
    };
    let all = [
        Message::user("run 0"),
        answer(0),
        Message::user("run 1"),
        answer(1),
        Message::user("run 2"),
    ];
    let messages = |range: std::ops::Range<usize>| -> Messages {
        all[range].iter().cloned().map(Arc::new).collect()
    };
    check_own(&messages(0..5), &messages(3..5)).unwrap();
    for wrong in [messages(0..5), messages(1..5), messages(2..5), messages(4..5), messages(3..4)] {
        check_own(&messages(0..5), &wrong).unwrap_err();
    }
    // The service continues the last answer.
    check_own(&messages(0..4), &messages(0..4)).unwrap();
    check_own(&messages(0..4), &messages(3..4)).unwrap_err();

    check_other(&messages(0..5), &messages(0..5)).unwrap();
    for wrong in [messages(3..5), messages(1..5), messages(0..4)] {
        check_other(&messages(0..5), &wrong).unwrap_err();
    }
}
