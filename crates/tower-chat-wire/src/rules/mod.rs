//! The rules of services, and the changes that make a request comply with these rules.
//!
//! Services with the same wire (the JSON format of an API) have different rules. For example, some
//! services require reasoning that other services refuse, and some accept images that others
//! refuse. [`ServiceRules`] contains the rules of one service. A model client
//! [chooses](ServiceRules::choose) the rules by its provider, its URL and its model, or receives
//! them from its caller. [`KNOWN`] contains the known services, with the sources of their rules.
//!
//! [`fit`] changes a request so that it complies with the rules, and returns a list of the changes.
//! `fit` never fails: if the service does not accept a part, `fit` changes the part, replaces it by
//! a sentence, or omits it. [`check_new`] returns an error if the new messages of a request contain
//! media that the service does not accept. A caller that prefers an error to a change calls
//! `check_new` before `fit`.
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
