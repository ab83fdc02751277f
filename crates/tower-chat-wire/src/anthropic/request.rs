//! Writes the body of a request.

use std::time::SystemTime;

use serde_json::{Map, Value, json};
use tower_chat_core::{ChatOptions, ChatRequest, ToolChoice, ToolDefinition};

use super::{container, max_tokens::max_output_tokens, render::render_conversation, render_body};
use crate::{
    body::{BodyWire, set},
    object::{Object, raw, to_object},
    request_fields::with_extra,
    rules::{ServiceRules, fitted},
    text_parts::messages,
};

/// The form in which a service expects a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RequestForm<'a> {
    /// Anthropic's API. The body names the model.
    Anthropic {
        /// The model of the request.
        model: &'a str,
    },
    /// Vertex AI. The URL of the request names the model, and the body names the version of the API
    /// (<https://docs.claude.com/en/api/claude-on-vertex-ai>).
    Vertex,
}

impl RequestForm<'_> {
    /// Returns whether the model is one of Anthropic's.
    fn is_claude(self) -> bool {
        match self {
            Self::Anthropic { model } => model.contains("claude"),
            Self::Vertex => true,
        }
    }
}

/// The version of the API in Vertex AI.
const VERTEX_VERSION: &str = "vertex-2023-10-16";

/// The token limit of a request if the caller sets none and the body does not name the model. Every
/// Claude model accepts this number.
const DEFAULT_MAX_TOKENS: u64 = 4096;

/// Returns the fields of a request body, with their values as JSON text.
///
/// A field in the `extra` options replaces the field of a named option, and a `null` in `extra`
/// removes the field. The conversation cannot be replaced. The service requires `max_tokens`. If
/// the request sets no token limit, the limit is the maximum of the model, or 4096 for Vertex AI,
/// where the body does not name the model.
///
/// ```
/// use tower_chat_core::ChatRequest;
/// use tower_chat_wire::anthropic::{RequestForm, render_request};
/// let form = RequestForm::Anthropic { model: "claude-opus-4-5" };
/// let body = render_request(&ChatRequest::user("hi").streamed(), form);
/// assert_eq!((body["max_tokens"].get(), body["stream"].get()), ("64000", "true"));
/// ```
pub fn render_request(request: &ChatRequest, form: RequestForm<'_>) -> Object {
    let rules = || ServiceRules::choose(BodyWire::Anthropic, "anthropic", "", None);
    render(&fitted(request, rules), Some(form))
}

/// Returns the fields of a request body. If `form` is `None`, adds nothing but a missing
/// `max_tokens`, so that a request that was read is written unchanged.
pub(crate) fn render(request: &ChatRequest, form: Option<RequestForm<'_>>) -> Object {
    let options = &*request.options;
    let mut fields = with_extra(option_fields(options, form), options);
    let tokens = match form {
        Some(RequestForm::Anthropic { model }) => max_output_tokens(model),
        Some(RequestForm::Vertex) | None => DEFAULT_MAX_TOKENS,
    };
    fields.entry("max_tokens").or_insert(tokens.into());
    set(&mut fields, "stream", options.stream.then_some(true));
    let messages: Vec<_> = messages(request).collect();
    if let Some(form) = form {
        fields.entry("stream").or_insert(false.into());
        if form == RequestForm::Vertex {
            if !options.stream {
                fields.remove("stream");
            }
            fields.entry("anthropic_version").or_insert(VERTEX_VERSION.into());
        }
        let container =
            container::newest_id(messages.iter().map(|message| &**message), SystemTime::now());
        // The field `container` of the caller's `extra` options takes precedence, even if it is
        // `null`.
        let is_callers = options.extra.contains_key("container");
        if let (Some(container), false) = (container, is_callers)
            && form.is_claude()
        {
            fields.insert("container".to_owned(), container.into());
        }
    }
    let written = messages.iter().map(|message| &**message);
    let conversation = match form {
        Some(_) => render_conversation(written),
        None => render_body(written),
    };
    let mut body = to_object(&fields, options);
    if let Some(system) = conversation.system {
        body.insert("system".to_owned(), system);
    }
    body.insert("messages".to_owned(), raw(&conversation.messages));
    body
}

fn option_fields(options: &ChatOptions, form: Option<RequestForm<'_>>) -> Map<String, Value> {
    let model = match form {
        Some(RequestForm::Anthropic { model }) => Some(model),
        Some(RequestForm::Vertex) => None,
        None => options.model.as_deref(),
    };
    let mut fields = Map::new();
    set(&mut fields, "model", model);
    set(&mut fields, "temperature", options.temperature);
    set(&mut fields, "top_p", options.top_p);
    set(&mut fields, "max_tokens", options.max_output_tokens);
    set(&mut fields, "tool_choice", options.tool_choice.as_ref().map(tool_choice));
    let render_tool = |definition| match form {
        Some(_) => tool(definition),
        None => BodyWire::Anthropic.render_tool(definition),
    };
    let tools: Vec<Value> = options.tools.iter().filter_map(render_tool).collect();
    set(&mut fields, "tools", (!tools.is_empty()).then_some(tools));
    fields
}

/// Writes the definition of a tool, with the type `object` that the service requires in its schema.
fn tool(definition: &ToolDefinition) -> Option<Value> {
    let mut tool = BodyWire::Anthropic.render_tool(definition)?;
    if let Some(schema) = tool.get_mut("input_schema").and_then(Value::as_object_mut) {
        schema.entry("type").or_insert("object".into());
    }
    Some(tool)
}

fn tool_choice(choice: &ToolChoice) -> Value {
    match choice {
        ToolChoice::None => json!({"type": "none"}),
        ToolChoice::Required => json!({"type": "any"}),
        ToolChoice::Tool(name) => json!({"type": "tool", "name": name}),
        _ => json!({"type": "auto"}),
    }
}
