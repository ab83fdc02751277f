//! Tests a chat with each provider, in which the local server sends a recorded streamed answer.

use std::path::Path;

use serde_json::Value;
use tower_chat_testkit::recordings::{Exchange, Recordings};

use super::*;

/// A provider, with the folder of its recordings and the suffix of the URLs in these recordings.
struct Case {
    provider: &'static str,
    folder: &'static str,
    path: &'static str,
    /// Returns the text delta in an event of a stream.
    text: fn(&Value) -> Option<&str>,
}

fn chat_text(event: &Value) -> Option<&str> {
    event["choices"][0]["delta"]["content"].as_str()
}

fn gemini_text(event: &Value) -> Option<&str> {
    let part = &event["candidates"][0]["content"]["parts"][0];
    if part["thought"] == true { None } else { part["text"].as_str() }
}

const CASES: [Case; 11] = [
    Case { provider: "openai", folder: "azure", path: "/chat/completions", text: chat_text },
    Case {
        provider: "openai-responses",
        folder: "openai_responses",
        path: "/responses",
        text: |event| {
            if event["type"] == "response.output_text.delta" {
                event["delta"].as_str()
            } else {
                None
            }
        },
    },
    Case {
        provider: "anthropic",
        folder: "anthropic",
        path: "/messages",
        text: |event| event["delta"]["text"].as_str(),
    },
    Case { provider: "gemini", folder: "gemini", path: "enerateContent", text: gemini_text },
    Case { provider: "vertex", folder: "vertex", path: "enerateContent", text: gemini_text },
    Case {
        provider: "bedrock",
        folder: "bedrock",
        path: "/converse-stream",
        text: |event| {
            event["contentBlockDelta"]["delta"]["text"].as_str().or(event["delta"]["text"].as_str())
        },
    },
    Case {
        provider: "cohere",
        folder: "cohere",
        path: "/v2/chat",
        text: |event| event["delta"]["message"]["content"]["text"].as_str(),
    },
    Case { provider: "mistral", folder: "mistral", path: "/chat/completions", text: chat_text },
    Case {
        provider: "ollama",
        folder: "ollama",
        path: "/api/chat",
        text: |event| event["message"]["content"].as_str(),
    },
    Case { provider: "groq", folder: "groq", path: "/chat/completions", text: chat_text },
    Case { provider: "xai", folder: "xai", path: "/chat/completions", text: chat_text },
];

/// Returns a recorded streamed answer with text and no calls, and its text.
fn recorded(case: &Case) -> (Exchange, String) {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tower-chat-testkit/data");
    let cassettes = Recordings::at(data).cassettes().unwrap();
    let exchanges = cassettes.into_iter().flat_map(|cassette| cassette.exchanges);
    let texts = exchanges
        .filter(|exchange| exchange.folder == case.folder && exchange.is_success())
        .filter(|exchange| exchange.reported_error().unwrap().is_none())
        .filter(|exchange| exchange.is_streamed() && exchange.path().ends_with(case.path))
        .map(|exchange| {
            let events = exchange.json_events().unwrap();
            let text: String = events.iter().filter_map(case.text).collect();
            (exchange, text)
        });
    let calls =
        ["tool_calls\":[{", "tool_use", "functionCall", "toolUse", "function_call", "tool-call"];
    let mut plain = texts.filter(|(exchange, text)| {
        let body = String::from_utf8_lossy(&exchange.body);
        !text.is_empty() && !calls.iter().any(|mark| body.contains(mark))
    });
    plain.next().unwrap_or_else(|| panic!("no text of {} is recorded", case.folder))
}

#[test]
fn the_chat_prints_the_recorded_answer_of_every_provider() {
    let mut printed = Vec::new();
    for case in &CASES {
        let (exchange, text) = recorded(case);
        let content_type = match case.provider {
            "bedrock" => "application/vnd.amazon.eventstream",
            "ollama" => "application/x-ndjson",
            _ => "text/event-stream",
        };
        let store = TestStore::new(Kind::Sqlite);
        let server = ModelServer::start([Reply::recorded(content_type, exchange.body)]);
        let arguments =
            ["asked", "--provider", case.provider, "--base-url", &server.url, "--reasoning"];
        let ended = run_with_input(chat_with(&store, &arguments), "What is in the harbour?\n");
        let provider = case.provider;
        assert_eq!(ended.code, Some(0), "{provider}: {}", ended.stderr);
        assert_eq!(ended.stdout.trim_end(), text.trim_end(), "{provider}");
        let messages = stored(&store, "asked");
        assert_eq!(messages[0], "user: What is in the harbour?", "{provider}");
        assert!(messages[1].contains(text.as_str()), "{provider}: {messages:?}");
        assert_eq!(server.received().len(), 1, "{provider}");
        assert_intact(&store);
        printed.push(text);
    }
    printed.sort();
    printed.dedup();
    assert_eq!(printed.len(), CASES.len(), "every answer is another one");
}

#[test]
fn the_key_from_the_environment_is_sent_and_never_printed() {
    let store = TestStore::new(Kind::Sqlite);
    let server = ModelServer::start([
        Reply::text(&["A lock."]),
        Reply::refusal(401, "wrong key sk-canary-17"),
    ]);
    for (name, code) in [("key", 0), ("no key", 2)] {
        let mut command = chat(&store, &server, &[name, "--verbose"]);
        command.env("OPENAI_API_KEY", "sk-canary-17");
        let ended = run_with_input(command, "What opens?\n");
        assert_eq!(ended.code, Some(code), "{}", ended.stderr);
        assert!(
            !format!("{}{}", ended.stdout, ended.stderr).contains("canary"),
            "{}",
            ended.stderr
        );
    }
    let sent: Vec<bool> = server
        .received()
        .iter()
        .map(|request| request.head.to_lowercase().contains("authorization: bearer sk-canary-17"))
        .collect();
    assert_eq!(sent, [true, true]);
}
