//! Tests of the requests that a stack with a model client sends in two successive runs. The history
//! is stored by the service or in a history store.

use serde_json::{Value, json};
use tower_chat::{
    Answer, BoxError, ChatOptions, ChatPipeline, ChatRequest, ConversationKey, HistoryStore,
    MemoryStore, Message, PersistenceError, PersistenceMode, PersistencePolicy, Role,
    ToolDefinition, Tools, policy::ConflictPolicy, request::HistoryOwner, tool_fn,
};
use tower_chat_providers::{HistoryStorage, ProviderError};
use tower_service::Service;

use super::{event, response_with_call, streamed, text_response};
use crate::server::{Framing, Received, Reply, Server};

const STOP: ConflictPolicy = ConflictPolicy::StopRecording;
const RECORD: ConflictPolicy = ConflictPolicy::Record;
const BOTH_MODES: [PersistenceMode; 2] = [PersistenceMode::PerRun, PersistenceMode::PerServiceCall];

/// The settings of a stack, and the store that all stacks of a test share.
struct Stack {
    store: MemoryStore,
    mode: PersistenceMode,
    conflict: ConflictPolicy,
    storage: HistoryStorage,
    is_streamed: bool,
}

impl Stack {
    /// Runs a request in a new stack with the shared store. Returns the result of the run and the
    /// requests that were sent.
    async fn run(
        &self,
        text: &str,
        replies: impl IntoIterator<Item = Value>,
    ) -> (Result<Answer, BoxError>, Vec<Received>) {
        let replies = replies.into_iter().map(|reply| match reply["error"]["status"].as_u64() {
            Some(status) => Reply::json(status.try_into().unwrap(), reply.to_string()),
            None if self.is_streamed && reply["object"] == "response" => {
                Reply::stream(streamed(&reply))
            }
            None => Reply::json(200, reply.to_string()),
        });
        self.play(ChatRequest::user(text).in_conversation(key()), replies).await
    }

    /// Runs a request in a new stack, whose model client calls a server with these replies.
    async fn play(
        &self,
        request: ChatRequest,
        replies: impl IntoIterator<Item = Reply>,
    ) -> (Result<Answer, BoxError>, Vec<Received>) {
        let server = Server::start(replies).await;
        let definition = ToolDefinition::new("f", "does f", json!({"type": "object"}));
        let mut pipeline =
            ChatPipeline::builder(server.responses().with_history_storage(self.storage))
                .tools(Tools::new().with(tool_fn(definition, |_| async { Ok("f did it") })))
                .history(self.store.clone())
                .persistence(self.mode)
                .policy(PersistencePolicy::default().on_conflict(self.conflict))
                .build()
                .unwrap();
        let request = if self.is_streamed { request.streamed() } else { request };
        std::future::poll_fn(|cx| pipeline.poll_ready(cx)).await.unwrap();
        let outcome = match pipeline.call(request).await {
            Ok(response) => response.collect().await,
            Err(error) => Err(error),
        };
        (outcome, server.received())
    }

    async fn service_id(&self) -> Option<String> {
        let head = self.store.head(&key()).await.unwrap();
        head.service_id.map(|id| id.to_string())
    }

    async fn roles(&self) -> Vec<Role> {
        let history = self.store.load(&key()).await.unwrap();
        history.messages.iter().map(|message| message.role).collect()
    }
}

/// Returns every combination of mode and streaming for a history storage.
fn all_stacks(storage: HistoryStorage, conflict: ConflictPolicy) -> Vec<Stack> {
    let ways = BOTH_MODES.into_iter().flat_map(|mode| [false, true].map(|way| (mode, way)));
    let stacks = ways.map(|(mode, is_streamed)| Stack {
        store: MemoryStore::new(),
        mode,
        conflict,
        storage,
        is_streamed,
    });
    stacks.collect()
}

fn key() -> ConversationKey {
    ConversationKey::new("alice", "orders")
}

fn id(answer: &Answer) -> Option<&str> {
    let id = answer.finish.history_owner.as_ref().and_then(HistoryOwner::service_id);
    id.map(|id| &**id)
}

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

fn result() -> Value {
    json!({"type": "function_call_output", "call_id": "call_1", "output": "f did it"})
}

#[tokio::test]
async fn with_stored_responses_each_call_sends_the_new_input_and_the_newest_response_id() {
    for conflict in [STOP, RECORD] {
        for stack in all_stacks(HistoryStorage::Response, conflict) {
            let replies = [response_with_call("resp_1", "call_1"), text_response("resp_2", "done")];
            let (answer, sent) = stack.run("go", replies).await;
            assert_eq!(id(&answer.unwrap()), Some("resp_2"));
            assert_eq!(sent[0].body["input"], json!([user("go")]));
            assert_eq!(sent[0].body.get("previous_response_id"), None);
            assert_eq!(sent[1].body["input"], json!([result()]));
            assert_eq!(sent[1].body["previous_response_id"], "resp_1");
            assert_eq!(stack.service_id().await.as_deref(), Some("resp_2"));

            let replies = [response_with_call("resp_3", "call_1"), text_response("resp_4", "done")];
            let (answer, sent) = stack.run("again", replies).await;
            assert_eq!(id(&answer.unwrap()), Some("resp_4"));
            assert_eq!(sent[0].body["input"], json!([user("again")]));
            assert_eq!(sent[0].body["previous_response_id"], "resp_2");
            assert_eq!(sent[1].body["input"], json!([result()]));
            assert_eq!(sent[1].body["previous_response_id"], "resp_3");
            assert_eq!(stack.service_id().await.as_deref(), Some("resp_4"));
            let recorded = if conflict == STOP { 0 } else { 8 };
            assert_eq!(stack.roles().await.len(), recorded);
        }
    }
}

