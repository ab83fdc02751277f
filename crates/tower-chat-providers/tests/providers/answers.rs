//! Tests with unusual answers that no recording contains, from public bug reports about other
//! projects.

use serde_json::{Value, json};
use tower_chat_core::{Answer, BoxError, ChatOptions, ChatRequest, FinishReason, Part};
use tower_chat_providers::{ProviderError, ProviderErrorKind as Kind};

use crate::{
    client::{Provider, ask},
    server::{Framing, Reply, Server},
};

/// The client that reads the answer.
#[derive(Debug, Clone, Copy)]
enum Reader {
    Client(Provider),
    Responses,
}

async fn answer(reader: Reader, reply: Reply, streamed: bool) -> Result<Answer, BoxError> {
    let server = Server::start([reply]).await;
    let mut options = ChatOptions::default();
    options.model = Some("m".to_owned());
    let request = ChatRequest::user("hi").with_options(options);
    let request = if streamed { request.streamed() } else { request };
    match reader {
        Reader::Client(provider) => ask(&mut server.client(provider).build(), request).await,
        Reader::Responses => ask(&mut server.responses(), request).await,
    }
}

fn error(found: Result<Answer, BoxError>) -> ProviderError {
    *found.unwrap_err().downcast::<ProviderError>().expect("a typed error")
}

fn calls(answer: &Answer) -> Vec<(&str, &str)> {
    answer.tool_calls().map(|call| (&*call.name, &*call.arguments)).collect()
}

/// Returns the body of a Chat Completions stream with these events.
fn events(events: &[&str]) -> String {
    events.iter().map(|event| format!("data: {event}\n\n")).collect()
}

const TEXT: &str = r#"{"choices":[{"index":0,"delta":{"role":"assistant","content":"Hi."}}]}"#;
const END: &str = r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#;

fn call(name: &str, arguments: &str) -> String {
    let function = json!({"name": name, "arguments": arguments});
    let calls = json!([{"index": 0, "id": "", "type": "function", "function": function}]);
    json!({"choices": [{"index": 0, "delta": {"tool_calls": calls}}]}).to_string()
}

/// Returns a whole and a streamed answer, each with a flag that is `true` for the streamed answer.
/// Both answers have this choice, and call one tool with these arguments.
fn replies_with_call(choice: &Value, arguments: &Value) -> [(Reply, bool); 2] {
    let calls = json!([{"index": 0, "id": "a", "type": "function",
        "function": {"name": "f", "arguments": arguments}}]);
    let (mut whole, mut last) = (choice.clone(), choice.clone());
    whole["message"] = json!({"role": "assistant", "content": null, "tool_calls": calls});
    last["delta"] = json!({"role": "assistant", "tool_calls": calls});
    let stream = Reply::stream(events(&[&json!({"choices": [last]}).to_string(), "[DONE]"]));
    let whole = Reply::json(200, json!({"choices": [whole]}).to_string());
    [(whole, false), (stream, true)]
}

