//! Converts recorded request bodies to `ChatRequest`s, and to values that tests compare.

use serde_json::{Value, json};
use tower_chat_core::{ChatOptions, Message, ToolChoice, ToolDefinition};
use tower_chat_wire::openai_responses::parse_input;

/// An answer that the model client has read: the input of its request, the recorded output, and the
/// message.
pub(super) struct ReadAnswer {
    pub(super) input: Vec<Value>,
    pub(super) output: Vec<Value>,
    pub(super) message: Message,
}

/// Returns the items in the input of a body.
pub(super) fn input(body: &Value) -> Vec<Value> {
    match &body["input"] {
        Value::String(text) => vec![json!({"role": "user", "content": text})],
        items => items.as_array().unwrap().clone(),
    }
}

/// Returns the messages of an input, in which the answers that the model client has read replace
/// the recorded answers. Also returns these answers. Some recorded clients have changed the ids of
/// calls; their results then get the original ids.
pub(super) fn messages<'a>(
    input: &[Value],
    answers: &'a [ReadAnswer],
) -> (Vec<Message>, Vec<&'a ReadAnswer>) {
    let parse = |items: &[Value]| parse_input(&json!(items).to_string()).unwrap();
    let mut input = input.to_vec();
    let recorded = input.clone();
    let (mut messages, mut reused, mut at) = (Vec::new(), Vec::new(), 0);
    for answer in answers {
        let input_len = answer.input.len();
        if input_len < at || !recorded.starts_with(&answer.input) {
            continue;
        }
        let count = input[input_len..].iter().take_while(|item| is_model_output(item)).count();
        if count > 0 {
            messages.extend(parse(&input[at..input_len]));
            messages.push(answer.message.clone());
            reused.push(answer);
            at = input_len + count;
            let (before, after) = input.split_at_mut(at);
            let ids = before[input_len..].iter().filter(|item| item["type"] == "function_call");
            let ids = ids.map(|item| item["call_id"].clone());
            let own = answer.message.calls().map(|call| json!(call.id));
            let renamed: Vec<(Value, Value)> = ids.zip(own).collect();
            for output in after.iter_mut().filter(|item| item["type"] == "function_call_output") {
                if let Some((_, own)) = renamed.iter().find(|(id, _)| output["call_id"] == *id) {
                    output["call_id"] = own.clone();
                }
            }
        }
    }
    messages.extend(parse(&input[at..]));
    (messages, reused)
}

fn is_model_output(item: &Value) -> bool {
    item["role"] == "assistant" || item["type"] == "reasoning" || item["type"] == "function_call"
}

pub(super) fn options(body: &Value) -> ChatOptions {
    let mut extra = body.as_object().unwrap().clone();
    let mut options = ChatOptions::default();
    extra.remove("input");
    extra.remove("previous_response_id");
    let mut text =
        |name: &str| extra.remove(name).and_then(|text| text.as_str().map(str::to_owned));
    (options.model, options.instructions) = (text("model"), text("instructions"));
    options.stream = extra.remove("stream").is_some_and(|stream| stream == true);
    options.max_output_tokens = extra.remove("max_output_tokens").and_then(|n| n.as_u64());
    // The model client writes a temperature of 0 as `0.0`. If the recording contains `0`, the
    // temperature stays in the `extra` options.
    if extra.get("temperature").is_some_and(Value::is_f64) {
        options.temperature = extra.remove("temperature").and_then(|number| number.as_f64());
    }
    if let Some(choice) = extra.get("tool_choice").and_then(tool_choice) {
        options.tool_choice = Some(choice);
        extra.remove("tool_choice");
    }
    if let Some(tools) = extra.get("tools").and_then(tools) {
        options.tools = tools;
        extra.remove("tools");
    }
    // The model client adds these options itself.
    if extra.get("store") == Some(&json!(false)) {
        extra.remove("store");
        if extra.get("include") == Some(&json!(["reasoning.encrypted_content"])) {
            extra.remove("include");
        } else {
            extra.entry("include").or_insert(Value::Null);
        }
    } else {
        extra.entry("store").or_insert(Value::Null);
    }
    options.extra = extra;
    options
}

