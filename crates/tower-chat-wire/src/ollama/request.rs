//! Reads and writes the body of a request.

use serde_json::{Map, Value, json};
use tower_chat_core::{ChatOptions, ChatRequest, Messages, ToolChoice};

use super::{WIRE, parse_messages, render_messages};
use crate::{
    body::{BodyError, BodyWire, Fields, ToolForm, conversation_field, merge, set},
    object::{Object, raw, to_object},
    rules::{ServiceRules, fitted},
    text_parts::messages,
};

const OPTIONS: &str = "options";

pub(crate) const TOOL: ToolForm = ToolForm {
    wire: WIRE,
    parameters: "parameters",
    is_nested: true,
    has_strict: false,
    usual_definition: || json!({"type": "function", "function": {}}),
};

/// Reads the body of a request. The answer is streamed if the field `stream` is missing.
pub(crate) fn parse_request(body: &str) -> Result<ChatRequest, BodyError> {
    let expected = "a JSON list";
    let missing = BodyError::Field { field: "messages", expected };
    let list = conversation_field(body, "messages")?.ok_or(missing)?;
    let read: Messages = parse_messages(list.get())?.into_iter().collect();
    let mut fields = Fields::of_body(body, &["messages"])?;
    let mut options = ChatOptions::default();
    options.model = fields.take_text("model");
    if let Some(named) = fields
        .take_as(OPTIONS, |named| named.as_object().filter(|fields| !fields.is_empty()).cloned())
    {
        let mut named = Fields::of_object(named);
        options.temperature = named.take_number("temperature");
        options.top_p = named.take_number("top_p");
        options.max_output_tokens = named.take_count("num_predict");
        let rest = named.into_remaining();
        if !rest.is_empty() {
            fields.put(OPTIONS, Value::Object(rest));
        }
    }
    let tools = fields.take_list("tools").unwrap_or_default();
    options.tools = tools.into_iter().map(|tool| TOOL.parse(tool)).collect();
    let stream = fields.take_flag("stream");
    options.stream = stream.unwrap_or(true);
    options.extra = fields.into_remaining();
    if stream.is_none() {
        options.extra.insert("stream".to_owned(), Value::Null);
    }
    Ok(ChatRequest::new(read).with_options(options))
}

/// Returns the fields of a request body, with their values as JSON text.
///
/// A field in the `extra` options replaces the field of a named option, and a `null` in `extra`
/// removes the field. `extra` can also contain the object `options`: each of its fields replaces
/// only the field of the same name. The fields `messages`, `model` and `stream` cannot be replaced.
///
/// # Errors
///
/// [`BodyError::Unsupported`], if the tool choice requires a call, because Ollama has no field for
/// a tool choice.
///
/// ```
/// use tower_chat_core::ChatRequest;
/// use tower_chat_wire::ollama::render_request;
/// let body = render_request(&ChatRequest::user("hi"), "qwen3")?;
/// assert_eq!(body["messages"].get(), r#"[{"content":"hi","role":"user"}]"#);
/// assert_eq!(body["stream"].get(), "false");
/// # Ok::<(), tower_chat_wire::body::BodyError>(())
/// ```
pub fn render_request(request: &ChatRequest, model: &str) -> Result<Object, BodyError> {
    let rules = || ServiceRules::choose(BodyWire::Ollama, "ollama", "", Some(model));
    render(&fitted(request, rules), model)
}

/// Returns the fields of a request body, without applying the rules of a service to the request.
pub(crate) fn render(request: &ChatRequest, model: &str) -> Result<Object, BodyError> {
    let asked = &*request.options;
    let mut options = Map::new();
    set(&mut options, "temperature", asked.temperature);
    set(&mut options, "top_p", asked.top_p);
    set(&mut options, "num_predict", asked.max_output_tokens);
    let mut fields = Map::new();
    let offers_tools = match &asked.tool_choice {
        Some(ToolChoice::None) => false,
        Some(ToolChoice::Required | ToolChoice::Tool(_)) => {
            return Err(BodyError::Unsupported {
                what: "choice of a tool, because its model always decides itself",
            });
        }
        _ => true,
    };
    let tools = asked.tools.iter().filter(|_| offers_tools);
    let tools: Vec<Value> = tools.filter_map(|tool| TOOL.render(tool)).collect();
    let has_tools = !tools.is_empty();
    set(&mut fields, "tools", has_tools.then_some(tools));
    let mut extra = asked.extra.clone();
    let is_named = extra.get(OPTIONS).is_some_and(Value::is_object);
    if is_named && let Some(Value::Object(more)) = extra.remove(OPTIONS) {
        merge(&mut options, &more);
    }
    let has_options = is_named || !options.is_empty();
    set(&mut fields, OPTIONS, has_options.then_some(options));
    merge(&mut fields, &extra);
    set(&mut fields, "model", Some(model));
    // If a request was read without the field `stream`, `extra` contains a `null` for it.
    let is_unnamed = asked.stream && asked.extra.get("stream").is_some_and(Value::is_null);
    set(&mut fields, "stream", (!is_unnamed).then_some(asked.stream));
    let messages: Vec<_> = messages(request).collect();
    let messages = render_messages(messages.iter().map(|message| &**message));
    let mut body = to_object(&fields, asked);
    body.insert("messages".to_owned(), raw(&messages));
    Ok(body)
}
