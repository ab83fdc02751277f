//! Tests of whole and streamed responses: which updates they have, and which answers the updates
//! are assembled into.

use futures_util::{StreamExt, stream};
use tower_chat_core::{
    Answer, ApprovalRequest, BoxError, ChatResponse, ChatUpdate, Finish, FinishReason, Message,
    Part, Reasoning, Role, ToolCall, ToolCallDelta, ToolResult, TruncatedStream, Usage,
};

type Update = Result<ChatUpdate, BoxError>;

fn text(text: &str) -> Update {
    Ok(ChatUpdate::TextDelta(text.to_owned()))
}

fn call(delta: ToolCallDelta) -> Update {
    Ok(ChatUpdate::ToolCallDelta(delta))
}

fn whole(message: Message) -> Update {
    Ok(ChatUpdate::Message(message.into()))
}

fn stop() -> Update {
    Ok(ChatUpdate::Finish(Finish::stop().into()))
}

fn streamed(updates: impl IntoIterator<Item = Update, IntoIter: Send + 'static>) -> ChatResponse {
    ChatResponse::stream(stream::iter(updates))
}

async fn answer(updates: Vec<Update>) -> Answer {
    streamed(updates).collect().await.expect("an answer")
}

async fn all(response: ChatResponse) -> Vec<Update> {
    response.collect_updates().await
}

trait CollectUpdates {
    async fn collect_updates(self) -> Vec<Update>;
}

impl CollectUpdates for ChatResponse {
    async fn collect_updates(self) -> Vec<Update> {
        StreamExt::collect(self).await
    }
}

#[tokio::test]
async fn deltas_of_reasoning_text_and_calls_are_assembled_into_one_message() {
    let updates = vec![
        Ok(ChatUpdate::ReasoningDelta("h".to_owned())),
        Ok(ChatUpdate::ReasoningDelta("m".to_owned())),
        text("Let me "),
        text("see."),
        call(ToolCallDelta::new(0, "").with_id("a").with_name("f")),
        call(ToolCallDelta::new(1, "{").with_id("b").with_name("g")),
        call(ToolCallDelta::new(0, "{\"x\"")),
        call(ToolCallDelta::new(1, "}")),
        call(ToolCallDelta::new(0, ":1}")),
        stop(),
    ];
    let expected = Message::new(
        Role::Assistant,
        vec![
            Reasoning::new("hm").into(),
            Part::text("Let me see."),
            ToolCall::new("a", "f", "{\"x\":1}").into(),
            ToolCall::new("b", "g", "{}").into(),
        ],
    );
    let seen = all(streamed(updates)).await;
    assert_eq!(seen.len(), 11);
    let kinds = seen.iter().map(|update| update.as_ref().expect("no error"));
    assert_eq!(
        kinds.skip(9).cloned().collect::<Vec<_>>(),
        [ChatUpdate::Message(expected.into()), ChatUpdate::Finish(Finish::stop().into())]
    );
}

#[tokio::test]
async fn the_first_nonempty_id_and_name_of_a_streamed_call_are_used() {
    let answer = answer(vec![
        call(ToolCallDelta::new(0, "{").with_id("").with_name("")),
        call(ToolCallDelta::new(0, "\"a\":").with_id("first").with_name("f")),
        call(ToolCallDelta::new(0, "1").with_id("second").with_name("g")),
        call(ToolCallDelta::new(0, "}").with_id("first").with_name("f")),
        stop(),
    ])
    .await;
    assert_eq!(
        *answer.messages[0],
        Message::tool_calls([ToolCall::new("first", "f", "{\"a\":1}")])
    );
}

#[tokio::test]
async fn a_streamed_call_keeps_its_empty_id_if_no_other_id_follows() {
    let answer = answer(vec![
        call(ToolCallDelta::new(0, "{").with_id("").with_name("f")),
        call(ToolCallDelta::new(0, "}")),
        stop(),
    ])
    .await;
    assert_eq!(*answer.messages[0], Message::tool_calls([ToolCall::new("", "f", "{}")]));
}

#[tokio::test]
async fn streamed_calls_are_ordered_by_index_and_gaps_between_indexes_add_no_calls() {
    let answer = answer(vec![
        call(ToolCallDelta::new(usize::MAX, "").with_name("last")),
        call(ToolCallDelta::new(3, "").with_name("second")),
        call(ToolCallDelta::new(1, "").with_name("first")),
        stop(),
    ])
    .await;
    let names: Vec<_> = answer.tool_calls().map(|call| call.name.as_str()).collect();
    assert_eq!(names, ["first", "second", "last"]);
}

