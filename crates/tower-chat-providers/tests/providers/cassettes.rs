//! Functions that return recorded exchanges. A [`Cassette`] is a file of recorded exchanges.

use serde_json::Value;
use tower_chat_testkit::recordings::Recordings;
pub(crate) use tower_chat_testkit::recordings::{Api, Cassette, Exchange};

/// Returns the cassettes of all folders of recorded data.
pub(crate) fn all_cassettes() -> Vec<Cassette> {
    Recordings::all().cassettes().unwrap()
}

/// Returns the cassettes of each folder of recorded data, one list per folder.
pub(crate) fn cassettes_by_folder() -> Vec<Vec<Cassette>> {
    let recordings = Recordings::all();
    let folders = recordings.folders().iter().map(Recordings::at);
    folders.map(|folder| folder.cassettes().unwrap()).collect()
}

/// Returns the exchanges of Chat Completions.
pub(crate) fn chat_exchanges(cassette: &Cassette) -> impl Iterator<Item = &Exchange> {
    exchanges_of(cassette, Api::ChatCompletions)
}

/// Returns the exchanges of Responses.
pub(crate) fn responses_exchanges(cassette: &Cassette) -> impl Iterator<Item = &Exchange> {
    exchanges_of(cassette, Api::Responses)
}

fn exchanges_of(cassette: &Cassette, api: Api) -> impl Iterator<Item = &Exchange> {
    cassette.exchanges.iter().filter(move |exchange| exchange.api().unwrap() == api)
}

/// Returns the message in the body of an error response.
pub(crate) fn error_message(json: &Value) -> Option<&str> {
    let error = json.get(0).unwrap_or(json);
    [&error["error"]["message"], &error["message"], &error["detail"], &error["error"]]
        .into_iter()
        .find_map(Value::as_str)
}
