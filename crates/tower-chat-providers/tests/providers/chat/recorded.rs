//! Tests that replay every recorded exchange of Chat Completions to the model client.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tower_chat_core::{
    Answer, ChatOptions, ChatRequest, ChatUpdate, Message, Part, ToolChoice, ToolDefinition, format,
};
use tower_chat_providers::{ProviderError, Refusal};
use tower_chat_wire::openai_chat::{Audience, parse_messages, render_message};
use tower_service::Service;

use super::expected::ExpectedAnswer;
use crate::{
    cassettes::{self, Cassette, Exchange},
    client::ask,
    native_texts,
    server::{Reply, Server},
};

#[tokio::test]
async fn every_recorded_exchange_is_requested_and_read_as_it_was_recorded() {
    let cassettes = cassettes::all_cassettes();
    let mut folders: BTreeMap<&str, (usize, Vec<String>)> = BTreeMap::new();
    let (mut exchanges, mut continued) = (0, 0);
    for cassette in &cassettes {
        let (asserted, skipped) = folders.entry(&cassette.folder).or_default();
        if cassettes::chat_exchanges(cassette).next().is_none() {
            let url = cassette.exchanges.first().map_or("nothing", |exchange| &exchange.url);
            skipped.push(format!("{}: records {url}, not Chat Completions", cassette.name));
            continue;
        }
        let (played, went_on) = play(cassette).await;
        exchanges += played;
        continued += went_on;
        *asserted += 1;
    }
    for (folder, (count, skipped)) in &folders {
        println!("{folder}: {count} asserted on, {} skipped", skipped.len());
        skipped.iter().for_each(|reason| println!("  {reason}"));
    }
    println!("{exchanges} exchanges, {continued} next requests");
    let recorded = cassettes.iter().flat_map(cassettes::chat_exchanges).count();
    assert_eq!(exchanges, recorded);
}

/// Replays the exchanges of a cassette. Returns the number of exchanges, and the number of
/// exchanges whose request contains an answer that the model client has read in an earlier
/// exchange.
async fn play(cassette: &Cassette) -> (usize, usize) {
    let (mut played, mut continued) = (0, 0);
    let mut answers: Vec<(Value, Message)> = Vec::new();
    for exchange in cassettes::chat_exchanges(cassette) {
        let source = exchange.source.clone();
        let reply = if exchange.is_streamed() {
            Reply::stream(exchange.body.clone())
        } else {
            Reply::json(exchange.status, exchange.body.clone())
        };
        let server = Server::start([reply]).await;
        let (request, reused) = request(exchange, &answers);
        let outcome = if exchange.is_streamed() {
            collect_checked(&server, request).await
        } else {
            ask(&mut server.model(), request).await
        };
        let sent = &server.received()[0].body;
        if reused == 0 {
            assert_eq!(plain_body(sent), plain_body(&exchange.request), "{source}");
        } else {
            continued += 1;
            assert_eq!(options_of(sent), options_of(&exchange.request), "{source}");
            assert_eq!(history(sent), history(&exchange.request), "{source}");
        }
        played += 1;
        match outcome {
            Err(error) => match exchange.reported_error().unwrap() {
                Some(message) => assert!(error.to_string().contains(&message), "{source}: {error}"),
                None => assert_refused(exchange, &error.downcast().unwrap(), &source),
            },
            Ok(answer) => {
                assert_answer(exchange, &answer, &source);
                // The answer is encoded and decoded, as if a new process had loaded it from a
                // store.
                let stored = format::decode(&format::encode(&answer.messages[0])).unwrap();
                answers.push((exchange.request["messages"].clone(), stored));
            }
        }
    }
    (played, continued)
}

/// Returns the answer to a streamed request. Asserts that its deltas together are equal to the
/// answer.
async fn collect_checked(
    server: &Server,
    request: ChatRequest,
) -> Result<Answer, tower_chat_core::BoxError> {
    let mut response = server.model().call(request).await?;
    let (mut text, mut calls) = (String::new(), BTreeMap::<usize, String>::new());
    let (mut messages, mut finish) = (Vec::new(), None);
    while let Some(update) = response.next().await {
        match update? {
            ChatUpdate::TextDelta(more) => text += &more,
            ChatUpdate::ToolCallDelta(more) => {
                *calls.entry(more.index).or_default() += &more.arguments;
            }
            ChatUpdate::Message(message) => {
                assert_eq!(text, message.text());
                let arguments = message.calls().map(|call| call.arguments.clone());
                let seen: Vec<String> = std::mem::take(&mut calls).into_values().collect();
                assert_eq!(seen, arguments.collect::<Vec<_>>());
                messages.push(message);
            }
            ChatUpdate::Finish(end) => finish = Some(end),
            _ => {}
        }
    }
    Ok(Answer::new(messages, finish.expect("a finish")))
}