#[tokio::test]
async fn a_name_without_an_id_after_a_complete_call_begins_another_call() {
    for (pieces, expected) in [
        (vec![call("f", r#"{"x":1}"#), call("g", "{}")], [("f", r#"{"x":1}"#), ("g", "{}")]),
        // Both calls are calls of the same tool.
        (
            vec![call("f", r#"{"x":1}"#), call("f", r#"{"x":2}"#)],
            [("f", r#"{"x":1}"#), ("f", r#"{"x":2}"#)],
        ),
        // The arguments of each call arrive in pieces, and each piece repeats the name.
        (
            vec![
                call("f", r#"{"x":"#),
                call("f", "1}"),
                call("f", ""),
                call("g", ""),
                call("", r#"{"y":2}"#),
            ],
            [("f", r#"{"x":1}"#), ("g", r#"{"y":2}"#)],
        ),
    ] {
        let pieces: Vec<&str> = pieces.iter().map(String::as_str).chain(["[DONE]"]).collect();
        let found =
            answer(Reader::Client(Provider::Groq), Reply::stream(events(&pieces)), true).await;
        assert_eq!(calls(&found.unwrap()), expected, "{pieces:?}");
    }
}

#[tokio::test]
async fn an_error_of_any_form_in_a_stream_with_status_200_is_a_refusal() {
    for (event, message) in [
        (
            r#"{"object":"error","message":"too long","type":"BadRequestError","code":400}"#,
            "too long",
        ),
        (r#"{"object":"error","message":{"detail":"no"},"type":"invalid"}"#, "no"),
        (r#"{"detail":"no capacity"}"#, "no capacity"),
        (r#"{"detail":[{"loc":["body"],"msg":"field required"}]}"#, "field required"),
        (r#"{"message":"Too many requests"}"#, "Too many requests"),
    ] {
        let stream = Reply::stream(events(&[TEXT, event, "[DONE]"]));
        let found = error(answer(Reader::Client(Provider::Groq), stream, true).await);
        let Kind::Refused(refusal) = found.kind() else { panic!("{event}: {found}") };
        assert!(refusal.message.contains(message), "{event}: {found}");
        let whole =
            error(answer(Reader::Client(Provider::Groq), Reply::json(200, event), false).await);
        assert!(matches!(whole.kind(), Kind::Refused(_)), "{event}: {whole}");
        for provider in [
            Reader::Client(Provider::Anthropic),
            Reader::Client(Provider::Gemini),
            Reader::Client(Provider::Cohere),
            Reader::Responses,
        ] {
            for (reply, streamed) in
                [(Reply::stream(events(&[event])), true), (Reply::json(200, event), false)]
            {
                let found = error(answer(provider, reply, streamed).await);
                assert!(matches!(found.kind(), Kind::Refused(_)), "{provider:?} {event}: {found}");
            }
        }
        let found = error(
            answer(Reader::Client(Provider::Ollama), Reply::stream(format!("{event}\n")), true)
                .await,
        );
        assert!(matches!(found.kind(), Kind::Refused(_)), "{event}: {found}");
    }
}

#[tokio::test]
async fn an_answer_with_a_finish_reason_is_complete_even_if_the_stream_ends_early() {
    let chat = events(&[TEXT, END]);
    let anthropic = [
        r#"{"type":"message_start","message":{"role":"assistant","content":[]}}"#,
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hi."}}"#,
        r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{}}"#,
    ];
    let cohere = [
        r#"{"type":"message-start","delta":{"message":{"role":"assistant"}}}"#,
        r#"{"type":"content-start","index":0,"delta":{"message":{"content":{"type":"text","text":""}}}}"#,
        r#"{"type":"content-delta","index":0,"delta":{"message":{"content":{"text":"Hi."}}}}"#,
        r#"{"type":"message-end","delta":{"finish_reason":"COMPLETE"}}"#,
    ];
    let gemini = r#"{"candidates":[{"content":{"role":"model","parts":[{"text":"Hi."}]},"finishReason":"STOP"}]}"#;
    let ollama = concat!(
        r#"{"message":{"role":"assistant","content":"Hi."},"done":false}"#,
        "\n",
        r#"{"message":{"role":"assistant","content":""},"done":true,"done_reason":"stop"}"#,
        "\n",
    );
    for (provider, body) in [
        (Reader::Client(Provider::Groq), chat.clone()),
        (Reader::Client(Provider::Mistral), chat.clone()),
        (Reader::Client(Provider::Anthropic), events(&anthropic)),
        (Reader::Client(Provider::Cohere), events(&cohere)),
        (Reader::Client(Provider::Gemini), events(&[gemini])),
        (Reader::Client(Provider::Gemini), events(&[gemini, "[DONE]"])),
        (Reader::Client(Provider::Anthropic), events(&anthropic) + "data: [DONE]\n\n"),
        (Reader::Client(Provider::Ollama), ollama.to_owned()),
    ] {
        // The blank line after the last event, or the end of the last line, is missing. The third
        // reply is also shorter than its `content-length`.
        let cut = body.trim_end().to_owned();
        let broken = Reply::stream(body.clone()).framed(Framing::BreakAt(cut.len()));
        for reply in [Reply::stream(body), Reply::stream(cut), broken] {
            let found = answer(provider, reply.clone(), true).await;
            let found = found.unwrap_or_else(|error| panic!("{provider:?} {reply:?}: {error}"));
            assert_eq!(found.text(), "Hi.", "{provider:?}");
            assert_eq!(found.finish.reason, Some(FinishReason::Stop), "{provider:?}");
        }
    }
    let no_reason = r#"{"message":{"role":"assistant","content":"Hi."},"done":true}"#;
    let found =
        answer(Reader::Client(Provider::Ollama), Reply::stream(no_reason), true).await.unwrap();
    assert_eq!((found.text().as_str(), found.finish.reason), ("Hi.", None));
}

#[tokio::test]
async fn the_error_for_an_html_page_contains_the_beginning_of_the_page() {
    let page = "<!DOCTYPE html>\n<html><head><title>Sign in to Example</title></head></html>";
    for provider in [
        Reader::Client(Provider::Groq),
        Reader::Responses,
        Reader::Client(Provider::Anthropic),
        Reader::Client(Provider::Gemini),
        Reader::Client(Provider::Cohere),
        Reader::Client(Provider::Ollama),
        Reader::Client(Provider::Bedrock),
    ] {
        for streamed in [false, true] {
            for label in ["text/html", "application/json", "text/event-stream"] {
                let reply = Reply::new(200, label, page);
                let found = error(answer(provider, reply, streamed).await);
                assert!(matches!(found.kind(), Kind::Malformed { .. }), "{provider:?}: {found:?}");
                let text = found.to_string();
                assert!(text.contains("Sign in to Example"), "{provider:?} {label}: {text}");
            }
        }
    }
    let plain = Reply::new(200, "text/plain", "upstream connect error or disconnect");
    let found = error(answer(Reader::Client(Provider::Groq), plain, true).await);
    assert!(found.to_string().contains("upstream connect error"), "{found}");
}

#[tokio::test]
async fn an_event_stream_is_read_under_any_content_type_and_even_if_not_requested() {
    let body = events(&[TEXT, END, "[DONE]"]);
    let with_comment = format!(": waiting\n\n{body}");
    for body in [body, with_comment] {
        for label in ["application/json", "application/json; charset=utf-8", "text/plain"] {
            for streamed in [true, false] {
                let reply = Reply::new(200, label, body.clone());
                let found = answer(Reader::Client(Provider::Groq), reply, streamed).await.unwrap();
                assert_eq!(found.text(), "Hi.", "{label} {streamed}");
            }
        }
    }
    let whole = r#"{"choices":[{"message":{"role":"assistant","content":"Hi."}}]}"#;
    let reply = Reply::new(200, "text/event-stream", format!("\u{feff}{whole}"));
    assert_eq!(answer(Reader::Client(Provider::Groq), reply, true).await.unwrap().text(), "Hi.");
    let lines = concat!(
        "{\"message\":{\"content\":\"H\"},\"done\":false}\n",
        "{\"message\":{\"content\":\"i.\"},\"done\":true,\"done_reason\":\"stop\"}\n",
    );
    let found =
        answer(Reader::Client(Provider::Ollama), Reply::json(200, lines), false).await.unwrap();
    assert_eq!(found.text(), "Hi.");
}

#[tokio::test]
async fn reasoning_tokens_are_counted_once_wherever_the_service_reports_them() {
    for (usage, expected) in [
        // xAI does not include the reasoning tokens in the output tokens.
        (
            json!({"prompt_tokens": 470, "completion_tokens": 68, "total_tokens": 723,
                "completion_tokens_details": {"reasoning_tokens": 185}}),
            (470, 253, 185),
        ),
        // One service for Gemini models includes the reasoning tokens only in the total.
        (json!({"prompt_tokens": 5, "completion_tokens": 9, "total_tokens": 133}), (5, 128, 119)),
        // OpenAI includes the reasoning tokens in the output tokens.
        (
            json!({"prompt_tokens": 5, "completion_tokens": 200, "total_tokens": 205,
                "completion_tokens_details": {"reasoning_tokens": 185}}),
            (5, 200, 185),
        ),
        (json!({"prompt_tokens": 5, "completion_tokens": 9, "reasoning_tokens": 20}), (5, 29, 20)),
        (json!({"prompt_tokens": 5, "completion_tokens": 9, "total_tokens": 3}), (5, 9, 0)),
    ] {
        let message = json!({"role": "assistant", "content": "Hi."});
        let whole =
            json!({"choices": [{"message": message, "finish_reason": "stop"}], "usage": usage});
        let last = json!({"choices": [], "usage": usage}).to_string();
        let stream = Reply::stream(events(&[TEXT, END, &last, "[DONE]"]));
        for (reply, streamed) in [(Reply::json(200, whole.to_string()), false), (stream, true)] {
            let found =
                answer(Reader::Client(Provider::Groq), reply, streamed).await.unwrap().finish.usage;
            let counted = (found.input_tokens, found.output_tokens, found.reasoning_tokens);
            assert_eq!(counted, expected, "{usage}");
        }
    }
}

#[tokio::test]
async fn a_search_that_xai_executes_is_not_a_call_of_the_caller() {
    let item = |status: &str, input: &str| {
        json!({"type": "custom_tool_call", "id": "ctc_1_xs_call_2", "call_id": "xs_call_2",
            "name": "x_keyword_search", "input": input, "status": status})
    };
    let message = json!({"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
        "content": [{"type": "output_text", "text": "Found.", "annotations": []}]});
    let output = json!([item("completed", r#"{"query":"x"}"#), message]);
    let response = json!({"id": "r1", "object": "response", "status": "completed", "model": "grok-4",
        "output": output});
    let stream = events(&[
        &json!({"type": "response.output_item.added", "output_index": 0, "item": item("in_progress", "")})
            .to_string(),
        &json!({"type": "response.custom_tool_call_input.delta", "output_index": 0, "delta": "{}"})
            .to_string(),
        &json!({"type": "response.completed", "response": response}).to_string(),
    ]);
    for (reply, streamed) in
        [(Reply::json(200, response.to_string()), false), (Reply::stream(stream), true)]
    {
        let found = answer(Reader::Responses, reply, streamed).await.unwrap();
        assert_eq!(found.tool_calls().count(), 0, "{found:?}");
        assert_eq!(found.finish.reason, Some(FinishReason::Stop));
        let search = found.messages[0].parts.iter().find_map(Part::as_tool_call).unwrap();
        assert!(search.provider_executed && search.name == "x_keyword_search", "{search:?}");
    }
    // A call of an application's custom tool is not provider-executed.
    let ours = json!({"id": "r1", "status": "completed", "output": [{"type": "custom_tool_call",
        "id": "ctc_1", "call_id": "call_2", "name": "run", "input": "ls", "status": "completed"}]});
    let reply = Reply::json(200, ours.to_string());
    let found = answer(Reader::Responses, reply, false).await.unwrap();
    assert_eq!(calls(&found), [("run", "ls")]);
}

/// <https://googleapis.github.io/js-genai/release_docs/interfaces/types.FunctionCall.html>
/// describes the format.
#[tokio::test]
async fn arguments_that_vertex_streams_in_pieces_are_joined() {
    let part = |part: serde_json::Value| {
        json!({"candidates": [{"content": {"role": "model", "parts": [part]}}]}).to_string()
    };
    let piece = |path: &str, field: &str, value: serde_json::Value| json!({"jsonPath": path, field: value, "willContinue": true});
    let pieces = [
        part(
            json!({"functionCall": {"name": "book", "willContinue": true}, "thoughtSignature": "s"}),
        ),
        part(json!({"functionCall": {"willContinue": true,
            "partialArgs": [piece("$.city", "stringValue", json!("New "))]}})),
        part(json!({"functionCall": {"willContinue": true, "partialArgs": [
            piece("$.city", "stringValue", json!("York")), piece("$.days[1].n", "numberValue", json!(2)),
            piece("$.days[0].n", "numberValue", json!(1)), piece("$['is first']", "boolValue", json!(true)),
            piece("$.none", "nullValue", json!("NULL_VALUE"))]}})),
        part(json!({"functionCall": {}})),
        part(json!({"functionCall": {"name": "look", "args": {"x": 1}}})),
        part(json!({"functionCall": {"name": "book",
            "partialArgs": [{"jsonPath": "$.city", "stringValue": "Rome"}]}})),
    ];
    let stop = |reason: &str| json!({"candidates": [{"finishReason": reason}]}).to_string();
    let mut all: Vec<&str> = pieces.iter().map(String::as_str).collect();
    let end = stop("STOP");
    all.push(&end);
    let found =
        answer(Reader::Client(Provider::Gemini), Reply::stream(events(&all)), true).await.unwrap();
    let found: Vec<(&str, serde_json::Value)> =
        found.tool_calls().map(|call| (&*call.name, call.parse_arguments().unwrap())).collect();
    let whole =
        json!({"city": "New York", "days": [{"n": 1}, {"n": 2}], "is first": true, "none": null});
    let expected = [("book", whole), ("look", json!({"x": 1})), ("book", json!({"city": "Rome"}))];
    assert_eq!(found, expected);

    // The arguments of a call that was cut off are not valid JSON.
    let end = stop("MAX_TOKENS");
    let cut: Vec<&str> = [&*pieces[0], &*pieces[1], &*end].to_vec();
    let found =
        answer(Reader::Client(Provider::Gemini), Reply::stream(events(&cut)), true).await.unwrap();
    assert_eq!(calls(&found), [("book", r#"{"city":"New "#)]);
    assert_eq!(found.finish.reason, Some(FinishReason::Length));
}

#[tokio::test]
async fn an_emoji_whose_surrogate_halves_arrive_in_two_pieces_is_joined() {
    let halves = [
        r#"{"choices":[{"index":0,"delta":{"content":"\ud83d"}}]}"#,
        r#"{"choices":[{"index":0,"delta":{"content":"\ude00"}}]}"#,
        END,
    ];
    let anthropic = [
        r#"{"type":"message_start","message":{"role":"assistant","content":[]}}"#,
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"\ud83d"}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"\ude00"}}"#,
        r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"}}"#,
        r#"{"type":"message_stop"}"#,
    ];
    let gemini = [
        r#"{"candidates":[{"content":{"parts":[{"text":"\ud83d"}]}}]}"#,
        r#"{"candidates":[{"content":{"parts":[{"text":"\ude00"}]},"finishReason":"STOP"}]}"#,
    ];
    let ollama = concat!(
        r#"{"message":{"content":"\ud83d"},"done":false}"#,
        "\n",
        r#"{"message":{"content":"\ude00"},"done":true,"done_reason":"stop"}"#,
    );
    for (provider, body) in [
        (Reader::Client(Provider::Groq), events(&halves)),
        (Reader::Client(Provider::Anthropic), events(&anthropic)),
        (Reader::Client(Provider::Gemini), events(&gemini)),
        (Reader::Client(Provider::Ollama), ollama.to_owned()),
    ] {
        let found = answer(provider, Reply::stream(body), true).await.unwrap();
        assert_eq!(found.text(), "😀", "{provider:?}");
    }
    let arguments = [
        r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{\"x\":\"\ud83d"}}]}}]}"#,
        r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"\ude00\"}"}}]}}]}"#,
        END,
    ];
    let found = answer(Reader::Client(Provider::Groq), Reply::stream(events(&arguments)), true)
        .await
        .unwrap();
    assert_eq!(calls(&found), [("f", r#"{"x":"😀"}"#)]);
}

#[tokio::test]
async fn a_call_that_the_token_limit_cuts_off_is_marked_even_without_arguments() {
    for arguments in [json!(""), json!(null), json!("{\"x\":")] {
        let choice = json!({"index": 0, "finish_reason": "length"});
        for (reply, streamed) in replies_with_call(&choice, &arguments) {
            let found = answer(Reader::Client(Provider::Groq), reply, streamed).await.unwrap();
            let call = found.tool_calls().next().unwrap();
            assert!(call.is_cut_off, "{arguments}, streamed: {streamed}: {call:?}");
            let reason = &found.messages[0].finish_reason;
            assert_eq!(*reason, Some(FinishReason::Length));
        }
    }
}

#[tokio::test]
async fn the_error_of_a_service_that_does_not_find_the_history_reports_the_loss() {
    for (status, body) in [
        (
            400,
            json!({"error": {"message": "Previous response with id 'resp_1' not found.",
            "type": "invalid_request_error", "param": "previous_response_id",
            "code": "previous_response_not_found"}}),
        ),
        (
            404,
            json!({"error": {"message": "Conversation with id 'resp_1' not found.",
            "type": "invalid_request_error", "param": null, "code": null}}),
        ),
        (404, json!({"code": "not-found", "error": "Response with id=resp_1 not found"})),
    ] {
        let server = Server::start([
            Reply::json(status, body.to_string()),
            Reply::json(404, r#"{"error":{"message":"Model m not found"}}"#),
        ])
        .await;
        let mut model = server.responses();
        let request = ChatRequest::user("hi").with_service_id("resp_1");
        let lost = ask(&mut model, request.clone()).await.unwrap_err();
        assert!(tower_chat_core::is_history_lost(&*lost), "{body}: {lost}");
        assert_eq!(tower_chat_core::is_retryable(&*lost), Some(false), "{lost}");
        let other = ask(&mut model, request).await.unwrap_err();
        assert!(!tower_chat_core::is_history_lost(&*other), "{other}");
        assert_eq!(tower_chat_core::is_retryable(&*other), Some(false), "{other}");
    }
}

#[tokio::test]
async fn a_native_length_stop_through_openrouter_is_a_length_stop() {
    for native in ["length", "max_tokens", "MAX_TOKENS", "max_output_tokens"] {
        let choice =
            json!({"index": 0, "finish_reason": "tool_calls", "native_finish_reason": native});
        for (reply, streamed) in replies_with_call(&choice, &json!("")) {
            let found = answer(Reader::Client(Provider::Groq), reply, streamed).await.unwrap();
            assert_eq!(found.finish.reason, Some(FinishReason::Length), "{native}");
        }
    }
}
