//! Tests the parsers for recorded exchanges and conversations.

use std::{collections::BTreeMap, fs, io::Write};

use base64::{Engine, engine::general_purpose::STANDARD as BASE64};
use serde_json::{Value, json};
use tower_chat_testkit::recordings::{Api, Cassette, Exchange, Framing, Recordings, StreamEvent};

fn parse(yaml: &str) -> Vec<Exchange> {
    Cassette::parse("provider", "file.yaml", yaml).unwrap().exchanges
}

fn refused(yaml: &str) -> String {
    Cassette::parse("provider", "file.yaml", yaml).unwrap_err().to_string()
}

/// Returns the YAML of an exchange whose response has this body.
fn vcrpy(path: &str, request: &str, media_type: &str, body: &str) -> String {
    format!(
        "interactions:\n- request:\n    method: POST\n    uri: https://host{path}\n    body: '{request}'\n  \
         response:\n    status:\n      code: 200\n    headers:\n      Content-Type:\n      - {media_type}\n    \
         body:\n      string: {body}\n"
    )
}

fn named(event: &str, data: Value) -> StreamEvent {
    StreamEvent { event: Some(event.to_owned()), data: data.to_string() }
}

#[test]
fn the_formats_of_all_recorders_are_parsed() {
    let forms = [
        // vcrpy
        "version: 1\ninteractions:\n- request: {method: POST, uri: 'https://a/v1/messages?b=c', body: '{\"n\":1}', headers: {A: [b]}}\n  response: {status: {code: 200, message: OK}, headers: {X-Y: [p, q]}, body: {string: '{\"m\":2}'}}\n",
        // vcrpy, with parsed bodies
        "interactions:\n- request: {method: POST, uri: 'https://a/v1/messages?b=c', parsed_body: {n: 1}, headers: {A: [b]}}\n  response: {status: {code: 200}, headers: {X-Y: [p, q]}, parsed_body: {m: 2}}\n",
        // VCR for Ruby
        "http_interactions:\n- request: {method: post, uri: 'https://a/v1/messages?b=c', body: {encoding: UTF-8, string: '{\"n\":1}'}, headers: {A: [b]}}\n  response: {status: {code: 200, message: OK}, headers: {X-Y: [p, q]}, body: {encoding: ASCII-8BIT, string: !binary eyJtIjoyfQ==}}\n  recorded_at: Thu, 01 Jan 2026 00:00:00 GMT\nrecorded_with: VCR 6.3.1\n",
        // VCR for R
        "http_interactions:\n- request: {method: POST, uri: 'https://a/v1/messages?b=c', body: {string: '{\"n\":1}'}, headers: {A: b}}\n  response: {status: 200, headers: {X-Y: 'p, q'}, body: {base64_string: eyJtIjoyfQ==}}\n  recorded_at: 2026-01-01 00:00:00\n",
        // go-vcr
        "version: 2\ninteractions:\n- id: 0\n  request: {method: POST, url: 'https://a/v1/messages?b=c', body: '{\"n\":1}', form: {}, headers: {A: [b]}}\n  response: {code: 200, status: 200 OK, headers: {X-Y: [p, q]}, body: '{\"m\":2}'}\n",
        // httpmock
        "when:\n  path: /v1/messages\n  method: POST\n  body: '{\"n\":1}'\n  header: [{name: a, value: b}]\nthen:\n  status: 200\n  header: [{name: x-y, value: 'p, q'}]\n  body: '{\"m\":2}'\n",
    ];
    for form in forms {
        let exchanges = parse(form);
        let [exchange] = exchanges.as_slice() else { panic!("{exchanges:?}") };
        assert!(exchange.path().ends_with("/v1/messages"), "{form}");
        assert_eq!(exchange.method, "POST", "{form}");
        assert_eq!(exchange.request, json!({"n": 1}), "{form}");
        assert_eq!(exchange.request_headers["a"], "b", "{form}");
        assert_eq!(exchange.status, 200, "{form}");
        assert_eq!(exchange.headers["x-y"], "p, q", "{form}");
        assert_eq!(exchange.json().unwrap(), json!({"m": 2}), "{form}");
        assert_eq!(exchange.framing(), Framing::Whole, "{form}");
        assert_eq!(exchange.source, "provider/file.yaml#0", "{form}");
    }
    let two = format!("{}---\n{}", forms[5], forms[5].replace("m\":2", "m\":3"));
    assert_eq!(parse(&two)[1].json().unwrap(), json!({"m": 3}));
}

