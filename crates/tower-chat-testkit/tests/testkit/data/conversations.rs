//! Generates whole conversations in the format of OpenAI Chat Completions.

use serde_json::{Value, json};

use super::{
    chat::{self, Chat},
    text::{Texts, text},
};

/// Returns the folder, the name and the content of each file.
pub(crate) fn files(texts: &mut Texts) -> Vec<(&'static str, &'static str, String)> {
    vec![
        ("harbour", "whole.jsonl", lines(whole(texts))),
        ("harbour", "ids.jsonl", lines(ids(texts))),
        ("harbour", "endings.jsonl", lines(endings(texts))),
        ("harbour_2023", "functions.jsonl", lines(functions(texts))),
    ]
}

type Conversation = (String, Vec<Value>);

fn lines(conversations: Vec<Conversation>) -> String {
    let line = |(id, messages): Conversation| {
        text(&json!({"id": id, "model": "none", "domain": "harbour", "messages": messages})) + "\n"
    };
    conversations.into_iter().map(line).collect()
}

fn whole(texts: &mut Texts) -> Vec<Conversation> {
    let mut found = Vec::new();
    for number in 0..2 {
        for (name, dialogue) in [("parallel", texts.parallel()), ("rounds", texts.rounds())] {
            found.push((format!("{name} {number}"), chat::OPENAI.messages(&dialogue)));
        }
    }
    found.push(("long".to_owned(), long(chat::OPENAI, texts)));
    found
}

fn long(service: Chat, texts: &mut Texts) -> Vec<Value> {
    let mut items = Vec::new();
    for _ in 0..3 {
        items.extend(texts.parallel().items);
        items.extend(texts.rounds().items);
    }
    service.messages(&texts.dialogue(items))
}

/// Returns two conversations whose call ids are not unique. In the first conversation, all calls of
/// the same tool have the same id. In the second conversation, all ids are empty.
fn ids(texts: &mut Texts) -> Vec<Conversation> {
    let by_name = Chat { id: |call| format!("call_{}", call.tool.name), ..chat::OPENAI };
    let mut found = vec![("the same in later rounds".to_owned(), by_name_only(by_name, texts))];
    let mut unnamed = chat::OPENAI.messages(&texts.parallel());
    for message in &mut unnamed {
        if message.get("tool_call_id").is_some() {
            message["tool_call_id"] = json!("");
        }
        for call in message["tool_calls"].as_array_mut().into_iter().flatten() {
            call["id"] = json!("");
        }
    }
    // Indexing a JSON object with a missing field has added the field with the value `null`.
    let unnamed = unnamed.into_iter().map(without_nulls).collect();
    found.push(("empty ids".to_owned(), unnamed));
    found
}

fn by_name_only(service: Chat, texts: &mut Texts) -> Vec<Value> {
    let items = [texts.parallel().items, texts.parallel().items].concat();
    service.messages(&texts.dialogue(items))
}

fn without_nulls(mut message: Value) -> Value {
    let fields = message.as_object_mut().unwrap();
    fields.retain(|name, value| name == "content" || !value.is_null());
    message
}

/// Returns conversations that do not begin with a user message or do not end with an answer.
fn endings(texts: &mut Texts) -> Vec<Conversation> {
    let mut greeted = chat::OPENAI.messages(&texts.parallel());
    greeted.insert(1, json!({"role": "assistant", "content": texts.answer()}));
    let mut on_result = chat::OPENAI.messages(&texts.rounds());
    on_result.pop();
    let mut on_call = on_result.clone();
    on_call.truncate(on_call.len() - 2);
    let mut straight = chat::OPENAI.messages(&texts.parallel());
    straight.retain(|message| message["role"] != "assistant" || message["content"].is_null());
    vec![
        ("begins with the assistant".to_owned(), greeted),
        ("ends on a result".to_owned(), on_result),
        ("ends on calls".to_owned(), on_call),
        ("from results to the user".to_owned(), straight),
    ]
}

/// Returns conversations with calls in the format of 2023, in which a message has one call and
/// calls have no ids.
fn functions(texts: &mut Texts) -> Vec<Conversation> {
    let conversation = |number: usize, texts: &mut Texts| {
        let mut messages = vec![json!({"role": "system", "content": texts.rules()})];
        messages.push(json!({"role": "user", "content": texts.question()}));
        for tool in 0..2 + number {
            let call = texts.called(&[tool % 3]).calls.remove(0);
            messages.push(json!({"role": "assistant", "content": texts.preamble(),
                "function_call": {"name": call.tool.name, "arguments": text(&call.arguments)}}));
            messages.push(json!({"role": "function", "name": call.tool.name,
                "content": text(&call.result)}));
        }
        messages.push(json!({"role": "assistant", "content": texts.answer()}));
        (format!("functions {number}"), messages)
    };
    (0..3).map(|number| conversation(number, texts)).collect()
}
