//! Tests calls that wait for approval, in a tool loop without persistence.

use std::sync::Arc;

use tower_chat::{
    Answer, ChatRequest, Message, Part, Role, ToolCall, ToolResult, Tools,
    error::ToolLoopError,
    layer::ToolLoopLayer,
    tool::{ApprovalRequest, ApprovalResponse, ToolOutput},
    tool_fn,
};

use super::script::*;

/// Returns a tool loop with three tools. `pay` needs approval, `look` does not, and `stop` needs
/// approval and ends the run. `pay` and `look` log their calls.
fn tools(log: &Log) -> ToolLoopLayer {
    let stop = tool_fn(definition("stop").needs_approval(), |_| async {
        Ok(ToolOutput::from("stopped").terminate())
    });
    ToolLoopLayer::new(
        Tools::new()
            .with(log.tool(definition("pay").needs_approval()))
            .with(log.tool(definition("look")))
            .with(stop),
    )
}

/// Executes a run that ends with approval requests. Returns the conversation and the requests.
async fn asked(call: Message) -> (Vec<Arc<Message>>, Vec<ApprovalRequest>) {
    let script = Script::new([call]);
    let answer = ask(&tools(&Log::default()), &script, ChatRequest::user("hi")).await.unwrap();
    let requests: Vec<_> = answer.approval_requests().cloned().collect();
    let mut messages = vec![Arc::new(Message::user("hi"))];
    messages.extend(answer.messages);
    (messages, requests)
}

fn responses(responses: impl IntoIterator<Item = ApprovalResponse>) -> Message {
    Message::new(Role::User, responses.into_iter().map(Part::ApprovalResponse).collect())
}

async fn next_request(
    log: &Log,
    script: &Script,
    mut messages: Vec<Arc<Message>>,
    own: Message,
    streamed: bool,
) -> Result<Answer, tower_chat::BoxError> {
    messages.push(Arc::new(own));
    let mut request =
        ChatRequest::new(messages.into_iter().collect::<tower_chat::message::Messages>());
    if streamed {
        request = request.streamed();
    }
    ask(&tools(log), script, request).await
}

#[tokio::test]
async fn one_tool_that_needs_approval_makes_the_whole_batch_wait() {
    for request in both(&ChatRequest::user("hi")) {
        let log = Log::default();
        let first = vec![calls([("look", "1")]), calls([("pay", "2"), ("nobody", "3")])];
        let script = Script::new([Reply::from(first)]);
        let answer = ask(&tools(&log), &script, request).await.unwrap();
        assert_eq!(texts(&answer.messages), ["?look", "?pay ?nobody"]);
        assert_eq!((log.take().len(), script.calls()), (0, 1));
        let required: Vec<bool> = answer.approval_requests().map(|r| r.required).collect();
        assert_eq!(required, [false, true, false]);
        let mut ids: Vec<&str> = answer.approval_requests().map(|r| r.id.as_str()).collect();
        ids.dedup();
        assert_eq!(ids.len(), 3);
    }
}

#[tokio::test]
async fn a_batch_without_a_tool_that_needs_approval_runs_immediately() {
    for request in both(&ChatRequest::user("hi")) {
        let log = Log::default();
        let script = Script::new([calls([("look", "1")]), Message::assistant("done")]);
        let answer = ask(&tools(&log), &script, request).await.unwrap();
        assert_eq!((answer.text().as_str(), log.take()), ("done", vec!["1".to_owned()]));
    }
}

#[tokio::test]
async fn a_call_that_is_answered_inside_the_response_needs_no_approval() {
    for request in both(&ChatRequest::user("hi")) {
        let answered = Message::tool_results([ToolResult::new("c0", "already")]);
        let second = Message::tool_calls([ToolCall::new("c9", "pay", "2")]);
        let script = Script::new([Reply::from(vec![calls([("look", "1")]), answered, second])]);
        let answer = ask(&tools(&Log::default()), &script, request).await.unwrap();
        assert_eq!(texts(&answer.messages), ["look(1)", "=already", "?pay"]);

        let answered = Message::tool_results([ToolResult::new("c0", "paid below")]);
        let script = Script::new([
            Reply::from(vec![
                calls([("pay", "1")]),
                answered,
                Message::tool_calls([ToolCall::new("c9", "look", "2")]),
            ]),
            "done".into(),
        ]);
        let log = Log::default();
        let request = ChatRequest::user("hi");
        ask(&tools(&log), &script, request).await.unwrap();
        assert_eq!(log.take(), ["2"]);
    }
}

#[tokio::test]
async fn calls_of_the_last_service_call_are_returned_as_calls_and_not_as_requests() {
    for request in both(&ChatRequest::user("hi")) {
        let script = Script::new([calls([("look", "1")]), calls([("pay", "2")])]);
        let tool_loop = tools(&Log::default()).max_rounds(1).unwrap();
        let answer = ask(&tool_loop, &script, request).await.unwrap();
        assert_eq!(texts(&answer.messages), ["look(1)", "=ran 1", "pay(2)"]);
    }
}

