//! The rules of services for requests in the format of their wire, and the changes that make a request
//! comply with them.
//!
//! Services with the same wire have different rules. For example, one service refuses reasoning that
//! another one requires, and one service refuses pictures that another one accepts. [`ServiceRules`]
//! contains the rules of one service, as data. A model client [chooses](ServiceRules::choose) the rules by
//! its provider, its address and its model, or receives them from its caller. [`KNOWN`] contains the known
//! services, each with the sources of its rules.
//!
//! [`fit`] changes a request so that it complies with the rules, and returns the changes. `fit` never
//! fails: it changes a part that the service does not accept as little as possible, replaces the part by
//! a sentence, or omits the part. [`check_new`] refuses content that the user or the system adds with the
//! request and that the service does not accept. Call it before the request is sent, because a refused
//! request may cost money.
//!
//! ```
//! use tower_chat_core::{ChatRequest, Message, ToolCall, ToolResult};
//! use tower_chat_wire::{body::BodyWire, rules::{ServiceRules, fit}};
//! // The model wrote a call with a name and arguments that no service accepts.
//! let history = vec![
//!     Message::user("Is it cold?"),
//!     Message::tool_calls([ToolCall::new("call_1", "get weather", r#"{"city": "Pa"#)]),
//!     Message::tool_results([ToolResult::new("call_1", "no such tool")]),
//! ];
//! let rules = ServiceRules::choose(BodyWire::OpenAiChat, "openai", "https://api.openai.com/v1", None);
//! let fitted = fit(&ChatRequest::new(history), &rules);
//! let call = fitted.request.messages().get(1).and_then(|message| message.calls().next().cloned());
//! let call = call.expect("the call is sent");
//! assert_eq!(call.arguments, r#"{"arguments":"{\"city\": \"Pa"}"#);
//! assert_eq!(fitted.names.original(&call.name), Some("get weather"));
//! ```

mod arguments;
mod check;
mod choose;
mod compaction;
mod fit;
mod hosted;
mod ids;
mod known;
mod media;
mod names;
mod natives;
mod refused;
mod root_keywords;
mod schema;
mod service_rules;
mod table;
mod thinking;
mod wires;

pub use self::{
    check::{UnsupportedMedia, check_new},
    fit::{Fitted, explain, fit},
    known::{KNOWN, KnownService},
    names::NameMap,
    service_rules::{
        ArgumentRule, EmptyRule, ForeignRule, IdForm, IdRule, ListRule, MediaKind, MediaRule,
        NameRule, Otherwise, ReasoningRule, ResultRule, ServiceRules, Sources, Unique,
    },
    table::table,
};

pub(crate) use self::{
    choose::requires_signatures,
    fit::{fitted, foreign_rule},
};
