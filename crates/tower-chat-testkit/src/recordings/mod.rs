//! Reads recorded HTTP exchanges with model providers, and recorded conversations.
//!
//! [`Recordings::all`] reads the data of the repository, which a generator has written to `data/`
//! of this crate, and the data in the folder that `TOWER_CHAT_DATA` names. Each folder contains:
//!
//! - `cassettes/<provider>/*.yaml`: HTTP exchanges in the formats of vcrpy, of VCR for Ruby and R,
//!   of go-vcr, and of httpmock ([`Recordings::cassettes`]);
//! - `oracle/accepted_<wire>.jsonl`: request bodies that a provider answered with a status of 2xx
//!   ([`Recordings::accepted`]), and `oracle/rejected.jsonl`: request bodies that a provider
//!   refused ([`Recordings::rejected`]);
//! - one folder for each source of whole conversations in the format of OpenAI Chat Completions
//!   ([`Recordings::conversations`]).
//!
//! No recording is skipped. A file, a body or a URL that cannot be parsed causes a
//! [`RecordingError`], which names the file and the exchange. The parsers share no code with the
//! model clients. A test can therefore compare the results of both.
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