fn tool_choice(choice: &Value) -> Option<ToolChoice> {
    match choice.as_str() {
        Some("auto") => Some(ToolChoice::Auto),
        Some("none") => Some(ToolChoice::None),
        Some("required") => Some(ToolChoice::Required),
        _ => {
            let name = choice["name"].as_str()?.to_owned();
            let plain = json!({"type": "function", "name": name});
            (*choice == plain).then_some(ToolChoice::Tool(name))
        }
    }
}

/// Returns the definitions of the tools, or `None` if `ToolDefinition` cannot express one of their
/// fields.
fn tools(tools: &Value) -> Option<Vec<ToolDefinition>> {
    let tools = tools.as_array()?.iter().map(|tool| {
        let (name, description) = (tool["name"].as_str()?, tool["description"].as_str()?);
        let parameters = tool["parameters"].as_object().filter(|fields| !fields.is_empty())?;
        let plain = json!({"type": "function", "name": name, "description": description,
            "parameters": parameters, "strict": false});
        let definition = ToolDefinition::new(name, description, Value::Object(parameters.clone()));
        (*tool == plain).then_some(definition)
    });
    tools.collect::<Option<Vec<_>>>().filter(|tools| !tools.is_empty())
}

/// Removes the input, and fields that have no effect, from a body.
pub(super) fn options_of(body: &Value) -> Value {
    let mut body = body.clone();
    let fields = body.as_object_mut().unwrap();
    fields.remove("input");
    if fields.get("stream") != Some(&Value::Bool(true)) {
        fields.remove("stream");
    }
    fields.retain(|_, value| !value.is_null());
    if !fields.contains_key("tools") {
        fields.remove("tool_choice");
    }
    body
}

/// Returns the parts of the history in an input that every client sends alike: the roles, the
/// texts, the calls and the results. Clients differ in reasoning, in ids and in empty lists.
pub(super) fn history(input: &[Value]) -> Vec<Value> {
    let calls = input.iter().filter(|item| item["type"] == "function_call");
    let ids: Vec<&Value> = calls.map(|item| &item["call_id"]).collect();
    let number = |item: &Value| ids.iter().position(|id| **id == item["call_id"]);
    let items = input.iter().filter(|item| item["type"] != "reasoning");
    items.map(|item| plain(item, number(item))).collect()
}

/// Returns the reasoning items in an input, each with the number of other items before it.
pub(super) fn reasoning(input: &[Value]) -> Vec<(usize, Value)> {
    let mut before = 0;
    let mut found = Vec::new();
    for item in input {
        if item["type"] == "reasoning" {
            let content = item["content"].as_array().filter(|content| !content.is_empty());
            let fields = json!([item["encrypted_content"], item["summary"], content]);
            found.push((before, fields));
        } else {
            before += 1;
        }
    }
    found
}

/// Returns the values of an item that tests compare. `call` is the number of the call with the
/// item's call id.
fn plain(item: &Value, call: Option<usize>) -> Value {
    match item["type"].as_str().unwrap_or("message") {
        "message" => {
            let text = match &item["content"] {
                Value::String(text) => text.clone(),
                parts => {
                    let parts = parts.as_array().unwrap().iter();
                    parts.map(|part| part["text"].as_str().unwrap_or("?")).collect()
                }
            };
            json!([item["role"], text])
        }
        "function_call" => {
            let arguments = item["arguments"].as_str().unwrap();
            let parsed = serde_json::from_str(arguments).unwrap_or_else(|_| json!(arguments));
            json!([call, item["name"], parsed])
        }
        "function_call_output" => json!([call, item["output"]]),
        _ => item.clone(),
    }
}
