//! Checks that are the same for the files of every system.

use std::{path::Path, sync::Arc};

use serde_json::{Value, json};
use tower::ServiceExt;
use tower_chat::{
    ChatPipeline, ChatRequest, ConversationKey, HistoryStore, MemoryStore, Message, Part, Role,
    import::{
        Effect, Format, ImportError, ImportOutcome, ImportedConversation, compare, read, store,
    },
    message::MediaSource,
    store::{InvocationQuery, Maintenance, ToolCallQueries},
    tool::ToolStatus,
    validate::validate_messages,
};
use tower_chat_testkit::{
    ScriptedModel, Step,
    validate::{Wire, validate},
};
use tower_chat_wire::body::BodyWire;

const WIRES: [(BodyWire, Wire); 7] = [
    (BodyWire::OpenAiChat, Wire::OpenAiChat),
    (BodyWire::OpenAiResponses, Wire::OpenAiResponses),
    (BodyWire::Anthropic, Wire::Anthropic),
    (BodyWire::Gemini, Wire::Gemini),
    (BodyWire::BedrockConverse, Wire::BedrockConverse),
    (BodyWire::Cohere, Wire::Cohere),
    (BodyWire::Ollama, Wire::Ollama),
];

/// Returns a message in a short form: the role, and the content of each part that models receive.
pub(crate) fn sketch(message: &Message) -> Value {
    let role = match message.role {
        Role::System => "system",
        Role::Developer => "developer",
        Role::User => "user",
        Role::Assistant => "assistant",
        Role::Tool => "tool",
        _ => "?",
    };
    let parts = message.parts.iter().map(sketch_part);
    Value::Array(std::iter::once(json!(role)).chain(parts).collect())
}

fn sketch_part(part: &Part) -> Value {
    match part {
        Part::Text(text) => json!(text.text),
        Part::Reasoning(reasoning) => {
            let native = reasoning.native.as_ref();
            let native = native.map(|native| native.item.parse::<Value>().unwrap());
            json!({"reasoning": reasoning.text, "native": native})
        }
        Part::ToolCall(call) => {
            let id = call.id.as_deref().unwrap_or("-");
            json!({"call": format!("{id} {} {}", call.name, call.arguments)})
        }
        Part::ToolResult(result) => {
            let id = result.call_id.as_deref().unwrap_or("-");
            let content: Vec<Value> = result.content.iter().map(sketch_part).collect();
            let kind = if result.is_error { "error" } else { "result" };
            json!({kind: id, "content": content})
        }
        Part::Media(media) => {
            let source = match &media.source {
                MediaSource::Url(url) => format!("url {url}"),
                MediaSource::Base64(data) => format!("base64 {data}"),
                MediaSource::File(id) => format!("file {id}"),
                other => format!("{other:?}"),
            };
            json!({"media": format!("{} {source}", media.media_type)})
        }
        Part::Native(native) => json!({"native": native.item.parse::<Value>().unwrap()}),
        other => json!({"other": format!("{other:?}")}),
    }
}

pub(crate) fn sketches<'a>(messages: impl IntoIterator<Item = &'a Message>) -> Vec<Value> {
    messages.into_iter().map(sketch).collect()
}

/// A conversation that a file must contain.
pub(crate) struct Expected {
    pub(crate) id: &'static str,
    pub(crate) messages: Vec<Value>,
    /// The texts of the reported losses.
    pub(crate) losses: Vec<&'static str>,
    /// The id and the status of each tool call, in the order of the calls.
    pub(crate) calls: Vec<(&'static str, ToolStatus)>,
}

/// The files that one system has written. `long` contains a later state of the conversations in
/// `short`. The first conversation in `other` differs from that in `short`.
pub(crate) struct Files<'a> {
    /// The first state, in one file or in a file for each conversation.
    pub(crate) short: &'a [&'a Path],
    pub(crate) long: &'a Path,
    pub(crate) other: &'a Path,
    /// The sequence number of the first message in `other` that differs from `short`.
    pub(crate) other_from: u64,
}

