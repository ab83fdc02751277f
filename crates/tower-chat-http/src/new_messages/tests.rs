#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use tower_chat_layers::{
    Message, MessageId, Messages, Part, RunId, ToolCall, ToolResult,
    store::{Head, Revision},
};
use tower_chat_wire::openai_chat::{Audience, parse_messages, render_messages};

use super::{ErrorResponse, refusal};
use tower_chat_layers::{
    store::History,
    transcript::{Recognised, recognise_in},
};

fn new_messages(
    stored: &Messages,
    sent: &Messages,
    is_retry: bool,
) -> Result<Recognised, ErrorResponse> {
    let head = Head::new(Revision { incarnation: 1, sequence: stored.len() as u64 });
    recognise_in(&History::new(head, stored.clone()), sent, is_retry)
        .map_err(|error| refusal(&error))
}

/// Returns the messages of these runs with the ids that a store would return.
fn stored<const N: usize>(runs: [&[Message]; N]) -> Messages {
    let mut messages = Messages::new();
    for run in runs {
        let id = RunId::new();
        for (index, message) in (0..).zip(run) {
            let mut message = message.clone();
            message.id = Some(MessageId { run: id, index });
            messages.push(message);
        }
    }
    messages
}

/// Encodes messages in OpenAI's JSON and decodes them, as happens to the messages of a request.
fn sent(messages: &[Message]) -> Messages {
    let json = render_messages(messages, Audience::Model);
    let json = serde_json::to_string(&json).unwrap();
    parse_messages(&json).unwrap().into_iter().collect()
}

fn user(text: &str) -> Message {
    Message::user(text)
}

fn model(text: &str) -> Message {
    Message::assistant(text)
}

fn call(id: &str) -> Message {
    Message::tool_calls([ToolCall::new(id, "look", "{}")])
}

fn result(id: &str) -> Message {
    Message::tool_results([ToolResult::new(id, "seen")])
}

fn new(stored: &Messages, messages: &[Message]) -> Vec<Message> {
    match new_messages(stored, &sent(messages), false).unwrap() {
        Recognised::New(new) => new.iter().map(|message| (**message).clone()).collect(),
        Recognised::LastAnswer => panic!("the last answer is wanted again"),
    }
}

#[test]
fn all_messages_of_a_request_are_new_in_a_new_conversation() {
    let messages = [Message::system("Be brief."), user("one"), model("1"), user("two")];
    assert_eq!(new(&Messages::new(), &messages), messages);
}

#[test]
fn new_messages_may_follow_any_number_of_repeated_stored_messages() {
    let system = Message::system("Be brief.");
    let stored = stored([&[system.clone(), user("one"), model("1")], &[user("two"), model("2")]]);
    let whole = [system.clone(), user("one"), model("1"), user("two"), model("2"), user("three")];
    assert_eq!(new(&stored, &whole), [user("three")]);
    assert_eq!(new(&stored, &whole[1..]), [user("three")]);
    assert_eq!(new(&stored, &whole[3..]), [user("three")]);
    assert_eq!(new(&stored, &[system.clone(), user("two"), model("2"), user("3")]), [user("3")]);
    assert_eq!(new(&stored, &[user("three")]), [user("three")]);
    assert_eq!(new(&stored, &[system, user("three")]), [user("three")]);
}

#[test]
fn a_message_with_the_text_of_an_answered_message_is_new() {
    let stored = stored([&[user("yes"), model("ok")]]);
    assert_eq!(new(&stored, &[user("yes")]), [user("yes")]);
    assert_eq!(new(&stored, &[user("yes"), model("ok"), user("yes")]), [user("yes")]);
}

#[test]
fn a_system_message_that_differs_from_the_stored_one_is_new() {
    let stored = stored([&[Message::system("Be brief."), user("one"), model("1")]]);
    let other = Message::system("Be friendly.");
    assert_eq!(new(&stored, &[other.clone(), user("two")]), [other.clone(), user("two")]);
    let whole = [other.clone(), user("one"), model("1"), user("two")];
    assert_eq!(new(&stored, &whole), [other, user("two")]);
}

