//! Tests of the JSON form in which messages are stored, and tests that later releases can read
//! version 1 of this form.

use std::{collections::BTreeMap, str::FromStr};

use serde_json::{Value, json};
use tower_chat_core::{
    ApprovalRequest, CallPosition, ErrorPart, FinishReason, HistoryOwner, Media, MediaSource,
    Message, MessageId, Native, Part, RawJson, Reasoning, Role, Text, ToolCall, ToolChoice,
    ToolDefinition, ToolResult, Usage,
    format::{FormatError, decode, encode},
};

/// Messages in version 1 of the stored form, one on each line. New lines may be added, but existing
/// lines must not be changed.
const VERSION_1: &str = include_str!("../fixtures/v1.jsonl");

/// A provider's item with formatting that JSON libraries normalise.
const ITEM: &str =
    r#"{ "z":1.50, "a":1E+2,"a2":[ ], "big":12345678901234567890123, "é":"\u00e9\/" }"#;

fn native() -> Option<Native> {
    Some(Native::new("some-wire", RawJson::from_str(ITEM).expect("an item")))
}

/// Returns messages with every kind of part, with every field set and with every optional field
/// missing.
fn every_kind() -> Vec<Message> {
    let mut text = Text::new("with \"quotes\", \n and é \u{1F600} \0");
    text.native = native();
    let mut reasoning = Reasoning::new("hm");
    reasoning.native = native();
    let mut call = ToolCall::new("call_1", "weather", "{\"city\": \"Pa");
    call.provider_executed = true;
    call.native = native();
    let mut result = ToolResult::error("call_1", "no such city");
    result.name = Some("weather".to_owned());
    result.native = native();
    result.content.push(Media::new("image/png", MediaSource::Base64("AAAA".to_owned())).into());
    let mut no_id = ToolResult::new("", "");
    no_id.call_id = None;
    no_id.content.clear();
    let request = ApprovalRequest::new("approval_1", ToolCall::without_id("pay", ""), true);
    let mut media = Media::new("image/png", MediaSource::Url("https://example.org/a".to_owned()));
    media.native = native();
    let file = Media::new("application/pdf", MediaSource::File("file_1".to_owned()));
    let mut error = ErrorPart::new("overloaded");
    error.code = Some("529".to_owned());
    let mut full = Message::user("hi");
    full.author = Some("alice".to_owned());
    full.metadata.insert("shop".to_owned(), json!({"id": 7, "open": true}));
    vec![
        Message::new(Role::System, vec![]),
        Message::new(Role::Developer, vec![Part::text("")]),
        full,
        Message::assistant("hello"),
        Message::new(Role::User, vec![text.into()]),
        Message::new(Role::Assistant, vec![Reasoning::new("").into(), reasoning.into()]),
        Message::tool_calls([ToolCall::without_id("now", ""), call]),
        Message::tool_results([no_id, result]),
        Message::new(Role::Assistant, vec![request.clone().into()]),
        Message::new(Role::User, vec![request.approve().into(), request.reject("too much").into()]),
        Message::new(Role::User, vec![media.into(), file.into()]),
        Message::new(Role::Assistant, vec![ErrorPart::new("cut").into(), error.into()]),
        Message::new(Role::Assistant, native().into_iter().map(Part::Native).collect()),
    ]
}

/// Returns a result with the position of its call. The first messages of version 1 did not have
/// this field.
fn result_of_a_stored_call() -> Message {
    let message: MessageId = "0190163d-8694-739b-aea5-966c26f8ad91.3".parse().expect("an id");
    let result = ToolResult::new("call_1", "paid").answering(CallPosition { message, index: 2 });
    Message::tool_results([result])
}