#[test]
fn compressed_and_binary_bodies_are_unpacked() {
    let gzip = |text: &[u8]| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(text).unwrap();
        BASE64.encode(encoder.finish().unwrap())
    };
    let packed = gzip(b"data: {\"x\":\"gz\"}\n\n");
    for tag in ["!!binary ", "!binary ", ""] {
        let body = format!("{tag}|\n        {}\n        {}", &packed[..16], &packed[16..]);
        let yaml = vcrpy("/chat/completions", "{}", "text/event-stream", &body);
        assert_eq!(parse(&yaml)[0].json_events().unwrap(), [json!({"x": "gz"})], "{tag}");
    }
    // The recorder has decompressed the body but kept the header.
    let with_header = |encoding: &str, body: &str| {
        vcrpy("/chat/completions", "{}", "application/json", body).replace(
            "    body:\n      string",
            &format!("      Content-Encoding: [{encoding}]\n    body:\n      string"),
        )
    };
    assert_eq!(parse(&with_header("br", "'{\"x\":7}'"))[0].json().unwrap(), json!({"x": 7}));
    let unknown =
        with_header("zstd", &format!("!!binary {}", BASE64.encode([0x28, 0xb5, 0x2f, 0xfd])));
    assert_eq!(
        refused(&unknown),
        "provider/file.yaml#0: the content encoding zstd of a body is not supported"
    );
}

#[test]
fn text_that_is_valid_base64_is_not_decoded() {
    let yaml = vcrpy("/x", "{}", "text/plain", "abcdefghijklmnopqrst");
    assert_eq!(parse(&yaml)[0].text().unwrap(), "abcdefghijklmnopqrst");
}

/// Encodes a message of an AWS event stream.
fn message(headers: &[(&str, &str)], payload: &str) -> Vec<u8> {
    let mut packed = Vec::new();
    for (name, value) in headers {
        packed.push(name.len().try_into().unwrap());
        packed.extend(name.bytes());
        packed.push(7);
        packed.extend(u16::try_from(value.len()).unwrap().to_be_bytes());
        packed.extend(value.bytes());
    }
    let length = u32::try_from(16 + packed.len() + payload.len()).unwrap();
    let mut message = length.to_be_bytes().to_vec();
    message.extend(u32::try_from(packed.len()).unwrap().to_be_bytes());
    let sum = |bytes: &[u8]| {
        let mut sum = flate2::Crc::new();
        sum.update(bytes);
        sum.sum().to_be_bytes()
    };
    message.extend(sum(&message));
    message.extend(packed);
    message.extend(payload.bytes());
    message.extend(sum(&message));
    message
}

fn event_stream(path: &str, bytes: &[u8]) -> String {
    let body = format!("!!binary {}", BASE64.encode(bytes));
    vcrpy(path, "{}", "application/vnd.amazon.eventstream", &body)
}

