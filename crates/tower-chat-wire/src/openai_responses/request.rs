//! Writes the body of a request.

use serde_json::{Map, Value, json};
use tower_chat_core::{ChatOptions, ChatRequest, ToolChoice, ToolDefinition};

use super::{HistoryLocation, render_input};
use crate::{
    body::{BodyWire, set},
    object::{Object, raw, to_object},
    request_fields::with_extra,
    rules::{ServiceRules, fitted},
};

const ENCRYPTED_REASONING: &str = "reasoning.encrypted_content";

/// The beginnings of the names of OpenAI's models without reasoning. OpenAI refuses a request for
/// the encrypted reasoning of such a model: "Encrypted content is not supported with this model."
const WITHOUT_REASONING: [&str; 4] = ["gpt-3.5", "gpt-4", "gpt-5-chat", "chatgpt-"];

/// The form in which a service expects a request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RequestForm<'a> {
    /// The model of the request. `None` if the body does not name the model.
    pub model: Option<&'a str>,
    /// Whether a request that contains the history also requests encrypted reasoning. If `None`,
    /// the name of the model decides, because OpenAI refuses the option for models without
    /// reasoning.
    pub encrypted_reasoning: Option<bool>,
    /// Whether the answer is streamed. This field replaces the option `stream` of the request,
    /// because a background answer is not streamed even if the caller requests a stream.
    pub is_streamed: bool,
}

/// Returns the fields of a request body, with their values as JSON text.
///
/// A field in the `extra` options replaces the field of a named option, and a `null` in `extra`
/// removes the field. `extra` cannot replace the input, the field `stream`, or the fields that say
/// where the history is stored. Tools whose definition is not strict are sent with `strict: false`,
/// because the service changes the schema of a tool without this field.
///
/// ```
/// use tower_chat_core::ChatRequest;
/// use tower_chat_wire::openai_responses::{HistoryLocation, RequestForm, render_request};
/// let form = RequestForm { model: Some("gpt-4o"), ..RequestForm::default() };
/// let history = HistoryLocation::AfterResponse("resp_1".into());
/// let body = render_request(&ChatRequest::user("hi"), &history, &form);
/// assert_eq!(body["previous_response_id"].get(), r#""resp_1""#);
/// assert_eq!(body["store"].get(), "true");
/// ```
pub fn render_request(
    request: &ChatRequest,
    location: &HistoryLocation,
    form: &RequestForm<'_>,
) -> Object {
    let rules = || ServiceRules::choose(BodyWire::OpenAiResponses, "", "", form.model);
    render(&fitted(request, rules), location, Some(form))
}

/// Returns the fields of a request body. If `form` is `None`, returns only the fields that the
/// request and the location of its history set, so that a request that was read is written
/// unchanged.
pub(crate) fn render(
    request: &ChatRequest,
    location: &HistoryLocation,
    form: Option<&RequestForm<'_>>,
) -> Object {
    let options = &*request.options;
    let mut fields = with_extra(option_fields(options, form, location), options);
    let is_streamed = form.map_or(options.stream, |form| form.is_streamed);
    if form.is_some() && !is_streamed {
        fields.remove("stream");
        fields.remove("stream_options");
    }
    set(&mut fields, "stream", is_streamed.then_some(true));
    let may_reason = || fields.get("model").and_then(Value::as_str).is_none_or(may_reason);
    if let (Some(form), HistoryLocation::Request) = (form, location)
        && form.encrypted_reasoning.unwrap_or_else(may_reason)
    {
        include_reasoning(&mut fields, options);
    }
    match location {
        HistoryLocation::AfterResponse(id) => {
            set(&mut fields, "previous_response_id", Some(&**id));
        }
        HistoryLocation::InConversation(id) => set(&mut fields, "conversation", Some(&**id)),
        HistoryLocation::Request
        | HistoryLocation::NewResponse
        | HistoryLocation::NewConversation => {}
    }
    let mut body = to_object(&fields, options);
    let input = render_input(request.messages().iter().map(|message| &**message));
    body.insert("input".to_owned(), raw(&input));
    body
}

/// Adds the encrypted reasoning to `include`, unless the `extra` options set it to `null`.
fn include_reasoning(body: &mut Map<String, Value>, options: &ChatOptions) {
    let mut include = match options.extra.get("include") {
        None => Vec::new(),
        Some(Value::Array(include)) => include.clone(),
        Some(_) => return,
    };
    if !include.iter().any(|what| what == ENCRYPTED_REASONING) {
        include.push(json!(ENCRYPTED_REASONING));
    }
    set(body, "include", Some(include));
}

/// Returns whether a model may have reasoning. Returns `false` for `gpt-4o`, `openai/gpt-4o` and
/// `ft:gpt-4o:mine`.
fn may_reason(model: &str) -> bool {
    let model = model.strip_prefix("ft:").unwrap_or(model);
    let name = model.rsplit('/').next().unwrap_or(model);
    let name = name.strip_prefix("openai.").unwrap_or(name);
    !WITHOUT_REASONING.iter().any(|start| name.starts_with(start))
}

fn option_fields(
    options: &ChatOptions,
    form: Option<&RequestForm<'_>>,
    location: &HistoryLocation,
) -> Map<String, Value> {
    let mut fields = Map::new();
    set(&mut fields, "model", form.map_or(options.model.as_deref(), |form| form.model));
    set(&mut fields, "instructions", options.instructions.as_deref());
    set(&mut fields, "temperature", options.temperature);
    set(&mut fields, "top_p", options.top_p);
    set(&mut fields, "max_output_tokens", options.max_output_tokens);
    set(&mut fields, "tool_choice", options.tool_choice.as_ref().map(tool_choice));
    let render_tool = |definition| match form {
        Some(_) => tool(definition),
        None => BodyWire::OpenAiResponses.render_tool(definition),
    };
    let tools: Vec<Value> = options.tools.iter().filter_map(render_tool).collect();
    set(&mut fields, "tools", (!tools.is_empty()).then_some(tools));
    if form.is_some() {
        set(&mut fields, "background", options.background.then_some(true));
        // The service must store a background answer, so that the client can fetch it.
        let is_stored = *location != HistoryLocation::Request || options.background;
        set(&mut fields, "store", Some(is_stored));
    }
    fields
}

/// Writes the definition of a tool, always with the field `strict`. Without this field, the service
/// changes the schema of the tool to a schema that `strict: true` allows.
fn tool(definition: &ToolDefinition) -> Option<Value> {
    if definition.native.is_some() {
        return BodyWire::OpenAiResponses.render_tool(definition);
    }
    let ToolDefinition { name, description, parameters, .. } = definition;
    let is_empty = parameters.as_object().is_some_and(Map::is_empty) || parameters.is_null();
    let none = || json!({"type": "object", "properties": {}});
    let parameters = if is_empty { none() } else { parameters.clone() };
    Some(json!({
        "type": "function",
        "name": name,
        "description": description,
        "parameters": parameters,
        "strict": definition.strict,
    }))
}

fn tool_choice(choice: &ToolChoice) -> Value {
    match choice {
        ToolChoice::None => json!("none"),
        ToolChoice::Required => json!("required"),
        ToolChoice::Tool(name) => json!({"type": "function", "name": name}),
        _ => json!("auto"),
    }
}
