//! Tests of servers that refuse calls, stop or are too slow, and of runs that are cancelled.

use std::{error::Error, time::Duration};

use tower_chat::{Part, error::ToolLoopError, tool::ToolStatus};
use tower_chat_mcp::{McpError, McpLimits, OverLimit};

use super::*;

/// Returns the error of a call of this tool.
async fn call_error(client: &McpTools, tool: &str) -> McpError {
    let tools = client.add_to(Tools::new()).await.unwrap();
    let mut pipeline = ChatPipeline::builder(ScriptedModel::new([calls([(tool, "{}")])]))
        .tool_loop(ToolLoopLayer::new(tools).max_failing_rounds(0))
        .build()
        .unwrap();
    let response = pipeline.ready().await.unwrap().call(ChatRequest::user("hi")).await;
    let error = match response {
        Ok(response) => response.collect().await.unwrap_err(),
        Err(error) => error,
    };
    let ToolLoopError::ConsecutiveFailures { failures, .. } = *error.downcast().unwrap() else {
        panic!("another error");
    };
    let failure = failures.into_iter().next().unwrap();
    *failure.source.downcast().unwrap()
}

#[tokio::test]
async fn a_server_that_dies_during_a_call_fails_the_call_and_the_history_is_valid() {
    for mode in BOTH_MODES {
        let client = connect(&[]).await;
        let script = vec![
            calls([("weather", "{}"), ("exit", "{}"), ("weather", "{}")]),
            Step::text("The server has gone."),
            Step::text("I am still here."),
        ];
        let agent = Agent::new(&McpTools::new(&client), mode, script).await;
        assert_eq!(agent.ask("hi").await.unwrap().text(), "The server has gone.");
        let record = agent.record().await;
        let statuses: Vec<_> = record.iter().map(|call| call.status).collect();
        assert_eq!(statuses, [ToolStatus::Ok, ToolStatus::Error, ToolStatus::Error], "{mode:?}");
        for call in &record[1..] {
            assert!(call.error.as_ref().unwrap().contains("connection to the MCP server ended"));
        }
        assert_eq!(agent.ask("and now?").await.unwrap().text(), "I am still here.");
        let shown = &agent.model.requests()[2];
        let results: Vec<bool> =
            shown.messages().iter().flat_map(|m| m.results()).map(|r| r.is_error).collect();
        assert_eq!((shown.messages().len(), results), (5, vec![false, true, true]), "{mode:?}");
    }
}

#[tokio::test]
async fn faults_of_a_server_are_typed_errors() {
    let client = connect(&[]).await;
    let tools = McpTools::new(&client);
    let refused = call_error(&tools, "refuse").await;
    let McpError::Refused { tool, source } = &refused else { panic!("{refused}") };
    let source: &rmcp::ErrorData = source.source().unwrap().downcast_ref().unwrap();
    assert_eq!((tool.as_str(), source.code.0), ("refuse", -32602));
    assert!(!refused.is_retryable());
    assert!(refused.source().unwrap().to_string().contains("not for you"));

    let limits = McpLimits::default().with_max_answer_bytes(20);
    let long = call_error(&tools.clone().with_limits(limits), "weather").await;
    assert!(matches!(long, McpError::OverLimit(OverLimit { limit: 20, .. })), "{long}");
    let late =
        call_error(&tools.clone().with_max_call_time(Duration::from_millis(1)), "wait").await;
    assert!(matches!(late, McpError::TimedOut { .. }), "{late}");
    assert!(late.is_retryable());

    let closed = call_error(&tools, "exit").await;
    assert!(matches!(closed, McpError::Closed { .. }), "{closed}");
    assert!(!closed.is_retryable());
}

#[tokio::test]
async fn a_run_that_is_dropped_cancels_the_call_at_the_server() {
    let client = connect(&[]).await;
    let script = vec![calls([("wait", "{}")]), calls([("cancellation", "{}")]), Step::text("ok")];
    let agent = Agent::new(&McpTools::new(&client), BOTH_MODES[0], script).await;
    tokio::select! {
        biased;
        _ = agent.ask("wait") => panic!("the tool waits until it is cancelled"),
        () = wait_for_call_at_server(&agent, &client) => {}
    }
    let answer = agent.ask("was it cancelled?").await.unwrap();
    assert_eq!(answer.text(), "ok");
    let result = agent.record().await.remove(0).result.unwrap();
    assert_eq!(result.content, [Part::text("a call was cancelled")]);
}

/// Waits until the server has read the call in progress. The server reads its requests in order.
/// When it answers this later request, it has therefore read the call.
async fn wait_for_call_at_server(agent: &Agent, client: &RunningService<RoleClient, ()>) {
    agent.model.called(1).await;
    McpTools::new(client).list().await.unwrap();
}
