//! Tests that the key of a response cache contains exactly the content that the model receives.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, SystemTime},
};

use serde_json::{Value, json};
use tower_chat_core::{
    ApprovalRequest, CacheKey, CallPosition, ChatOptions, ChatRequest, ConversationKey, ErrorPart,
    ExactNumbers, HistoryOwner, Media, MediaSource, Message, MessageId, Messages, Native, Part,
    Reasoning, Role, RunId, Text, ToolCall, ToolChoice, ToolDefinition, ToolResult,
};

fn native(item: &str) -> Native {
    Native::new("anthropic", item.parse().unwrap())
}

/// Returns a request in which every field is set.
fn full() -> ChatRequest {
    let call = ToolCall::new("call_1", "order", r#"{"number": 7}"#);
    let mut reasoning = Reasoning::new("An order has a number.");
    reasoning.native = Some(native(r#"{"signature": "c2ln", "n": 12345678901234567890123}"#));
    let mut result = ToolResult::new("call_1", "on its way");
    result.name = Some("order".to_owned());
    let mut question = Message::user("Where is it?");
    question.author = Some("Alice".to_owned());
    question.parts.push(Media::new("image/png", MediaSource::Url("https://a/b".into())).into());
    let request = ApprovalRequest::new("approval_1", call.clone(), true);
    let messages = vec![
        question,
        Message::new(Role::Assistant, vec![reasoning.into(), call.into()]),
        Message::tool_results([result]),
        Message::new(Role::Assistant, vec![request.clone().into()]),
        Message::new(Role::User, vec![request.reject("too dear").into()]),
        Message::new(
            Role::Assistant,
            vec![ErrorPart::new("overloaded").into(), native("{\"kind\":\"ping\"}").into()],
        ),
    ];
    let parameters = json!({"type": "object", "properties": {"number": {"type": "integer"}}});
    let tool = ToolDefinition::new("order", "Where an order is.", parameters).strict();
    let options = ChatOptions::new()
        .with_model("small")
        .with_instructions("Be brief.")
        .with_tools([tool.with_native(native(r#"{"cache": true, "ttl": "5m"}"#))])
        .with_tool_choice(ToolChoice::Tool("order".into()))
        .with_temperature(0.5)
        .with_top_p(0.9)
        .with_max_output_tokens(100)
        .with_exact_numbers(ExactNumbers::of(r#"{"a": [1, {"b": 222222222222222222222}]}"#))
        .with_extra([("seed".to_owned(), json!(4)), ("user".to_owned(), json!({"a": 1, "b": 2}))]);
    ChatRequest::new(messages).with_options(options)
}

fn key_after(change: impl FnOnce(&mut ChatRequest)) -> CacheKey {
    let mut request = full();
    change(&mut request);
    request.cache_key()
}

fn with_options(change: impl FnOnce(&mut ChatOptions)) -> CacheKey {
    key_after(|request| change(Arc::make_mut(&mut request.options)))
}

fn with_tool(change: impl FnOnce(&mut ToolDefinition)) -> CacheKey {
    with_options(|options| change(&mut options.tools[0]))
}

fn with_message(index: usize, change: impl FnOnce(&mut Message)) -> CacheKey {
    key_after(|request| {
        let mut messages: Vec<Message> =
            request.messages().iter().map(|it| (**it).clone()).collect();
        change(&mut messages[index]);
        request.set_new_messages(messages);
    })
}

fn with_part(message: usize, part: usize, change: impl FnOnce(&mut Part)) -> CacheKey {
    with_message(message, |message| change(&mut message.parts[part]))
}

fn with_call(change: impl FnOnce(&mut ToolCall)) -> CacheKey {
    with_part(1, 1, |part| {
        let Part::ToolCall(call) = part else { panic!("{part:?}") };
        change(call);
    })
}

fn with_result(change: impl FnOnce(&mut ToolResult)) -> CacheKey {
    with_part(2, 0, |part| {
        let Part::ToolResult(result) = part else { panic!("{part:?}") };
        change(result);
    })
}

fn with_extra(value: Value) -> CacheKey {
    with_options(|options| _ = options.extra.insert("user".to_owned(), value))
}

#[test]
fn everything_that_the_model_receives_changes_the_cache_key() {
    let exact = |json: &str| {
        let numbers = ExactNumbers::of(json);
        with_options(|it| *it = it.clone().with_exact_numbers(numbers))
    };
    let changed = [
        ("nothing", full().cache_key()),
        ("model", with_options(|it| it.model = Some("large".into()))),
        ("no model", with_options(|it| it.model = None)),
        ("instructions", with_options(|it| it.instructions = Some("Be long.".into()))),
        ("tool choice", with_options(|it| it.tool_choice = Some(ToolChoice::Required))),
        ("any tool", with_options(|it| it.tool_choice = Some(ToolChoice::Auto))),
        ("temperature", with_options(|it| it.temperature = Some(0.9))),
        ("top_p", with_options(|it| it.top_p = Some(0.5))),
        ("tokens", with_options(|it| it.max_output_tokens = Some(101))),
        ("background", with_options(|it| it.background = true)),
        ("continuation", with_options(|it| it.continuation = Some("token".into()))),
        ("extra", with_extra(json!({"a": 1, "b": 3}))),
        ("extra: float", with_extra(json!({"a": 1.0, "b": 2}))),
        ("extra: text", with_extra(json!({"a": "1", "b": 2}))),
        ("extra: list", with_extra(json!([["a", 1], ["b", 2]]))),
        ("extra: null", with_extra(json!(null))),
        ("digits", exact(r#"{"a": [1, {"b": 222222222222222222223}]}"#)),
        ("their path", exact(r#"{"a": [1, {"c": 222222222222222222222}]}"#)),
        ("their depth", exact(r#"{"a": [1, 222222222222222222222]}"#)),
        ("no digits", exact("{}")),
        ("no tools", with_options(|it| it.tools.clear())),
        ("tool name", with_tool(|it| it.name = "orders".into())),
        ("tool description", with_tool(|it| it.description = "Where orders are.".into())),
        ("tool parameters", with_tool(|it| it.parameters = json!({"type": "object"}))),
        ("tool item", with_tool(|it| it.native = Some(native(r#"{"cache": false}"#)))),
        ("tool strict", with_tool(|it| it.strict = false)),
        ("service", key_after(|it| *it = it.clone().with_service_id("conv_1"))),
        ("other service", key_after(|it| *it = it.clone().with_service_id("conv_2"))),
        ("sentinel", key_after(|it| it.history_owner = Some(HistoryOwner::Local))),
        ("fewer messages", key_after(|it| it.set_new_messages(it.messages().take(5)))),
        (
            "order",
            key_after(|it| {
                let reversed: Messages = it.messages().iter().rev().cloned().collect();
                it.set_new_messages(reversed);
            }),
        ),
        ("role", with_message(0, |it| it.role = Role::System)),
        ("other role", with_message(0, |it| it.role = Role::Developer)),
        ("author", with_message(0, |it| it.author = Some("Bob".into()))),
        ("text", with_part(0, 0, |it| *it = Part::text("Where is he?"))),
        (
            "text item",
            with_part(0, 0, |it| {
                let mut text = Text::new("Where is it?");
                text.native = Some(native("1"));
                *it = text.into();
            }),
        ),
        (
            "media",
            with_part(0, 1, |it| {
                *it = Media::new("image/png", MediaSource::File("https://a/b".into())).into();
            }),
        ),
        (
            "media type",
            with_part(0, 1, |it| {
                *it = Media::new("image/gif", MediaSource::Url("https://a/b".into())).into();
            }),
        ),
        ("reasoning", with_part(1, 0, |it| *it = Reasoning::new("An order has a number.").into())),
        (
            "digits of an item",
            with_part(1, 0, |it| {
                let mut reasoning = Reasoning::new("An order has a number.");
                let item = r#"{"signature": "c2ln", "n": 12345678901234567890124}"#;
                reasoning.native = Some(native(item));
                *it = reasoning.into();
            }),
        ),
        ("call id", with_call(|it| it.id = Some("call_2".into()))),
        ("no call id", with_call(|it| it.id = None)),
        ("call name", with_call(|it| it.name = "orders".into())),
        ("arguments", with_call(|it| it.arguments = r#"{"number":7}"#.into())),
        ("call item", with_call(|it| it.native = Some(native("2")))),
        ("provider's call", with_call(|it| it.provider_executed = true)),
        ("result id", with_result(|it| it.call_id = None)),
        ("result name", with_result(|it| it.name = None)),
        ("result", with_result(|it| it.content = vec![Part::text("lost")])),
        ("failed result", with_result(|it| it.is_error = true)),
        ("result item", with_result(|it| it.native = Some(native("3")))),
        (
            "approval",
            with_part(3, 0, |it| {
                let Part::ApprovalRequest(request) = it else { panic!("{it:?}") };
                request.call.name = "cancel".into();
            }),
        ),
        (
            "decision",
            with_part(4, 0, |it| {
                let Part::ApprovalResponse(response) = it else { panic!("{it:?}") };
                response.approved = true;
            }),
        ),
        (
            "arguments of a decision",
            with_part(4, 0, |it| {
                let Part::ApprovalResponse(response) = it else { panic!("{it:?}") };
                response.arguments = Some("{}".to_owned());
            }),
        ),
        ("error", with_part(5, 0, |it| *it = ErrorPart::new("down").into())),
        (
            "issuer",
            with_part(5, 1, |it| *it = native("{\"kind\":\"ping\"}").issued_by("deepseek").into()),
        ),
        ("item", with_part(5, 1, |it| *it = native("{\"kind\":\"pong\"}").into())),
        (
            "wire",
            with_part(5, 1, |it| {
                *it = Native::new("gemini", "{\"kind\":\"ping\"}".parse().unwrap()).into();
            }),
        ),
    ];
    let mut found = BTreeMap::new();
    for (change, key) in changed {
        if let Some(before) = found.insert(key, change) {
            panic!("{before:?} and {change:?} have the same key");
        }
    }
}

#[test]
fn fields_that_the_model_does_not_receive_do_not_change_the_cache_key() {
    let message = MessageId { run: RunId::new(), index: 3 };
    let unchanged = [
        ("stream", with_options(|it| it.stream = true)),
        ("needs approval", with_tool(|it| it.needs_approval = true)),
        ("safe to retry", with_tool(|it| it.safe_to_retry = true)),
        ("stored arguments", with_tool(|it| it.accepts_stored_arguments = true)),
        ("message id", with_message(0, |it| it.id = Some(message))),
        ("time", with_message(0, |it| it.added_at = Some(SystemTime::now()))),
        ("metadata", with_message(0, |it| _ = it.metadata.insert("a".into(), json!(1)))),
        ("call", with_result(|it| it.call = Some(CallPosition { message, index: 0 }))),
        ("ends run", with_result(|it| it.ends_run = true)),
        ("history", key_after(|it| it.set_messages(it.messages().clone(), 4))),
        ("extension", key_after(|it| *it = it.clone().with_extension(Duration::ZERO))),
        (
            "conversation",
            key_after(|it| {
                *it = it.clone().in_conversation(ConversationKey::new("alice", "support"));
            }),
        ),
    ];
    for (change, key) in unchanged {
        assert_eq!(key, full().cache_key(), "{change}");
    }
}

#[test]
fn the_order_of_json_fields_does_not_change_the_cache_key() {
    let texts = [
        r#"{"a":{"c":[1,{"d":2,"e":3}],"b":"\u00e9"},"f":null}"#,
        r#" {"f": null, "a" : {"b": "é", "c": [1, {"e": 3, "d": 2} ]}} "#,
    ];
    let item = |text: &str| with_part(5, 1, |it| *it = native(text).into());
    assert_eq!(item(texts[0]), item(texts[1]));
    assert_ne!(item(texts[0]), item(&texts[0].replace("1,{", "{")));
    let value = |text: &str| with_extra(serde_json::from_str(text).unwrap());
    assert_eq!(value(texts[0]), value(texts[1]));
    let zeros = [0.0, -0.0].map(|zero| with_options(|it| it.temperature = Some(zero)));
    assert_eq!(zeros[0], zeros[1]);
}

#[test]
fn the_cache_key_distinguishes_texts_that_are_split_into_parts_differently() {
    let key = |texts: &[&[&str]]| {
        let messages = texts.iter().map(|parts| {
            Message::new(Role::User, parts.iter().map(|text| Part::text(*text)).collect())
        });
        ChatRequest::new(messages.collect::<Messages>()).cache_key()
    };
    let forms: [&[&[&str]]; 7] = [
        &[],
        &[&[]],
        &[&["abc"]],
        &[&["ab", "c"]],
        &[&["a", "bc"]],
        &[&["ab"], &["c"]],
        &[&["", "abc"]],
    ];
    for (at, form) in forms.iter().enumerate() {
        for other in &forms[..at] {
            assert_ne!(key(form), key(other), "{form:?} {other:?}");
        }
    }
}

#[test]
fn different_native_items_with_2000_levels_have_different_cache_keys() {
    let deep = |inner: &str| format!("{}{inner}{}", "[".repeat(2000), "]".repeat(2000));
    let item = |text: &str| with_part(5, 1, |it| *it = native(text).into());
    assert_ne!(item(&deep("1")), item(&deep("2")));
}

/// A cache outlives the process. A release that changes the key must list the change in the
/// changelog, and must increment the version number that is part of the hash.
#[test]
fn the_cache_key_is_the_same_in_every_process() {
    assert_eq!(
        full().cache_key().to_string(),
        "16450ed2038a46baa59b2aaf50eefd0fdc829362aada143895c920e832f3cac1"
    );
    assert_eq!(full().cache_key().as_bytes().len(), 32);
}
