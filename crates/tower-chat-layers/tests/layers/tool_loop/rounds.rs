//! Tests which calls of a round are executed, in which order, and with which results.

use tokio::sync::Barrier;
use tower_chat::{
    BoxError, ChatOptions, ChatRequest, Message, ToolContext, ToolResult, Tools,
    error::{ToolLoopError, ZeroRounds},
    layer::ToolLoopLayer,
    request::{ToolChoice, Usage},
    tool_fn,
};

use tower_chat_testkit::cases;

use super::script::*;

#[tokio::test]
async fn a_call_is_run_and_its_result_sent_with_everything_before_it() {
    for request in both(&ChatRequest::user("hi")) {
        let script = Script::new([calls([("echo", "1")]), Message::assistant("done")]);
        let answer = ask(&over(echo()), &script, request).await.unwrap();
        assert_eq!(script.texts(0), ["hi"]);
        assert_eq!(script.texts(1), ["hi", "echo(1)", "=1"]);
        assert_eq!(texts(&answer.messages), ["echo(1)", "=1", "done"]);
        let result = &results(&answer)[0];
        assert_eq!((result.call_id.as_deref(), result.name.as_deref()), (Some("c0"), Some("echo")));
    }
}

#[tokio::test]
async fn an_answer_without_calls_is_returned_as_it_is() {
    for request in both(&ChatRequest::user("hi")) {
        let script = Script::new(["hello"]);
        let answer = ask(&over(echo()), &script, request).await.unwrap();
        assert_eq!((texts(&answer.messages), script.calls()), (vec!["hello".to_owned()], 1));
    }
}

#[tokio::test]
async fn calls_of_all_messages_get_one_message_of_results_in_call_order() {
    for (concurrent, request) in cases!([false, true], both(&ChatRequest::user("hi"))) {
        let first = vec![calls([("echo", "1"), ("echo", "2")]), calls([("echo", "3")])];
        let script = Script::new([Reply::from(first), "done".into()]);
        let tool_loop = over(echo()).concurrent(concurrent);
        let answer = ask(&tool_loop, &script, request).await.unwrap();
        assert_eq!(texts(&answer.messages)[2], "=1 =2 =3");
    }
}

#[tokio::test]
async fn a_call_answered_inside_the_same_response_is_not_run() {
    for request in both(&ChatRequest::user("hi")) {
        let log = Log::default();
        let answered = Message::tool_results([ToolResult::new("c0", "already")]);
        let first = vec![calls([("log", "1"), ("log", "2")]), answered];
        let script = Script::new([Reply::from(first), "done".into()]);
        let answer = ask(&over(log.tool(definition("log"))), &script, request).await.unwrap();
        assert_eq!(log.take(), ["2"]);
        assert_eq!(results(&answer).len(), 2);
    }
}

#[tokio::test]
async fn serial_calls_wait_for_each_other_and_concurrent_ones_do_not() {
    let barrier = std::sync::Arc::new(Barrier::new(2));
    let meeting = tool_fn(definition("meet"), move |context: ToolContext| {
        let barrier = barrier.clone();
        async move {
            barrier.wait().await;
            Ok(context.arguments().to_owned())
        }
    });
    let script = Script::new([calls([("meet", "1"), ("meet", "2")]), Message::assistant("done")]);
    let concurrent = over(meeting).concurrent(true);
    let answer = ask(&concurrent, &script, ChatRequest::user("hi")).await.unwrap();
    assert_eq!(texts(&answer.messages)[1], "=1 =2");

    let log = Log::default();
    let started = log.clone();
    let slow = tool_fn(definition("slow"), move |context: ToolContext| {
        let log = started.clone();
        async move {
            log.add(&format!("start {}", context.arguments()));
            tokio::task::yield_now().await;
            log.add(&format!("end {}", context.arguments()));
            Ok("")
        }
    });
    let script = Script::new([calls([("slow", "1"), ("slow", "2")]), Message::assistant("done")]);
    ask(&over(slow), &script, ChatRequest::user("hi")).await.unwrap();
    assert_eq!(log.take(), ["start 1", "end 1", "start 2", "end 2"]);
}

#[tokio::test]
async fn concurrent_results_keep_call_order_when_the_first_finishes_last() {
    let (sender, receiver) = tokio::sync::watch::channel(false);
    let sender = std::sync::Arc::new(sender);
    let tool = tool_fn(definition("t"), move |context: ToolContext| {
        let (sender, mut receiver) = (sender.clone(), receiver.clone());
        async move {
            if context.sequence_index() == 0 {
                receiver.wait_for(|is_over| *is_over).await?;
            } else {
                sender.send(true)?;
            }
            Ok(context.arguments().to_owned())
        }
    });
    let script = Script::new([calls([("t", "1"), ("t", "2")]), Message::assistant("done")]);
    let answer = ask(&over(tool).concurrent(true), &script, ChatRequest::user("hi")).await.unwrap();
    assert_eq!(texts(&answer.messages)[1], "=1 =2");
}

