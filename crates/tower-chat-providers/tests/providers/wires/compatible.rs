//! Checks that the model clients of compatible services behave like the OpenAI model client, which
//! has its own tests.

use std::collections::BTreeMap;

use serde_json::Value;
use tower_chat_core::{Answer, BoxError};
use tower_chat_providers::{OpenAiChat, ProviderError};
use tower_service::Service;

use crate::{
    cassettes::Exchange,
    server::Server,
    wires::{
        recorded::{reply, request},
        wire::ModelRequest,
    },
};

/// Replays an exchange to the OpenAI model client, and asserts that the request and the outcome are
/// the same as those of the compatible service's client.
pub(crate) async fn assert_alike(
    exchange: &Exchange,
    model_request: &ModelRequest,
    sent: &Value,
    outcome: Result<Answer, BoxError>,
    source: &str,
) {
    let server = Server::start([reply(exchange, model_request)]).await;
    let mut model = OpenAiChat::compatible(&server.url).unwrap();
    let expected = match model.call(request(exchange, model_request, &[]).0).await {
        Ok(response) => response.collect().await,
        Err(error) => Err(error.into()),
    };
    assert_eq!(with_numbered_ids(sent), with_numbered_ids(&server.received()[0].body), "{source}");
    match (outcome, expected) {
        (Ok(mut answer), Ok(mut expected)) => {
            // The changes differ, because the service has its own rules, and the OpenAI model
            // client uses those of an unknown service.
            answer.finish.changes.clear();
            expected.finish.changes.clear();
            assert_eq!(answer, expected, "{source}");
        }
        (Err(error), Err(expected)) => {
            let error = error.downcast::<ProviderError>().expect("a typed error");
            let expected = expected.downcast::<ProviderError>().unwrap();
            assert_eq!(error.refusal(), expected.refusal(), "{source}");
            // An error inside a stream has the status that the error contains, or no status.
            if !exchange.is_success() {
                assert_eq!(error.status(), Some(exchange.status), "{source}");
            }
            assert_eq!(error.code(), expected.code(), "{source}");
            assert_eq!(error.is_retryable(), expected.is_retryable(), "{source}");
        }
        (outcome, expected) => panic!("{source}: {outcome:?}, not {expected:?}"),
    }
}

/// Replaces the call ids in a body by numbers, because the client of Mistral converts ids. Also
/// removes empty fields `reasoning_content`, which the client of DeepSeek adds to calls without
/// reasoning.
fn with_numbered_ids(body: &Value) -> Value {
    let mut body = body.clone();
    let mut numbers = BTreeMap::new();
    for message in body["messages"].as_array_mut().unwrap() {
        if message["reasoning_content"] == "" {
            message.as_object_mut().unwrap().remove("reasoning_content");
        }
        let mut number = |id: &mut Value| {
            let next = numbers.len();
            *id = Value::from(*numbers.entry(id.to_string()).or_insert(next));
        };
        message.get_mut("tool_call_id").map(&mut number);
        let calls = message.get_mut("tool_calls").and_then(Value::as_array_mut);
        let calls = calls.into_iter().flatten();
        calls.filter_map(|call| call.get_mut("id")).for_each(number);
    }
    body
}