fn assert_answer(exchange: &Exchange, answer: &Answer, source: &str) {
    assert!(exchange.is_success(), "{source}");
    assert_eq!(exchange.reported_error().unwrap(), None, "{source}: the error was not reported");
    if exchange.is_streamed() {
        let events = exchange.json_events().unwrap();
        assert_eq!(
            ExpectedAnswer::of_answer(answer),
            ExpectedAnswer::of_events(&events),
            "{source}"
        );
        native_texts::assert_texts_occur_in_events(&events, &answer.messages[0], source);
        return;
    }
    let json = exchange.json().unwrap();
    assert_eq!(ExpectedAnswer::of_answer(answer), ExpectedAnswer::of_json(&json), "{source}");
    let rendered = render_message(&answer.messages[0], Audience::Transcript);
    let rendered: Value = rendered[0].parse().unwrap();
    assert_eq!(rendered, json["choices"][0]["message"], "{source}: something was lost");
    for (name, value) in json.as_object().unwrap() {
        if !value.is_null() && !["choices", "object", "model"].contains(&name.as_str()) {
            assert_eq!(answer.finish.metadata.get(name), Some(value), "{source}: {name}");
        }
    }
}

fn assert_refused(exchange: &Exchange, error: &ProviderError, source: &str) {
    assert_ne!(exchange.status, 200, "{source}: {error}");
    assert_eq!(error.status(), Some(exchange.status), "{source}");
    let json = exchange.json().unwrap();
    let Some(Refusal { message, body, .. }) = error.refusal() else { panic!("{source}: {error}") };
    assert_eq!(Some(message.as_str()), cassettes::error_message(&json), "{source}");
    assert_eq!(body, exchange.text().unwrap(), "{source}");
    let code = [&json["error"]["code"], &json["error"]["type"]];
    let code = code.into_iter().find(|code| !code.is_null());
    let code = code.map(|code| code.as_str().map_or_else(|| code.to_string(), str::to_owned));
    assert_eq!(error.code().map(str::to_owned), code, "{source}");
    // An exhausted quota also has the status 429, but waiting does not restore it.
    let is_temporary = matches!(exchange.status, 408 | 409 | 429 | 500..=599);
    let is_quota = error.code() == Some("insufficient_quota");
    assert_eq!(error.is_retryable(), is_temporary && !is_quota, "{source}");
}

/// Returns the `ChatRequest` for which the model client is expected to send the recorded body. In
/// this request, the answers that the model client has read replace the recorded answers. Also
/// returns the number of replaced answers.
fn request(exchange: &Exchange, answers: &[(Value, Message)]) -> (ChatRequest, usize) {
    let body = &exchange.request;
    let list = body["messages"].as_array().unwrap();
    let mut messages = parse_messages(&body["messages"].to_string()).unwrap();
    let mut reused = 0;
    // Replacing the last answer first does not change the positions of earlier answers.
    for (request_messages, answer) in answers.iter().rev() {
        let request_messages = request_messages.as_array().unwrap();
        if !list.starts_with(request_messages) {
            continue;
        }
        let rest = list[request_messages.len()..].iter();
        let count = rest.take_while(|message| message["role"] == "assistant").count();
        if count > 0 {
            let recorded =
                messages[request_messages.len()..request_messages.len() + count].to_vec();
            messages.splice(
                request_messages.len()..request_messages.len() + count,
                [with_recorded_ids(answer, &recorded)],
            );
            reused += 1;
        }
    }
    (ChatRequest::new(messages).with_options(options(body)), reused)
}

/// Adds the ids that the recorded client has generated for calls without an id. In a stack, the
/// tool loop generates such ids.
fn with_recorded_ids(answer: &Message, recorded: &[Message]) -> Message {
    let mut answer = answer.clone();
    let mut ids = recorded.iter().flat_map(Message::calls).map(|call| call.id.clone());
    for part in &mut answer.parts {
        if let Part::ToolCall(call) = part {
            let made_up = ids.next().expect("the client sent every call back");
            if call.id.as_deref().unwrap_or_default().is_empty() {
                call.id = made_up;
            }
        }
    }
    answer
}

fn options(body: &Value) -> ChatOptions {
    let mut extra = body.as_object().unwrap().clone();
    let mut options = ChatOptions::default();
    extra.remove("messages");
    options.stream = extra.remove("stream").is_some_and(|stream| stream == true);
    options.model = extra.remove("model").map(|model| model.as_str().unwrap().to_owned());
    // The model client writes a temperature of 0 as `0.0`. If the recording contains `0`, the
    // temperature stays in the `extra` options.
    if extra.get("temperature").is_some_and(Value::is_f64) {
        options.temperature = extra.remove("temperature").and_then(|number| number.as_f64());
    }
    options.max_output_tokens = extra.remove("max_tokens").and_then(|number| number.as_u64());
    if let Some(choice) = extra.get("tool_choice").and_then(tool_choice) {
        options.tool_choice = Some(choice);
        extra.remove("tool_choice");
    }
    if let Some(tools) = extra.get("tools").and_then(tools) {
        options.tools = tools;
        extra.remove("tools");
    }
    if options.stream && !extra.contains_key("stream_options") {
        extra.insert("stream_options".to_owned(), Value::Null);
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
            let name = choice["function"]["name"].as_str()?.to_owned();
            let plain = json!({"type": "function", "function": {"name": name}});
            (*choice == plain).then_some(ToolChoice::Tool(name))
        }
    }
}