#[tokio::test]
async fn after_the_last_round_the_tools_are_withheld_and_further_calls_are_returned_unrun() {
    let mut options = ChatOptions::default();
    options.tools = vec![definition("callers")];
    options.tool_choice = Some(ToolChoice::Auto);
    options.model = Some("a large one".to_owned());
    for request in both(&ChatRequest::user("hi").with_options(options)) {
        let log = Log::default();
        let script = Script::new(vec![calls([("log", "x")]); 5]);
        let tool_loop = over(log.tool(definition("log"))).max_rounds(2).unwrap();
        let answer = ask(&tool_loop, &script, request).await.unwrap();
        assert_eq!((log.take().len(), script.calls()), (2, 3));
        let requests = script.requests();
        assert_eq!(requests[1].options.tools.len(), 2);
        assert!(requests[2].options.tools.is_empty());
        assert_eq!(requests[2].options.tool_choice, None);
        assert_eq!(requests[2].options.model.as_deref(), Some("a large one"));
        assert_eq!(texts(&answer.messages).last().unwrap(), "log(x)");
        assert_eq!(answer.messages.len(), 5);
    }
}

#[tokio::test]
async fn forty_rounds_are_the_default() {
    let script = Script::new(vec![calls([("echo", "x")]); 50]);
    ask(&over(echo()), &script, ChatRequest::user("hi")).await.unwrap();
    assert_eq!(script.calls(), 41);
}

#[tokio::test]
async fn rounds_can_be_unlimited_and_a_limit_of_zero_is_refused() {
    let mut replies = vec![calls([("echo", "x")]); 60];
    replies.push(Message::assistant("done"));
    let script = Script::new(replies);
    let answer =
        ask(&over(echo()).unlimited_rounds(), &script, ChatRequest::user("hi")).await.unwrap();
    assert_eq!((answer.text().as_str(), script.calls()), ("done", 61));
    assert_eq!(over(echo()).max_rounds(0).unwrap_err(), ZeroRounds);
}

#[tokio::test]
async fn calls_over_the_budget_get_an_error_result_and_are_not_run() {
    for request in both(&ChatRequest::user("hi")) {
        let log = Log::default();
        let script = Script::new([
            calls([("log", "1")]),
            calls([("log", "2"), ("log", "3")]),
            calls([("log", "4")]),
            Message::assistant("done"),
        ]);
        let tool_loop = over(log.tool(definition("log"))).max_calls(Some(2)).max_failing_rounds(0);
        let answer = ask(&tool_loop, &script, request).await.unwrap();
        assert_eq!(log.take(), ["1", "2"]);
        let results = results(&answer);
        let is_error: Vec<bool> = results.iter().map(|result| result.is_error).collect();
        assert_eq!(is_error, [false, false, true, true]);
        assert!(results[2].text().contains("no more than 2 tool calls"), "{}", results[2].text());
    }
}

#[tokio::test]
async fn the_finish_has_the_sum_of_the_usage_and_the_other_fields_of_the_last_service_call() {
    for request in both(&ChatRequest::user("hi")) {
        let mut first = Reply::from(calls([("echo", "1")]));
        first.finish.model = Some("first".to_owned());
        let mut last = Reply::from("done");
        last.finish.model = Some("last".to_owned());
        last.finish.continuation = Some("token".to_owned());
        last.finish.metadata.insert("k".to_owned(), "v".into());
        let script = Script::new([first, last]);
        let answer = ask(&over(echo()), &script, request).await.unwrap();
        assert_eq!(answer.finish.usage, Usage::new(20, 2));
        assert_eq!(answer.finish.model.as_deref(), Some("last"));
        assert_eq!(answer.finish.continuation.as_deref(), Some("token"));
        assert_eq!(answer.finish.metadata["k"], "v");
    }
}

