//! Tests of requests that a service refused, after which the conversation could not be continued.

use serde_json::{Value, json};
use tower_chat_core::{
    ChatOptions, ChatRequest, Media, MediaSource, Message, Native, Part, Reasoning, Role, ToolCall,
    ToolChoice, ToolDefinition, ToolResult,
};
use tower_chat_testkit::hostile::{calls, texts};
use tower_chat_wire::{
    body::BodyWire::{
        self, Anthropic, BedrockConverse, Cohere, Gemini, Ollama, OpenAiChat, OpenAiResponses,
    },
    rules::{ServiceRules, UnsupportedMedia, check_new},
};

use super::{all_rules, body, rules, wire_name};

const DOCX: &str = "application/vnd.openxmlformats-officedocument.wordprocessingml.document";

fn media(media_type: &str) -> Part {
    Part::Media(Media::new(media_type, MediaSource::Base64("AAAA".to_owned())))
}

/// Returns a conversation with a call and its result between two user messages.
fn round(call: ToolCall, result: ToolResult) -> ChatRequest {
    ChatRequest::new(vec![
        Message::user("Is it cold?"),
        Message::tool_calls([call]),
        Message::tool_results([result]),
        Message::assistant("It is."),
        Message::user("And in Rome?"),
    ])
}

fn round_with_call(call: ToolCall) -> ChatRequest {
    let result = call.answer("12 degrees");
    round(call, result)
}

fn round_with_result(content: Vec<Part>, is_error: bool) -> ChatRequest {
    let mut result = ToolResult::of_parts("call_1", content);
    result.is_error = is_error;
    round(ToolCall::new("call_1", "look", "{}"), result)
}