#[test]
fn a_client_repeats_its_own_calls_and_results_and_need_not_repeat_those_of_the_stack() {
    let mut asking = model("Let me look.");
    asking.parts.push(Part::ToolCall(ToolCall::new("s1", "look", "{}")));
    let stored = stored([
        &[user("one"), asking, result("s1"), model("And you?"), call("c1")],
        &[result("c1"), model("Done.")],
    ]);
    let mut shown = model("Let me look.\n\nAnd you?");
    shown.parts.push(Part::ToolCall(ToolCall::new("c1", "look", "{ }")));
    let whole = [user("one"), shown, result("c1"), model("Done."), user("two")];
    assert_eq!(new(&stored, &whole), [user("two")]);
}

#[test]
fn results_of_the_last_stored_calls_are_new_messages() {
    let stored = stored([&[user("one"), call("c1")]]);
    assert_eq!(new(&stored, &[result("c1")]), [result("c1")]);
    assert_eq!(new(&stored, &[user("one"), call("c1"), result("c1")]), [result("c1")]);
}

#[test]
fn a_client_need_not_repeat_a_call_of_the_stack_beside_its_own_call() {
    let both =
        Message::tool_calls([ToolCall::new("c1", "look", "{}"), ToolCall::new("s1", "work", "{}")]);
    let stored = stored([&[user("one"), both]]);
    assert_eq!(new(&stored, &[user("one"), call("c1"), result("c1")]), [result("c1")]);
}

#[test]
fn a_repeated_question_without_an_answer_is_not_stored_a_second_time() {
    let asked = stored([&[user("one")]]);
    assert_eq!(new(&asked, &[user("one")]), []);
    let broken_off = stored([&[user("one"), call("s1"), result("s1")]]);
    assert_eq!(new(&broken_off, &[user("one")]), []);
    let results = stored([&[user("one"), call("c1")], &[result("c1")]]);
    assert_eq!(new(&results, &[result("c1")]), []);
    let unseen = stored([&[user("one"), call("c1")]]);
    assert_eq!(new(&unseen, &[user("one")]), []);
}

#[test]
fn a_client_need_not_repeat_messages_that_the_stack_has_queued() {
    let stored = stored([&[user("one"), call("s1"), result("s1"), user("hurry"), model("1")]]);
    assert_eq!(new(&stored, &[user("one"), model("1"), user("two")]), [user("two")]);
}

#[test]
fn a_transcript_that_differs_from_the_stored_history_is_refused() {
    let stored = stored([&[user("one"), model("1")], &[user("two"), model("2")]]);
    for other in [
        &[user("one"), model("1"), user("another")][..],
        &[user("uno"), model("1"), user("two"), model("2"), user("three")],
        &[model("9"), user("three")],
    ] {
        let refusal = new_messages(&stored, &sent(other), false).unwrap_err();
        assert_eq!((refusal.status.as_u16(), refusal.is_retryable()), (409, false), "{other:?}");
    }
}

#[test]
fn a_request_without_new_messages_is_refused() {
    let answered = stored([&[user("one"), model("1")]]);
    for nothing in [&[][..], &[user("one"), model("1")]] {
        assert_eq!(new_messages(&answered, &sent(nothing), true).unwrap_err().status.as_u16(), 400);
    }
}

#[test]
fn a_retry_of_an_answered_question_returns_the_stored_answer() {
    let stored =
        stored([&[user("yes"), model("1")], &[user("two"), call("s1"), result("s1"), model("2")]]);
    let again = |messages: &[Message], is_retry| new_messages(&stored, &sent(messages), is_retry);
    let whole = [user("yes"), model("1"), user("two")];
    assert_eq!(again(&whole, false).unwrap(), Recognised::LastAnswer);
    assert_eq!(again(&[user("two")], true).unwrap(), Recognised::LastAnswer);
    // If the client does not mark the request as a retry, a message with the text of a stored
    // message is new.
    assert_eq!(new(&stored, &[user("two")]), [user("two")]);
    // A retry repeats the newest question. A message with the text of an earlier question is new.
    assert_eq!(again(&[user("yes")], true).unwrap(), Recognised::New(sent(&[user("yes")])));
}