/// Returns the definitions of the tools, or `None` if `ToolDefinition` cannot express one of their
/// fields.
fn tools(tools: &Value) -> Option<Vec<ToolDefinition>> {
    let tools = tools.as_array()?.iter().map(|tool| {
        let function = &tool["function"];
        let (name, description) = (function["name"].as_str()?, function["description"].as_str()?);
        let parameters = function["parameters"].as_object().filter(|fields| !fields.is_empty())?;
        let plain = json!({"type": "function", "function": {
            "name": name, "description": description, "parameters": parameters}});
        let definition = ToolDefinition::new(name, description, Value::Object(parameters.clone()));
        (*tool == plain).then_some(definition)
    });
    tools.collect::<Option<Vec<_>>>().filter(|tools| !tools.is_empty())
}

/// Removes fields that have no effect from a body: `"stream": false`, and empty fields of assistant
/// messages.
fn plain_body(body: &Value) -> Value {
    let mut body = body.clone();
    let fields = body.as_object_mut().unwrap();
    if fields.get("stream") != Some(&Value::Bool(true)) {
        fields.remove("stream");
        fields.remove("stream_options");
    }
    fields.retain(|_, value| !value.is_null());
    if !fields.contains_key("tools") {
        fields.remove("tool_choice");
    }
    for message in fields["messages"].as_array_mut().unwrap() {
        if message["role"] == "assistant" {
            let is_empty = |value: &Value| value.is_null() || *value == json!([]);
            let fields = message.as_object_mut().unwrap();
            fields.retain(|name, value| name == "content" || !is_empty(value));
        }
    }
    body
}

/// Returns the body without its messages.
fn options_of(body: &Value) -> Value {
    let mut body = plain_body(body);
    body.as_object_mut().unwrap().remove("messages");
    body
}

/// Returns the parts of the history in a body that every client sends alike: the roles, the texts,
/// the calls and the results. Clients differ in `null` and empty contents, and in the white space
/// of arguments.
fn history(body: &Value) -> Vec<Value> {
    let mut history: Vec<Value> = Vec::new();
    for message in body["messages"].as_array().unwrap() {
        let calls = message["tool_calls"].as_array().into_iter().flatten();
        let calls: Vec<Value> = calls
            .map(|call| {
                let arguments = call["function"]["arguments"].as_str().unwrap();
                let parsed = serde_json::from_str(arguments).unwrap_or_else(|_| json!(arguments));
                json!([accepted_id(&call["id"]), call["function"]["name"], parsed])
            })
            .collect();
        let content = match &message["content"] {
            Value::Null => json!(""),
            Value::Array(parts) if parts.iter().all(|part| part["type"] == "text") => {
                json!(parts.iter().map(|part| part["text"].as_str().unwrap()).collect::<String>())
            }
            content => content.clone(),
        };
        let content = content.as_str().map(|text| json!(answer_text(text))).unwrap_or(content);
        let is_assistant = message["role"] == "assistant";
        match history.last_mut() {
            // Some clients send the text and each call in separate messages.
            Some(last) if is_assistant && last["role"] == "assistant" => {
                let text = last["content"].as_str().unwrap().to_owned();
                last["content"] = json!(text + content.as_str().unwrap());
                last["calls"].as_array_mut().unwrap().extend(calls);
            }
            _ => history.push(json!({
                "role": message["role"],
                "content": content,
                "calls": calls,
                "answers": accepted_id(&message["tool_call_id"]),
            })),
        }
    }
    history
}

/// Returns the call id that the model client sends to an unknown service: the id, in which `_`
/// replaces each character that is not an ASCII letter, a digit, `_` or `-`.
fn accepted_id(id: &Value) -> Value {
    let is_word = |it: char| it.is_ascii_alphanumeric() || matches!(it, '_' | '-');
    let replace_characters =
        |id: &str| id.chars().map(|it| if is_word(it) { it } else { '_' }).collect();
    id.as_str().map_or(Value::Null, |id| Value::String(replace_characters(id)))
}

/// Removes leading and trailing white space and reasoning from the text of an answer. Some clients
/// trim the text, and some include the reasoning in it.
fn answer_text(text: &str) -> &str {
    let after = text.strip_prefix("<think>").and_then(|text| text.split_once("</think>"));
    after.map_or(text, |(_, answer)| answer).trim()
}
