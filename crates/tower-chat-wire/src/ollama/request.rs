//! The body of a request.

use serde_json::{Map, Value};
use tower_chat_core::{ChatRequest, ToolChoice};

use super::message;
use crate::{
    body::BodyError,
    object::{Object, raw},
    text_parts::{function, messages},
};

/// The fields of the request for an answer.
///
/// `extra` options count more than named ones, and a `null` among them takes the field out; those
/// in `options` are counted one by one. The conversation is the request's own.
pub fn render_request(request: &ChatRequest, model: &str) -> Result<Object, BodyError> {
    let asked = &*request.options;
    let mut options = Map::new();
    let mut set = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            options.insert(name.to_owned(), value);
        }
    };
    set("temperature", asked.temperature.map(Value::from));
    set("top_p", asked.top_p.map(Value::from));
    set("num_predict", asked.max_output_tokens.map(Value::from));
    let mut body = Object::new();
    let offers_tools = match &asked.tool_choice {
        Some(ToolChoice::None) => false,
        Some(ToolChoice::Required | ToolChoice::Tool(_)) => {
            return Err(BodyError::Unsupported { what: "choice of a tool: it decides by itself" });
        }
        _ => true,
    };
    if offers_tools && !asked.tools.is_empty() {
        let tools: Vec<Value> = asked.tools.iter().map(function).collect();
        body.insert("tools".to_owned(), raw(&tools));
    }
    for (name, value) in &asked.extra {
        match value {
            Value::Null => drop(body.remove(name)),
            Value::Object(extra) if name == "options" => options.extend(extra.clone()),
            _ => drop(body.insert(name.clone(), raw(value))),
        }
    }
    options.retain(|_, value| !value.is_null());
    if !options.is_empty() {
        body.insert("options".to_owned(), raw(&options));
    }
    body.insert("model".to_owned(), raw(model));
    // It streams unless it is told not to.
    body.insert("stream".to_owned(), raw(&asked.stream));
    body.insert("messages".to_owned(), raw(&message::render(messages(request))));
    Ok(body)
}