#[test]
fn arguments_that_are_not_an_object_are_sent_as_an_object_to_every_service() {
    let table = [
        (r#"{"city": "Pa"#, json!({"arguments": r#"{"city": "Pa"#})),
        ("{'a': None}", json!({"arguments": "{'a': None}"})),
        (r#"["a"]"#, json!({"arguments": r#"["a"]"#})),
        (r#""a""#, json!({"arguments": r#""a""#})),
        ("7", json!({"arguments": "7"})),
        ("null", json!({})),
        ("", json!({})),
        (" ", json!({})),
        (r#"{"a":1}"#, json!({"a": 1})),
    ];
    for (name, rules) in all_rules() {
        for (arguments, expected) in &table {
            let sent = body(&round_with_call(ToolCall::new("call_1", "look", *arguments)), &rules);
            let sent = calls(&sent).remove(0).1;
            assert_eq!(sent, *expected, "{name} on {}: {arguments:?}", wire_name(rules.wire));
        }
    }
}

#[test]
fn calls_of_custom_tools_are_sent_to_openai_with_their_text() {
    let text = "not json";
    let native =
        |wire: &str, item: Value| Some(Native::new(wire, item.to_string().parse().unwrap()));
    let mut call = ToolCall::new("call_1", "patch", text);
    call.native = native("openai-chat", json!({"type": "custom", "custom": {}}));
    let sent = body(&round_with_call(call.clone()), &rules(OpenAiChat, "openai"));
    assert_eq!(sent["messages"][1]["tool_calls"][0]["custom"]["input"], text);
    call.native = native("openai-responses", json!({"type": "custom_tool_call"}));
    let sent = body(&round_with_call(call.clone()), &rules(OpenAiResponses, "openai"));
    assert_eq!(sent["input"][1]["input"], text);
    // A call of a custom tool is sent to another service as a call of a function.
    call.native = call.native.map(|native| native.issued_by("openai"));
    let sent = body(&round_with_call(call), &rules(OpenAiResponses, "xai"));
    assert_eq!(sent["input"][1]["type"], "function_call");
    assert_eq!(calls(&sent)[0].1, json!({"arguments": text}));
}

#[test]
fn the_sent_name_of_a_tool_is_the_same_in_definition_choice_call_and_result() {
    let long = "long_name.".repeat(24);
    for name in ["", "get weather", "wetter.köln", "1st", "日本", &long] {
        let definition =
            ToolDefinition::new(name, "Looks.", json!({"type": "object", "properties": {}}));
        for (service, rules) in all_rules() {
            let mut options = ChatOptions::new().with_tools([definition.clone()]);
            if rules.wire != Ollama {
                options = options.with_tool_choice(ToolChoice::Tool(name.to_owned()));
            }
            let request =
                round_with_call(ToolCall::new("call_1", name, "{}")).with_options(options);
            let (fitted, sent) = super::written(&request, &rules);
            let called = calls(&sent).remove(0).0;
            if called == name {
                assert!(rules.tool_names.accepts(name), "{service} accepts {name:?}");
                continue;
            }
            assert_eq!(fitted.names.original(&called), Some(name), "{service}");
            let all = texts(&sent);
            let count = all.lines().filter(|text| **text == called).count();
            let choice = usize::from(!matches!(rules.wire, Ollama | Cohere));
            assert!(count > 1 + choice, "{service}: {called} in {sent:#}");
            assert!(
                name.is_empty() || !all.lines().any(|text| text == name),
                "{service}: {sent:#}"
            );
        }
    }
}

#[test]
fn equal_call_ids_of_several_answers_become_distinct_for_strict_services() {
    let mut messages = vec![Message::user("Is it cold?")];
    for city in ["Paris", "Rome", "Oslo"] {
        let call = ToolCall::new("call_0", "look", format!(r#"{{"city":"{city}"}}"#));
        messages.push(Message::tool_calls([call.clone()]));
        messages.push(Message::tool_results([call.answer(city)]));
    }
    let request = ChatRequest::new(messages);
    for name in ["openai", "azure", "openrouter", "deepseek", "mistral", "groq", "xai", "fireworks"]
    {
        let sent = body(&request, &rules(OpenAiChat, name));
        let messages = sent["messages"].as_array().unwrap();
        let ids: Vec<&str> =
            messages.iter().filter_map(|message| message["tool_calls"][0]["id"].as_str()).collect();
        let answered: Vec<&str> =
            messages.iter().filter_map(|message| message["tool_call_id"].as_str()).collect();
        assert_eq!(ids, answered, "{name}");
        assert!(ids[0] != ids[1] && ids[1] != ids[2] && ids[0] != ids[2], "{name}: {ids:?}");
    }
    let sent = body(&request, &rules(OpenAiChat, "llm.example.com"));
    assert_eq!(
        sent["messages"][3]["tool_calls"][0]["id"], "call_0",
        "an id that the service accepts is not changed"
    );
}

#[test]
fn an_image_is_sent_after_the_results_if_the_model_does_not_read_images_in_results() {
    let mut one = ToolResult::new("call_1", "one");
    one.content.push(media("image/png"));
    let two = ToolResult::of_parts("call_2", vec![media("image/jpeg")]);
    let request = ChatRequest::new(vec![
        Message::user("Look."),
        Message::tool_calls([
            ToolCall::new("call_1", "look", "{}"),
            ToolCall::new("call_2", "look", "{}"),
        ]),
        Message::tool_results([one]),
        Message::tool_results([two]),
        Message::assistant("I see."),
    ]);
    for name in ["openai", "azure", "groq", "xai", "vllm", "llm.example.com"] {
        let sent = body(&request, &rules(OpenAiChat, name));
        let messages = sent["messages"].as_array().unwrap();
        let roles: Vec<&str> =
            messages.iter().filter_map(|message| message["role"].as_str()).collect();
        assert_eq!(roles, ["user", "assistant", "tool", "tool", "user", "assistant"], "{name}");
        assert_eq!(messages[2]["content"], "one", "{name}");
        assert!(messages[3]["content"].as_str().is_some_and(|text| !text.is_empty()), "{name}");
        let kinds: Vec<&Value> =
            messages[4]["content"].as_array().unwrap().iter().map(|part| &part["type"]).collect();
        assert_eq!(kinds, ["text", "image_url", "image_url"], "{name}");
    }
    for name in ["llama.cpp", "ollama"] {
        let sent = body(&request, &rules(OpenAiChat, name));
        assert_eq!(sent["messages"][2]["content"][1]["type"], "image_url", "{name}");
        assert_eq!(sent["messages"].as_array().unwrap().len(), 5, "{name}");
    }
    // DeepSeek accepts no images.
    let sent = body(&request, &rules(OpenAiChat, "deepseek"));
    assert!(!sent.to_string().contains("image_url"));
    assert!(texts(&sent["messages"][3]).contains("image/jpeg"));
    // Mistral requires an assistant message between a tool message and a user message.
    let sent = body(&request, &rules(OpenAiChat, "mistral"));
    assert_eq!(sent["messages"][4]["role"], "assistant");
    assert_eq!(sent["messages"][5]["content"][1]["type"], "image_url");
    // xAI accepts only text in the outputs of Responses.
    let sent = body(&request, &rules(OpenAiResponses, "xai"));
    assert!(sent["input"][3]["output"].is_string());
    let sent = body(&request, &rules(OpenAiResponses, "openai"));
    assert_eq!(sent["input"][3]["output"][1]["type"], "input_image");
}

#[test]
fn an_error_result_is_sent_to_claude_with_text_only() {
    let cases = [
        vec![Part::text("It failed."), media("image/png")],
        vec![media("image/png")],
        vec![Part::text(" ")],
        vec![],
    ];
    for content in cases {
        for name in ["anthropic", "vertex", "minimax", "zai", "llm.example.com"] {
            let sent = body(&round_with_result(content.clone(), true), &rules(Anthropic, name));
            let result = &sent["messages"][2]["content"][0];
            assert_eq!(result["is_error"], true);
            assert!(!texts(&result["content"]).trim().is_empty(), "{name}: {result}");
            assert!(!result.to_string().contains("image"), "{name}: {result}");
            let has_picture = content.contains(&media("image/png"));
            assert_eq!(sent.to_string().contains("\"image\""), has_picture, "{name}");
        }
        let sent =
            body(&round_with_result(content.clone(), true), &rules(BedrockConverse, "bedrock"));
        let result = &sent["messages"][2]["content"][0]["toolResult"]["content"];
        assert!(result[0]["text"].as_str().is_some_and(|text| !text.trim().is_empty()), "{result}");
        assert_eq!(result.as_array().unwrap().len(), 1);
    }
}

#[test]
fn a_sentence_replaces_a_sound_in_a_result_if_the_service_accepts_no_sounds() {
    for (wire, name) in [
        (Anthropic, "anthropic"),
        (BedrockConverse, "bedrock"),
        (Cohere, "cohere"),
        (Ollama, "ollama"),
        (OpenAiResponses, "openai"),
    ] {
        for others in [vec![], vec![Part::text("one")]] {
            let content = others.into_iter().chain([media("audio/wav")]).collect();
            let sent = texts(&body(&round_with_result(content, false), &rules(wire, name)));
            assert!(sent.contains("audio/wav, of 3 bytes"), "{name}: {sent}");
        }
    }
    let sent =
        texts(&body(&round_with_result(vec![media("image/png")], false), &rules(Cohere, "cohere")));
    assert!(sent.contains("image/png"), "{sent}");
}

#[test]
fn documents_at_bedrock_have_distinct_stable_names_and_a_text_beside_them() {
    let rules = rules(BedrockConverse, "bedrock");
    let types = [
        ("application/pdf", "pdf"),
        (DOCX, "docx"),
        ("text/csv", "csv"),
        ("application/vnd.openxmlformats-officedocument.spreadsheetml.sheet", "xlsx"),
        ("text/html", "html"),
        ("text/plain", "txt"),
        ("text/markdown", "md"),
    ];
    let mut messages = Vec::new();
    for (media_type, _) in types {
        messages.push(Message::new(Role::User, vec![media(media_type)]));
        messages.push(Message::assistant("I read it."));
    }
    let request = ChatRequest::new(messages.clone());
    let sent = body(&request, &rules);
    let mut names = Vec::new();
    for (index, (_, format)) in types.into_iter().enumerate() {
        let content = &sent["messages"][2 * index]["content"];
        assert_eq!(content[0]["document"]["format"], format);
        assert!(content[1]["text"].is_string(), "{content}");
        names.push(content[0]["document"]["name"].as_str().unwrap().to_owned());
    }
    assert_eq!(names[..3], ["document", "document 2", "document 3"]);
    messages.truncate(4);
    let earlier = body(&ChatRequest::new(messages), &rules);
    assert_eq!(
        earlier["messages"].as_array().unwrap()[..3],
        sent["messages"].as_array().unwrap()[..3]
    );
}

#[test]
fn a_user_message_at_bedrock_has_at_most_5_documents_and_20_images() {
    let rules = rules(BedrockConverse, "bedrock");
    let many = |count: usize, kind: &str| {
        let parts = std::iter::once(Part::text("look")).chain((0..count).map(|_| media(kind)));
        Message::new(Role::User, parts.collect())
    };
    let stored = ChatRequest::new(vec![
        many(7, "application/pdf"),
        Message::assistant("One."),
        many(25, "image/png"),
        Message::assistant("Two."),
    ]);
    let sent = body(&stored, &rules);
    let count = |message: usize, kind: &str| {
        let content = sent["messages"][message]["content"].as_array().unwrap();
        content.iter().filter(|block| block[kind].is_object()).count()
    };
    assert_eq!((count(0, "document"), count(2, "image")), (5, 20));
    assert_eq!(texts(&sent).matches("not shown").count(), 7);
    for (message, is_taken) in [
        (many(5, "application/pdf"), true),
        (many(6, "application/pdf"), false),
        (many(20, "image/png"), true),
        (many(21, "image/png"), false),
    ] {
        let checked = check_new(&ChatRequest::new(message), &rules);
        assert_eq!(checked.is_ok(), is_taken, "{checked:?}");
    }
}

#[test]
fn bedrock_gets_tool_definitions_if_the_history_contains_calls() {
    let rules = rules(BedrockConverse, "bedrock");
    let sent = body(&round_with_call(ToolCall::new("call_1", "get weather", "{}")), &rules);
    let tools = sent["toolConfig"]["tools"].as_array().unwrap();
    assert_eq!(tools.len(), 1);
    let spec = &tools[0]["toolSpec"];
    assert_eq!(spec["name"], sent["messages"][1]["content"][0]["toolUse"]["name"]);
    assert!(spec["description"].as_str().is_some_and(|text| !text.is_empty()));
    assert_eq!(spec["inputSchema"]["json"]["type"], "object");
    let sent = body(&ChatRequest::user("hi"), &rules);
    assert!(sent.get("toolConfig").is_none());
    let look = ToolDefinition::new("look", "Looks.", json!({"type": "object", "properties": {}}));
    let request = round_with_call(ToolCall::new("call_1", "look", "{}"))
        .with_options(ChatOptions::new().with_tools([look]));
    assert_eq!(body(&request, &rules)["toolConfig"]["tools"].as_array().unwrap().len(), 1);
}

#[test]
fn unsupported_media_are_an_error_in_a_new_message_and_a_sentence_in_a_stored_message() {
    let table = [
        (Anthropic, "anthropic", DOCX),
        (Anthropic, "minimax", "audio/wav"),
        (BedrockConverse, "bedrock", "audio/wav"),
        (Gemini, "gemini", DOCX),
        (Cohere, "cohere", "application/pdf"),
        (Ollama, "ollama", "application/pdf"),
        (OpenAiChat, "openai", DOCX),
        (OpenAiChat, "deepseek", "image/png"),
        (OpenAiChat, "groq", "application/pdf"),
    ];
    for (wire, name, media_type) in table {
        let rules = rules(wire, name);
        let alone = || Message::new(Role::User, vec![media(media_type)]);
        let refused = check_new(&ChatRequest::new(alone()), &rules);
        let expected = refused.as_ref().is_err_and(|error| {
            matches!(error, UnsupportedMedia::Media { media_type: found, .. } if found == media_type)
        });
        assert!(expected, "{name}: {refused:?}");
        // Media in an earlier message of the request, or in the stored history, do not cause an
        // error, and a sentence replaces these media.
        let stored = ChatRequest::new(vec![
            alone(),
            Message::assistant("I see."),
            Message::user("And now?"),
        ]);
        check_new(&stored, &rules).unwrap();
        let sent = body(&stored, &rules);
        assert!(texts(&sent).contains(media_type), "{name}: {sent:#}");
        let mut loaded = ChatRequest::user("And now?");
        loaded.prepend(&alone().into());
        check_new(&loaded, &rules).unwrap();
        // Media in the result of a tool are not refused either, because the tool has already run.
        let tool = round_with_result(vec![media(media_type)], false);
        let tool = ChatRequest::new(tool.messages().take(3));
        check_new(&tool, &rules).unwrap();
        let sent = body(&tool, &rules);
        assert!(texts(&sent).contains(media_type), "{name}: {sent:#}");
    }
}

fn thought(wire: &str, item: &Value, issuer: &str) -> Part {
    let mut reasoning = Reasoning::new("a thought");
    let native = Native::new(wire, item.to_string().parse().unwrap());
    reasoning.native = Some(if issuer.is_empty() { native } else { native.issued_by(issuer) });
    Part::Reasoning(reasoning)
}

#[test]
fn reasoning_is_sent_only_to_its_issuer_and_strict_services_get_no_unknown_field() {
    let field = json!({"reasoning_content": null});
    let of = |issuer: &str| {
        ChatRequest::new(vec![
            Message::user("Is it cold?"),
            Message::new(
                Role::Assistant,
                vec![thought("openai-chat", &field, issuer), Part::text("It is.")],
            ),
            Message::user("And in Rome?"),
        ])
    };
    for name in ["openai", "mistral", "groq", "xai", "openrouter", "cerebras", "llm.example.com"] {
        let sent = body(&of("deepseek"), &rules(OpenAiChat, name));
        assert_eq!(
            sent["messages"][1],
            json!({"role": "assistant", "content": "It is."}),
            "{name}"
        );
    }
    let sent = body(&of("deepseek"), &rules(OpenAiChat, "deepseek"));
    assert_eq!(sent["messages"][1]["reasoning_content"], "a thought");
    // Messages that an older version stored have no issuer.
    for name in ["openai", "azure", "mistral", "groq", "cerebras"] {
        let sent = body(&of(""), &rules(OpenAiChat, name));
        assert!(sent["messages"][1].get("reasoning_content").is_none(), "{name}");
    }
    let sent = body(&of(""), &rules(OpenAiChat, "llm.example.com"));
    assert_eq!(sent["messages"][1]["reasoning_content"], "a thought");
}

#[test]
fn deepseek_gets_its_own_reasoning_and_empty_reasoning_with_calls_of_others() {
    let rules = rules(OpenAiChat, "deepseek");
    let sent = body(&round_with_call(ToolCall::new("call_1", "look", "{}")), &rules);
    assert_eq!(sent["messages"][1]["reasoning_content"], "");
    assert!(sent["messages"][3].get("reasoning_content").is_none(), "an answer without calls");
    for (issuer, expected) in [("deepseek", "a thought"), ("mistral", ""), ("", "a thought")] {
        let call = ToolCall::new("call_1", "look", "{}");
        let thought = thought("openai-chat", &json!({"reasoning_content": null}), issuer);
        let request = ChatRequest::new(vec![
            Message::user("Is it cold?"),
            Message::new(Role::Assistant, vec![thought, Part::ToolCall(call.clone())]),
            Message::tool_results([call.answer("12 degrees")]),
        ]);
        let sent = body(&request, &rules);
        assert_eq!(sent["messages"][1]["reasoning_content"], expected, "{issuer}");
    }
}

#[test]
fn anthropic_is_not_sent_provider_executed_calls_of_services_that_copied_its_format() {
    let native = |item: Value| Native::new("anthropic", item.to_string().parse().unwrap());
    let hosted = |id: &str| {
        let mut call = ToolCall::new(id, "web_search", "{}");
        call.provider_executed = true;
        call.native = Some(native(json!({"type": "server_tool_use"})));
        let mut result = ToolResult::of_parts(id, Vec::new());
        result.native = Some(native(json!({"type": "web_search_tool_result", "content": []})));
        let alone = json!({"type": "web_search_tool_result", "tool_use_id": id, "content": []});
        ChatRequest::new(vec![
            Message::user("Search."),
            Message::new(
                Role::Assistant,
                vec![
                    Part::ToolCall(call),
                    Part::ToolResult(result),
                    Part::Native(native(alone)),
                    Part::text("Found."),
                ],
            ),
            Message::user("More."),
        ])
    };
    for name in ["anthropic", "vertex", "bedrock"] {
        let rules = rules(Anthropic, name);
        for id in ["call_0a1b", "chatcmpl-tool-1", "srvtoolu_", "srvtoolu_a-b"] {
            let sent = body(&hosted(id), &rules);
            assert!(!sent.to_string().contains("web_search"), "{name} {id}: {sent:#}");
            assert_eq!(texts(&sent["messages"][1]["content"]).lines().last(), Some("Found."));
        }
        let sent = body(&hosted("srvtoolu_01"), &rules);
        assert_eq!(sent["messages"][1]["content"].as_array().unwrap().len(), 4, "{name}");
    }
    let sent = body(&hosted("call_0a1b"), &rules(Anthropic, "zai"));
    assert_eq!(sent["messages"][1]["content"].as_array().unwrap().len(), 4);
}

#[test]
fn new_gemini_models_get_a_stand_in_signature_on_the_first_foreign_call_of_each_answer() {
    let call = ToolCall::new("call_1", "look", "{}");
    let asks = || Message::tool_calls([call.clone(), ToolCall::new("call_2", "look", "{}")]);
    let answers = || Message::tool_results([call.answer("one"), ToolResult::new("call_2", "two")]);
    let request =
        ChatRequest::new(vec![Message::user("Look."), asks(), answers(), asks(), answers()]);
    let signed = |wire: BodyWire, model: &str| -> Vec<bool> {
        let rules = ServiceRules::choose(wire, "gemini", "", Some(model));
        let sent = body(&request, &rules);
        let list = if wire == Gemini { &sent["contents"] } else { &sent["messages"] };
        let parts = list.as_array().unwrap().iter();
        let parts = parts.flat_map(|it| {
            let calls = if wire == Gemini { &it["parts"] } else { &it["tool_calls"] };
            calls.as_array().cloned().unwrap_or_default()
        });
        parts
            .filter(|part| part.get("functionCall").is_some() || part.get("function").is_some())
            .map(|part| {
                part.get("thoughtSignature").is_some()
                    || part["extra_content"]["google"]["thought_signature"].is_string()
            })
            .collect()
    };
    for wire in [Gemini, OpenAiChat] {
        for model in ["gemini-3-pro-preview", "gemini-flash-latest", "models/gemini-pro-latest"] {
            assert_eq!(signed(wire, model), [true, false, true, false], "{model}");
        }
        assert_eq!(signed(wire, "gemini-2.5-flash"), [false; 4]);
    }
}

#[test]
fn strict_services_are_not_sent_an_answer_that_contains_only_reasoning() {
    let field = json!({"reasoning_content": null});
    for name in ["openai", "mistral", "groq", "deepseek", "xai", "openrouter"] {
        let rules = rules(OpenAiChat, name);
        for parts in [
            vec![thought("openai-chat", &field, &rules.issuer)],
            vec![thought("openai-chat", &field, "another")],
            vec![thought("openai-chat", &field, &rules.issuer), Part::text("")],
            vec![Part::text("  ")],
            vec![],
        ] {
            let request = ChatRequest::new(vec![
                Message::user("Is it cold?"),
                Message::new(Role::Assistant, parts.clone()),
                Message::user("Well?"),
            ]);
            let sent = body(&request, &rules);
            assert_eq!(sent["messages"].as_array().unwrap().len(), 2, "{name} {parts:?}: {sent:#}");
        }
    }
}

#[test]
fn every_object_schema_is_sent_with_properties_to_every_service() {
    let schema = json!({
        "type": "object",
        "properties": {"a": {"type": "object"}, "b": {"type": "array", "items": {"type": "object"}}},
    });
    for (name, rules) in all_rules() {
        for schema in [&schema, &json!({"type": "object"})] {
            let tool = ToolDefinition::new("look", "Looks.", schema.clone());
            let request =
                ChatRequest::user("hi").with_options(ChatOptions::new().with_tools([tool]));
            let sent = body(&request, &rules).to_string();
            let objects = sent.matches(r#""type":"object""#).count();
            let properties = sent.matches(r#""properties":"#).count();
            assert!(objects > 0 && objects == properties, "{name}: {sent}");
        }
    }
}
