//! Recorded HTTP exchanges with model providers, and recorded conversations.
//!
//! [`Recordings::all`] opens the data of the repository, which are in `data/` of this crate and
//! were written for it, and those in the folder of `TOWER_CHAT_DATA`. Each folder contains
//!
//! - `cassettes/<provider>/*.yaml`: HTTP exchanges, as vcrpy, VCR for Ruby and R, go-vcr and
//!   httpmock write them ([`Recordings::cassettes`]);
//! - `oracle/accepted_<wire>.jsonl`: request bodies that a provider answered with 2xx, and
//!   `oracle/rejected.jsonl`: request bodies that a provider refused ([`Recordings::accepted`],
//!   [`Recordings::rejected`]);
//! - one folder for each source of whole conversations in the format of OpenAI Chat Completions
//!   ([`Recordings::conversations`]).
//!
//! Nothing is skipped: a file, a body or a URL that cannot be parsed causes a [`RecordingError`]
//! with the file and the exchange. These parsers share no code with the model clients, so that a
//! test can compare the two.
//!
//! ```
//! use tower_chat_testkit::recordings::{Api, Cassette};
//! let yaml = r#"
//! interactions:
//! - request: {method: POST, uri: 'https://api.example.com/v1/messages', body: '{"stream":true}'}
//!   response:
//!     status: {code: 200}
//!     headers: {content-type: [text/event-stream]}
//!     body: {string: "event: ping\ndata: {\"type\":\"ping\"}\n\n"}
//! "#;
//! let cassette = Cassette::parse("anthropic", "ping.yaml", yaml)?;
//! let exchange = &cassette.exchanges[0];
//! assert_eq!((exchange.api()?, exchange.status), (Api::AnthropicMessages, 200));
//! assert_eq!(exchange.events()?[0].event.as_deref(), Some("ping"));
//! # Ok::<(), tower_chat_testkit::recordings::RecordingError>(())
//! ```

mod api;
mod aws;
mod body;
mod cassette;
mod conversations;
mod error;
mod events;
mod exchange;
mod yaml;

pub use self::{
    api::Api,
    cassette::Cassette,
    conversations::{OracleRequest, RecordedConversation, Recordings},
    error::RecordingError,
    events::{Framing, StreamEvent},
    exchange::Exchange,
};
