//! Tests whether a service call contains the whole history or only the new messages.

use std::sync::Arc;

use tower_chat::{
    ChatRequest, ConversationKey, Message, Role, ToolCall, ToolResult,
    message::{MessageId, Messages},
    request::HistoryOwner,
    run::RunId,
};

use super::script::*;

fn history_and(own: &str) -> ChatRequest {
    let mut request = ChatRequest::user(own);
    request.prepend(&[Message::user("old"), Message::assistant("older")].into_iter().collect());
    request
}

#[tokio::test]
async fn without_a_history_owner_every_service_call_contains_all_messages() {
    for request in both(&history_and("hi")) {
        let script =
            Script::new([calls([("echo", "1")]), calls([("echo", "2")]), Message::assistant("x")]);
        ask(&over(echo()), &script, request).await.unwrap();
        assert_eq!(script.texts(0), ["old", "older", "hi"]);
        assert_eq!(script.texts(2), ["old", "older", "hi", "echo(1)", "=1", "echo(2)", "=2"]);
        let history: Vec<usize> = script.requests().iter().map(|r| r.history_len()).collect();
        assert_eq!(history, [2, 2, 2]);
    }
}

/// A result of the caller may answer a call that a layer below has stored, and is therefore sent. A
/// result in an answer of the model can answer only a call of the same answer.
#[tokio::test]
async fn a_result_that_answers_no_call_is_sent_if_it_is_the_callers_and_not_if_it_is_the_models() {
    let lost = |text: &str| Message::tool_results([ToolResult::new("kept below", text)]);
    let mut request = ChatRequest::user("hi");
    request.set_new_messages([lost("the caller's"), Message::user("hi")]);
    for request in both(&request) {
        let words = Message::assistant("Let me see.");
        let answer = vec![words, lost("the model's"), calls([("echo", "1")])];
        let script = Script::new([Reply::from(answer), Message::assistant("x").into()]);
        ask(&over(echo()), &script, request).await.unwrap();
        let expected = ["=the caller's", "hi", "Let me see.", "echo(1)", "=1"];
        assert_eq!(script.texts(1), expected);
    }
}

#[tokio::test]
async fn after_the_sentinel_only_new_messages_are_sent_and_the_caller_does_not_receive_it() {
    let mut request = ChatRequest::user("hi");
    request.history_owner = Some(HistoryOwner::Local);
    for request in both(&request) {
        let script = Script::new([
            Reply::from(calls([("echo", "1")])).local_history(),
            Reply::from(calls([("echo", "2")])).local_history(),
            Reply::from("done").local_history(),
        ]);
        let answer = ask(&over(echo()), &script, request).await.unwrap();
        assert_eq!(
            (script.texts(1), script.texts(2)),
            (vec!["=1".to_owned()], vec!["=2".to_owned()])
        );
        assert!(script.requests().iter().all(|request| request.history_owner.is_none()));
        assert_eq!(script.requests()[1].history_len(), 0);
        assert_eq!(answer.finish.history_owner, None);
        assert_eq!(answer.messages.len(), 5);
    }
}

#[tokio::test]
async fn a_service_id_goes_with_the_next_call_and_with_the_answer() {
    let request = ChatRequest::user("hi").with_service_id("conv_0");
    for request in both(&request) {
        let script = Script::new([
            Reply::from(calls([("echo", "1")])).service_id("conv_1"),
            Reply::from("done").service_id("conv_2"),
        ]);
        let answer = ask(&over(echo()), &script, request).await.unwrap();
        let id = |id: &str| Some(HistoryOwner::Service(id.into()));
        let ids: Vec<_> = script.requests().into_iter().map(|r| r.history_owner).collect();
        assert_eq!(ids, [id("conv_0"), id("conv_1")]);
        assert_eq!(script.texts(1), ["=1"]);
        assert_eq!(answer.finish.history_owner, id("conv_2"));
    }
}

#[tokio::test]
async fn if_a_later_response_carries_no_id_the_whole_history_is_sent_again() {
    for request in both(&history_and("hi")) {
        let script = Script::new([
            Reply::from(calls([("echo", "1")])).service_id("conv"),
            Reply::from(calls([("echo", "2")])),
            Reply::from("done"),
        ]);
        ask(&over(echo()), &script, request).await.unwrap();
        assert_eq!(script.texts(1), ["=1"]);
        assert_eq!(script.texts(2), ["old", "older", "hi", "echo(1)", "=1", "echo(2)", "=2"]);
        assert_eq!(script.requests()[2].history_owner, None);
    }
}

#[tokio::test]
async fn the_answer_is_numbered_after_the_requests_own_messages_whatever_runs_those_are_of() {
    let mut earlier = Message::user("of an earlier run");
    earlier.id = Some(MessageId { run: RunId::new(), index: 7 });
    for request in both(&ChatRequest::new([Message::user("hi"), earlier])) {
        let script = Script::new([calls([("echo", "1")]), Message::assistant("done")]);
        let answer = ask(&over(echo()), &script, request).await.unwrap();
        let indexes = answer.messages.iter().map(|message| message.id.unwrap().index);
        assert_eq!(indexes.collect::<Vec<_>>(), [2, 3, 4]);
    }
}

