//! The seed inputs of the targets: recorded inputs, and inputs that this file contains as text.

use std::{fs, sync::LazyLock};

use tower_chat_testkit::recordings::{Api, Exchange, Framing, Recordings};
use tower_chat_wire::body::BodyWire;

/// The maximum length of a seed input, in bytes. Longer recordings are omitted, because they would
/// make the targets slow.
const MAX_SEED_BYTES: usize = 12 * 1024;

/// The number of lines that are used of each file of conversations.
const LINES_OF_FILE: usize = 32;

/// The seed inputs of one wire (the JSON formats of one provider API).
#[derive(Default)]
pub(crate) struct Seeds {
    pub(crate) requests: Vec<Vec<u8>>,
    pub(crate) answers: Vec<Vec<u8>>,
    pub(crate) errors: Vec<Vec<u8>>,
    pub(crate) streams: Vec<Vec<u8>>,
    /// The events of AWS event streams, in the form that [`event_stream`](crate::targets) encodes.
    pub(crate) events: Vec<Vec<u8>>,
}

static EXCHANGES: LazyLock<Vec<Exchange>> = LazyLock::new(|| {
    let cassettes = Recordings::all().cassettes().expect("the recorded exchanges can be read");
    cassettes.into_iter().flat_map(|cassette| cassette.exchanges).collect()
});

pub(crate) fn of_wire(wire: BodyWire) -> Seeds {
    let mut seeds = Seeds::default();
    seeds.requests.push(OWN_REQUEST.into());
    if wire == BodyWire::Ollama {
        seeds.answers.extend(OLLAMA_ANSWERS.map(Vec::from));
        seeds.errors.extend(OLLAMA_ERRORS.map(Vec::from));
        seeds.streams.extend(OLLAMA_STREAMS.map(Vec::from));
    }
    let of_wire = |exchange: &&Exchange| exchange.api().ok().and_then(wire_of) == Some(wire);
    for exchange in EXCHANGES.iter().filter(of_wire) {
        seeds.requests.push(exchange.request_body.clone());
        let body = exchange.body.clone();
        match exchange.framing() {
            Framing::Whole if exchange.is_success() => seeds.answers.push(body),
            Framing::Whole => seeds.errors.push(body),
            framing => {
                if framing == Framing::AwsEventStream {
                    let events = exchange.events().expect("recorded events can be read");
                    let lines = events.into_iter().map(|event| {
                        format!("{}\t{}\n", event.event.unwrap_or_default(), event.data)
                    });
                    seeds.events.push(lines.collect::<String>().into());
                }
                seeds.streams.push(body);
            }
        }
    }
    let Seeds { requests, answers, errors, streams, events } = &mut seeds;
    for of_kind in [requests, answers, errors, streams, events] {
        of_kind.retain(|seed| seed.len() <= MAX_SEED_BYTES);
        if of_kind.is_empty() {
            of_kind.push(b"{}".to_vec());
        }
    }
    seeds
}

/// Returns the first lines of each file of recorded conversations.
pub(crate) fn conversations() -> Vec<Vec<u8>> {
    let files = Recordings::all().conversation_files().expect("the folders can be read");
    let texts = files.iter().map(|file| fs::read_to_string(file).expect("the file can be read"));
    let lines = texts.flat_map(|text| {
        let lines = text.lines().filter(|line| line.len() <= MAX_SEED_BYTES).take(LINES_OF_FILE);
        lines.map(|line| line.as_bytes().to_vec()).collect::<Vec<_>>()
    });
    lines.collect()
}

fn wire_of(api: Api) -> Option<BodyWire> {
    match api {
        Api::ChatCompletions | Api::Writer => Some(BodyWire::OpenAiChat),
        Api::Responses => Some(BodyWire::OpenAiResponses),
        Api::AnthropicMessages | Api::VertexAnthropic => Some(BodyWire::Anthropic),
        Api::Gemini => Some(BodyWire::Gemini),
        Api::BedrockConverse => Some(BodyWire::BedrockConverse),
        Api::Cohere => Some(BodyWire::Cohere),
        Api::Ollama => Some(BodyWire::Ollama),
        Api::BedrockInvoke | Api::Other => None,
    }
}

