//! Compatible services: checks that their model clients behave as the OpenAI model client, whose
//! behaviour its own tests assert.

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
        wire::Asked,
    },
};

/// Replays the exchange to the OpenAI model client too, and compares the outcomes.
pub(crate) async fn assert_alike(
    exchange: &Exchange,
    asked: &Asked,
    sent: &Value,
    outcome: Result<Answer, BoxError>,
    source: &str,
) {
    let server = Server::start([reply(exchange, asked)]).await;
    let mut model = OpenAiChat::compatible(&server.url).unwrap();
    let expected = match model.call(request(exchange, asked, &[]).0).await {
        Ok(response) => response.collect().await,
        Err(error) => Err(error.into()),
    };
    assert_eq!(numbered(sent), numbered(&server.received()[0].body), "{source}");
    match (outcome, expected) {
        (Ok(mut answer), Ok(mut expected)) => {
            // A service with this name has rules; an unknown service may accept more.
            answer.finish.changes.clear();
            expected.finish.changes.clear();
            assert_eq!(answer, expected, "{source}");
        }
        (Err(error), Err(expected)) => {
            let error = error.downcast::<ProviderError>().expect("a typed error");
            let expected = expected.downcast::<ProviderError>().unwrap();
            assert_eq!(error.refusal(), expected.refusal(), "{source}");
            // The status of an error inside a stream is the one that the error names, or none.
            if !exchange.is_success() {
                assert_eq!(error.status(), Some(exchange.status), "{source}");
            }
            assert_eq!(error.code(), expected.code(), "{source}");
            assert_eq!(error.is_retryable(), expected.is_retryable(), "{source}");
        }
        (outcome, expected) => panic!("{source}: {outcome:?}, not {expected:?}"),
    }
}

/// Returns the body with numbered call ids, since Mistral's are mapped. DeepSeek is sent an empty
/// `reasoning_content` for calls without reasoning.
fn numbered(body: &Value) -> Value {
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