/// Imports the files of a system, and checks the results:
///
/// - `short` contains the expected conversations.
/// - Each conversation can be stored and continued, has the expected record of tool calls, and is
///   not changed by a second import.
/// - `long` appends messages to the first conversation.
/// - `other` is refused.
pub(crate) async fn check(format: Format, files: &Files<'_>, expected: &[Expected]) {
    let read_file = |path: &&Path| read(format, path).unwrap();
    let conversations: Vec<_> = files.short.iter().flat_map(read_file).collect();
    assert_eq!(conversations.len(), expected.len());
    let history = MemoryStore::new();
    for (conversation, expected) in conversations.iter().zip(expected) {
        assert_eq!(conversation.id, expected.id);
        assert_eq!(sketches(&conversation.messages), expected.messages, "{}", expected.id);
        let losses: Vec<String> = conversation.losses.iter().map(ToString::to_string).collect();
        assert_eq!(losses, expected.losses, "{}", expected.id);
        let is_whole = conversation.losses.iter().all(|loss| loss.effect != Effect::NotStored);
        assert_eq!(conversation.is_whole(), is_whole);
        check_stored(&history, conversation, expected).await;
    }
    check_longer(format, files, &history, &conversations[0]).await;
}

async fn check_stored(
    history: &MemoryStore,
    conversation: &ImportedConversation,
    expected: &Expected,
) {
    let key = ConversationKey::new("imported", expected.id);
    assert_eq!(compare(history, &key, conversation).await.unwrap(), ImportOutcome::Written);
    assert_eq!(store(history, &key, conversation).await.unwrap(), ImportOutcome::Written);
    let stored = history.load(&key).await.unwrap();
    assert_eq!(sketches(stored.messages.iter().map(|message| &**message)), expected.messages);
    let of_it = history.invocations(&InvocationQuery::of(&key)).await.unwrap();
    let mut calls = of_it.found;
    calls.sort_by_key(|(_, call)| (call.sequence, call.sequence_index));
    for (_, call) in &calls {
        let answers = call.result.as_ref().map(|result| result.call_id.as_deref());
        assert!(answers.is_none_or(|id| id == Some(&*call.call_id)), "{call:?}");
    }
    let calls: Vec<_> =
        calls.iter().map(|(_, call)| (call.call_id.as_str(), call.status)).collect();
    assert_eq!(calls, expected.calls);

    assert_eq!(store(history, &key, conversation).await.unwrap(), ImportOutcome::Unchanged);
    let again = history.load(&key).await.unwrap();
    assert_eq!(
        (again.head.revision, again.messages.len()),
        (stored.head.revision, stored.messages.len())
    );

    let copy = ConversationKey::new("gone on with", expected.id);
    history.fork_at(&key, None, &copy).await.unwrap();
    continue_conversation(history, &copy).await;
    assert_eq!(store(history, &copy, conversation).await.unwrap(), ImportOutcome::Unchanged);
}

/// Continues the conversation. Every provider must accept the messages of the request.
async fn continue_conversation(history: &MemoryStore, key: &ConversationKey) {
    let model = ScriptedModel::new([Step::text("Gladly.")]);
    let agent = ChatPipeline::builder(model.clone()).history(history.clone()).build().unwrap();
    let request = ChatRequest::user("Let us go on.").in_conversation(key.clone());
    let answer = agent.oneshot(request).await.unwrap().collect().await.unwrap();
    assert_eq!(answer.text(), "Gladly.");
    let mut request = model.requests().remove(0);
    Arc::make_mut(&mut request.options).model = Some("any".into());
    let sent = request.messages();
    validate_messages(sent.iter().map(|message| &**message)).unwrap();
    assert!(sent.len() > 1, "{key} begins anew");
    for (body, wire) in WIRES {
        let body = body.render_request(&request).unwrap();
        if let Err(invalid) = validate(wire, &body) {
            panic!("{key}, {wire:?}: {invalid}: {body:#}");
        }
    }
}

async fn check_longer(
    format: Format,
    files: &Files<'_>,
    history: &MemoryStore,
    short: &ImportedConversation,
) {
    let key = ConversationKey::new("imported", &*short.id);
    let long = read(format, files.long).unwrap();
    let long = long.iter().find(|long| long.id == short.id).unwrap();
    let from = short.messages.len() as u64;
    assert!(long.messages.len() as u64 > from);
    assert_eq!(store(history, &key, long).await.unwrap(), ImportOutcome::Extended { from });
    let stored = history.load(&key).await.unwrap();
    assert_eq!(
        sketches(stored.messages.iter().map(|message| &**message)),
        sketches(&long.messages)
    );
    for again in [long, short] {
        assert_eq!(store(history, &key, again).await.unwrap(), ImportOutcome::Unchanged);
    }
    let other = read(format, files.other).unwrap();
    let error = store(history, &key, &other[0]).await.unwrap_err();
    let ImportError::Differs { message, .. } = error else { panic!("{error}") };
    assert_eq!(message, files.other_from);
    let after = history.load(&key).await.unwrap();
    assert_eq!(
        (after.head.revision, after.messages.len()),
        (stored.head.revision, stored.messages.len())
    );
}
