use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use futures_util::FutureExt;
use tower::{Service, ServiceBuilder, ServiceExt, service_fn};
use tower_chat_core::{
    ApprovalRequest, BoxError, ChatRequest, ChatResponse, ConversationKey, Finish, Message, Part,
    Reasoning, Role, ToolCall, ToolResult,
};

use super::*;

fn calls(ids: &[&str]) -> Message {
    Message::tool_calls(ids.iter().map(|id| ToolCall::new(*id, "look", "{}")))
}

fn results(ids: &[&str]) -> Message {
    Message::tool_results(ids.iter().map(|id| ToolResult::new(*id, "42")))
}

fn faults(messages: &[Message]) -> Vec<Fault> {
    match validate_messages(messages) {
        Ok(()) => Vec::new(),
        Err(invalid) => invalid.faults().cloned().collect(),
    }
}

fn unanswered(message: usize, id: &str) -> Fault {
    Fault::Unanswered { message, tool: "look".into(), call_id: Some(id.into()) }
}

fn orphan(message: usize, id: &str) -> Fault {
    Fault::Orphan { message, call_id: Some(id.into()) }
}

#[test]
fn rounds_are_valid_if_results_follow_their_calls_directly_in_any_order() {
    let messages = [
        Message::system("Be brief."),
        Message::user("hi"),
        calls(&["a", "b", "c"]),
        results(&["c", "a"]),
        results(&["b"]),
        calls(&["a"]),
        results(&["a"]),
        Message::assistant("done"),
    ];
    assert_eq!(faults(&messages), []);
    assert_eq!(faults(&[]), []);
}

#[test]
fn a_call_without_a_result_and_a_result_without_a_call_are_faults() {
    assert_eq!(faults(&[calls(&["a", "b"]), results(&["b"])]), [unanswered(0, "a")]);
    assert_eq!(faults(&[calls(&["a"]), results(&["a", "b"])]), [orphan(1, "b")]);
    assert_eq!(faults(&[Message::user("hi"), results(&["a"])]), [orphan(1, "a")]);
}

#[test]
fn a_result_does_not_answer_its_call_if_it_comes_before_it_or_after_another_message() {
    let behind = [unanswered(0, "a"), orphan(2, "a")];
    assert_eq!(faults(&[results(&["a"]), calls(&["a"])]), [orphan(0, "a"), unanswered(1, "a")]);
    for between in [Message::user("well?"), Message::assistant("wait"), Message::system("now")] {
        let mut found = faults(&[calls(&["a"]), between, results(&["a"])]);
        found.sort_by_key(Fault::message);
        assert_eq!(found, behind);
    }
}

#[test]
fn a_second_result_for_a_call_is_a_fault() {
    let twice = Fault::AnsweredTwice { message: 2, call_id: "a".into() };
    assert_eq!(faults(&[calls(&["a"]), results(&["a"]), results(&["a"])]), [twice]);
}

#[test]
fn calls_with_missing_empty_or_repeated_ids_are_reported_once() {
    let missing = |message| Fault::CallWithoutId { message, tool: "look".into() };
    let nameless = Message::tool_calls([ToolCall::without_id("look", "{}")]);
    let mut answer = ToolResult::new("", "42");
    answer.call_id = None;
    assert_eq!(faults(&[nameless, Message::tool_results([answer])]), [missing(0)]);
    assert_eq!(faults(&[calls(&[""]), results(&[""])]), [missing(0)]);
    let repeated = Fault::RepeatedCallId { message: 0, tool: "look".into(), call_id: "a".into() };
    assert_eq!(faults(&[calls(&["a", "a"]), results(&["a"])]), [repeated]);
    let nameless_result = Fault::Orphan { message: 1, call_id: Some(String::new()) };
    assert_eq!(faults(&[calls(&["a"]), results(&["", "a"])]), [nameless_result]);
}

#[test]
fn approval_requests_and_responses_in_a_request_are_faults() {
    let request = ApprovalRequest::new("r1", ToolCall::new("a", "look", "{}"), true);
    let messages = [
        Message::new(Role::Assistant, vec![request.clone().into()]),
        Message::new(Role::User, vec![request.approve().into()]),
    ];
    let about = |message| Fault::Approval { message, request_id: "r1".into() };
    assert_eq!(faults(&messages), [about(0), about(1)]);
}

#[test]
fn an_assistant_message_without_content_is_a_fault() {
    let empty = [Message::new(Role::Assistant, Vec::new()), Message::assistant("")];
    for message in empty {
        assert_eq!(faults(&[message]), [Fault::EmptyAssistant { message: 0 }]);
    }
    let thought = Message::new(Role::Assistant, vec![Part::from(Reasoning::new(""))]);
    assert_eq!(faults(&[Message::user(""), thought]), []);
}

