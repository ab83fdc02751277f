//! Recorded input, and some of our own where there is no recorded data.

use tower_chat_testkit::recordings::{Api, Framing, Recordings};
use tower_chat_wire::body::BodyWire;

/// Longer ones would make the targets slow, and show nothing more.
const LONGEST: usize = 12 * 1024;

/// The input of one wire.
#[derive(Default)]
pub(crate) struct Seeds {
    pub(crate) requests: Vec<Vec<u8>>,
    pub(crate) answers: Vec<Vec<u8>>,
    pub(crate) errors: Vec<Vec<u8>>,
    pub(crate) streams: Vec<Vec<u8>>,
}

pub(crate) fn of_wire(recordings: Option<&Recordings>, wire: BodyWire) -> Seeds {
    let mut seeds = Seeds::default();
    seeds.requests.push(OWN_REQUEST.into());
    let Some(recordings) = recordings else { return seeds };
    for cassette in recordings.cassettes().expect("the recorded exchanges can be read") {
        for exchange in cassette.exchanges {
            if exchange.api().ok().and_then(wire_of) != Some(wire) {
                continue;
            }
            seeds.requests.push(exchange.request_body.clone());
            let body = exchange.body.clone();
            match exchange.framing() {
                Framing::Whole if exchange.is_success() => seeds.answers.push(body),
                Framing::Whole => seeds.errors.push(body),
                _ => seeds.streams.push(body),
            }
        }
    }
    for of_kind in [&mut seeds.requests, &mut seeds.answers, &mut seeds.errors, &mut seeds.streams]
    {
        of_kind.retain(|seed| seed.len() <= LONGEST);
    }
    seeds
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

/// Rows of an aggregate history, one JSON text a line.
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