#[tokio::test]
async fn a_required_tool_choice_and_a_continuation_apply_only_to_the_first_service_call() {
    for choice in [ToolChoice::Required, ToolChoice::Tool("echo".to_owned())] {
        let mut options = ChatOptions::default();
        options.tool_choice = Some(choice.clone());
        options.continuation = Some("token".to_owned());
        options.temperature = Some(0.5);
        for request in both(&ChatRequest::user("hi").with_options(options)) {
            let script = Script::new([calls([("echo", "1")]), Message::assistant("done")]);
            ask(&over(echo()), &script, request).await.unwrap();
            let [first, second] = &script.requests()[..] else { panic!("two calls") };
            assert_eq!(first.options.tool_choice, Some(choice.clone()));
            assert_eq!(first.options.continuation.as_deref(), Some("token"));
            assert_eq!((&second.options.tool_choice, &second.options.continuation), (&None, &None));
            assert_eq!(second.options.temperature, Some(0.5));
            assert_eq!(second.options.tools.len(), 1);
        }
    }
    let mut options = ChatOptions::default();
    options.tool_choice = Some(ToolChoice::Auto);
    let script = Script::new([calls([("echo", "1")]), Message::assistant("done")]);
    ask(&over(echo()), &script, ChatRequest::user("hi").with_options(options)).await.unwrap();
    assert_eq!(script.requests()[1].options.tool_choice, Some(ToolChoice::Auto));
}

#[tokio::test]
async fn the_callers_request_is_never_changed() {
    let mut options = ChatOptions::default();
    options.tool_choice = Some(ToolChoice::Required);
    let original = ChatRequest::user("hi").with_options(options.clone());
    let kept = original.clone();
    let script = Script::new([calls([("echo", "1")]), Message::assistant("done")]);
    ask(&over(echo()), &script, original).await.unwrap();
    assert_eq!((texts(kept.messages().iter()), &*kept.options), (vec!["hi".to_owned()], &options));
    assert_eq!(kept.messages().get(0).unwrap().id, None);
}

#[tokio::test]
async fn each_service_call_carries_its_number_and_the_requests_extensions() {
    #[derive(Clone, PartialEq, Debug)]
    struct Tenant(u8);
    let script = Script::new([calls([("echo", "1")]), Message::assistant("done")]);
    let request = ChatRequest::user("hi").with_extension(Tenant(7));
    ask(&over(echo()), &script, request).await.unwrap();
    for (ordinal, request) in script.requests().iter().enumerate() {
        let call = request.extensions.get::<tower_chat::run::ServiceCall>().unwrap();
        assert_eq!(call.ordinal as usize, ordinal);
        assert_eq!(request.extensions.get(), Some(&Tenant(7)));
    }
}

#[tokio::test]
async fn a_failing_service_call_fails_the_run_with_its_own_error() {
    for request in both(&ChatRequest::user("hi")) {
        let script = Script::new([calls([("echo", "1")]).into(), Reply::error("overloaded")]);
        let error = ask(&over(echo()), &script, request).await.unwrap_err();
        assert_eq!(error.to_string(), "overloaded");
        assert!(error.downcast_ref::<ToolLoopError>().is_none());
    }
}

#[tokio::test]
async fn an_outer_tool_loop_does_not_run_calls_that_an_inner_loop_has_answered() {
    for request in both(&ChatRequest::user("hi")) {
        let log = Log::default();
        let script = Script::new([calls([("log", "1")]), Message::assistant("done")]);
        let tool_loop = over(log.tool(definition("log")));
        let twice =
            tower::Layer::layer(&tool_loop, tower::Layer::layer(&tool_loop, script.clone()));
        let response = tower::ServiceExt::oneshot(twice, request).await.unwrap();
        let answer = response.collect().await.unwrap();
        assert_eq!(texts(&answer.messages), ["log(1)", "=ran 1", "done"]);
        assert_eq!((log.take().len(), script.calls()), (1, 2));
    }
}

#[tokio::test]
async fn a_tool_receives_its_call_its_position_and_the_context_of_the_request()
-> Result<(), BoxError> {
    #[derive(Clone)]
    struct Tenant(&'static str);
    let tool = tool_fn(definition("where"), |context: ToolContext| async move {
        let n: u8 = context.parse_arguments()?;
        let tenant = context.extensions().get::<Tenant>().unwrap().0;
        let position = (context.round_index(), context.sequence_index());
        let key = context.conversation().unwrap().to_string();
        Ok(format!("{n} {position:?} {tenant} {key} {} {}", context.call_id(), context.run()))
    });
    let request = ChatRequest::user("hi")
        .in_conversation(tower_chat::ConversationKey::new("s", "1"))
        .with_extension(Tenant("t7"));
    let run = request.conversation().unwrap().run;
    let script = Script::new([
        calls([("where", "1")]),
        calls([("where", "2"), ("where", "3")]),
        Message::assistant("done"),
    ]);
    let answer = ask(&ToolLoopLayer::new(Tools::new().with(tool)), &script, request).await?;
    let seen: Vec<String> = results(&answer).iter().map(ToolResult::text).collect();
    assert_eq!(
        seen,
        [
            format!("1 (0, 0) t7 s/1 c0 {run}"),
            format!("2 (1, 0) t7 s/1 c0 {run}"),
            format!("3 (1, 1) t7 s/1 c1 {run}"),
        ]
    );
    Ok(())
}
