//! Tests that a stack sends the same requests for a conversation that was stored and loaded by a
//! new process as for an uninterrupted conversation.

use serde_json::{Value, json};
use tower_chat::{
    Answer, BoxError, ChatOptions, ChatPipeline, ChatRequest, ConversationKey, HistoryStore,
    MemoryStore, PersistenceMode, Role, ToolDefinition, Tools, run::Conversation, tool_fn,
};
use tower_chat_providers::ProviderError;
use tower_chat_sqlite::SqliteStore;
use tower_service::Service;

use crate::client::Provider;
use crate::server::{Framing, Reply, Server};

/// The two answers of a provider. The first answer contains reasoning and a call.
struct Script {
    provider: Provider,
    model: &'static str,
    call: Value,
    text: Value,
}

fn scripts() -> Vec<Script> {
    let anthropic = (
        json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-x",
            "content": [
                {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"},
                {"type": "redacted_thinking", "data": "cmVk"},
                {"type": "text", "text": "Let me see."},
                {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"z": 1, "a": 2.50}},
            ],
            "stop_reason": "tool_use", "usage": {"input_tokens": 1, "output_tokens": 2}}),
        json!({"role": "assistant", "content": [{"type": "text", "text": "done"}],
            "stop_reason": "end_turn"}),
    );
    let gemini = (
        json!({"candidates": [{"finishReason": "STOP", "content": {"role": "model", "parts": [
            {"text": "Hm.", "thought": true},
            {"functionCall": {"name": "f", "args": {"z": 1}}, "thoughtSignature": "c2ln"},
            {"functionCall": {"name": "f", "args": {}}},
        ]}}]}),
        json!({"candidates": [{"finishReason": "STOP", "content": {"role": "model", "parts": [
            {"text": "done", "thoughtSignature": "ZW5k"},
        ]}}]}),
    );
    let bedrock = (
        json!({"output": {"message": {"role": "assistant", "content": [
            {"reasoningContent": {"reasoningText": {"text": "Hm.", "signature": "c2ln"}}},
            {"reasoningContent": {"redactedContent": "cmVk"}},
            {"toolUse": {"toolUseId": "tooluse_1", "name": "f", "input": {"z": 1}}},
        ]}}, "stopReason": "tool_use", "usage": {"inputTokens": 1, "outputTokens": 2}}),
        json!({"output": {"message": {"role": "assistant", "content": [{"text": "done"}]}},
            "stopReason": "end_turn"}),
    );
    let cohere = (
        json!({"id": "1", "finish_reason": "TOOL_CALL", "message": {"role": "assistant",
            "tool_plan": "I will look.", "tool_calls": [{"id": "f_1", "type": "function",
                "function": {"name": "f", "arguments": "{\"z\": 1}"}}]}}),
        json!({"id": "2", "finish_reason": "COMPLETE", "message": {"role": "assistant",
            "content": [{"type": "text", "text": "done"}],
            "citations": [{"start": 0, "end": 4, "text": "done"}]}}),
    );
    let ollama = (
        json!({"message": {"role": "assistant", "content": "", "thinking": "Hm.",
            "tool_calls": [{"function": {"name": "f", "arguments": {"z": 1}}}]},
            "done": true, "done_reason": "stop"}),
        json!({"message": {"role": "assistant", "content": "done"}, "done": true,
            "done_reason": "stop"}),
    );
    let chat = (
        json!({"choices": [{"index": 0, "finish_reason": "tool_calls", "message": {
            "role": "assistant", "content": null, "reasoning_content": "Hm.", "tool_calls": [
                {"id": "call_1", "type": "function",
                    "function": {"name": "f", "arguments": "{\"z\": 1}"}}]}}]}),
        json!({"choices": [{"index": 0, "finish_reason": "stop",
            "message": {"role": "assistant", "content": "done"}}]}),
    );
    let script = |provider, model, (call, text): &(Value, Value)| Script {
        provider,
        model,
        call: call.clone(),
        text: text.clone(),
    };
    vec![
        script(Provider::Anthropic, "claude-x", &anthropic),
        script(Provider::Vertex, "claude-x", &anthropic),
        script(Provider::Gemini, "gemini-3-x", &gemini),
        script(Provider::Vertex, "gemini-2.5-x", &gemini),
        script(Provider::Bedrock, "anthropic.claude-x:0", &bedrock),
        script(Provider::Cohere, "command-x", &cohere),
        script(Provider::Ollama, "qwen-x", &ollama),
        script(Provider::Mistral, "mistral-x", &chat),
        script(Provider::DeepSeek, "deepseek-x", &chat),
    ]
}

