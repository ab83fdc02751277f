//! The compatible services: the model client does what the OpenAI model client does, whose own
//! tests assert what that is.

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

/// Plays the exchange to the OpenAI model client too.
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
            // What a service of this name does not take, the unknown one may.
            answer.finish.changes.clear();
            expected.finish.changes.clear();
            assert_eq!(answer, expected, "{source}");
        }
        (Err(error), Err(expected)) => {
            let error = error.downcast::<ProviderError>().expect("a typed error");
            let expected = expected.downcast::<ProviderError>().unwrap();
            assert_eq!(error.refusal(), expected.refusal(), "{source}");
            // An error inside a stream has a status of its own, or none.
            if !exchange.is_success() {
                assert_eq!(error.status(), Some(exchange.status), "{source}");
            }
            assert_eq!(error.code(), expected.code(), "{source}");
            assert_eq!(error.is_retryable(), expected.is_retryable(), "{source}");
        }
        (outcome, expected) => panic!("{source}: {outcome:?}, not {expected:?}"),
    }
}

/// The body with the ids of its calls numbered: Mistral's are made acceptable. DeepSeek gets an empty
/// `reasoning_content` with calls that have none.
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