#[test]
fn tool_calls_returns_only_calls_that_need_a_result_from_the_caller() {
    let call = |id: &str, name: &str| ToolCall::new(id, name, "{}");
    let mut provider_call = call("p", "search");
    provider_call.provider_executed = true;
    let request = ApprovalRequest::new("r", call("c4", "pay"), true);
    let messages = [
        Message::tool_calls([call("c1", "look"), call("c1", "listen")]),
        Message::tool_results([ToolResult::new("c1", "seen"), ToolResult::new("c1", "heard")]),
        Message::new(
            Role::Assistant,
            vec![
                Part::ToolCall(provider_call),
                Part::ToolCall(call("c1", "location")),
                Part::ApprovalRequest(request),
                Part::ToolCall(call("", "camera")),
            ],
        ),
    ];
    let answer = Answer::new(messages.map(Into::into).to_vec(), Finish::stop());
    let names: Vec<_> = answer.tool_calls().map(|call| &*call.name).collect();
    assert_eq!(names, ["location", "camera"]);
}

#[tokio::test]
async fn a_complete_message_replaces_its_deltas() {
    let answer = answer(vec![
        text("hel"),
        whole(Message::assistant("hello")),
        whole(Message::assistant("again")),
        text("last"),
        stop(),
    ])
    .await;
    let texts: Vec<_> = answer.messages.iter().map(|message| message.text()).collect();
    assert_eq!(texts, ["hello", "again", "last"]);
    assert_eq!(answer.text(), "last");
}

#[tokio::test]
async fn a_response_ends_after_its_finish() {
    let seen = all(streamed(vec![
        text("a"),
        stop(),
        text("b"),
        Err("late".into()),
        whole(Message::assistant("c")),
        stop(),
    ]))
    .await;
    assert_eq!(seen.len(), 3);
    assert!(matches!(seen[2], Ok(ChatUpdate::Finish(_))));
}

#[tokio::test]
async fn a_stream_without_a_finish_fails_with_an_error_that_contains_the_partial_text() {
    let mut response = streamed(vec![whole(Message::assistant("one")), text("tw"), text("o")]);
    for _ in 0..3 {
        response.next().await.expect("an update").expect("no error");
    }
    let error = response.next().await.expect("a last item").expect_err("an error");
    let truncated = error.downcast_ref::<TruncatedStream>().expect("a truncated stream");
    assert_eq!(truncated.text, "two");
    assert!(response.next().await.is_none());

    let error = streamed(vec![whole(Message::assistant("all of it"))]).collect().await;
    assert!(error.expect_err("an error").is::<TruncatedStream>());
    let error = streamed(Vec::new()).collect().await;
    assert!(error.expect_err("an error").is::<TruncatedStream>());
}

#[tokio::test]
async fn a_response_ends_after_an_error() {
    let mut response = streamed(vec![text("a"), Err("boom".into()), text("b"), stop()]);
    response.next().await.expect("an update").expect("no error");
    assert_eq!(response.next().await.expect("an item").expect_err("boom").to_string(), "boom");
    assert!(response.next().await.is_none());
    let error = streamed(vec![text("a"), Err("boom".into()), stop()]).collect().await;
    assert_eq!(error.expect_err("boom").to_string(), "boom");
}

#[tokio::test]
async fn whole_and_streamed_responses_collect_to_equal_answers() {
    let messages = [Message::assistant("one"), Message::tool_calls([ToolCall::new("c", "f", "{")])];
    let mut finish = Finish::new(FinishReason::Length).with_usage(Usage::new(1, 2));
    finish.model = Some("m".to_owned());
    let from_whole = ChatResponse::whole(messages.clone(), finish.clone()).collect().await;
    let updates =
        messages.map(whole).into_iter().chain([Ok(ChatUpdate::Finish(finish.clone().into()))]);
    let from_stream = streamed(updates.collect::<Vec<_>>()).collect().await;
    let from_updates = {
        let response = ChatResponse::from(from_whole.as_ref().expect("an answer").clone());
        ChatResponse::forward(response).collect().await
    };
    let expected = from_whole.expect("an answer");
    assert_eq!(*expected.finish, finish);
    assert_eq!(from_stream.expect("an answer"), expected);
    assert_eq!(from_updates.expect("an answer"), expected);
}

#[tokio::test]
async fn a_whole_answer_streams_its_messages_and_its_finish() {
    let seen = all(ChatResponse::whole([Message::assistant("a")], Finish::stop())).await;
    assert!(matches!(&seen[..], [Ok(ChatUpdate::Message(_)), Ok(ChatUpdate::Finish(_))]));
}

#[tokio::test]
async fn try_into_answer_succeeds_only_for_a_whole_response() {
    let response = ChatResponse::whole([Message::assistant("a")], Finish::stop());
    assert_eq!(response.try_into_answer().expect("an answer").text(), "a");
    let response = streamed(vec![text("a"), stop()]);
    let response = response.try_into_answer().expect_err("a stream");
    assert_eq!(response.collect().await.expect("an answer").text(), "a");
}

#[test]
fn counts_of_tokens_never_overflow() {
    let mut usage = Usage::new(u64::MAX, 3);
    usage += Usage::new(1, 4);
    assert_eq!((usage.input_tokens, usage.output_tokens), (u64::MAX, 7));
    assert_eq!(usage.total_tokens(), u64::MAX);
}
