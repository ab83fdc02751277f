//! Tests of contents, authors, media and ids in the forms that some services require.

use serde_json::{Value, json};
use tower_chat_core::{
    ChatOptions, ChatRequest, Media, MediaSource, Message, Native, Part, Reasoning, Role, Text,
    ToolCall, ToolDefinition, ToolResult,
};
use tower_chat_wire::{
    body::BodyWire::{
        Anthropic, BedrockConverse, Cohere, Gemini, Ollama, OpenAiChat, OpenAiResponses,
    },
    rules::ServiceRules,
};

use super::{all_rules, body, rules, wire_name};

fn media(media_type: &str) -> Part {
    Part::Media(Media::new(media_type, MediaSource::Base64("AAAA".to_owned())))
}

fn texts(texts: [&str; 2]) -> Vec<Part> {
    texts.map(Part::text).to_vec()
}

/// Returns a conversation in which each message except the last has two texts.
fn conversation_with_lists() -> ChatRequest {
    ChatRequest::new(vec![
        Message::new(Role::System, texts(["Be brief.", "Be kind."])),
        Message::new(Role::User, texts(["Is it cold?", "In Paris."])),
        Message::new(
            Role::Assistant,
            [texts(["I ", "look."]), vec![ToolCall::new("call_1", "look", "{}").into()]].concat(),
        ),
        Message::tool_results([ToolResult::of_parts("call_1", texts(["12 degrees", "wind"]))]),
        Message::new(Role::Assistant, texts(["It ", "is."])),
        Message::user("And in Rome?"),
    ])
}

