//! Tests of the finish reason in the last message of an answer.

use std::sync::Arc;

use futures_util::{FutureExt, StreamExt, stream};
use tower_chat_core::{
    Answer, BoxError, ChatResponse, ChatUpdate, Finish, FinishReason, Message, Part, ToolCall,
    ToolResult, format,
};

fn reasons(answer: &Answer) -> Vec<Option<FinishReason>> {
    answer.messages.iter().map(|message| message.finish_reason.clone()).collect()
}

fn cut_off(answer: &Answer) -> Vec<bool> {
    answer
        .messages
        .iter()
        .flat_map(|it| it.parts.iter().filter_map(Part::as_tool_call))
        .map(|call| call.is_cut_off)
        .collect()
}

/// Returns the same answer twice: from a whole response, and from a stream.
fn both(messages: &[Message], reason: FinishReason) -> [Answer; 2] {
    let whole = ChatResponse::whole(messages.to_vec(), Finish::new(reason.clone()));
    let updates = messages.iter().cloned().map(|message| ChatUpdate::Message(Arc::new(message)));
    let updates = updates.chain([ChatUpdate::Finish(Finish::new(reason).into())]);
    let updates: Vec<_> = updates.map(Ok::<_, BoxError>).collect();
    let streamed = ChatResponse::stream(stream::iter(updates));
    [whole, streamed].map(|response| response.collect().now_or_never().unwrap().unwrap())
}

#[test]
fn the_last_message_of_whole_and_streamed_answers_has_the_finish_reason() {
    let messages = [Message::assistant("one"), Message::assistant("two")];
    for answer in both(&messages, FinishReason::Length) {
        assert_eq!(reasons(&answer), [None, Some(FinishReason::Length)]);
    }
    // Deltas without a complete message are assembled into a message.
    let updates = [
        ChatUpdate::TextDelta("a".to_owned()),
        ChatUpdate::Finish(Finish::new(FinishReason::ContentFilter).into()),
    ];
    let response = ChatResponse::stream(stream::iter(updates.map(Ok::<_, BoxError>)));
    let answer = response.collect().now_or_never().unwrap().unwrap();
    assert_eq!(reasons(&answer), [Some(FinishReason::ContentFilter)]);
}

#[test]
fn calls_with_incomplete_arguments_are_cut_off_if_the_answer_reached_its_length_limit() {
    let mut hosted = ToolCall::new("h", "search", "");
    hosted.provider_executed = true;
    let calls = Message::new(
        tower_chat_core::Role::Assistant,
        [
            ToolCall::new("1", "look", r#"{"x": 1}"#),
            ToolCall::new("2", "look", ""),
            ToolCall::new("3", "look", " \n"),
            ToolCall::new("5", "look", "null"),
            ToolCall::new("4", "look", r#"{"x": "#),
            hosted,
        ]
        .map(Part::ToolCall)
        .to_vec(),
    );
    for answer in both(std::slice::from_ref(&calls), FinishReason::Length) {
        assert_eq!(cut_off(&answer), [false, true, true, true, true, false]);
    }
    for answer in both(&[calls], FinishReason::ToolCalls) {
        assert_eq!(cut_off(&answer), [false; 6]);
    }
}

#[test]
fn the_finish_reason_of_a_run_does_not_change_the_reasons_of_its_earlier_answers() {
    let mut first = Message::tool_calls([ToolCall::new("1", "look", "")]);
    first.finish_reason = Some(FinishReason::ToolCalls);
    let messages =
        [first, Message::tool_results([ToolResult::new("1", "found")]), Message::assistant("cut")];
    for answer in both(&messages, FinishReason::Length) {
        let expected = [Some(FinishReason::ToolCalls), None, Some(FinishReason::Length)];
        assert_eq!((reasons(&answer), cut_off(&answer)), (expected.to_vec(), vec![false]));
        // The finish reasons of an answer do not change when a layer wraps the answer again.
        let finish = Finish::new(FinishReason::Stop);
        let answer = Answer::new(answer.messages, finish);
        assert_eq!(reasons(&answer), expected);
    }
}

#[test]
fn a_streamed_message_is_returned_before_the_finish_arrives() {
    let updates =
        stream::iter([Ok::<_, BoxError>(ChatUpdate::Message(Message::assistant("a").into()))]);
    let mut response = ChatResponse::stream(updates.chain(stream::pending()));
    let Some(Some(Ok(ChatUpdate::Message(message)))) = response.next().now_or_never() else {
        panic!("the message was delayed")
    };
    assert_eq!((message.text().as_str(), &message.finish_reason), ("a", &None));
}

#[test]
fn messages_before_a_stream_error_are_returned() {
    let updates = [
        Ok(ChatUpdate::Message(Message::assistant("a").into())),
        Err::<_, BoxError>("broken".into()),
    ];
    let response = ChatResponse::stream(stream::iter(updates));
    let updates: Vec<_> = StreamExt::collect::<Vec<_>>(response).now_or_never().unwrap();
    assert!(matches!(&updates[..], [Ok(ChatUpdate::Message(_)), Err(_)]), "{updates:?}");
}

#[test]
fn the_finish_reason_is_stored_and_messages_of_older_releases_have_none() {
    for reason in [
        FinishReason::Stop,
        FinishReason::Length,
        FinishReason::ToolCalls,
        FinishReason::ContentFilter,
        FinishReason::Other("pause_turn".to_owned()),
    ] {
        let mut message = Message::assistant("a");
        message.finish_reason = Some(reason.clone());
        let stored = format::decode(&format::encode(&message)).unwrap();
        assert_eq!(stored.finish_reason, Some(reason.clone()));
        assert_eq!(message.with_parts(Vec::new()).finish_reason, Some(reason));
    }
    let old = r#"{"v":1,"role":"assistant","parts":[{"tool_call":{"id":"1","name":"f","arguments":""}}]}"#;
    let old = format::decode(old).unwrap();
    assert_eq!(old.finish_reason, None);
    assert!(old.calls().all(|call| !call.is_cut_off));
    assert!(!format::encode(&old).contains("finish_reason"));
    assert!(!format::encode(&old).contains("is_cut_off"));
}
