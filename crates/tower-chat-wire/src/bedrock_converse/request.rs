//! Reads and writes the body of a request.

use serde_json::{Map, Value};
use tower_chat_core::{ChatOptions, ChatRequest, Messages};

use super::{parse_body, render_messages, tool};
use crate::{
    body::{BodyError, BodyWire, Fields, merge, set},
    object::{Object, raw, to_object},
    rules::{ServiceRules, fitted},
    text_parts::messages,
};

const CONFIG: &str = "inferenceConfig";
/// The name of the field with options that only some models have.
pub(crate) const MODEL_FIELDS: &str = "additionalModelRequestFields";
const TOOLS: &str = "toolConfig";

/// Reads the body of a request. The URL of the request, and not the body, contains the model and
/// whether the answer is streamed.
pub(crate) fn parse_request(body: &str) -> Result<ChatRequest, BodyError> {
    let read: Messages = parse_body(body)?.into_iter().collect();
    let mut fields = Fields::of_body(body, &["messages"])?;
    // A list with blocks is read as a message. An empty list remains in the options.
    fields.take_as("system", |system| system.as_array().filter(|list| !list.is_empty()).map(drop));
    let mut options = ChatOptions::default();
    if let Some(config) = fields.take_as(CONFIG, nonempty) {
        let mut config = Fields::of_object(config);
        options.temperature = config.take_number("temperature");
        options.top_p = config.take_number("topP");
        options.max_output_tokens = config.take_count("maxTokens");
        put_remaining(&mut fields, CONFIG, config.into_remaining());
    }
    if let Some(config) = fields.take_as(TOOLS, nonempty) {
        let mut config = Fields::of_object(config);
        let tools = config.take_list("tools").unwrap_or_default();
        options.tools = tools.into_iter().map(tool::parse).collect();
        options.tool_choice = config.take_as("toolChoice", tool::parse_choice);
        put_remaining(&mut fields, TOOLS, config.into_remaining());
    }
    options.extra = fields.into_remaining();
    Ok(ChatRequest::new(read).with_options(options))
}

fn nonempty(config: &Value) -> Option<Map<String, Value>> {
    config.as_object().filter(|fields| !fields.is_empty()).cloned()
}

fn put_remaining(fields: &mut Fields, name: &str, remaining: Map<String, Value>) {
    if !remaining.is_empty() {
        fields.put(name, Value::Object(remaining));
    }
}

/// Returns the fields of a request body, with their values as JSON text. The URL of the request
/// names the model, and the body does not.
///
/// A field in the `extra` options replaces the field of a named option, and a `null` in `extra`
/// removes the field. `extra` can also contain the objects `inferenceConfig` and `toolConfig`: each
/// of their fields replaces only the field of the same name. The conversation cannot be replaced.
///
/// # Errors
///
/// Currently none. If the tool choice is [`None`](tower_chat_core::ToolChoice::None), the tools are
/// omitted, because Converse has no value for this choice.
///
/// ```
/// use tower_chat_core::ChatRequest;
/// use tower_chat_wire::bedrock_converse::render_request;
/// let body = render_request(&ChatRequest::user("hi"))?;
/// assert_eq!(body["messages"].get(), r#"[{"content":[{"text":"hi"}],"role":"user"}]"#);
/// # Ok::<(), tower_chat_wire::body::BodyError>(())
/// ```
pub fn render_request(request: &ChatRequest) -> Result<Object, BodyError> {
    let rules = || ServiceRules::choose(BodyWire::BedrockConverse, "bedrock", "", None);
    render(&fitted(request, rules))
}

/// Returns the fields of a request body, without applying the rules of a service to the request.
pub(crate) fn render(request: &ChatRequest) -> Result<Object, BodyError> {
    let options = &*request.options;
    let mut config = Map::new();
    set(&mut config, "temperature", options.temperature);
    set(&mut config, "topP", options.top_p);
    set(&mut config, "maxTokens", options.max_output_tokens);
    let mut fields = Map::new();
    let mut extra = options.extra.clone();
    insert_merged(&mut fields, &mut extra, CONFIG, config);
    insert_merged(&mut fields, &mut extra, TOOLS, tool_config(options)?);
    merge(&mut fields, &extra);
    fields.remove("stream");
    let messages: Vec<_> = messages(request).collect();
    let conversation = render_messages(messages.iter().map(|message| &**message));
    let mut body = to_object(&fields, options);
    if !conversation.system.is_empty() {
        body.insert("system".to_owned(), raw(&conversation.system));
    }
    body.insert("messages".to_owned(), raw(&conversation.messages));
    Ok(body)
}

/// Adds `inner` to the body as the field `name`, together with the object `name` from `extra`.
fn insert_merged(
    fields: &mut Map<String, Value>,
    extra: &mut Map<String, Value>,
    name: &str,
    mut inner: Map<String, Value>,
) {
    let is_named = extra.get(name).is_some_and(Value::is_object);
    if is_named && let Some(Value::Object(more)) = extra.remove(name) {
        merge(&mut inner, &more);
    }
    if is_named || !inner.is_empty() {
        fields.insert(name.to_owned(), Value::Object(inner));
    }
}

fn tool_config(options: &ChatOptions) -> Result<Map<String, Value>, BodyError> {
    let tools: Vec<Value> = options.tools.iter().filter_map(tool::render).collect();
    let mut config = Map::new();
    if !tools.is_empty() {
        let choice = options.tool_choice.as_ref().map(tool::render_choice).transpose()?;
        set(&mut config, "tools", Some(tools));
        set(&mut config, "toolChoice", choice);
    }
    Ok(config)
}
