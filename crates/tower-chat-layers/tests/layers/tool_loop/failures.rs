//! Tests calls of tools that fail, and calls of tools that do not exist.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;
use tower_chat::{
    BoxError, ChatOptions, ChatRequest, ConversationKey, Message, Tool, ToolContext, ToolError,
    Tools,
    error::{ToolLoopError, ToolPanicked},
    layer::ToolLoopLayer,
    policy::UnknownTools,
    tool::{ToolOutput, TypedTool},
    tool_fn,
};

use tower_chat_testkit::cases;

use super::script::*;

fn then_done(call: Message) -> Script {
    Script::new([call, Message::assistant("done")])
}

#[tokio::test]
async fn an_unknown_tool_gives_an_error_result_and_its_siblings_run() {
    for request in both(&ChatRequest::user("hi")) {
        let script = then_done(calls([("nobody", "1"), ("echo", "2")]));
        let answer = ask(&over(echo()), &script, request).await.unwrap();
        assert_eq!(texts(&answer.messages)[1], r#"!There is no tool named "nobody". =2"#);
        assert_eq!(answer.text(), "done");
    }
}

#[tokio::test]
async fn unknown_tools_can_send_all_calls_back_unexecuted() {
    for request in both(&ChatRequest::user("hi")) {
        let log = Log::default();
        let script = then_done(calls([("log", "1"), ("nobody", "2")]));
        let tool_loop = over(log.tool(definition("log"))).unknown_tools(UnknownTools::Return);
        let answer = ask(&tool_loop, &script, request).await.unwrap();
        assert_eq!(texts(&answer.messages), ["log(1) nobody(2)"]);
        assert_eq!((log.take().len(), script.calls()), (0, 1));
    }
}

#[tokio::test]
async fn a_declared_only_tool_sends_all_calls_back_unexecuted() {
    let mut options = ChatOptions::default();
    options.tools = vec![definition("callers")];
    for (request, declared) in
        cases!(both(&ChatRequest::user("hi").with_options(options)), ["sets", "callers"])
    {
        let log = Log::default();
        let script = then_done(calls([("log", "1"), (declared, "2")]));
        let tools = Tools::new().with(log.tool(definition("log"))).declare(definition("sets"));
        let answer = ask(&ToolLoopLayer::new(tools), &script, request.clone()).await.unwrap();
        assert_eq!(texts(&answer.messages), [format!("log(1) {declared}(2)")]);
        assert_eq!((log.take().len(), script.calls()), (0, 1));
    }
}

#[tokio::test]
async fn a_tool_error_is_an_error_result_without_details() {
    for request in both(&ChatRequest::user("hi")) {
        let script = then_done(calls([("bad", "1"), ("echo", "2")]));
        let tools = Tools::new().with(failing("bad")).with(echo());
        let answer = ask(&ToolLoopLayer::new(tools), &script, request).await.unwrap();
        assert_eq!(texts(&answer.messages)[1], "!The tool failed. =2");
    }
}

#[tokio::test]
async fn details_of_a_tool_error_are_given_when_asked_for() {
    #[derive(Debug, thiserror::Error)]
    #[error("no connection")]
    struct Outer(#[source] std::fmt::Error);
    let bad = tool_fn(definition("bad"), |_| async {
        Err::<ToolOutput, BoxError>(Outer(std::fmt::Error).into())
    });
    let script = then_done(calls([("bad", "1")]));
    let tool_loop = over(bad).include_error_details(true);
    let answer = ask(&tool_loop, &script, ChatRequest::user("hi")).await.unwrap();
    let cause = std::fmt::Error.to_string();
    assert_eq!(texts(&answer.messages)[1], format!("!The tool failed: no connection: {cause}"));
}

#[tokio::test]
async fn a_tool_can_choose_the_words_of_its_error() {
    let script = then_done(calls([("bad", "1")]));
    let tool_loop = over(constant("bad", ToolOutput::error("out of stock")));
    let answer = ask(&tool_loop, &script, ChatRequest::user("hi")).await.unwrap();
    assert_eq!(texts(&answer.messages)[1], "!out of stock");
}

#[tokio::test]
async fn arguments_that_do_not_parse_are_sent_to_the_model() {
    let double =
        TypedTool::new("double", "Doubles.", |n: u8, _| async move { Ok((n * 2).to_string()) });
    let script = then_done(calls([("double", r#"{"value": 21}"#), ("double", "{\"cut")]));
    let answer = ask(&over(double), &script, ChatRequest::user("hi")).await.unwrap();
    let results = results(&answer);
    assert_eq!((results[0].text().as_str(), results[0].is_error), ("42", false));
    assert!(results[1].is_error && results[1].text().starts_with("The arguments do not fit"));
}

#[tokio::test]
async fn a_panic_in_a_tool_is_an_error_result() {
    for concurrent in [false, true] {
        let bad = tool_fn(definition("bad"), |context: ToolContext| async move {
            assert!(context.arguments().is_empty(), "boom {}", context.arguments());
            Ok("")
        });
        let script = then_done(calls([("bad", "1"), ("echo", "2")]));
        let tools = Tools::new().with(bad).with(echo());
        let tool_loop = ToolLoopLayer::new(tools).concurrent(concurrent);
        let answer = ask(&tool_loop, &script, ChatRequest::user("hi")).await.unwrap();
        assert_eq!(texts(&answer.messages)[1], "!The tool failed. =2");
    }
}

#[tokio::test]
async fn too_many_failing_rounds_in_a_row_fail_the_run_with_all_the_errors() {
    for request in both(&ChatRequest::user("hi").in_conversation(ConversationKey::new("s", "c"))) {
        let script = Script::new(vec![calls([("bad", "1"), ("worse", "2"), ("echo", "3")]); 9]);
        let panics = tool_fn(definition("worse"), |_| async {
            std::panic::panic_any("boom");
            #[allow(unreachable_code)]
            Ok("")
        });
        let tools = Tools::new().with(failing("bad")).with(panics).with(echo());
        let error = ask(&ToolLoopLayer::new(tools), &script, request).await.unwrap_err();
        assert_eq!(script.calls(), 4);
        let text = error.to_string();
        assert!(text.contains("s/c") && text.contains("secret of c0"), "{text}");
        let error = error.downcast::<ToolLoopError>().unwrap();
        assert!(error.is_retryable(), "the tools may succeed in the next attempt");
        let ToolLoopError::ConsecutiveFailures { rounds, failures, .. } = *error else {
            panic!("another error")
        };
        assert_eq!((rounds, failures.len()), (4, 8));
        assert_eq!((failures[0].tool.as_str(), failures[0].round_index), ("bad", 0));
        assert_eq!(failures[7].round_index, 3);
        let panicked = failures[7].source.downcast_ref::<ToolPanicked>().unwrap();
        assert_eq!(panicked.message, "boom");
    }
}

#[tokio::test]
async fn a_round_without_a_failure_resets_the_count_of_failing_rounds() {
    let (bad, good) = (calls([("bad", "")]), calls([("echo", "")]));
    let script =
        Script::new([bad.clone(), bad.clone(), good, bad.clone(), bad, Message::assistant("done")]);
    let tools = Tools::new().with(failing("bad")).with(echo());
    let tool_loop = ToolLoopLayer::new(tools).max_failing_rounds(2);
    assert_eq!(ask(&tool_loop, &script, ChatRequest::user("hi")).await.unwrap().text(), "done");
}

#[tokio::test]
async fn the_error_holds_the_failures_of_the_rounds_in_a_row_alone() {
    let (bad, good) = (calls([("bad", "")]), calls([("echo", "")]));
    let script = Script::new([bad.clone(), good, bad.clone(), bad]);
    let tools = Tools::new().with(failing("bad")).with(echo());
    let tool_loop = ToolLoopLayer::new(tools).max_failing_rounds(1);
    let error = ask(&tool_loop, &script, ChatRequest::user("hi")).await.unwrap_err();
    let Some(ToolLoopError::ConsecutiveFailures { failures, .. }) = error.downcast_ref() else {
        panic!("another error: {error}")
    };
    let rounds: Vec<usize> = failures.iter().map(|failure| failure.round_index).collect();
    assert_eq!(rounds, [2, 3]);
}

#[tokio::test]
async fn error_results_in_the_tools_own_words_count_as_failures() {
    let script = Script::new(vec![calls([("bad", "")]); 3]);
    let tool_loop = over(constant("bad", ToolOutput::error("no"))).max_failing_rounds(0);
    ask(&tool_loop, &script, ChatRequest::user("hi")).await.unwrap_err();
    assert_eq!(script.calls(), 1);
}

#[tokio::test]
async fn arguments_that_a_tool_rejects_count_as_failures() {
    let script = Script::new(vec![calls([("bad", "")]); 5]);
    let tool_loop =
        over(constant("bad", ToolOutput::rejected_arguments("no"))).max_failing_rounds(1);
    ask(&tool_loop, &script, ChatRequest::user("hi")).await.unwrap_err();
    assert_eq!(script.calls(), 2);
}

#[tokio::test]
async fn failing_rounds_can_be_unlimited() {
    let mut replies = vec![calls([("bad", "")]); 9];
    replies.push(Message::assistant("done"));
    let script = Script::new(replies);
    let tool_loop = over(failing("bad")).unlimited_failing_rounds();
    assert_eq!(ask(&tool_loop, &script, ChatRequest::user("hi")).await.unwrap().text(), "done");
}

#[tokio::test]
async fn calls_of_unknown_tools_do_not_count_as_failures() {
    let mut replies = vec![calls([("nobody", "")]); 9];
    replies.push(Message::assistant("done"));
    let script = Script::new(replies);
    let tool_loop = over(echo()).max_failing_rounds(0);
    assert_eq!(ask(&tool_loop, &script, ChatRequest::user("hi")).await.unwrap().text(), "done");
}

#[tokio::test(start_paused = true)]
async fn a_tool_is_called_again_after_growing_delays_until_it_succeeds_or_reports_an_error() {
    let second = Duration::from_secs(1);
    let table = [
        // The failures before the first success, the number of calls, and the delay before the last.
        (0, "=ok", 1, 0),
        (1, "=ok", 2, 1),
        (2, "=ok", 3, 3),
        (3, "!The tool failed.", 3, 3),
    ];
    for (failures, result, calls_of_tool, delay) in table {
        let count = Arc::new(AtomicU32::new(0));
        let counted = count.clone();
        let flaky = TypedTool::new("flaky", "Fails.", move |_: u8, _| {
            let failed = counted.fetch_add(1, Ordering::Relaxed) < failures;
            async move { if failed { Err("no connection".into()) } else { Ok("ok".to_owned()) } }
        });
        let flaky = flaky.with_retries(2, second);
        assert!(flaky.definition().safe_to_retry);
        let (script, begun) = (then_done(calls([("flaky", r#"{"value": 1}"#)])), Instant::now());
        let answer = ask(&over(flaky), &script, ChatRequest::user("hi")).await.unwrap();
        assert_eq!(texts(&answer.messages)[1], result);
        assert_eq!(count.load(Ordering::Relaxed), calls_of_tool);
        assert_eq!(begun.elapsed(), second * delay);
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_that_a_tool_reports_to_the_model_is_final() {
    let count = Arc::new(AtomicU32::new(0));
    let counted = count.clone();
    let sold_out = TypedTool::new("buy", "Buys.", move |_: u8, _| {
        counted.fetch_add(1, Ordering::Relaxed);
        async { Err::<String, BoxError>(ToolError::for_model("sold out").into()) }
    });
    let sold_out = sold_out.with_retries(2, Duration::from_secs(1));
    let script = then_done(calls([("buy", r#"{"value": 1}"#)]));
    let answer = ask(&over(sold_out), &script, ChatRequest::user("hi")).await.unwrap();
    assert_eq!(texts(&answer.messages)[1], "!sold out");
    assert_eq!(count.load(Ordering::Relaxed), 1);
}
