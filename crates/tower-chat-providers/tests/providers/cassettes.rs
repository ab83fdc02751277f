//! The recorded exchanges, as the tests of the clients need them.

use serde_json::Value;
use tower_chat_testkit::recordings::{self, Api, Recordings};

/// A file of exchanges.
pub(crate) struct Cassette {
    pub(crate) folder: String,
    pub(crate) name: String,
    pub(crate) exchanges: Vec<Exchange>,
}

/// A request and what the service answered.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(crate) url: String,
    pub(crate) api: Api,
    pub(crate) request: Value,
    pub(crate) status: u16,
    pub(crate) response: Vec<u8>,
}

impl Cassette {
    /// The exchanges of Chat Completions.
    pub(crate) fn chat(&self) -> impl Iterator<Item = &Exchange> {
        self.exchanges.iter().filter(|exchange| exchange.api == Api::ChatCompletions)
    }

    /// The exchanges of Responses.
    pub(crate) fn responses(&self) -> impl Iterator<Item = &Exchange> {
        self.exchanges.iter().filter(|exchange| exchange.api == Api::Responses)
    }
}

impl Exchange {
    /// The address without its query.
    pub(crate) fn path(&self) -> &str {
        self.url.split('?').next().unwrap()
    }

    /// Whether the answer was streamed, of an API whose body says so.
    pub(crate) fn is_streamed(&self) -> bool {
        self.request["stream"] == true && self.status == 200
    }

    /// The answer as text.
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.response).unwrap()
    }

    /// The answer as JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.response).unwrap()
    }

    /// The data of the events of a streamed answer, read as plainly as can be.
    pub(crate) fn events(&self) -> Vec<Value> {
        let lines = self.text().lines().filter_map(|line| line.strip_prefix("data:"));
        let events = lines.map(str::trim).filter(|data| *data != "[DONE]");
        events.map(|data| serde_json::from_str(data).expect(data)).collect()
    }
}

/// All cassettes, in order; `None`, and a line about it, where no data are named.
pub(crate) fn all() -> Option<Vec<Cassette>> {
    let cassettes = Recordings::from_env()?.cassettes().unwrap();
    let exchange = |exchange: recordings::Exchange| Exchange {
        api: exchange.api().unwrap(),
        url: exchange.url,
        request: exchange.request,
        status: exchange.status,
        response: exchange.body,
    };
    let cassette = |file: recordings::Cassette| Cassette {
        folder: file.folder,
        name: file.name,
        exchanges: file.exchanges.into_iter().map(exchange).collect(),
    };
    Some(cassettes.into_iter().map(cassette).collect())
}

/// The cassettes of some folders.
pub(crate) fn of(folders: &[&str]) -> Option<Vec<Cassette>> {
    let mut cassettes = all()?;
    cassettes.retain(|cassette| folders.contains(&&*cassette.folder));
    Some(cassettes)
}
