//! The recorded exchanges, by wire.

use serde_json::Value;
use tower_chat_testkit::recordings::Recordings;
pub(crate) use tower_chat_testkit::recordings::{Api, Cassette, Exchange};

/// All cassettes, in order; `None`, and a line about it, where no data are named.
pub(crate) fn all() -> Option<Vec<Cassette>> {
    Some(Recordings::from_env()?.cassettes().unwrap())
}

/// The exchanges of Chat Completions.
pub(crate) fn chat(cassette: &Cassette) -> impl Iterator<Item = &Exchange> {
    of(cassette, Api::ChatCompletions)
}

/// The exchanges of Responses.
pub(crate) fn responses(cassette: &Cassette) -> impl Iterator<Item = &Exchange> {
    of(cassette, Api::Responses)
}

fn of(cassette: &Cassette, api: Api) -> impl Iterator<Item = &Exchange> {
    cassette.exchanges.iter().filter(move |exchange| exchange.api().unwrap() == api)
}

/// The message of the error in a streamed answer.
pub(crate) fn stream_error(exchange: &Exchange) -> Option<String> {
    let events = exchange.is_streamed().then(|| exchange.json_events().unwrap())?;
    let error = events.iter().find_map(|event| {
        let errors = [&event["error"], &event["response"]["error"]];
        let is_error = event["type"] == "error";
        errors.into_iter().find(|error| !error.is_null()).or(is_error.then_some(event))
    })?;
    Some(error["message"].as_str().unwrap_or_default().to_owned())
}

/// What the body of a refusal says.
pub(crate) fn error_message(json: &Value) -> Option<&str> {
    let error = json.get(0).unwrap_or(json);
    [&error["error"]["message"], &error["message"], &error["detail"], &error["error"]]
        .into_iter()
        .find_map(Value::as_str)
}
