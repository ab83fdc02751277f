//! Finds the calls and results of a request body. The code is independent of the validator.

use serde_json::Value;
use tower_chat_testkit::validate::Wire;

/// The position of a call or a result: a message, or an entry of a list in a message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Site {
    pub(crate) message: usize,
    pub(crate) entry: Option<(&'static str, usize)>,
}

/// A call and the result that answers it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pair {
    pub(crate) call: Site,
    pub(crate) result: Site,
}

enum Event {
    Call(Site, Option<String>),
    Result(Site, Option<String>),
}

/// Returns every call of an accepted body with its result, in the order of the results.
pub(crate) fn pairs(wire: Wire, body: &Value) -> Vec<Pair> {
    let mut waiting: Vec<(Site, Option<String>)> = Vec::new();
    let mut pairs = Vec::new();
    for event in events(wire, body) {
        match event {
            Event::Call(site, id) => waiting.push((site, id)),
            Event::Result(site, id) => {
                let call = waiting.iter().position(|(_, waits)| *waits == id).unwrap();
                pairs.push(Pair { call: waiting.remove(call).0, result: site });
            }
        }
    }
    assert!(waiting.is_empty(), "{wire}: {waiting:?}");
    pairs
}

/// Returns the messages, items or contents of a body.
pub(crate) fn messages(wire: Wire, body: &Value) -> &[Value] {
    body[wire.conversation_field()].as_array().map_or(&[], Vec::as_slice)
}

/// Returns the name of the message field that contains the list of blocks or parts.
pub(crate) fn block_list(wire: Wire) -> Option<&'static str> {
    match wire {
        Wire::Anthropic | Wire::BedrockConverse => Some("content"),
        Wire::Gemini => Some("parts"),
        _ => None,
    }
}

/// Sets the id of the call or the result at `site`.
pub(crate) fn set_id(wire: Wire, body: &mut Value, site: Site, id: &str) -> bool {
    let mut item = &mut body[wire.conversation_field()][site.message];
    if let Some((list, index)) = site.entry {
        item = &mut item[list][index];
    }
    let fields: &[&str] = match wire {
        Wire::Gemini => {
            let names = ["functionCall", "function_call", "functionResponse", "function_response"];
            item = item
                .as_object_mut()
                .unwrap()
                .iter_mut()
                .find(|(name, _)| names.contains(&name.as_str()))
                .unwrap()
                .1;
            &["id"]
        }
        Wire::BedrockConverse => {
            let name = if item.get("toolUse").is_some() { "toolUse" } else { "toolResult" };
            item = &mut item[name];
            &["toolUseId"]
        }
        Wire::Anthropic => &["tool_use_id", "id"],
        Wire::OpenAiResponses => &["call_id"],
        _ => &["tool_call_id", "id"],
    };
    let field = fields.iter().find(|field| item.get(**field).is_some_and(Value::is_string));
    let Some(field) = field else { return false };
    item[*field] = id.into();
    true
}

fn events(wire: Wire, body: &Value) -> Vec<Event> {
    let mut events = Vec::new();
    for (message, value) in messages(wire, body).iter().enumerate() {
        let whole = Site { message, entry: None };
        let text = |value: &Value| value.as_str().map(str::to_owned);
        match block_list(wire) {
            Some(list) => {
                for (index, block) in value[list].as_array().into_iter().flatten().enumerate() {
                    let site = Site { message, entry: Some((list, index)) };
                    events.extend(block_event(wire, block, value, site));
                }
            }
            None if wire == Wire::OpenAiResponses => match value["type"].as_str() {
                Some("function_call") => events.push(Event::Call(whole, text(&value["call_id"]))),
                Some("function_call_output") => {
                    events.push(Event::Result(whole, text(&value["call_id"])));
                }
                _ => {}
            },
            None => {
                if value["role"] == "tool" {
                    events.push(Event::Result(whole, text(&value["tool_call_id"])));
                }
                let calls = value["tool_calls"].as_array().into_iter().flatten();
                events.extend(calls.enumerate().map(|(index, call)| {
                    let site = Site { message, entry: Some(("tool_calls", index)) };
                    Event::Call(site, text(&call["id"]))
                }));
            }
        }
    }
    events
}

fn block_event(wire: Wire, block: &Value, message: &Value, site: Site) -> Option<Event> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    match wire {
        Wire::Anthropic => match block["type"].as_str() {
            Some("tool_use") => Some(Event::Call(site, text(&block["id"]))),
            Some("tool_result") => Some(Event::Result(site, text(&block["tool_use_id"]))),
            _ => None,
        },
        Wire::BedrockConverse => {
            if block["toolUse"].is_object() && block["toolUse"]["type"] != "server_tool_use" {
                return Some(Event::Call(site, text(&block["toolUse"]["toolUseId"])));
            }
            let result = &block["toolResult"];
            (result.is_object() && message["role"] == "user")
                .then(|| Event::Result(site, text(&result["toolUseId"])))
        }
        _ => {
            let field = |camel: &str, snake: &str| block.get(camel).or_else(|| block.get(snake));
            if let Some(call) = field("functionCall", "function_call") {
                return Some(Event::Call(site, text(&call["id"])));
            }
            let response = field("functionResponse", "function_response")?;
            Some(Event::Result(site, text(&response["id"])))
        }
    }
}