#[tokio::test]
async fn with_a_service_conversation_each_call_sends_the_same_id_and_only_new_input() {
    let answered = |mut response: Value| {
        response["conversation"] = json!({"id": "conv_1"});
        response
    };
    for stack in all_stacks(HistoryStorage::Conversation, STOP) {
        let made = json!({"id": "conv_1", "object": "conversation"});
        let replies = [
            made,
            answered(response_with_call("resp_1", "call_1")),
            answered(text_response("resp_2", "done")),
        ];
        let (answer, sent) = stack.run("go", replies).await;
        assert_eq!(id(&answer.unwrap()), Some("conv_1"));
        assert!(sent[0].head.starts_with("post /v1/conversations "));
        assert_eq!(sent[1].body["input"], json!([user("go")]));
        assert_eq!(sent[2].body["input"], json!([result()]));
        for sent in &sent[1..] {
            assert_eq!(sent.body["conversation"], "conv_1");
            assert_eq!(sent.body.get("previous_response_id"), None);
        }
        assert_eq!(stack.service_id().await.as_deref(), Some("conv_1"));

        let (answer, sent) = stack.run("again", [answered(text_response("resp_3", "done"))]).await;
        assert_eq!(id(&answer.unwrap()), Some("conv_1"));
        assert_eq!(sent[0].body["input"], json!([user("again")]));
        assert_eq!(sent[0].body["conversation"], "conv_1");
        assert_eq!(stack.service_id().await.as_deref(), Some("conv_1"));
    }
}

#[tokio::test]
async fn with_the_history_in_the_store_every_service_call_sends_the_whole_history() {
    let reasoning = json!({"id": "rs_1", "type": "reasoning", "summary": [],
        "encrypted_content": "gAAA"});
    let mut first = response_with_call("resp_1", "call_1");
    first["output"].as_array_mut().unwrap().insert(0, reasoning);
    for stack in all_stacks(HistoryStorage::Caller, ConflictPolicy::default()) {
        let (answer, sent) =
            stack.run("go", [first.clone(), text_response("resp_2", "done")]).await;
        assert_eq!(id(&answer.unwrap()), None);
        let mut all = vec![user("go")];
        all.extend(first["output"].as_array().unwrap().iter().cloned());
        all.push(result());
        assert_eq!(sent[1].body["input"], json!(all));

        let (answer, sent) = stack.run("again", [text_response("resp_3", "done")]).await;
        answer.unwrap();
        all.extend(text_response("resp_2", "done")["output"].as_array().unwrap().iter().cloned());
        all.push(user("again"));
        assert_eq!(
            sent[0].body["input"],
            json!(all),
            "items and reasoning are sent back unchanged"
        );
        assert_eq!(sent[0].body["store"], false);
        assert_eq!(stack.service_id().await, None);
        assert_eq!(stack.roles().await.len(), 6);
    }
}

#[tokio::test]
async fn by_default_it_is_a_conflict_if_the_service_also_stores_the_history() {
    for stack in all_stacks(HistoryStorage::Response, ConflictPolicy::default()) {
        let (outcome, _) = stack.run("go", [text_response("resp_1", "hello")]).await;
        let error = outcome.unwrap_err().downcast::<PersistenceError>().unwrap();
        assert!(matches!(*error, PersistenceError::ServiceKeepsHistory { .. }), "{error}");
        assert_eq!(error.answer().unwrap().text(), "hello");
        assert_eq!(stack.service_id().await, None);
    }
}

#[tokio::test]
async fn a_history_at_the_service_continues_there_after_the_setting_has_changed() {
    for mut stack in all_stacks(HistoryStorage::Response, STOP) {
        stack.run("go", [text_response("resp_1", "hello")]).await.0.unwrap();
        stack.storage = HistoryStorage::Caller;
        let (answer, sent) = stack.run("again", [text_response("resp_2", "hello")]).await;
        assert_eq!(id(&answer.unwrap()), Some("resp_2"));
        assert_eq!(sent[0].body["previous_response_id"], "resp_1");
        assert_eq!(sent[0].body["input"], json!([user("again")]));
    }
}

