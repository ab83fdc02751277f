//! The parsers of foreign input.

use std::sync::Arc;

use axum::{Router, body::Body};
use http::Request;
use serde_json::Value;
use tower::{ServiceExt, service_fn};
use tower_chat::{
    BoxError, ChatPipeline, ChatRequest, ChatResponse, Finish, MemoryStore, Message, Messages,
    PersistenceMode, Tools, format,
    import::rows as imported,
    replay::{DanglingCalls, Replay},
};
use tower_chat_http::ChatEndpoint;
use tower_chat_testkit::recordings::Recordings;
use tower_chat_wire::{
    body::BodyWire,
    validate::{Wire, validate},
};

use tower_chat_testkit::Rng;

use crate::fuzz::{
    clients::{Input, event_stream},
    imports, mcp, rows,
    seeds::{self, OWN_REQUEST, OWN_ROWS, Seeds},
};

/// A parser with its input.
pub(crate) struct Target {
    pub(crate) name: String,
    pub(crate) seeds: Vec<Vec<u8>>,
    /// Whether each input takes long in a debug build.
    pub(crate) is_slow: bool,
    /// Whether the parser accepts an input.
    pub(crate) run: Box<Parser>,
}

type Parser = dyn Fn(&[u8], &mut Rng) -> bool;

const WIRES: [(BodyWire, Wire); 7] = [
    (BodyWire::OpenAiChat, Wire::OpenAiChat),
    (BodyWire::OpenAiResponses, Wire::OpenAiResponses),
    (BodyWire::Anthropic, Wire::Anthropic),
    (BodyWire::Gemini, Wire::Gemini),
    (BodyWire::BedrockConverse, Wire::BedrockConverse),
    (BodyWire::Cohere, Wire::Cohere),
    (BodyWire::Ollama, Wire::Ollama),
];

pub(crate) fn all() -> Vec<Target> {
    let recordings = Recordings::all();
    let mut targets = Vec::new();
    let mut requests = vec![OWN_REQUEST.as_bytes().to_vec()];
    let mut messages = Vec::new();
    for (body, wire) in WIRES {
        let Seeds { requests: of_wire, answers, errors, streams, events } =
            seeds::of_wire(&recordings, body);
        messages.extend(stored_answers(body, &answers));
        if body == BodyWire::OpenAiChat {
            requests.clone_from(&of_wire);
        }
        targets.extend([
            target(format!("{body:?} requests"), of_wire, move |bytes, _| {
                accepts_request(body, wire, bytes)
            }),
            target(format!("{body:?} answers"), answers, move |bytes, rng| {
                accepts_answer(body, bytes, rng)
            }),
            target(format!("{body:?} errors"), errors, move |bytes, rng| {
                let status = 400 + u16::try_from(rng.below(200)).unwrap_or_default();
                let input = Input { wire: body, status, is_streamed: false, bytes };
                let error = input.answer(rng).expect_err("no answer has this status");
                !error.to_string().is_empty()
            }),
            target(format!("{body:?} streams"), streams, move |bytes, rng| {
                accepts_stream(body, bytes, rng)
            }),
        ]);
        if body == BodyWire::BedrockConverse {
            let name = format!("{body:?} streams of damaged events");
            targets.push(target(name, events, move |lines, rng| {
                accepts_stream(body, &event_stream(lines), rng)
            }));
        }
    }
    messages.extend(stored(&requests));
    targets.push(target("stored messages".into(), messages, |bytes, _| {
        let Ok(text) = std::str::from_utf8(bytes) else { return false };
        let Ok(message) = format::decode(text) else { return false };
        let stored = format::encode(&message);
        let again = format::decode(&stored).expect("what was written is read");
        assert_eq!(format::encode(&again), stored);
        // An item of a provider may be nested more deeply here than in an answer.
        let request = ChatRequest::new(vec![Message::user("Go on."), message]);
        let mut shown = request.clone();
        shown.messages = replayed(&request.messages);
        for (body, wire) in WIRES {
            for request in [&request, &shown] {
                let _is_valid = body.render_request(request).map(|json| validate(wire, &json));
            }
        }
        true
    }));
    targets.push(target("imported rows".into(), vec![OWN_ROWS.into()], |bytes, _| {
        let Ok(text) = std::str::from_utf8(bytes) else { return false };
        let Ok(rows) = imported::read_rows(text.lines()) else { return false };
        imported::valid_messages_of_rows(rows, DanglingCalls::Interrupted).is_ok()
    }));
    targets.extend(imports::targets());
    targets.extend(rows::targets());
    targets.extend(mcp::targets());
    targets.push(endpoint(requests));
    targets
}

