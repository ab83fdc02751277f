//! Compares `validate_messages`, which checks the rules that all providers share, with the
//! validator of one wire.

use std::sync::Arc;

use serde_json::{Value, json};
use tower_chat::{
    Message,
    replay::{DanglingCalls, Replay},
    validate::{Fault, InvalidMessages, validate_messages},
};
use tower_chat_testkit::validate::{Wire, validate};
use tower_chat_wire::openai_chat::{Audience, parse_message, render_message};

use super::{
    data,
    mutation::{Mutation, Verdict},
};

fn parse(messages: &[Value]) -> Vec<Message> {
    messages.iter().map(|message| parse_message(&message.to_string()).unwrap()).collect()
}

/// Returns the result, or `Ok` if all faults are assistant messages with an empty text. OpenAI
/// accepts such a message, but Anthropic and Bedrock do not.
fn except_empty_text(result: Result<(), InvalidMessages>) -> Result<(), InvalidMessages> {
    match result {
        Err(invalid)
            if invalid.faults().all(|fault| matches!(fault, Fault::EmptyAssistant { .. })) =>
        {
            Ok(())
        }
        result => result,
    }
}

fn accepted_chats() -> Vec<data::Accepted> {
    let mut bodies = data::accepted();
    bodies.retain(|accepted| accepted.wire == Wire::OpenAiChat);
    bodies
}

#[test]
fn chats_that_openai_servers_accepted_are_valid_for_every_provider_except_for_empty_texts() {
    let bodies = accepted_chats();
    for accepted in bodies {
        let messages = parse(accepted.body["messages"].as_array().unwrap());
        if validate_messages(&messages).is_err() {
            except_empty_text(validate_messages(&messages)).expect(&accepted.id);
            println!("{} has an empty text", accepted.id);
        }
    }
}

#[test]
fn each_fault_that_openai_forbids_is_invalid_for_every_provider_and_replay_repairs_it() {
    let bodies = accepted_chats();
    let mut count = 0;
    for accepted in bodies {
        for mutation in Mutation::ALL {
            for mutant in mutation.mutants(accepted.wire, &accepted.body) {
                let source = format!("{} {mutation:?}\n{mutant:#}", accepted.id);
                assert!(matches!(mutation.verdict(accepted.wire), Verdict::Forbidden(_)));
                let messages = parse(mutant["messages"].as_array().unwrap());
                except_empty_text(validate_messages(&messages)).expect_err(&source);
                assert_replayable(&messages, &source);
                count += 1;
            }
        }
    }
    println!("{count} mutants refused, and valid once replayed");
}

#[test]
fn the_replay_of_a_recorded_conversation_is_valid_wherever_the_conversation_is_cut() {
    let transcripts = data::transcripts();
    for transcript in &transcripts {
        let (source, messages) = (&transcript.source, parse(&transcript.messages));
        // A test of every prefix would take quadratic time.
        let step = messages.len() / 8 + 1;
        for cut in (1..=messages.len()).rev().step_by(step) {
            assert_replayable(&messages[..cut], &format!("{source}, cut after {cut}"));
        }
    }
}

fn assert_replayable(messages: &[Message], source: &str) {
    for dangling in [DanglingCalls::Drop, DanglingCalls::Interrupted] {
        let mut replay = Replay::new(dangling);
        messages.iter().for_each(|message| replay.push(&Arc::new(message.clone())));
        let view = replay.view();
        let shown = view.iter().map(|message| &**message);
        except_empty_text(validate_messages(shown)).expect(source);
        if messages.iter().flat_map(Message::calls).any(|call| call.id.is_none()) {
            // Legacy function calls have no ids, so that a result cannot refer to them.
            continue;
        }
        let rendered = view.iter().flat_map(|message| render_message(message, Audience::Model));
        let rendered: Value = rendered.map(|json| json.parse::<Value>().unwrap()).collect();
        validate(Wire::OpenAiChat, &json!({ "messages": rendered })).expect(source);
    }
}
