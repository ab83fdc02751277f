//! The leaves that are tried, a row each.

use tower::{Layer, ServiceExt, util::BoxCloneSyncService};
use tower_chat::{
    adapt::AdaptLayer,
    core::{BoxError, ChatRequest, ChatResponse},
};
use tower_chat_openai::OpenAiChat;
use tower_chat_wire::validate::Wire;

use crate::{
    cassettes::Exchange,
    value_codec::{ValueCodec, json_client},
};

/// Any leaf.
pub(crate) type Leaf = BoxCloneSyncService<ChatRequest, ChatResponse, BoxError>;

/// A leaf, and which recorded exchanges it understands.
pub(crate) struct Provider {
    pub(crate) name: &'static str,
    /// What its requests are checked by.
    pub(crate) wire: Wire,
    /// Whether an exchange is one of this provider's.
    pub(crate) speaks: fn(&Exchange) -> bool,
    /// The media type of its streamed answers; `None` if the leaf cannot stream.
    pub(crate) stream_type: Option<&'static str>,
    /// The leaf whose requests go to the server at `http://address:port`.
    pub(crate) leaf: fn(&str) -> Leaf,
    /// The least number of recorded conversations there must be.
    pub(crate) at_least: usize,
}

/// All of them. The wires that have no leaf of their own here are spoken by their codecs.
pub(crate) const PROVIDERS: [Provider; 4] = [
    Provider {
        name: "openai-chat",
        wire: Wire::OpenAiChat,
        speaks: Exchange::is_chat,
        stream_type: Some("text/event-stream"),
        leaf: |url| {
            let leaf = OpenAiChat::compatible(&format!("{url}/v1"), None).unwrap();
            BoxCloneSyncService::new(leaf.with_model("m").map_err(BoxError::from))
        },
        at_least: 60,
    },
    Provider {
        name: "openai-responses",
        wire: Wire::OpenAiResponses,
        speaks: |exchange| path(exchange).ends_with("/responses"),
        stream_type: None,
        leaf: |url| by_codec(Wire::OpenAiResponses, url),
        at_least: 14,
    },
    Provider {
        name: "anthropic",
        wire: Wire::Anthropic,
        speaks: |exchange| path(exchange).ends_with("/messages"),
        stream_type: None,
        leaf: |url| by_codec(Wire::Anthropic, url),
        at_least: 4,
    },
    Provider {
        name: "gemini",
        wire: Wire::Gemini,
        speaks: |exchange| path(exchange).ends_with(":generateContent"),
        stream_type: None,
        leaf: |url| by_codec(Wire::Gemini, url),
        at_least: 5,
    },
];

fn path(exchange: &Exchange) -> &str {
    exchange.url.split('?').next().unwrap_or_default()
}

fn by_codec(wire: Wire, url: &str) -> Leaf {
    let layer = AdaptLayer::new(ValueCodec { wire });
    BoxCloneSyncService::new(layer.layer(json_client(url)))
}