#[tokio::test]
async fn approved_calls_run_before_the_next_service_call() {
    for streamed in [false, true] {
        let (messages, requests) = asked(calls([("pay", "1"), ("look", "2")])).await;
        let (log, script) = (Log::default(), Script::new(["done"]));
        let mut own = responses(requests.iter().map(ApprovalRequest::approve));
        own.parts.push(Part::text("go"));
        let answer = next_request(&log, &script, messages, own, streamed).await.unwrap();
        assert_eq!(log.take(), ["1", "2"]);
        assert_eq!(script.texts(0), ["hi", "pay(1) look(2)", "=ran 1 =ran 2", "go"]);
        assert_eq!(texts(&answer.messages), ["=ran 1 =ran 2", "done"]);
    }
}

#[tokio::test]
async fn a_rejected_call_is_not_run_and_its_result_says_so_with_the_reason() {
    for streamed in [false, true] {
        let (messages, requests) = asked(calls([("pay", "1"), ("look", "2")])).await;
        let (log, script) = (Log::default(), Script::new(["done"]));
        let own = responses([requests[0].reject("too dear"), requests[1].approve()]);
        let answer = next_request(&log, &script, messages, own, streamed).await.unwrap();
        assert_eq!(log.take(), ["2"]);
        let results = results(&answer);
        assert!(results[0].text().contains("rejected") && results[0].text().contains("too dear"));
        assert!(!results[0].is_error, "the tool did not fail");
        assert_eq!(script.calls(), 1);
    }
}

#[tokio::test]
async fn calls_without_ids_are_approved_and_answered_under_the_id_the_model_is_shown() {
    let call =
        Message::tool_calls([ToolCall::without_id("pay", "1"), ToolCall::new("", "look", "2")]);
    let (messages, requests) = asked(call).await;
    let (log, script) = (Log::default(), Script::new(["done"]));
    let own = responses(requests.iter().map(ApprovalRequest::approve));
    next_request(&log, &script, messages, own, false).await.unwrap();
    let sent = script.requests()[0].messages().clone();
    let calls: Vec<_> = sent.iter().flat_map(|m| m.calls()).map(|c| c.id.clone()).collect();
    let results: Vec<_> =
        sent.iter().flat_map(|m| m.results()).map(|r| r.call_id.clone()).collect();
    assert_eq!((calls.len(), &calls), (2, &results));
    assert_ne!(calls[0], calls[1]);
}

#[tokio::test]
async fn a_late_approval_runs_the_call_of_an_earlier_round() {
    let call = Message::tool_calls([ToolCall::without_id("pay", "1")]);
    let (mut messages, requests) = asked(call).await;
    messages.push(Arc::new(Message::user("wait")));
    messages.push(Arc::new(Message::assistant("waiting")));
    let (log, script) = (Log::default(), Script::new(["done"]));
    let own = responses([requests[0].approve()]);
    next_request(&log, &script, messages, own, false).await.unwrap();
    assert_eq!(script.texts(0), ["hi", "wait", "waiting", "pay(1)", "=ran 1"]);
}

#[tokio::test]
async fn an_answer_to_a_request_that_does_not_exist_is_refused() {
    for streamed in [false, true] {
        let (messages, requests) = asked(calls([("pay", "1")])).await;
        let (log, script) = (Log::default(), Script::new(["done"]));
        let mut forged = requests[0].approve();
        forged.request_id.push('x');
        let id = forged.request_id.clone();
        let own = responses([forged]);
        let error = next_request(&log, &script, messages, own, streamed).await.unwrap_err();
        let Some(ToolLoopError::ApprovalUnknown { id: named, .. }) = error.downcast_ref() else {
            panic!("another error: {error}")
        };
        assert_eq!((named, log.take().len(), script.calls()), (&id, 0, 0));
    }
}

#[tokio::test]
async fn an_approval_that_is_given_twice_runs_its_call_once() {
    let (messages, requests) = asked(calls([("pay", "1")])).await;
    let (log, script) = (Log::default(), Script::new(["done"]));
    let own = responses([requests[0].approve(), requests[0].approve()]);
    next_request(&log, &script, messages, own, false).await.unwrap();
    assert_eq!(log.take(), ["1"]);
    assert_eq!(script.texts(0), ["hi", "pay(1)", "=ran 1"]);
}