#[tokio::test]
async fn a_reloaded_conversation_sends_the_same_requests_as_an_undisturbed_conversation() {
    for Script { provider, model, call, text } in scripts() {
        for mode in [PersistenceMode::PerRun, PersistenceMode::PerServiceCall] {
            let replies = [&call, &text, &call, &text];
            let replies = replies.map(|body| Reply::json(200, body.to_string()));
            let undisturbed = Server::start(replies.clone()).await;
            let store = MemoryStore::new();
            for question in ["first", "second"] {
                run(&undisturbed, provider, &store, mode, request_in_run(model, question))
                    .await
                    .unwrap();
            }
            let disturbed = Server::start(replies).await;
            let folder = tempfile::tempdir().unwrap();
            for question in ["first", "second"] {
                let store = SqliteStore::open(folder.path().join("history.db")).await.unwrap();
                run(&disturbed, provider, &store, mode, request_in_run(model, question))
                    .await
                    .unwrap();
                store.close().await.unwrap();
            }
            let bodies = |server: &Server| -> Vec<Value> {
                server.received().into_iter().map(|received| received.body).collect()
            };
            assert_eq!(bodies(&undisturbed), bodies(&disturbed), "{provider:?} {mode:?}");
            // The request contains the reasoning of the first answer.
            let last = disturbed.received().pop().unwrap().body.to_string();
            for native in ["c2ln", "cmVk", "ZW5k", "I will look."] {
                let is_sent =
                    call.to_string().contains(native) || text.to_string().contains(native);
                assert_eq!(last.contains(native), is_sent, "{provider:?}: {native} in {last}");
            }
        }
    }
}

#[tokio::test]
async fn after_a_stream_is_cut_off_the_history_is_as_the_contract_states() {
    let begun = "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"Hel\"}]}}]}\n\n";
    let error = "data: {\"error\":{\"code\":503,\"message\":\"Overloaded\"}}\n\n";
    let limit = r#"{"error":{"code":429,"message":"slow down","status":"RESOURCE_EXHAUSTED"}}"#;
    let faults = [
        Reply::stream(begun),
        Reply::stream(begun).framed(Framing::BreakAt(begun.len() - 9)),
        Reply::stream(format!("{begun}{error}")),
        Reply::json(429, limit),
    ];
    let Script { provider, model, call, text } = scripts().swap_remove(2);
    let [call, text] = [call, text].map(|event| Reply::stream(format!("data: {event}\n\n")));
    for fault in faults {
        for mode in [PersistenceMode::PerRun, PersistenceMode::PerServiceCall] {
            let store = MemoryStore::new();
            let replies = [call.clone(), fault.clone()];
            let server = Server::start(replies).await;
            let error = run(&server, provider, &store, mode, request_to(model, "go").streamed())
                .await
                .unwrap_err();
            assert_is_known(&error);
            let kept = match mode {
                PersistenceMode::PerServiceCall => vec![Role::User, Role::Assistant, Role::Tool],
                _ => Vec::new(),
            };
            let history = store.load(&key()).await.unwrap();
            let roles: Vec<Role> = history.messages.iter().map(|message| message.role).collect();
            assert_eq!(roles, kept, "{mode:?}: {fault:?}");

            let server = Server::start([text.clone()]).await;
            let answer =
                run(&server, provider, &store, mode, request_to(model, "again").streamed())
                    .await
                    .unwrap();
            assert_eq!(answer.text(), "done");
        }
    }
}

fn request_to(model: &str, question: &str) -> ChatRequest {
    let mut options = ChatOptions::default();
    options.model = Some(model.to_owned());
    ChatRequest::user(question).with_options(options).in_conversation(key())
}

/// Returns a request with a fixed run id, because the ids that are generated for calls without an
/// id depend on the run id.
fn request_in_run(model: &str, question: &str) -> ChatRequest {
    let run = match question {
        "first" => "01890000-0000-7000-8000-000000000001",
        _ => "01890000-0000-7000-8000-000000000002",
    };
    let conversation = Conversation { key: key(), run: run.parse().unwrap() };
    request_to(model, question).in_run(conversation)
}

/// Runs a request in a new stack, which has nothing in memory, like the stack of a new process.
async fn run<S: HistoryStore + Clone>(
    server: &Server,
    provider: Provider,
    store: &S,
    mode: PersistenceMode,
    request: ChatRequest,
) -> Result<Answer, BoxError> {
    let definition = ToolDefinition::new("f", "does f", json!({"type": "object"}));
    let mut pipeline = ChatPipeline::builder(server.client(provider).build())
        .tools(Tools::new().with(tool_fn(definition, |_| async { Ok("f did it") })))
        .history(store.clone())
        .persistence(mode)
        .build()?;
    std::future::poll_fn(|cx| pipeline.poll_ready(cx)).await?;
    pipeline.call(request).await?.collect().await
}

/// Asserts that a source of the error is a `ProviderError`.
fn assert_is_known(error: &BoxError) {
    let mut error: &(dyn std::error::Error + 'static) = error.as_ref();
    loop {
        match error.downcast_ref::<ProviderError>() {
            Some(known) => return assert!(known.is_retryable(), "{known}"),
            None => error = error.source().expect("the model client's error is the source"),
        }
    }
}

fn key() -> ConversationKey {
    ConversationKey::new("alice", "orders")
}