#[test]
fn calls_and_results_in_messages_of_the_wrong_role_are_faults() {
    let mut by_user = calls(&["a"]);
    by_user.role = Role::User;
    let mut in_user = results(&["a"]);
    in_user.role = Role::User;
    let misplaced = [
        Fault::MisplacedCall { message: 0, tool: "look".into() },
        Fault::MisplacedResult { message: 1, call_id: Some("a".into()) },
    ];
    assert_eq!(faults(&[by_user, in_user]), misplaced);
}

#[test]
fn a_provider_executed_call_needs_no_result_and_its_result_must_be_in_the_same_message() {
    let mut searched = ToolCall::new("s", "search", "{}");
    searched.provider_executed = true;
    let alone = Message::tool_calls([searched.clone()]);
    let parts = vec![searched.into(), ToolResult::new("s", "found").into(), Part::text("There.")];
    assert_eq!(faults(&[alone.clone(), Message::new(Role::Assistant, parts)]), []);
    assert_eq!(faults(&[alone, results(&["s"])]), [orphan(1, "s")]);
}

#[test]
fn a_request_with_a_service_id_may_begin_with_results_for_calls_that_the_service_stores() {
    let request = |messages: Vec<Message>| ChatRequest::new(messages);
    let answers = || vec![Message::system("Be brief."), results(&["a"]), results(&["b"])];
    validate_request(&request(answers())).unwrap_err();
    validate_request(&request(answers()).with_service_id("conv_1")).unwrap();

    let refused = [
        vec![results(&["a", "a"])],
        vec![results(&[""])],
        vec![Message::user("hi"), results(&["a"])],
        vec![results(&["a"]), calls(&["b"]), results(&["a", "b"])],
        vec![results(&["a"]), calls(&["b"])],
    ];
    for messages in refused {
        validate_request(&request(messages).with_service_id("conv_1")).unwrap_err();
    }
}

fn counting_model(
    layer: ValidateTranscriptLayer,
) -> (impl Service<ChatRequest, Response = ChatResponse, Error = BoxError>, Arc<AtomicUsize>) {
    let called = Arc::new(AtomicUsize::new(0));
    let counter = called.clone();
    let model = service_fn(move |_: ChatRequest| {
        counter.fetch_add(1, Ordering::SeqCst);
        async { Ok::<_, BoxError>(ChatResponse::whole([Message::assistant("hi")], Finish::stop())) }
    });
    (ServiceBuilder::new().layer(layer).service(model), called)
}

#[test]
fn an_invalid_request_fails_before_the_model_is_called() {
    let (mut client, called) = counting_model(ValidateTranscriptLayer::new());
    let key = ConversationKey::new("alice", "support");
    let broken =
        ChatRequest::new(vec![Message::user("hi"), calls(&["a"])]).in_conversation(key.clone());

    let result = client.ready().now_or_never().unwrap().unwrap().call(broken).now_or_never();
    let error = result.unwrap().unwrap_err().downcast::<InvalidRequest>().unwrap();
    assert_eq!(error.conversation, Some(key));
    assert_eq!(error.source.first(), &unanswered(1, "a"));
    assert!(error.to_string().contains("alice/support"), "{error}");
    assert!(!error.is_retryable());
    assert_eq!(crate::is_retryable(&*error), Some(false));
    assert_eq!(called.load(Ordering::SeqCst), 0);

    let result = client.ready().now_or_never().unwrap().unwrap();
    let answer = result.call(ChatRequest::user("hi")).now_or_never().unwrap().unwrap();
    assert_eq!(answer.collect().now_or_never().unwrap().unwrap().text(), "hi");
    assert_eq!(called.load(Ordering::SeqCst), 1);
}

#[test]
fn the_layer_for_debug_builds_validates_only_in_debug_builds() {
    let (mut client, called) = counting_model(ValidateTranscriptLayer::in_debug_builds());
    let service = client.ready().now_or_never().unwrap().unwrap();
    let result = service.call(ChatRequest::new(results(&["a"]))).now_or_never().unwrap();
    assert_eq!(result.is_err(), cfg!(debug_assertions));
    assert_eq!(called.load(Ordering::SeqCst), usize::from(!cfg!(debug_assertions)));
}

#[test]
fn the_error_describes_the_first_fault_and_counts_the_others() {
    let invalid = validate_messages(&[calls(&["a", "b"])]).unwrap_err();
    let text = invalid.to_string();
    assert!(text.contains("tool \"look\" in message 0 (call id \"a\")"), "{text}");
    assert!(text.ends_with("(and 1 more)"), "{text}");
}