#[test]
fn event_streams_of_bedrock_are_read_with_their_tool_calls() {
    let start = json!({"contentBlockIndex": 0, "start": {"toolUse": {"toolUseId": "t1", "name": "weather"}}});
    let delta =
        json!({"contentBlockIndex": 0, "delta": {"toolUse": {"input": "{\"city\":\"Zürich\"}"}}});
    let of = |kind: &'static str| [(":event-type", kind), (":message-type", "event")];
    let mut bytes = message(&of("contentBlockStart"), &start.to_string());
    bytes.extend(message(&of("contentBlockDelta"), &delta.to_string()));
    let exception = [(":exception-type", "throttlingException"), (":message-type", "exception")];
    let refusal = json!({"message": "slow down"});
    bytes.extend(message(&exception, &refusal.to_string()));
    let yaml = event_stream("/model/a/converse-stream", &bytes);
    let exchange = &parse(&yaml)[0];
    assert_eq!(exchange.api().unwrap(), Api::BedrockConverse);
    assert_eq!(exchange.framing(), Framing::AwsEventStream);
    let expected = [
        named("contentBlockStart", start),
        named("contentBlockDelta", delta),
        named("throttlingException", refusal),
    ];
    assert_eq!(exchange.events().unwrap(), expected);

    let cut = event_stream("/model/a/converse-stream", &bytes[..bytes.len() - 1]);
    assert_eq!(refused(&cut), "provider/file.yaml#0: its event stream ends within message 2");
    bytes[40] ^= 1;
    let damaged = event_stream("/model/a/converse-stream", &bytes);
    assert_eq!(
        refused(&damaged),
        "provider/file.yaml#0: message 0 of its event stream has a wrong checksum or format"
    );
}

#[test]
fn events_of_invoke_model_are_unwrapped() {
    let event = json!({"type": "content_block_start", "index": 0});
    let payload = json!({"bytes": BASE64.encode(event.to_string()), "p": "abc"});
    let headers = [(":event-type", "chunk"), (":message-type", "event")];
    let bytes = message(&headers, &payload.to_string());
    let exchange = &parse(&event_stream("/model/a/invoke-with-response-stream", &bytes))[0];
    assert_eq!(exchange.api().unwrap(), Api::BedrockInvoke);
    assert_eq!(exchange.json_events().unwrap(), [event]);
}

#[test]
fn a_stream_of_ollama_is_read_as_lines_of_json() {
    let call = json!({"message": {"tool_calls": [{"function": {"name": "tide", "arguments": {"port": 3}}}]}, "done": false});
    let end = json!({"message": {"content": "ebb"}, "done": true, "done_reason": "stop"});
    for media_type in ["application/x-ndjson", "application/json"] {
        let body = format!("|\n        {call}\n        {end}");
        let exchange = &parse(&vcrpy("/api/chat", "{\"messages\":[]}", media_type, &body))[0];
        assert_eq!(
            (exchange.api().unwrap(), exchange.framing()),
            (Api::Ollama, Framing::JsonLines)
        );
        assert_eq!(exchange.json_events().unwrap(), [call.clone(), end.clone()]);
    }
}

#[test]
fn server_sent_events_are_read_with_server_tools_and_errors() {
    let server = json!({"type": "content_block_start", "content_block": {"type": "server_tool_use", "id": "s1"}});
    let error =
        json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}});
    let body = format!(
        "|\n        : a comment\n\n        event: content_block_start\n        data: {server}\n\n        \
         event: error\n        data: {error}\n\n        data: [DONE]"
    );
    let path = "/v1/projects/p/publishers/anthropic/models/claude:streamRawPredict";
    let exchange = &parse(&vcrpy(path, "{\"messages\":[]}", "text/event-stream", &body))[0];
    assert_eq!((exchange.api().unwrap(), exchange.framing()), (Api::VertexAnthropic, Framing::Sse));
    let done = StreamEvent { event: None, data: "[DONE]".to_owned() };
    let expected =
        [named("content_block_start", server.clone()), named("error", error.clone()), done];
    assert_eq!(exchange.events().unwrap(), expected);
    assert_eq!(exchange.json_events().unwrap(), [server, error]);
    assert_eq!(exchange.reported_error().unwrap().as_deref(), Some("Overloaded"));
}

#[test]
fn a_stream_of_gemini_may_be_a_json_array() {
    let path = "/v1beta/models/gemini:streamGenerateContent";
    let body = "'[{\"candidates\":[1]},{\"candidates\":[2]}]'";
    let exchange = &parse(&vcrpy(path, "{\"contents\":[]}", "application/json", body))[0];
    assert_eq!((exchange.api().unwrap(), exchange.framing()), (Api::Gemini, Framing::JsonArray));
    let expected = [json!({"candidates": [1]}), json!({"candidates": [2]})];
    assert_eq!(exchange.json_events().unwrap(), expected);
}

