//! Tests of the list of tools, and of the tool definitions that are made from it.

use tower_chat::Tool;
use tower_chat_mcp::{McpError, McpLimits};

use super::*;

#[tokio::test]
async fn every_page_of_the_list_of_tools_is_read_in_order() {
    let client = connect(&[]).await;
    let listed = McpTools::new(&client).list().await.unwrap();
    let names: Vec<&str> = listed.iter().map(|tool| tool.definition().name.as_str()).collect();
    let expected = ["weather", "fail", "refuse", "wait", "cancellation", "exit", "picture_of"];
    assert_eq!(names, expected);
    assert_eq!(listed[6].listed().name, "picture.of");
    let weather = listed[0].definition();
    assert_eq!(weather.description, "The weather in a city.");
    let schema = serde_json::json!({"type": "object", "properties": {"city": {"type": "string"}}});
    assert_eq!(weather.parameters, schema);
}

#[tokio::test]
async fn a_list_that_repeats_a_cursor_is_refused() {
    let client = connect(&["circle"]).await;
    let error = McpTools::new(&client).list().await.unwrap_err();
    assert!(matches!(&error, McpError::EndlessList { cursor } if cursor == "0"), "{error}");
    assert!(!error.is_retryable());
}

#[tokio::test]
async fn an_endless_list_of_new_pages_is_refused_at_each_limit() {
    let client = connect(&["endless"]).await;
    let refused = async |limits: McpLimits| {
        let error = McpTools::new(&client).with_limits(limits).list().await.unwrap_err();
        assert!(!error.is_retryable(), "{error}");
        match error {
            McpError::OverLimit(over) => (over.limit, over.setting),
            error => panic!("{error}"),
        }
    };
    let limits = McpLimits::default();
    assert_eq!(refused(limits).await, (1_000, "max_pages"));
    assert_eq!(refused(limits.with_max_pages(5)).await, (5, "max_pages"));
    assert_eq!(refused(limits.with_max_tools(5)).await, (5, "max_tools"));
    assert_eq!(refused(limits.with_max_list_bytes(300)).await, (300, "max_list_bytes"));
}

#[tokio::test]
async fn a_request_for_the_list_without_an_answer_times_out() {
    let client = connect(&["silent"]).await;
    let limit = std::time::Duration::from_millis(1);
    let tools = McpTools::new(&client).with_limits(McpLimits::default().with_max_list_time(limit));
    let error = tools.list().await.unwrap_err();
    assert!(matches!(error, McpError::ListTimedOut { limit: named } if named == limit), "{error}");
    assert!(error.is_retryable());
}

#[tokio::test]
async fn a_prefix_distinguishes_the_equal_tool_names_of_two_servers() {
    let (one, two) = (connect(&[]).await, connect(&[]).await);
    let tools = McpTools::new(&one).add_to(Tools::new()).await.unwrap();
    let clash = McpTools::new(&two).add_to(tools.clone()).await.unwrap_err();
    assert!(matches!(&clash, McpError::Duplicate(tool) if tool.name == "weather"), "{clash}");
    let both = McpTools::new(&two).with_prefix("two.").add_to(tools).await.unwrap();
    assert_eq!(both.len(), 14);
    assert!(both.tool("two_weather").is_some() && both.tool("two_picture_of").is_some());
}

#[tokio::test]
async fn the_need_for_approval_can_depend_on_the_hints_of_the_server() {
    let client = connect(&[]).await;
    let tools = McpTools::new(&client).needs_approval(|tool| !tool.hints().idempotent);
    let listed = tools.list().await.unwrap();
    let asking: Vec<&str> = listed
        .iter()
        .map(Tool::definition)
        .filter(|definition| definition.needs_approval)
        .map(|definition| definition.name.as_str())
        .collect();
    assert_eq!(asking, ["refuse", "exit"]);
}

#[tokio::test]
async fn no_tool_is_safe_to_retry_unless_the_application_decides_so_by_the_hints() {
    let client = connect(&[]).await;
    let plain = McpTools::new(&client).list().await.unwrap();
    assert!(plain.iter().all(|tool| !tool.definition().safe_to_retry));
    let tools = McpTools::new(&client)
        .safe_to_retry(|tool| tool.hints().idempotent)
        .needs_approval(|tool| tool.listed().name == "weather");
    for tool in tools.list().await.unwrap() {
        let definition = tool.definition();
        assert_eq!(definition.safe_to_retry, tool.hints().idempotent, "{}", definition.name);
        assert_eq!(definition.needs_approval, definition.name == "weather");
    }
    let safe = tools.list().await.unwrap();
    let safe = safe.iter().filter(|tool| tool.definition().safe_to_retry).count();
    assert_eq!(safe, 5, "all tools except refuse and exit are safe to retry");
}

#[tokio::test]
async fn the_tools_of_a_disconnected_server_cannot_be_listed() {
    let mut client = connect(&[]).await;
    let tools = McpTools::new(&client);
    client.close().await.unwrap();
    let error = tools.list().await.unwrap_err();
    assert!(matches!(error, McpError::NotListed { .. }), "{error}");
    assert!(!error.is_retryable());
}
