//! What a service takes beyond the format of its wire, and conversations made to fit it.
//!
//! Services that share a wire have different rules: one refuses reasoning that another one demands, or
//! reads pictures where another one refuses them. [`ServiceRules`] are the rules of one service, as data.
//! A model client [chooses](ServiceRules::choose) them by its provider, its address and its model, or is
//! given them. [`KNOWN`] has the known services, each with the sources of its rules.
//!
//! [`fit`] makes a request one that the rules allow. It never fails: a part that the service does not take
//! is changed in the smallest way that keeps its meaning for the model. What was changed is returned.
//! [`check_new`] refuses what the user or the system adds with the request and the service does not take,
//! before anything is paid.
//!
//! ```
//! use tower_chat_core::{ChatRequest, Message, ToolCall, ToolResult};
//! use tower_chat_wire::{body::BodyWire, rules::{ServiceRules, fit}};
//! // The model wrote a call with a name and arguments that no service takes back.
//! let history = vec![
//!     Message::user("Is it cold?"),
//!     Message::tool_calls([ToolCall::new("call_1", "get weather", r#"{"city": "Pa"#)]),
//!     Message::tool_results([ToolResult::new("call_1", "no such tool")]),
//! ];
//! let rules = ServiceRules::choose(BodyWire::OpenAiChat, "openai", "https://api.openai.com/v1", None);
//! let fitted = fit(&ChatRequest::new(history), &rules);
//! let call = fitted.request.messages.get(1).and_then(|message| message.calls().next().cloned());
//! let call = call.expect("the call is sent");
//! assert_eq!(call.arguments, r#"{"arguments":"{\"city\": \"Pa"}"#);
//! assert_eq!(fitted.names.original(&call.name), Some("get weather"));
//! ```

mod arguments;
mod check;
mod choose;
mod fit;
mod hosted;
mod ids;
mod known;
mod media;
mod names;
mod natives;
mod refused;
mod schema;
mod service_rules;
mod table;
mod wires;

pub use self::{
    check::{NotTaken, check_new},
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
    choose::wants_signatures,
    fit::{fitted, foreign_rule},
};
