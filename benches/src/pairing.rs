//! A request to the endpoint with many calls and results, or with many equal messages.
//!
//! - `pairing`: the first request of a conversation contains an answer with many calls, and their
//!   results in reverse order, each in its own message.
//! - `overlap`: a conversation has many equal user messages, and a request sends the same messages
//!   again. Because all messages are equal, the repeated part may begin at every position.
//!
//! The stack is the tool loop in per-service-call mode over a [`MemoryStore`], with a model that
//! answers immediately. The field `history` is the number of calls or messages. The time of the
//! HTTP request is divided by this number.
//!
//! Floor: the same request with 1,000 calls or messages. The case fails if a call or message takes
//! more than 3 times as long with 16,000 as with 1,000. With quadratic growth, the ratio would be
//! 16. The two sizes alternate, because the load of the machine changes.

use std::time::Instant;

use axum::{Router, body::Body};
use http::{Request, StatusCode};
use serde_json::{Value, json};
use tower::{ServiceExt, service_fn};
use tower_chat::{
    BoxError, ChatPipeline, ChatRequest, ChatResponse, Finish, MemoryStore, Message,
    PersistenceMode, ToolDefinition, Tools, tool_fn,
};
use tower_chat_http::{ChatEndpoint, RequestLimits};

use crate::{
    Effort,
    report::{Line, Samples, us_since},
    workload::TOOL,
};

const SIZES: [usize; 2] = [1000, 16_000];
/// The maximum time for each call or message, in proportion to the floor.
const GROWTH: f64 = 3.0;

/// Creates the bodies of the requests of one conversation. Only the last request is measured. The
/// others store its history.
type Requests = fn(usize) -> Vec<Vec<Value>>;

pub(crate) fn measure_pairing(effort: Effort) -> Result<(), BoxError> {
    measure("pairing", |calls| vec![calls_answered_in_reverse(calls)], effort)
}

pub(crate) fn measure_overlap(effort: Effort) -> Result<(), BoxError> {
    measure("overlap", |messages| vec![equal_messages(messages); 2], effort)
}

fn measure(case: &'static str, requests: Requests, effort: Effort) -> Result<(), BoxError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let mut samples = SIZES.map(|size| (size, Samples::default()));
    for _ in 0..effort.repetitions(20) {
        for (size, samples) in &mut samples {
            let us = runtime.block_on(time(requests(*size)))?;
            samples.add(us / f64::from(u32::try_from(*size)?));
        }
    }
    let [(_, floor), _] = &samples;
    let floor = floor.median();
    for (size, samples) in &samples {
        let us = samples.median();
        Line::new(case, "per_service_call", "memory", *size, us, floor).print()?;
        if us > floor * GROWTH {
            return Err(format!(
                "each of {size} items of a request takes too long, compared with {} items",
                SIZES[0]
            )
            .into());
        }
    }
    Ok(())
}

/// Returns the time of the last request of a new conversation, in microseconds.
async fn time(requests: Vec<Vec<Value>>) -> Result<f64, BoxError> {
    let bodies: Vec<String> = requests.into_iter().map(body).collect();
    time_of_last(&bodies).await
}

fn body(messages: Vec<Value>) -> String {
    json!({"model": "none", "messages": messages, "conversation": "pairing"}).to_string()
}

async fn time_of_last(bodies: &[String]) -> Result<f64, BoxError> {
    let endpoint = endpoint()?;
    let mut us = f64::NAN;
    for body in bodies {
        let request = Request::post("/v1/chat/completions").body(Body::from(body.clone()))?;
        let start = Instant::now();
        let response = endpoint.clone().oneshot(request).await?;
        us = us_since(start);
        if response.status() != StatusCode::OK {
            return Err(format!("the endpoint answered {}", response.status()).into());
        }
    }
    Ok(us)
}

pub(crate) fn pairing_body(calls: usize) -> String {
    body(calls_answered_in_reverse(calls))
}

pub(crate) fn overlap_body(count: usize) -> String {
    body(equal_messages(count))
}

/// Sends a body to a new endpoint this number of times.
pub(crate) fn send(body: &str, times: usize) -> Result<(), BoxError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    runtime.block_on(time_of_last(&vec![body.to_owned(); times])).map(drop)
}

fn endpoint() -> Result<Router, BoxError> {
    let model = service_fn(|_: ChatRequest| async {
        Ok::<_, BoxError>(ChatResponse::whole([Message::assistant("Done.")], Finish::stop()))
    });
    let definition = ToolDefinition::new(TOOL, "Looks orders up.", json!({"type": "object"}));
    let tools = Tools::new().with(tool_fn(definition, |_| async { Ok("found") }));
    let store = MemoryStore::new();
    let stack = ChatPipeline::builder(model)
        .tools(tools)
        .history(store.clone())
        .persistence(PersistenceMode::PerServiceCall)
        .build()?;
    let limits = RequestLimits::default()
        .with_max_body_bytes(usize::MAX)
        .with_max_messages(usize::MAX)
        .with_max_calls(usize::MAX)
        .with_max_results(usize::MAX);
    let endpoint = ChatEndpoint::new(stack, store).in_one_scope("benches").with_limits(limits);
    Ok(endpoint.into_router())
}

fn calls_answered_in_reverse(calls: usize) -> Vec<Value> {
    let call = |index| {
        let arguments = json!({"order": index}).to_string();
        let function = json!({"name": TOOL, "arguments": arguments});
        json!({"id": format!("call_{index}"), "type": "function", "function": function})
    };
    let result = |index| {
        let content = format!("Order {index} was sent.");
        json!({"role": "tool", "tool_call_id": format!("call_{index}"), "content": content})
    };
    let asking: Vec<Value> = (0..calls).map(call).collect();
    let mut messages = vec![
        json!({"role": "user", "content": "Where are my orders?"}),
        json!({"role": "assistant", "content": null, "tool_calls": asking}),
    ];
    messages.extend((0..calls).rev().map(result));
    messages
}

fn equal_messages(count: usize) -> Vec<Value> {
    vec![json!({"role": "user", "content": "Where are my orders?"}); count]
}