#[test]
fn a_recording_that_cannot_be_parsed_is_refused_with_the_name_of_its_file() {
    let conversation = "{\"messages\":[]}";
    let cases = [
        (
            vcrpy("/v9/talk", conversation, "application/json", "'{}'"),
            "the API at https://host/v9/talk is unknown",
        ),
        (
            vcrpy("/chat/completions", conversation, "application/json", "'{\"cut\":'"),
            "its body is not JSON",
        ),
        (
            vcrpy("/chat/completions", conversation, "application/x-new", "'new'"),
            "\"application/x-new\" and is not JSON",
        ),
        (vcrpy("/x", "{}", "application/json", "!other 5"), "the YAML tag !other is unknown"),
        (
            "interactions:\n- request: {uri: /x}\n".to_owned(),
            "an interaction has an unknown structure",
        ),
        ("a: b\n".to_owned(), "a document has an unknown structure"),
        (String::new(), "it has no exchange"),
        (
            "interactions:\n- request: {uri: /x}\n  response: {body: '{}'}\n".to_owned(),
            "a response has no status",
        ),
    ];
    for (yaml, problem) in cases {
        let error = refused(&yaml);
        assert!(error.starts_with("provider/file.yaml"), "{error}");
        assert!(error.contains(problem), "{error}, not {problem}");
    }
}

#[test]
fn a_file_of_an_unknown_kind_is_refused_with_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let inside = folder.path().join("cassettes/a");
    fs::create_dir_all(&inside).unwrap();
    fs::write(inside.join("SOURCE"), "somewhere").unwrap();
    assert!(Recordings::at(folder.path()).cassettes().unwrap().is_empty());
    fs::write(inside.join("b.har"), "{}").unwrap();
    let error = Recordings::at(folder.path()).cassettes().unwrap_err().to_string();
    assert!(error.contains("b.har: is no file of a known kind"), "{error}");
}

#[test]
fn every_recorded_exchange_is_read() {
    let recordings = Recordings::all();
    let cassettes = recordings.cassettes().unwrap();
    let mut counts: BTreeMap<(Api, Framing), usize> = BTreeMap::new();
    for exchange in cassettes.iter().flat_map(|cassette| &cassette.exchanges) {
        let api = exchange.api().unwrap();
        *counts.entry((api, exchange.framing())).or_default() += 1;
        if api.asks_model() {
            assert!(exchange.request.is_object(), "{}: no request", exchange.source);
            assert!(!exchange.json_events().unwrap().is_empty(), "{}: no answer", exchange.source);
        }
    }
    println!("{} files: {counts:#?}", cassettes.len());
    assert!(!cassettes.is_empty());
    let conversations = recordings.conversations().unwrap();
    println!("{} conversations", conversations.len());
    assert!(conversations.iter().all(|conversation| !conversation.messages.is_empty()));
}

#[test]
fn an_error_in_the_body_of_a_successful_response_is_found_and_a_null_error_is_not() {
    let error_of = |media_type: &str, body: &str| {
        parse(&vcrpy("/v1/responses", "{\"input\":[]}", media_type, body))[0]
            .reported_error()
            .unwrap()
    };
    let failed = "'{\"status\":\"failed\",\"error\":{\"message\":\"no model\"}}'";
    assert_eq!(error_of("application/json", failed).as_deref(), Some("no model"));
    let completed = "'{\"status\":\"completed\",\"error\":null}'";
    assert_eq!(error_of("application/json", completed), None);
    let event = "|\n        data: {\"response\":{\"error\":{\"message\":\"no time\"}}}\n\n";
    assert_eq!(error_of("text/event-stream", event).as_deref(), Some("no time"));
    let line = "|\n        {\"done\":false}\n        {\"error\":\"no memory\"}\n";
    assert_eq!(error_of("application/x-ndjson", line).as_deref(), Some("no memory"));
}