#[tokio::test]
async fn the_history_before_the_requests_own_messages_is_shared_and_not_copied() {
    let history: Messages = (0..1000).map(|n| Message::user(n.to_string())).collect();
    let mut request = ChatRequest::user("hi");
    request.prepend(&history);
    let script = Script::new([calls([("echo", "1")]), Message::assistant("done")]);
    ask(&over(echo()), &script, request).await.unwrap();
    let sent = script.requests()[1].messages().clone();
    assert_eq!(sent.len(), 1003);
    for index in [0, 500, 999] {
        assert!(Arc::ptr_eq(sent.get(index).unwrap(), history.get(index).unwrap()));
    }
}

#[tokio::test]
async fn calls_without_ids_get_the_same_id_on_call_and_result_and_are_returned_as_they_were() {
    for request in both(&ChatRequest::user("hi")) {
        let call = [ToolCall::without_id("echo", "1"), ToolCall::new("", "echo", "2")];
        let script = Script::new([Message::tool_calls(call), Message::assistant("done")]);
        let answer = ask(&over(echo()), &script, request).await.unwrap();
        let returned: Vec<_> = answer.messages[0].calls().map(|call| call.id.clone()).collect();
        assert_eq!(returned, [None, Some(String::new())]);
        let sent = script.requests()[1].messages().clone();
        let calls: Vec<_> = sent.get(1).unwrap().calls().map(|call| call.id.clone()).collect();
        let results: Vec<_> = sent.get(2).unwrap().results().map(|r| r.call_id.clone()).collect();
        assert_eq!(calls, results);
        assert!(calls[0].is_some() && calls[0] != calls[1]);
        let returned: Vec<_> = answer.messages[1].results().map(|r| r.call_id.clone()).collect();
        assert_eq!(returned, results);
    }
}

#[tokio::test]
async fn repeated_ids_and_odd_arguments_go_through_unchanged() {
    for request in both(&ChatRequest::user("hi")) {
        let odd = "{\"a\": 1.0,  \"b\": \"\\u00e9";
        let script =
            Script::new([calls([("echo", odd)]), calls([("echo", "2")]), Message::assistant("x")]);
        ask(&over(echo()), &script, request).await.unwrap();
        let sent = script.requests()[2].messages().clone();
        let ids: Vec<_> = sent.iter().flat_map(|m| m.calls()).map(|c| c.id.clone()).collect();
        assert_eq!(ids, [Some("c0".to_owned()), Some("c0".to_owned())]);
        assert_eq!(sent.get(1).unwrap().calls().next().unwrap().arguments, odd);
    }
}

#[tokio::test]
async fn every_message_of_a_run_is_numbered_after_the_requests_own() {
    for request in both(&history_and("hi").in_conversation(ConversationKey::new("s", "c"))) {
        let run = request.conversation().unwrap().run;
        let script = Script::new([calls([("echo", "1")]), Message::assistant("done")]);
        let answer = ask(&over(echo()), &script, request).await.unwrap();
        let ids: Vec<_> = answer.messages.iter().map(|message| message.id).collect();
        let id = |index| Some(MessageId { run, index });
        assert_eq!(ids, [id(1), id(2), id(3)]);
    }
}

#[tokio::test]
async fn a_run_that_continues_counts_on_from_its_messages_in_the_request() {
    let mut request =
        ChatRequest::new(Messages::new()).in_conversation(ConversationKey::new("s", "c"));
    let run = request.conversation().unwrap().run;
    let mut stored = Message::user("hi");
    stored.id = Some(MessageId { run, index: 4 });
    request.prepend(&stored.into());
    let script = Script::new(["done"]);
    let answer = ask(&over(echo()), &script, request).await.unwrap();
    assert_eq!(answer.messages[0].id, Some(MessageId { run, index: 5 }));
}

#[tokio::test]
async fn ids_given_below_for_this_run_are_kept_and_counted_on() {
    for request in both(&ChatRequest::user("hi").in_conversation(ConversationKey::new("s", "c"))) {
        let run = request.conversation().unwrap().run;
        let mut first = calls([("echo", "1")]);
        first.id = Some(MessageId { run, index: 7 });
        let mut last = Message::assistant("done");
        let other_run = MessageId { run: RunId::new(), index: 40 };
        last.id = Some(other_run);
        let script = Script::new([first, last]);
        let answer = ask(&over(echo()), &script, request).await.unwrap();
        let ids: Vec<_> = answer.messages.iter().map(|message| message.id.unwrap()).collect();
        assert_eq!(ids, [MessageId { run, index: 7 }, MessageId { run, index: 8 }, other_run]);
    }
}

#[tokio::test]
async fn a_request_that_brings_results_itself_is_sent_as_it_stands() {
    let own = [
        Message::user("hi"),
        calls([("callers", "1")]),
        Message::tool_results([tower_chat::ToolResult::new("c0", "mine")]),
    ];
    let script = Script::new(["done"]);
    ask(&over(echo()), &script, ChatRequest::new(own)).await.unwrap();
    assert_eq!(script.texts(0), ["hi", "callers(1)", "=mine"]);
    assert_eq!(script.requests()[0].messages().get(2).unwrap().role, Role::Tool);
}