#[test]
fn content_is_sent_as_one_text_to_a_service_that_refuses_lists() {
    for (name, may_system, may_user) in
        [("deepseek", false, false), ("groq", true, true), ("moonshot", false, true)]
    {
        let sent = body(&conversation_with_lists(), &rules(OpenAiChat, name));
        let contents: Vec<&Value> =
            sent["messages"].as_array().unwrap().iter().map(|it| &it["content"]).collect();
        if may_system {
            assert_eq!(contents[0].as_array().unwrap().len(), 2, "{name}");
        } else {
            assert_eq!(*contents[0], "Be brief.\nBe kind.", "{name}");
        }
        if may_user {
            assert_eq!(contents[1].as_array().unwrap().len(), 2, "{name}");
        } else {
            assert_eq!(*contents[1], "Is it cold?\nIn Paris.", "{name}");
        }
        // The texts of an answer are joined without a separator, because they are pieces of one
        // text.
        assert_eq!(*contents[2], "I look.", "{name}");
        assert_eq!(*contents[3], "12 degrees\nwind", "{name}");
        assert_eq!(*contents[4], "It is.", "{name}");
    }
    let sent = body(&conversation_with_lists(), &rules(OpenAiChat, "openai"));
    assert!(sent["messages"][4]["content"].is_array(), "OpenAI takes lists");
    // Groq has sent this text in a list, so the text has a native item of Groq. Nevertheless, the text
    // must be sent to Groq as a string.
    let mut text = Text::new("It is.");
    let native = Native::new("openai-chat", r#"{"type":"text"}"#.parse().unwrap());
    text.native = Some(native.issued_by("groq"));
    let request = ChatRequest::new(vec![
        Message::user("Is it cold?"),
        Message::new(Role::Assistant, vec![text.into()]),
        Message::user("And in Rome?"),
    ]);
    assert_eq!(body(&request, &rules(OpenAiChat, "groq"))["messages"][1]["content"], "It is.");
}

#[test]
fn the_author_of_a_message_is_sent_as_a_valid_name_or_not_at_all() {
    let by = |author: &str| {
        let mut message = Message::user("hi");
        message.author = Some(author.to_owned());
        ChatRequest::new(message)
    };
    let long = "x".repeat(80);
    for (author, expected) in [
        ("alice-1", Some("alice-1")),
        ("Jane Doe", Some("Jane_Doe")),
        ("j.doe@example.com", Some("j_doe_example_com")),
        ("Jörg", Some("J_rg")),
        ("日本", None),
        (&*long, Some(&long[..64])),
    ] {
        for name in ["openai", "groq", "llm.example.com"] {
            let sent = body(&by(author), &rules(OpenAiChat, name));
            assert_eq!(sent["messages"][0]["name"].as_str(), expected, "{name} {author}");
        }
        let sent = body(&by(author), &rules(OpenAiChat, "mistral"));
        assert_eq!(sent["messages"][0].get("name"), None);
    }
}

#[test]
fn equal_call_ids_of_several_answers_become_distinct_for_services_that_refuse_them() {
    let mut messages = vec![Message::user("Is it cold?")];
    for city in ["Paris", "Rome"] {
        let call = ToolCall::new("call_0", "look", format!(r#"{{"city":"{city}"}}"#));
        messages.push(Message::tool_calls([call.clone()]));
        messages.push(Message::tool_results([call.answer(city)]));
    }
    let request = ChatRequest::new(messages);
    for (wire, name, list, call, result) in [
        (Anthropic, "anthropic", "messages", "/content/0/id", "/content/0/tool_use_id"),
        (Anthropic, "minimax", "messages", "/content/0/id", "/content/0/tool_use_id"),
        (
            BedrockConverse,
            "bedrock",
            "messages",
            "/content/0/toolUse/toolUseId",
            "/content/0/toolResult/toolUseId",
        ),
        (Gemini, "gemini", "contents", "/parts/0/functionCall/id", "/parts/0/functionResponse/id"),
        (OpenAiChat, "moonshot", "messages", "/tool_calls/0/id", "/tool_call_id"),
    ] {
        let sent = body(&request, &rules(wire, name));
        let list = sent[list].as_array().unwrap();
        let ids = |pointer: &str| -> Vec<&str> {
            list.iter().filter_map(|it| it.pointer(pointer)?.as_str()).collect()
        };
        assert_eq!(ids(call), ["call_0", "call_0_2"], "{name}");
        assert_eq!(ids(result), ["call_0", "call_0_2"], "{name}");
    }
    // An id that is well formed is sent to an unknown service unchanged.
    let sent = body(&request, &rules(Anthropic, "llm.example.com"));
    assert_eq!(sent["messages"][3]["content"][0]["id"], "call_0");
}

fn round(parts: Vec<Part>) -> ChatRequest {
    let call = ToolCall::new("call_1", "look", "{}");
    let parts = parts.into_iter().chain([call.clone().into()]).collect();
    ChatRequest::new(vec![
        Message::user("Is it cold?"),
        Message::new(Role::Assistant, parts),
        Message::tool_results([call.answer("12 degrees")]),
    ])
}

#[test]
fn services_that_require_reasoning_get_their_own_or_the_shortest_accepted_reasoning() {
    let thought = |wire: &str, item: Value, text: &str, issuer: &str| {
        let mut reasoning = Reasoning::new(text);
        let native = Native::new(wire, item.to_string().parse().unwrap());
        reasoning.native = Some(native.issued_by(issuer));
        vec![Part::Reasoning(reasoning)]
    };
    let field = json!({"reasoning_content": null});
    for (issuer, text, expected) in
        [("moonshot", "Hm.", "Hm."), ("moonshot", "", " "), ("deepseek", "Hm.", " ")]
    {
        let request = round(thought("openai-chat", field.clone(), text, issuer));
        let sent = body(&request, &rules(OpenAiChat, "moonshot"));
        assert_eq!(sent["messages"][1]["reasoning_content"], expected, "{issuer} {text:?}");
    }
    assert_eq!(
        body(&round(Vec::new()), &rules(OpenAiChat, "moonshot"))["messages"][1]["reasoning_content"],
        " "
    );
    // DeepSeek also has an endpoint for Anthropic Messages. This endpoint accepts thinking blocks
    // with an empty signature.
    let deepseek = rules(Anthropic, "deepseek");
    let sent = body(&round(Vec::new()), &deepseek);
    let empty = json!({"type": "thinking", "thinking": "", "signature": ""});
    assert_eq!(sent["messages"][1]["content"][0], empty);
    for signature in ["", "c2ln"] {
        let block = json!({"type": "thinking", "signature": signature});
        let own = round(thought("anthropic", block.clone(), "Hm.", "deepseek"));
        let sent = body(&own, &deepseek);
        let content = sent["messages"][1]["content"].as_array().unwrap();
        let expected = json!({"type": "thinking", "thinking": "Hm.", "signature": signature});
        assert_eq!((content.len(), &content[0]), (2, &expected));
        let foreign = round(thought("anthropic", block, "Hm.", "anthropic"));
        assert_eq!(body(&foreign, &deepseek)["messages"][1]["content"][0], empty);
    }
    // Claude refuses thinking blocks without a signature.
    let unsigned = json!({"type": "thinking", "signature": ""});
    let sent = body(
        &round(thought("anthropic", unsigned, "Hm.", "anthropic")),
        &rules(Anthropic, "anthropic"),
    );
    assert_eq!(sent["messages"][1]["content"].as_array().unwrap().len(), 1);
}

#[test]
fn gemini_at_vertex_gets_the_stand_in_signature_on_the_openai_wire_too() {
    let url =
        "https://us-central1-aiplatform.googleapis.com/v1/projects/p/locations/l/endpoints/openapi";
    let signed = |model| {
        let rules = ServiceRules::choose(OpenAiChat, "openai-compatible", url, Some(model));
        let sent = body(&round(Vec::new()), &rules);
        sent["messages"][1]["tool_calls"][0]["extra_content"].is_object()
    };
    assert!(signed("google/gemini-3-flash-preview"));
    assert!(!signed("google/gemini-2.5-flash"));
}

#[test]
fn media_types_are_sent_in_lower_case_without_parameters_and_spaces() {
    for (name, rules) in all_rules() {
        let sent = |media_type: &str| {
            let parts = vec![Part::text("see"), media(media_type)];
            body(&ChatRequest::new(Message::new(Role::User, parts)), &rules)
        };
        for other in ["IMAGE/PNG", "image/png; q=1", " image/png"] {
            let wire = wire_name(rules.wire);
            // A service that refuses images receives a sentence with the stored media type instead,
            // which differs for `other` and `image/png`.
            if sent("image/png").to_string().contains("AAAA") {
                assert_eq!(sent(other), sent("image/png"), "{name} on {wire}: {other}");
            }
        }
    }
}

#[test]
fn a_sentence_replaces_stored_media_that_a_service_does_not_accept() {
    for (wire, name, taken, others) in [
        (OpenAiResponses, "openai", "image/png", &["image/bmp", "audio/wav", "video/mp4"][..]),
        (OpenAiResponses, "azure", "text/csv", &["image/svg+xml", "audio/ogg"]),
        (OpenAiChat, "ollama", "image/webp", &["image/gif", "audio/wav", "application/pdf"]),
        (OpenAiChat, "vllm", "audio/wav", &["application/pdf", "video/mp4"]),
        (OpenAiChat, "llama.cpp", "audio/mpeg", &["application/pdf", "audio/ogg"]),
        (OpenAiChat, "xai", "image/jpeg", &["image/gif", "image/heic"]),
        (OpenAiChat, "mistral", "image/gif", &["image/svg+xml", "image/bmp"]),
        (OpenAiChat, "groq", "image/png", &["image/tiff"]),
        (Cohere, "cohere", "image/webp", &["image/svg+xml"]),
        (Gemini, "gemini", "image/heic", &["image/gif", "image/svg+xml"]),
        (Anthropic, "deepseek", "", &["image/png", "application/pdf"]),
    ] {
        let rules = rules(wire, name);
        let sent = |media_type: &str| {
            let parts = vec![Part::text("see"), media(media_type)];
            let stored = vec![
                Message::new(Role::User, parts),
                Message::assistant("I see."),
                Message::user("And now?"),
            ];
            body(&ChatRequest::new(stored), &rules).to_string()
        };
        assert!(taken.is_empty() || sent(taken).contains("AAAA"), "{name} takes {taken}");
        for other in others {
            let sent = sent(other);
            assert!(!sent.contains("AAAA") && sent.contains(other), "{name} {other}: {sent}");
        }
    }
    // Ollama does not accept URLs of images.
    let url = Media::new("image/png", MediaSource::Url("https://example.com/a.png".to_owned()));
    let stored = vec![
        Message::new(Role::User, vec![url.into()]),
        Message::assistant("I see."),
        Message::user("And now?"),
    ];
    let sent = body(&ChatRequest::new(stored), &rules(OpenAiChat, "ollama"));
    assert!(!sent.to_string().contains("image_url"), "{sent}");
}

#[test]
fn a_user_message_is_sent_before_a_conversation_that_begins_with_the_assistant() {
    let greeting = vec![
        Message::system("Be brief."),
        Message::assistant("Welcome."),
        Message::user("Is it cold?"),
    ];
    let call = ToolCall::new("call_1", "look", "{}");
    let calls = vec![
        Message::tool_calls([call.clone()]),
        Message::tool_results([call.answer("12 degrees")]),
        Message::user("Is it cold?"),
    ];
    // The writer omits a user message that contains only a blank text.
    let blank = vec![Message::user(" "), Message::assistant("Good day."), Message::user("Is it?")];
    for messages in [greeting, calls, blank] {
        let request = ChatRequest::new(messages);
        for (wire, name) in [
            (BedrockConverse, "bedrock"),
            (Anthropic, "anthropic"),
            (Anthropic, "vertex"),
            (Anthropic, "bedrock"),
        ] {
            let sent = body(&request, &rules(wire, name));
            let sent = sent["messages"].as_array().unwrap();
            let roles: Vec<&str> = sent.iter().filter_map(|it| it["role"].as_str()).collect();
            assert_eq!(roles, ["user", "assistant", "user"], "{name}");
        }
    }
}

#[test]
fn a_tool_choice_in_wire_json_has_the_sent_name_of_the_tool() {
    let original = "get weather";
    let choices = [
        (
            OpenAiChat,
            "tool_choice",
            json!({"type": "function", "function": {"name": original}}),
            "/function/name",
        ),
        (OpenAiResponses, "tool_choice", json!({"type": "function", "name": original}), "/name"),
        (Anthropic, "tool_choice", json!({"type": "tool", "name": original}), "/name"),
        (
            Gemini,
            "toolConfig",
            json!({"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": [original]}}),
            "/functionCallingConfig/allowedFunctionNames/0",
        ),
    ];
    for (wire, field, choice, pointer) in choices {
        let schema = json!({"type": "object", "properties": {}});
        let tool = ToolDefinition::new(original, "Looks.", schema);
        let mut options = ChatOptions::new().with_tools([tool]);
        options.extra.insert(field.to_owned(), choice);
        let request = ChatRequest::user("Is it cold?").with_options(options);
        let (fitted, sent) = super::written(&request, &rules(wire, "llm.example.com"));
        let chosen = sent[field].pointer(pointer).and_then(Value::as_str).unwrap();
        assert_eq!(fitted.names.original(chosen), Some(original), "{sent}");
    }
}

#[test]
fn a_tool_without_a_schema_is_sent_with_the_schema_of_an_empty_object() {
    for schema in [json!(null), json!({}), json!(true)] {
        for (wire, name, pointer) in [
            (Anthropic, "anthropic", "/tools/0/input_schema"),
            (OpenAiChat, "openai", "/tools/0/function/parameters"),
            (OpenAiResponses, "openai", "/tools/0/parameters"),
            (BedrockConverse, "bedrock", "/toolConfig/tools/0/toolSpec/inputSchema/json"),
            (Ollama, "ollama", "/tools/0/function/parameters"),
        ] {
            let tool = ToolDefinition::new("look", "Looks.", schema.clone());
            let options = ChatOptions::new().with_tools([tool]);
            let sent = body(&ChatRequest::user("hi").with_options(options), &rules(wire, name));
            let expected = json!({"type": "object", "properties": {}});
            assert_eq!(sent.pointer(pointer), Some(&expected), "{name}: {schema}");
        }
    }
}

#[test]
fn a_text_is_sent_without_citations_of_an_omitted_search() {
    let native = |item: Value| Native::new("anthropic", item.to_string().parse().unwrap());
    let answer = |id: &str| {
        let mut call = ToolCall::new(id, "web_search", "{}");
        call.provider_executed = true;
        call.native = Some(native(json!({"type": "server_tool_use"})));
        let mut result = ToolResult::of_parts(id, Vec::new());
        result.native = Some(native(json!({"type": "web_search_tool_result", "content": []})));
        let mut text = Text::new("Found.");
        let citation = json!({"type": "web_search_result_location", "encrypted_index": "x"});
        text.native = Some(native(json!({"type": "text", "citations": [citation]})));
        let parts = vec![call.into(), result.into(), text.into()];
        ChatRequest::new(vec![
            Message::user("Search."),
            Message::new(Role::Assistant, parts),
            Message::user("More."),
        ])
    };
    let rules = rules(Anthropic, "anthropic");
    let sent = body(&answer("call_0a1b"), &rules).to_string();
    assert!(!sent.contains("encrypted_index") && sent.contains("Found."), "{sent}");
    let sent = body(&answer("srvtoolu_01"), &rules).to_string();
    assert!(sent.contains("encrypted_index"), "{sent}");
}
