//! Items in which a service has summarized all earlier messages. Only the service that has created
//! an item, its issuer, can read the item.

use tower_chat::{
    ChatRequest, Part,
    message::{Messages, Native},
    wire::{
        body::BodyWire,
        rules::{ServiceRules, fit},
    },
};
use tower_chat_testkit::Rng;

/// A service that answers requests. Both services have the same wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Service {
    First,
    Second,
}

/// The item in an answer of the model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct ItemPlan {
    /// The index of the message with the item, modulo the number of messages in the answer.
    pub(crate) message: usize,
    /// Whether the item is the last part of its message, and not the first.
    pub(crate) is_last: bool,
    /// Whether the service pauses the answer, if it has no calls. The next answer continues it.
    pub(crate) pauses: bool,
}

/// An item, in the notation of the model.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Item {
    /// The answer that contains the item.
    pub(crate) name: String,
    pub(crate) issuer: Service,
    pub(crate) is_last: bool,
}

impl Service {
    fn issuer(self) -> &'static str {
        match self {
            Self::First => "first.example",
            Self::Second => "second.example",
        }
    }

    /// Returns the messages of a request as this service receives them.
    pub(crate) fn received(self, request: &ChatRequest) -> Messages {
        let mut rules = ServiceRules::unknown(BodyWire::OpenAiResponses, self.issuer());
        rules.tool_media = rules.user_media;
        fit(request, &rules).request.messages().clone()
    }
}

impl ItemPlan {
    pub(crate) fn random(rng: &mut Rng) -> Self {
        Self { message: rng.below(2), is_last: rng.one_in(3), pauses: rng.one_in(2) }
    }
}

impl Item {
    pub(crate) fn part(&self) -> Part {
        let Self { name, issuer, .. } = self;
        let item = format!(r#"{{"type":"compaction","encrypted_content":"{name}"}}"#);
        let item = item.parse().expect("it is JSON");
        Part::Native(Native::new("openai-responses", item).issued_by(issuer.issuer()))
    }

    pub(crate) fn text(&self) -> String {
        format!("compaction {} by {}", self.name, self.issuer.issuer())
    }
}

/// Formats an observed native item.
pub(crate) fn text(native: &Native) -> String {
    let content: Option<serde_json::Value> = serde_json::from_str(native.item.get()).ok();
    let content = content.and_then(|it| Some(it["encrypted_content"].as_str()?.to_owned()));
    let issuer = native.issuer.as_deref().unwrap_or("no service");
    format!("compaction {} by {issuer}", content.unwrap_or_default())
}