#[test]
fn a_result_is_stored_with_the_position_of_its_call() {
    let stored = encode(&result_of_a_stored_call());
    assert_eq!(
        stored,
        concat!(
            r#"{"v":1,"role":"tool","parts":[{"tool_result":{"call_id":"call_1","#,
            r#""content":[{"text":{"text":"paid"}}],"#,
            r#""call":{"message":"0190163d-8694-739b-aea5-966c26f8ad91.3","index":2}}}]}"#,
        )
    );
    assert_eq!(decode(&stored).expect("a stored message"), result_of_a_stored_call());
    let without = stored
        .replace(r#","call":{"message":"0190163d-8694-739b-aea5-966c26f8ad91.3","index":2}"#, "");
    let older = decode(&without).expect("a message of an older release");
    assert_eq!(older, Message::tool_results([ToolResult::new("call_1", "paid")]));
}

#[test]
fn the_stored_form_of_every_kind_of_message_equals_its_snapshot() {
    let lines: Vec<String> = every_kind().iter().map(encode).collect();
    insta::assert_snapshot!(lines.join("\n"));
}

#[test]
fn the_stored_form_of_every_other_stored_type_equals_its_snapshot() {
    let id: MessageId = "0190163d-8694-739b-aea5-966c26f8ad91.3".parse().expect("an id");
    let mut message = Message::user("hi");
    message.id = Some(id);
    let tool = ToolDefinition::new("pay", "Pays.", json!({"type": "object"})).needs_approval();
    let lines = [
        json!(id),
        json!(message),
        json!(tool),
        json!([
            ToolChoice::Auto,
            ToolChoice::None,
            ToolChoice::Required,
            ToolChoice::Tool("pay".to_owned()),
        ]),
        json!([
            FinishReason::Stop,
            FinishReason::Length,
            FinishReason::ToolCalls,
            FinishReason::ContentFilter,
            FinishReason::Other("pause".to_owned()),
        ]),
        json!(Usage::new(10, 20)),
        json!([HistoryOwner::Local, HistoryOwner::Service("conv_1".into())]),
    ];
    insta::assert_snapshot!(lines.map(|line| sorted(line).to_string()).join("\n"));
}

/// Sorts the fields of all objects. The order of unsorted fields depends on serde_json's feature
/// `preserve_order`, which another crate of the program may have enabled.
fn sorted(value: Value) -> Value {
    match value {
        Value::Array(items) => items.into_iter().map(sorted).collect(),
        Value::Object(fields) => {
            let fields: BTreeMap<String, Value> =
                fields.into_iter().map(|(name, value)| (name, sorted(value))).collect();
            fields.into_iter().collect()
        }
        plain => plain,
    }
}

#[test]
fn messages_of_version_1_can_be_loaded() {
    let stored: Vec<Message> =
        VERSION_1.lines().map(|line| decode(line).expect("a message of version 1")).collect();
    assert_eq!(stored, every_kind());
}

#[test]
fn a_stored_message_is_loaded_unchanged() {
    for message in every_kind() {
        assert_eq!(decode(&encode(&message)).expect("a stored message"), message);
    }
}

#[test]
fn native_items_keep_their_bytes() {
    for item in [
        ITEM,
        "1.50",
        "-0",
        "1e400",
        "123456789012345678901234567890",
        r#""\u00e9\ud83d\ude00\/""#,
        r#"{"b":1,"a":2,"b":3}"#,
        "[ 1,\t2 ]",
        "null",
    ] {
        let item = RawJson::from_str(item).expect("an item");
        let part = Part::Native(Native::new("w", item.clone()));
        let stored = encode(&Message::new(Role::Assistant, vec![part.clone(), part]));
        assert_eq!(stored.matches(item.get()).count(), 2, "{stored}");
        let loaded = decode(&stored).expect("a stored message");
        let Part::Native(native) = &loaded.parts[1] else { panic!("a native part") };
        assert_eq!(native.item.get(), item.get());
    }
}

/// Services refuse a request that contains half of a surrogate pair, or a number outside of the
/// range of a double. A native item with such a value would be part of every later request of the
/// conversation, so the value is replaced.
#[test]
fn lone_surrogates_and_out_of_range_numbers_are_replaced_in_a_native_item() {
    let many_digits = "9".repeat(400);
    for (item, expected) in [
        (r#"{"a":"\ud800"}"#, r#"{"a":"\ufffd"}"#),
        (r#"["\udc00\ud800"]"#, r#"["\ufffd\ufffd"]"#),
        (r#""\uD83D\u0041\ud83d\ude00""#, r#""\ufffd\u0041\ud83d\ude00""#),
        (r#""\ud83d\n\\ud83d\\\udfff""#, r#""\ufffd\n\\ud83d\\\ufffd""#),
        ("1e999", "1.7976931348623157e308"),
        (
            r#"{"1e999":-2.5E+309,"a\"1e999":["1e999", true,1e999]}"#,
            r#"{"1e999":-1.7976931348623157e308,"a\"1e999":["1e999", true,1.7976931348623157e308]}"#,
        ),
        (
            r#"["1e999\ud800",1E0999,0e999,1e-999,-1.5e308,false]"#,
            r#"["1e999\ufffd",1.7976931348623157e308,0e999,1e-999,-1.5e308,false]"#,
        ),
        (&many_digits, "1.7976931348623157e308"),
    ] {
        assert_eq!(RawJson::from_str(item).expect("an item").get(), expected);
        let stored = format!(
            r#"{{"v":1,"role":"assistant","parts":[{{"native":{{"wire":"w","item":{item}}}}}]}}"#
        );
        let loaded = decode(&stored).expect("a stored message");
        let Part::Native(native) = &loaded.parts[0] else { panic!("a native part") };
        assert_eq!(native.item.get(), expected);
        native.item.parse::<serde_json::Value>().expect("characters, and numbers in range");
    }
}

#[test]
fn arguments_of_calls_are_stored_byte_for_byte_even_if_they_are_invalid_json() {
    for arguments in [
        "",
        " ",
        "null",
        "{'python': None}",
        r#"{"city": "Pa"#,
        r#"{"b":1.0,"a":2,"b":3}"#,
        "{\"é\":\"\u{1F600}\u{0}\u{2028}\"}",
        "\\u00e9 \" \r\n\t",
    ] {
        let message = Message::tool_calls([ToolCall::new("", "f", arguments)]);
        let loaded = decode(&encode(&message)).expect("a stored message");
        assert_eq!(loaded.calls().next().expect("a call").arguments, arguments);
    }
}

#[test]
fn decoding_a_message_of_a_newer_version_fails_with_the_error_newer() {
    for stored in [
        r#"{"v":2,"role":"user","parts":[]}"#,
        r#"{"v":2,"role":"user","parts":[{"hologram":{}}]}"#,
        r#"{"v":2,"something":"else"}"#,
    ] {
        let error = decode(stored).expect_err("a newer version");
        assert!(matches!(error, FormatError::Newer { version: 2 }), "{error:?}");
    }
}

#[test]
fn decoding_a_damaged_message_fails_with_the_error_malformed() {
    for stored in [
        "",
        "{",
        "[]",
        "{}",
        r#"{"role":"user","parts":[]}"#,
        r#"{"v":0,"role":"user","parts":[]}"#,
        r#"{"v":1,"role":"king","parts":[]}"#,
        r#"{"v":1,"role":"user"}"#,
        r#"{"v":1,"role":"user","parts":[{"hologram":{}}]}"#,
        r#"{"v":1,"role":"user","parts":[]} x"#,
    ] {
        let error = decode(stored).expect_err("no message");
        assert!(matches!(error, FormatError::Malformed(_)), "{stored}: {error:?}");
    }
}

#[test]
fn the_message_id_is_not_part_of_the_stored_form() {
    let mut message = Message::user("hi");
    let without = encode(&message);
    message.id = "0190163d-8694-739b-aea5-966c26f8ad91.3".parse().ok();
    assert!(message.id.is_some());
    assert_eq!(encode(&message), without);
}

#[test]
fn decoded_messages_have_no_spare_capacity() {
    let texts = |count| (0..count).map(|_| Part::text("text")).collect::<Vec<_>>();
    for count in [0, 1, 2, 3, 5, 100] {
        let decoded = decode(&encode(&Message::new(Role::User, texts(count)))).unwrap();
        assert_eq!((decoded.parts.len(), decoded.parts.capacity()), (count, count));
        let result = ToolResult::of_parts("call", texts(count));
        let answered = decode(&encode(&Message::tool_results([result]))).unwrap();
        let content = &answered.parts[0].as_tool_result().unwrap().content;
        assert_eq!((content.len(), content.capacity()), (count, count));
    }
}

#[test]
fn the_time_of_a_message_is_stored_in_milliseconds_and_may_be_missing() {
    let mut message = Message::user("hi");
    message.added_at =
        Some(std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_millis(1_234));
    let stored = r#"{"v":1,"role":"user","parts":[{"text":{"text":"hi"}}],"added_at":1234}"#;
    assert_eq!(encode(&message), stored);
    assert_eq!(decode(stored).unwrap(), message);
    let without = r#"{"v":1,"role":"user","parts":[{"text":{"text":"hi"}}]}"#;
    assert_eq!(decode(without).unwrap().added_at, None);
    let beyond = r#"{"v":1,"role":"user","parts":[],"added_at":"noon"}"#;
    assert!(decode(beyond).is_err());
}

/// Returns a list nested this many levels deep.
fn nested(levels: usize) -> String {
    format!("{}{}", "[".repeat(levels), "]".repeat(levels))
}

#[test]
fn metadata_nested_as_deeply_as_serde_json_reads_is_read_back() {
    for levels in [1, 120, 126, 127] {
        let value: Value = serde_json::from_str(&nested(levels)).expect("serde_json reads it");
        let mut message = Message::user("deep");
        message.metadata.insert("first".to_owned(), json!(levels));
        message.metadata.insert("nested".to_owned(), value);
        assert_eq!(decode(&encode(&message)).expect("a stored message"), message, "{levels}");
    }
}

#[test]
fn a_deeply_nested_row_is_malformed_except_in_unknown_fields_and_native_items() {
    for levels in [128, 129, 1_000_000] {
        let deep = nested(levels);
        let message = |part: &str, metadata: &str| {
            format!(r#"{{"v":1,"role":"user","parts":[{part}],"metadata":{metadata}}}"#)
        };
        let text = r#"{"text":{"text":"deep"}}"#;
        for stored in [
            message(text, &format!(r#"{{"a":{deep}}}"#)),
            message(text, &deep),
            message(&deep, "{}"),
            message(&format!(r#"{{"text":{deep}}}"#), "{}"),
            deep.clone(),
        ] {
            let error = decode(&stored).expect_err("no stored message");
            assert!(matches!(error, FormatError::Malformed(_)), "{levels}: {error}");
        }
        // The values of unknown fields and the items of providers are not parsed, so that their
        // nesting is not limited.
        let unknown = message(text, "{}").replace("{\"v\"", &format!(r#"{{"new":{deep},"v""#));
        assert_eq!(
            decode(&unknown).expect("a message with an additional field"),
            Message::user("deep")
        );
        let item = message(&format!(r#"{{"native":{{"wire":"w","item":{deep}}}}}"#), "{}");
        let message = decode(&item).expect("a message with an item");
        assert_eq!(encode(&message), item.replace(r#","metadata":{}"#, ""));
        let Part::Native(native) = &message.parts[0] else { panic!("{message:?}") };
        let error = native.item.parse::<Value>().expect_err("serde_json does not read it");
        assert!(error.to_string().contains("recursion limit"), "{error}");
    }
}