#[tokio::test]
async fn after_a_failed_service_call_the_stored_id_is_that_of_the_last_persisted_answer() {
    let limit = json!({"error": {"status": 429, "message": "slow down", "code": "rate_limit"}});
    for stack in all_stacks(HistoryStorage::Response, RECORD) {
        stack.run("hi", [text_response("resp_0", "hello")]).await.0.unwrap();
        let replies = [response_with_call("resp_1", "call_1"), limit.clone()];
        let (outcome, sent) = stack.run("go", replies).await;
        outcome.unwrap_err();
        assert_eq!(sent[1].body["previous_response_id"], "resp_1");
        let expected = match stack.mode {
            PersistenceMode::PerServiceCall => "resp_1",
            _ => "resp_0",
        };
        assert_eq!(stack.service_id().await.as_deref(), Some(expected));
        let (answer, sent) = stack.run("more", [text_response("resp_2", "done")]).await;
        answer.unwrap();
        assert_eq!(sent[0].body["previous_response_id"], expected);
        assert_eq!(stack.service_id().await.as_deref(), Some("resp_2"));
    }
}

#[tokio::test]
async fn after_a_fault_the_history_is_as_the_contract_states_and_the_run_continues() {
    let (call, text) = (response_with_call("resp_1", "call_1"), text_response("resp_2", "done"));
    let whole = streamed(&text);
    let half = whole.len() / 2;
    let failed = event(&json!({"type": "response.failed", "response": {"id": "resp_2",
        "status": "failed", "output": [], "error": {"code": "server_error", "message": "down"}}}));
    let limit = r#"{"error":{"message":"slow down","code":"rate_limit"}}"#;
    for fault in [
        Reply::stream(whole.clone()).framed(Framing::EndAt(half)),
        Reply::stream(whole.clone()).framed(Framing::BreakAt(half)),
        Reply::json(429, limit),
        Reply::stream(failed),
        Reply::stream(event(&json!({"type": "error", "message": "down"}))),
    ] {
        for stack in all_stacks(HistoryStorage::Caller, ConflictPolicy::default()) {
            if !stack.is_streamed {
                continue;
            }
            let request = ChatRequest::user("go").in_conversation(key());
            let begun = Reply::stream(streamed(&call));
            let (outcome, sent) = stack.play(request.clone(), [begun.clone(), fault.clone()]).await;
            let error = outcome.unwrap_err();
            assert!(is_retryable_provider_error(&error), "{error}");
            let kept = stack.mode == PersistenceMode::PerServiceCall;
            let roles = [Role::User, Role::Assistant, Role::Tool, Role::Assistant];
            let stored = if kept { &roles[..3] } else { &[] };
            assert_eq!(stack.roles().await, stored, "{fault:?}");
            let undisturbed = &sent[1].body;

            let wanted = [begun, Reply::stream(whole.clone())];
            let wanted = wanted.into_iter().skip(usize::from(kept));
            let (answer, sent) = stack.play(request, wanted).await;
            assert_eq!(answer.unwrap().text(), "done");
            assert_eq!(&sent.last().unwrap().body, undisturbed, "{fault:?}");
            assert_eq!(stack.roles().await, roles, "{fault:?}");
        }
    }
}

#[tokio::test]
async fn a_background_answer_is_stored_when_it_is_complete() {
    let reply = |json: Value| Reply::json(200, json.to_string());
    let pending = json!({"id": "resp_1", "object": "response", "status": "queued", "output": []});
    for (keeping, conflict) in
        [(HistoryStorage::Caller, ConflictPolicy::default()), (HistoryStorage::Response, RECORD)]
    {
        for stack in all_stacks(keeping, conflict) {
            let ask = |options: &dyn Fn(&mut ChatOptions)| {
                let mut chat_options = ChatOptions::default();
                options(&mut chat_options);
                ChatRequest::default().with_options(chat_options).in_conversation(key())
            };
            let mut begun = ask(&|options| options.background = true);
            begun.push(Message::user("go"));
            let (answer, sent) = stack.play(begun, [reply(pending.clone())]).await;
            let token = answer.unwrap().finish.continuation.unwrap();
            assert_eq!((token.as_str(), &sent[0].body["background"]), ("resp_1", &json!(true)));
            assert_eq!(stack.roles().await, [Role::User]);

            let continuation = ask(&|options| options.continuation = Some(token.clone()));
            let (answer, sent) =
                stack.play(continuation, [reply(text_response("resp_1", "done"))]).await;
            assert_eq!(answer.unwrap().text(), "done");
            assert!(sent[0].head.starts_with("get /v1/responses/resp_1 "), "{}", sent[0].head);
            assert_eq!(stack.roles().await, [Role::User, Role::Assistant]);
            let expected = (keeping == HistoryStorage::Response).then_some("resp_1");
            assert_eq!(stack.service_id().await.as_deref(), expected);
        }
    }
}

/// Returns whether the error or one of its sources is a retryable `ProviderError`.
fn is_retryable_provider_error(error: &BoxError) -> bool {
    let mut next: Option<&(dyn std::error::Error + 'static)> = Some(error.as_ref());
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref::<ProviderError>() {
            return error.is_retryable();
        }
        next = error.source();
    }
    false
}
