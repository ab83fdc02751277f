//! Fuzz targets for the requests, answers, errors and streams of every wire (provider API).

use serde_json::Value;
use tower_chat::{ChatRequest, message::Messages};
use tower_chat_testkit::{
    Rng,
    validate::{Wire, validate},
};
use tower_chat_wire::{
    body::BodyWire,
    stream::{Limits, check_depth},
};

use super::{
    Entry,
    clients::{Client, Input, event_stream},
    rules::{assert_storable, replayed},
};
use crate::{Plant, seeds};

/// For each wire: its name, its codec, and its rules.
pub(crate) const WIRES: [(&str, BodyWire, Wire); 7] = [
    ("openai-chat", BodyWire::OpenAiChat, Wire::OpenAiChat),
    ("openai-responses", BodyWire::OpenAiResponses, Wire::OpenAiResponses),
    ("anthropic", BodyWire::Anthropic, Wire::Anthropic),
    ("gemini", BodyWire::Gemini, Wire::Gemini),
    ("bedrock-converse", BodyWire::BedrockConverse, Wire::BedrockConverse),
    ("cohere", BodyWire::Cohere, Wire::Cohere),
    ("ollama", BodyWire::Ollama, Wire::Ollama),
];

pub(crate) fn targets(plant: Option<Plant>) -> Vec<Entry> {
    let mut targets = Vec::new();
    for (name, body, wire) in WIRES {
        let client = Client::Of(body);
        targets.push(Entry::new(
            format!("{name}-requests"),
            "BodyWire::parse_request, render_request, validate",
            move || {
                let run =
                    move |bytes: &[u8], _: &mut Rng| accepts_request(body, wire, bytes, plant);
                (seeds::of_wire(body).requests, Box::new(run))
            },
        ));
        targets.extend(responses(name, client, body, plant));
    }
    targets.extend(responses("mistral", Client::Mistral, BodyWire::OpenAiChat, plant));
    targets.push(Entry::new(
        "bedrock-converse-events",
        "events with valid checksums: frames::event_stream, the accumulator",
        move || {
            let client = Client::Of(BodyWire::BedrockConverse);
            let run = move |lines: &[u8], rng: &mut Rng| {
                accepts_stream(client, &event_stream(lines), rng, plant)
            };
            (seeds::of_wire(BodyWire::BedrockConverse).events, Box::new(run))
        },
    ));
    targets
}

fn responses(name: &str, client: Client, body: BodyWire, plant: Option<Plant>) -> [Entry; 3] {
    [
        Entry::new(
            format!("{name}-answers"),
            "the client's whole answer, render_answer",
            move || {
                let run = move |bytes: &[u8], rng: &mut Rng| {
                    accepts_answer(client, body, bytes, rng, plant)
                };
                (seeds::of_wire(body).answers, Box::new(run))
            },
        ),
        Entry::new(format!("{name}-errors"), "the client's refusals", move || {
            let run = move |bytes: &[u8], rng: &mut Rng| {
                let status = 400 + u16::try_from(rng.below(200)).unwrap_or_default();
                let input = Input { status, ..Input::new(client, bytes) };
                let error =
                    input.answer(1 + rng.below(4096)).expect_err("no answer has this status");
                !error.to_string().is_empty()
            };
            (seeds::of_wire(body).errors, Box::new(run))
        }),
        Entry::new(format!("{name}-streams"), "frames, the client's accumulator", move || {
            let run = move |bytes: &[u8], rng: &mut Rng| accepts_stream(client, bytes, rng, plant);
            (seeds::of_wire(body).streams, Box::new(run))
        }),
    ]
}

fn accepts_request(body: BodyWire, wire: Wire, bytes: &[u8], plant: Option<Plant>) -> bool {
    let Ok(json) = serde_json::from_slice::<Value>(bytes) else { return false };
    let _is_valid = validate(wire, &json);
    let Ok(request) = body.parse_request(json) else { return false };
    request.messages().iter().for_each(|message| assert_storable(message, plant));
    let mut sent = request.clone();
    sent.set_new_messages(replayed(request.messages()));
    for request in [request, sent] {
        let Some(written) = render(body, wire, &request) else { continue };
        if let Err(error) = body.parse_request(written.clone()) {
            panic!("the rendered JSON cannot be read: {error}: {written}");
        }
    }
    true
}

/// Renders a request. Returns `None` if an item is nested too deeply.
pub(crate) fn render(body: BodyWire, wire: Wire, request: &ChatRequest) -> Option<Value> {
    let written = body.render_request_json(request).ok()?;
    check_depth(written.get(), &Limits::default()).ok()?;
    let json = match written.parse() {
        Ok(json) => json,
        Err(error) => panic!("the request is not valid JSON: {error}: {}", written.get()),
    };
    let _is_valid = validate(wire, &json);
    Some(json)
}

fn accepts_answer(
    client: Client,
    body: BodyWire,
    bytes: &[u8],
    rng: &mut Rng,
    plant: Option<Plant>,
) -> bool {
    let answer = Input::new(client, bytes).answer(1 + rng.below(4096));
    let Ok(answer) = answer else { return false };
    answer.messages.iter().for_each(|message| assert_storable(message, plant));
    let messages: Messages = answer.messages.into_iter().collect();
    for message in replayed(&messages).iter() {
        let written = body.render_answer(message, &answer.finish).to_string();
        if let Err(error) = body.parse_answer(&written) {
            panic!("the rendered JSON cannot be read: {error}: {written}");
        }
    }
    true
}

/// Returns whether a stream is a complete answer. Panics if the result depends on the pieces in
/// which the stream arrives.
fn accepts_stream(client: Client, bytes: &[u8], rng: &mut Rng, plant: Option<Plant>) -> bool {
    let input = Input { is_streamed: true, ..Input::new(client, bytes) };
    let answer = input.answer(1 + rng.below(4096));
    if rng.one_in(4) {
        let size = 1 + rng.below(16);
        let is_cut = plant == Some(Plant::Pieces);
        let bytes = if is_cut { bytes.split_at(bytes.len() / 2).0 } else { bytes };
        let again = Input { bytes, ..input }.answer(size);
        // The texts of errors are not compared. If a stream contains two errors, the pieces decide
        // which one the parser finds first.
        let texts =
            [&answer, &again].map(|answer| answer.as_ref().map(|it| format!("{it:?}")).ok());
        assert_eq!(texts[0], texts[1], "the stream differs in pieces of {size} bytes");
    }
    let Ok(answer) = answer else { return false };
    answer.messages.iter().for_each(|message| assert_storable(message, plant));
    true
}
