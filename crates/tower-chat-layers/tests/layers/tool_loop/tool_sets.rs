//! Tests the tools that requests declare, and changes of the tool set during a run.

use tower_chat::{
    ChatOptions, ChatRequest, ConversationKey, Message, ToolContext, ToolDefinition, Tools,
    layer::ToolLoopLayer,
    tool::{RunAncestry, SharedTools, ToolSource},
    tool_fn,
};

use super::script::*;

fn declared(request: &ChatRequest) -> Vec<String> {
    request.options.tools.iter().map(|tool| tool.name.clone()).collect()
}

#[tokio::test]
async fn the_callers_tools_and_the_sets_are_declared_and_the_set_wins() {
    let mut options = ChatOptions::default();
    options.tools = vec![definition("callers"), ToolDefinition::new("echo", "x", true.into())];
    let script = Script::new(["done"]);
    let request = ChatRequest::user("hi").with_options(options);
    ask(&over(echo()), &script, request).await.unwrap();
    let request = &script.requests()[0];
    assert_eq!(declared(request), ["callers", "echo"]);
    assert_eq!(request.options.tools[1], definition("echo"));
}

#[test]
fn the_debug_text_of_a_loop_has_its_tools_and_that_of_its_service_the_inner_service() {
    let tool_loop = over(echo());
    let text = format!("{tool_loop:?}");
    assert!(text.starts_with("ToolLoopLayer {") && text.contains(r#""echo""#), "{text}");
    let text = format!("{:?}", tower::Layer::layer(&tool_loop, "a model"));
    assert_eq!(text, r#"ToolLoop { inner: "a model", .. }"#);
}

#[tokio::test]
async fn the_tool_set_may_change_between_rounds() {
    for request in both(&ChatRequest::user("hi")) {
        let shared = SharedTools::default();
        let (changed, log) = (shared.clone(), Log::default());
        let learned = log.clone();
        shared.set(Tools::new().with(tool_fn(definition("learn"), move |_| {
            let tool = learned.tool(definition("learned"));
            changed.update(|_| Tools::new().with(tool));
            async { Ok("ok") }
        })));
        let script = Script::new([
            // The first call changes the set. The second call still runs with the set that the
            // request declared.
            calls([("learn", ""), ("learn", "")]),
            calls([("learned", "1"), ("learn", "")]),
            Message::assistant("done"),
        ]);
        let answer = ask(&ToolLoopLayer::new(shared.clone()), &script, request).await.unwrap();
        assert_eq!(declared(&script.requests()[0]), ["learn"]);
        assert_eq!(declared(&script.requests()[1]), ["learned"]);
        assert_eq!(texts(&answer.messages)[1], "=ok =ok");
        assert_eq!(log.take(), ["1"]);
        assert!(results(&answer)[3].is_error, "the set no longer contains the tool");
        assert_eq!(shared.tools().len(), 1);
    }
}

#[tokio::test]
async fn a_nested_request_contains_its_ancestor_conversations() {
    let seen = std::sync::Arc::new(std::sync::Mutex::new(None));
    let nested = seen.clone();
    let tool = tool_fn(definition("t"), move |context: ToolContext| {
        let request = ChatRequest::user("x").in_conversation(ConversationKey::new("s", "outer"));
        *nested.lock().unwrap() = Some(context.nest(request));
        async { Ok("") }
    });
    let script = Script::new([calls([("t", "")]), Message::assistant("done")]);
    let outer = RunAncestry::new().inside(ConversationKey::new("s", "outer"));
    let request = ChatRequest::user("hi")
        .in_conversation(ConversationKey::new("s", "inner"))
        .with_extension(outer);
    ask(&over(tool), &script, request).await.unwrap();
    let nested = seen.lock().unwrap().take().unwrap();
    let ancestry = RunAncestry::of(&nested);
    assert!(ancestry.contains(&ConversationKey::new("s", "inner")));
    assert!(ancestry.contains(&ConversationKey::new("s", "outer")));
    let error = RunAncestry::check(&nested).unwrap_err();
    assert_eq!(error.key, ConversationKey::new("s", "outer"));
}
