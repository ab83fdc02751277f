//! Bodies of OpenAI Chat Completions.

use serde_json::{Map, Value, json};
use tower_chat_core::{
    ChatOptions, ChatRequest, Finish, Message, Messages, Part, RawJson, ToolChoice, Usage,
};

use super::{
    BodyError,
    fields::{Fields, merge, set},
    tool::Form,
    value, values, with_instructions,
};
use crate::{
    finish_fields::put_usage,
    openai_chat::{Audience, REASONS, WIRE, parse_messages, render_messages, usage},
};

pub(super) const TOOL: Form = Form {
    wire: WIRE,
    parameters: "parameters",
    is_nested: true,
    plain: || json!({"type": "function", "function": {}}),
};

pub(super) fn parse_request(body: Value) -> Result<ChatRequest, BodyError> {
    let mut fields = Fields::of(body)?;
    let messages = fields.take("messages").filter(Value::is_array);
    let messages =
        messages.ok_or(BodyError::Field { field: "messages", expected: "a JSON list" })?;
    let messages: Messages = parse_messages(&messages.to_string())?.into_iter().collect();

    let mut options = ChatOptions::default();
    options.model = fields.text("model");
    options.temperature = fields.number("temperature");
    options.top_p = fields.number("top_p");
    options.max_output_tokens = fields.count("max_completion_tokens");
    if options.max_output_tokens.is_none() {
        options.max_output_tokens = fields.count("max_tokens");
    }
    let tools = fields.list("tools").unwrap_or_default();
    options.tools = tools.into_iter().map(|tool| TOOL.parse(tool)).collect();
    options.tool_choice = fields.take_as("tool_choice", tool_choice);
    options.stream = fields.flag("stream").unwrap_or_default();
    options.extra = fields.rest();
    Ok(ChatRequest::new(messages).with_options(options))
}

pub(super) fn render_request(request: &ChatRequest) -> Value {
    let options = &*request.options;
    let mut body = Map::new();
    set(&mut body, "model", options.model.as_deref());
    set(&mut body, "temperature", options.temperature);
    set(&mut body, "top_p", options.top_p);
    set(&mut body, "max_completion_tokens", options.max_output_tokens);
    let tools: Vec<Value> = options.tools.iter().filter_map(|tool| TOOL.render(tool)).collect();
    let has_tools = !tools.is_empty();
    set(&mut body, "tools", has_tools.then_some(tools));
    set(&mut body, "tool_choice", options.tool_choice.as_ref().map(render_tool_choice));
    merge(&mut body, &options.extra);
    if !body.contains_key("tools") {
        // Services refuse a choice among no tools.
        body.remove("tool_choice");
    }
    set(&mut body, "stream", options.stream.then_some(true));
    let messages = with_instructions(request);
    let messages = render_messages(messages.iter().map(|message| &**message), Audience::Model);
    body.insert("messages".to_owned(), values(&messages));
    Value::Object(body)
}

pub(super) fn render_answer(message: &Message, finish: &Finish) -> Value {
    let message = answer_message(message);
    let has_calls = message.contains_key("tool_calls") || message.contains_key("function_call");
    let mut metadata = finish.metadata.clone();
    let received = metadata.get("choice").and_then(|choice| choice.get("finish_reason"));
    let reason = REASONS.text(finish, received, has_calls);
    let mut choice = Map::from_iter([
        ("index".to_owned(), json!(0)),
        ("message".to_owned(), Value::Object(message)),
        ("finish_reason".to_owned(), json!(reason)),
    ]);
    if let Some(Value::Object(rest)) = metadata.remove("choice") {
        for (name, value) in rest {
            choice.entry(name).or_insert(value);
        }
    }
    let mut body = metadata;
    body.insert("object".to_owned(), json!("chat.completion"));
    body.insert("choices".to_owned(), json!([choice]));
    put_usage(&mut body, "usage", &finish.usage, usage, render_usage);
    set(&mut body, "model", finish.model.as_deref());
    Value::Object(body)
}

/// The message of an answer, with every field that a reader may count on.
fn answer_message(message: &Message) -> Map<String, Value> {
    let rendered: Vec<RawJson> = render_messages([message], Audience::Transcript);
    let rendered = rendered.iter().map(value).find(|message| {
        message.get("role").and_then(Value::as_str).is_some_and(|role| role == "assistant")
    });
    let mut fields = match rendered {
        Some(Value::Object(fields)) => fields,
        _ => Map::from_iter([("role".to_owned(), json!("assistant"))]),
    };
    let content = fields.entry("content").or_insert(Value::Null);
    if let Some(text) = as_one_text(content) {
        *content = Value::String(text);
    }
    let reasoning: String = message.parts.iter().filter_map(reasoning).collect();
    if !reasoning.is_empty() && !fields.contains_key("reasoning") {
        fields.entry("reasoning_content").or_insert(Value::String(reasoning));
    }
    fields.entry("refusal").or_insert(Value::Null);
    fields
}

/// The text of a list of text parts: readers of answers expect no list.
fn as_one_text(content: &Value) -> Option<String> {
    let texts = content.as_array()?.iter().map(|part| part.get("text")?.as_str());
    texts.collect()
}

fn reasoning(part: &Part) -> Option<&str> {
    match part {
        Part::Reasoning(reasoning) => Some(&reasoning.text),
        _ => None,
    }
}

fn tool_choice(choice: &Value) -> Option<ToolChoice> {
    match choice.as_str() {
        Some("auto") => return Some(ToolChoice::Auto),
        Some("none") => return Some(ToolChoice::None),
        Some("required") => return Some(ToolChoice::Required),
        Some(_) => return None,
        None => {}
    }
    let name = choice.pointer("/function/name")?.as_str()?;
    let choice = ToolChoice::Tool(name.to_owned());
    Some(choice)
}

fn render_tool_choice(choice: &ToolChoice) -> Value {
    match choice {
        ToolChoice::None => json!("none"),
        ToolChoice::Required => json!("required"),
        ToolChoice::Tool(name) => json!({"type": "function", "function": {"name": name}}),
        _ => json!("auto"),
    }
}

/// The usage object of this wire.
fn render_usage(usage: &Usage) -> Value {
    json!({
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens(),
        "prompt_tokens_details": {"cached_tokens": usage.cached_input_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    })
}