#[tokio::test]
async fn an_answer_to_a_call_that_has_its_result_is_refused() {
    for streamed in [false, true] {
        let (mut messages, requests) = asked(calls([("pay", "1")])).await;
        messages.push(Arc::new(responses([requests[0].approve()])));
        messages.push(Arc::new(Message::tool_results([ToolResult::new("c0", "paid")])));
        // The run is incomplete, because the model has not answered since the approved call. The
        // repeated approval continues it.
        let (log, script) = (Log::default(), Script::new(["again"]));
        let own = responses([requests[0].approve()]);
        next_request(&log, &script, messages.clone(), own.clone(), streamed).await.unwrap();
        assert_eq!(script.texts(0), ["hi", "pay(1)", "=paid"]);
        messages.push(Arc::new(Message::assistant("done")));
        // The whole transcript also contains decisions that an earlier run has applied.
        let script = Script::new(["again"]);
        next_request(&log, &script, messages.clone(), Message::user("and?"), streamed)
            .await
            .unwrap();
        assert_eq!(script.texts(0), ["hi", "pay(1)", "=paid", "done", "and?"]);
        let script = Script::new(["again"]);
        let error = next_request(&log, &script, messages, own, streamed).await.unwrap_err();
        let Some(ToolLoopError::ApprovalAnswered { id, .. }) = error.downcast_ref() else {
            panic!("another error: {error}")
        };
        assert_eq!((id, log.take().len(), script.calls()), (&requests[0].id, 0, 0));
    }
}

#[tokio::test]
async fn a_batch_answered_in_part_is_an_error_before_anything_runs() {
    for streamed in [false, true] {
        let (messages, requests) = asked(calls([("pay", "1"), ("look", "2")])).await;
        let (log, script) = (Log::default(), Script::new(["done"]));
        let own = responses([requests[0].approve()]);
        let error = next_request(&log, &script, messages, own, streamed).await.unwrap_err();
        let Some(ToolLoopError::ApprovalMissing { ids, .. }) = error.downcast_ref() else {
            panic!("another error: {error}")
        };
        assert_eq!((ids, log.take().len(), script.calls()), (&vec![requests[1].id.clone()], 0, 0));
    }
}

#[tokio::test]
async fn an_approved_call_does_not_run_before_the_caller_has_answered_its_own_calls_of_the_batch() {
    for streamed in [false, true] {
        let (log, script) = (Log::default(), Script::new([Message::assistant("done")]));
        let pay = ApprovalRequest::new("a1", ToolCall::new("c2", "pay", "2"), true);
        let callers = ToolCall::new("c1", "callers", "1");
        let parts = vec![callers.into(), Part::ApprovalRequest(pay.clone())];
        let messages = [Message::user("hi"), Message::new(Role::Assistant, parts)].map(Arc::new);
        let own = responses([pay.approve()]);
        let sent = next_request(&log, &script, messages.to_vec(), own, streamed).await;
        let error = sent.unwrap_err();
        let Some(ToolLoopError::ResultsMissing { calls, .. }) = error.downcast_ref() else {
            panic!("{error:?}")
        };
        assert_eq!(calls.len(), 1);
        assert_eq!((log.take().len(), script.calls()), (0, 0));
    }
}

#[tokio::test]
async fn a_batch_without_any_answer_continues_waiting() {
    let (messages, requests) = asked(calls([("pay", "1")])).await;
    let (log, script) = (Log::default(), Script::new(["later", "done"]));
    let own = Message::user("what else?");
    let answer = next_request(&log, &script, messages.clone(), own.clone(), false).await.unwrap();
    assert_eq!(script.texts(0), ["hi", "what else?"]);
    let mut messages = messages;
    messages.push(Arc::new(own));
    messages.extend(answer.messages);
    next_request(&log, &script, messages, responses([requests[0].approve()]), false).await.unwrap();
    assert_eq!(log.take(), ["1"]);
}

#[tokio::test]
async fn an_approved_tool_may_end_the_run_before_any_service_call() {
    for streamed in [false, true] {
        let (messages, requests) = asked(calls([("stop", "")])).await;
        let (log, script) = (Log::default(), Script::new(["never"]));
        let own = responses([requests[0].approve()]);
        let answer = next_request(&log, &script, messages, own, streamed).await.unwrap();
        assert_eq!((texts(&answer.messages), script.calls()), (vec!["=stopped".to_owned()], 0));
    }
}

#[tokio::test]
async fn a_change_of_the_call_in_an_approval_request_has_no_effect() {
    // An approval response contains only the id of the request, and not the call.
    let (messages, requests) = asked(calls([("pay", "1")])).await;
    let mut changed = requests[0].clone();
    changed.call.arguments = "1000000".to_owned();
    let (log, script) = (Log::default(), Script::new(["done"]));
    next_request(&log, &script, messages, responses([changed.approve()]), false).await.unwrap();
    assert_eq!(log.take(), ["1"]);
}

#[tokio::test]
async fn rejections_do_not_count_as_failures_and_approved_calls_count_towards_the_call_limit() {
    let (messages, requests) = asked(calls([("pay", "1"), ("look", "2")])).await;
    let log = Log::default();
    let tool_loop = tools(&log).max_failing_rounds(0).max_calls(Some(0));
    let script = Script::new(["done"]);
    let mut messages = messages;
    messages.push(Arc::new(responses([requests[0].reject(""), requests[1].approve()])));
    let request = ChatRequest::new(messages.into_iter().collect::<tower_chat::message::Messages>());
    let answer = ask(&tool_loop, &script, request).await.unwrap();
    let is_error: Vec<bool> = results(&answer).iter().map(|result| result.is_error).collect();
    assert_eq!((is_error, log.take().len()), (vec![false, true], 0));
}