pub(crate) const OWN_REQUEST: &str = r#"{"model": "none", "messages": [
    {"role": "system", "content": "Answer in one line."},
    {"role": "user", "content": [{"type": "text", "text": "Where is order 7?"}]},
    {"role": "assistant", "content": null, "tool_calls": [
        {"id": "call_7", "type": "function", "function": {"name": "look", "arguments": "{\"order\":7}"}}]},
    {"role": "tool", "tool_call_id": "call_7", "content": "on its way"},
    {"role": "assistant", "content": "It is on its way."},
    {"role": "user", "content": "And order 8?"}]}"#;

/// Rows that are imported: JSON objects for messages. One of them contains the steps of a run.
pub(crate) const OWN_ROWS: &str = concat!(
    r#"{"role": "user", "content": "Is it cold?"}"#,
    "\n",
    r#"{"role": "assistant", "content": "It is.", "steps": [{"text": "One moment.", "tool_calls":"#,
    r#" [{"id": "c1", "name": "look", "arguments": {"city": "Oslo"}}], "tool_results": "#,
    r#"[{"call_id": "c1", "content": "2 degrees"}]}], "reasoning": "It is winter."}"#,
    "\n",
    r#"{"role": "assistant", "tool_calls": [{"id": "c2", "name": "look"}, {"name": "list",
        "result": {"files": 3}}], "tool_results": [{"id": "c2", "content": "none", "error": true}]}"#,
    "\n",
    r#"{"role": "tool", "content": "late"}"#,
);

/// Complete answers of Ollama, from its documentation (docs/api.md). Few recordings exist.
const OLLAMA_ANSWERS: [&str; 2] = [
    r#"{"model": "llama3.2", "created_at": "2023-12-12T14:13:43.416799Z", "message": {"role":
        "assistant", "content": "Hello! How are you?"}, "done": true, "done_reason": "stop",
        "total_duration": 5191566416, "load_duration": 2154458, "prompt_eval_count": 26,
        "prompt_eval_duration": 383809000, "eval_count": 298, "eval_duration": 4799921000}"#,
    r#"{"model": "qwen3", "created_at": "2025-07-07T20:32:53.844124Z", "message": {"role":
        "assistant", "content": "", "thinking": "Two cities.", "tool_calls": [{"function": {"name":
        "weather", "arguments": {"city": "Tokyo", "days": [1, 2]}}}, {"id": "call_9", "function":
        {"index": 1, "name": "weather", "arguments": {}}}]}, "done_reason": "length", "done": true}"#,
];
const OLLAMA_STREAMS: [&str; 3] = [
    concat!(
        r#"{"model":"m","created_at":"t0","message":{"role":"assistant","content":"","#,
        r#""thinking":"The sea, "},"done":false}"#,
        "\n",
        r#"{"model":"m","created_at":"t1","message":{"role":"assistant","content":"","#,
        r#""thinking":"then."},"done":false}"#,
        "\n",
        r#"{"model":"m","created_at":"t2","message":{"role":"assistant","content":"Möwen"},"done":false}"#,
        "\n",
        r#"{"model":"m","created_at":"t3","message":{"role":"assistant","content":""},"done":true,"#,
        r#""done_reason":"stop","total_duration":4883583458,"prompt_eval_count":7,"eval_count":5}"#,
        "\n",
    ),
    concat!(
        r#"{"model":"m","created_at":"t5","message":{"role":"assistant","content":"","tool_calls":"#,
        r#"[{"function":{"index":0,"name":"f","arguments":{"x": 1.0}}}]},"done":false}"#,
        "\r\n",
        r#"{"model":"m","created_at":"t6","message":{"role":"assistant","content":"","tool_calls":"#,
        r#"[{"id":"call_2","function":{"name":"g","arguments":"{}"}}]},"done":false}"#,
        "\n\n",
        r#"{"model":"m","created_at":"t7","message":{"role":"assistant","content":""},"done":true,"#,
        r#""done_reason":"length"}"#,
    ),
    concat!(
        r#"{"model":"m","created_at":"t8","message":{"role":"assistant","content":"Cut "},"done":false}"#,
        "\n",
        r#"{"error":"an error was encountered while running the model"}"#,
        "\n",
    ),
];
const OLLAMA_ERRORS: [&str; 4] = [
    r#"{"error":"model \"llama9\" not found, try pulling it first"}"#,
    r#"{"error":"registry.ollama.ai/library/phi:latest does not support tools"}"#,
    r#"{"StatusCode":429,"Status":"429 Too Many Requests","error":"too many requests"}"#,
    "404 page not found",
];