fn target(
    name: String,
    seeds: Vec<Vec<u8>>,
    run: impl Fn(&[u8], &mut Rng) -> bool + 'static,
) -> Target {
    Target { name, seeds, is_slow: false, run: Box::new(run) }
}

fn accepts_request(body: BodyWire, wire: Wire, bytes: &[u8]) -> bool {
    let Ok(json) = serde_json::from_slice::<Value>(bytes) else { return false };
    let _is_valid = validate(wire, &json);
    let Ok(request) = body.parse_request(json) else { return false };
    let mut shown = request.clone();
    shown.messages = replayed(&request.messages);
    for request in [request, shown] {
        if let Ok(written) = body.render_request(&request) {
            let _is_valid = validate(wire, &written);
        }
    }
    true
}

pub(crate) fn replayed(messages: &Messages) -> Messages {
    let mut replay = Replay::new(DanglingCalls::Interrupted);
    messages.iter().for_each(|message| replay.push(message));
    drop(replay.split_open());
    replay.view()
}

fn accepts_answer(body: BodyWire, bytes: &[u8], rng: &mut Rng) -> bool {
    let input = Input { wire: body, status: 200, is_streamed: false, bytes };
    let Ok(answer) = input.answer(rng) else { return false };
    let messages: Messages = answer.messages.into_iter().collect();
    for message in replayed(&messages).iter() {
        drop(body.render_answer(message, &answer.finish));
    }
    true
}

fn accepts_stream(body: BodyWire, bytes: &[u8], rng: &mut Rng) -> bool {
    Input { wire: body, status: 200, is_streamed: true, bytes }.answer(rng).is_ok()
}

/// Messages as stores hold them.
fn stored(requests: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let bodies = requests.iter().filter_map(|bytes| serde_json::from_slice(bytes).ok());
    let requests = bodies.filter_map(|body| BodyWire::OpenAiChat.parse_request(body).ok());
    let messages =
        requests.flat_map(|request| request.messages.iter().cloned().collect::<Vec<_>>());
    messages.map(|message: Arc<Message>| format::encode(&message).into_bytes()).collect()
}

/// Messages of answers as stores hold them: with the items that providers get back.
fn stored_answers(body: BodyWire, answers: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let texts = answers.iter().filter_map(|bytes| std::str::from_utf8(bytes).ok());
    let answers = texts.filter_map(|text| body.parse_answer(text).ok());
    let messages = answers.flat_map(|answer| answer.messages);
    messages.map(|message| format::encode(&message).into_bytes()).collect()
}

/// How many requests go into one store.
const REQUESTS_OF_STORE: usize = 64;

fn endpoint(requests: Vec<Vec<u8>>) -> Target {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    let runtime = runtime.expect("a runtime");
    let router = std::cell::RefCell::new((0, router()));
    let run = move |bytes: &[u8], _: &mut Rng| {
        let (used, current) = &mut *router.borrow_mut();
        *used += 1;
        if *used % REQUESTS_OF_STORE == 0 {
            *current = self::router();
        }
        let request = Request::post("/v1/chat/completions").header("x-conversation-id", "fuzz");
        let request = request.body(Body::from(bytes.to_vec())).expect("a request");
        let response = runtime.block_on(async {
            let response = current.clone().oneshot(request).await.expect("a response");
            let status = response.status();
            let body = axum::body::to_bytes(response.into_body(), usize::MAX).await;
            body.map(|_| status)
        });
        let status = response.expect("a body");
        assert!(!status.is_server_error(), "{status}");
        status.is_success()
    };
    Target { name: "endpoint".into(), seeds: requests, is_slow: true, run: Box::new(run) }
}

fn router() -> Router {
    let model = service_fn(|_: ChatRequest| async {
        Ok::<_, BoxError>(ChatResponse::whole([Message::assistant("Done.")], Finish::stop()))
    });
    let store = MemoryStore::new();
    let stack = ChatPipeline::builder(model)
        .tools(Tools::new())
        .history(store.clone())
        .persistence(PersistenceMode::PerServiceCall)
        .build()
        .expect("a stack");
    ChatEndpoint::new(stack, store).in_one_scope("fuzz").into_router()
}
