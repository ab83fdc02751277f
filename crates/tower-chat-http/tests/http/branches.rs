//! Clients that edit their transcript, or ask for another answer, at an endpoint with branches.

use axum::{body::Body, response::Response};
use http::{Request, StatusCode};
use serde_json::{Value, json};
use tower::ServiceExt;
use tower_chat::{
    ChatPipeline, ConversationKey, HistoryStore, MemoryStore, Message, PersistenceMode,
    ToolContext, ToolDefinition, Tools,
    store::{ConversationQuery, Directory, Keep, Maintenance, Parent},
    tool_fn,
};
use tower_chat_http::{CONVERSATION_HEADER, ChatEndpoint, RUN_HEADER};
use tower_chat_testkit::{ScriptedModel, Step};

use crate::support::stack;

struct Fixture {
    model: ScriptedModel,
    store: MemoryStore,
    endpoint: ChatEndpoint,
}

/// A transcript of questions and answers.
fn transcript(texts: &[&str]) -> Value {
    let roles = ["user", "assistant"].into_iter().cycle();
    let messages = roles.zip(texts).map(|(role, text)| json!({"role": role, "content": text}));
    messages.collect()
}

fn key(id: &str) -> ConversationKey {
    ConversationKey::new("alice", id)
}

impl Fixture {
    /// Creates an endpoint with branches, whose conversation `c` has two turns.
    async fn new(answers: &[&str]) -> Self {
        let answers = ["a1", "a2"].iter().chain(answers);
        let model = ScriptedModel::new(answers.map(|text| Step::text(*text)));
        let store = MemoryStore::new();
        let mode = PersistenceMode::PerServiceCall;
        let endpoint = ChatEndpoint::new(stack(model.clone(), store.clone(), mode), store.clone());
        let endpoint = endpoint.in_one_scope("alice").with_branches();
        let fixture = Self { model, store, endpoint };
        for sent in [&["q1"][..], &["q1", "a1", "q2"]] {
            assert_eq!(fixture.send("c", sent, &[]).await.0, StatusCode::OK);
        }
        fixture
    }

    /// Sends a transcript. Returns the status, the id in the response, and the text of the answer.
    async fn send(
        &self,
        id: &str,
        texts: &[&str],
        headers: &[(&str, &str)],
    ) -> (StatusCode, String, String) {
        let body = json!({"model": "m", "conversation": id, "messages": transcript(texts)});
        let mut request = Request::post("/v1/chat/completions");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Body::from(body.to_string())).unwrap();
        let response: Response =
            self.endpoint.clone().into_router().oneshot(request).await.unwrap();
        let status = response.status();
        let id = response.headers().get(CONVERSATION_HEADER).cloned();
        let id = id.map(|id| id.to_str().unwrap().to_owned()).unwrap_or_default();
        let body = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
        let body: Value = serde_json::from_slice(&body).unwrap();
        let text = body["choices"][0]["message"]["content"].as_str().unwrap_or_default();
        (status, id, text.to_owned())
    }

    async fn texts(&self, id: &str) -> Vec<String> {
        let history = self.store.load(&key(id)).await.unwrap();
        history.messages.iter().map(|message| message.text()).collect()
    }

    async fn branches(&self) -> usize {
        let query = ConversationQuery::in_scope("alice").branches_of(key("c"));
        self.store.conversations(&query).await.unwrap().conversations.len()
    }
}

#[tokio::test]
async fn an_edited_question_is_answered_in_a_branch_that_can_be_continued() {
    let fixture = Fixture::new(&["a2 again", "a3"]).await;
    let (status, branch, text) = fixture.send("c", &["q1", "a1", "edited"], &[]).await;
    assert_eq!((status, text.as_str()), (StatusCode::OK, "a2 again"));
    assert_ne!(branch, "c");
    assert_eq!(fixture.texts("c").await, ["q1", "a1", "q2", "a2"]);
    assert_eq!(fixture.texts(&branch).await, ["q1", "a1", "edited", "a2 again"]);
    let summary = fixture.store.summary(&key(&branch)).await.unwrap().unwrap();
    assert_eq!(summary.parent, Some(Parent::new(key("c"), 2)));
    let sent = ["q1", "a1", "edited", "a2 again", "q3"];
    let (status, id, _) = fixture.send(&branch, &sent, &[]).await;
    assert_eq!((status, &id), (StatusCode::OK, &branch));
    assert_eq!(fixture.texts(&branch).await.len(), 6);
    assert_eq!(fixture.branches().await, 1);
    let requests = fixture.model.requests();
    let sent: Vec<_> = requests[2].messages().iter().map(|message| message.text()).collect();
    assert_eq!(sent, ["q1", "a1", "edited"]);
}

#[tokio::test]
async fn an_edited_answer_of_the_model_begins_a_branch() {
    let fixture = Fixture::new(&["a3"]).await;
    let sent = ["q1", "a1", "q2", "other", "q3"];
    let (status, branch, _) = fixture.send("c", &sent, &[]).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(fixture.texts(&branch).await, ["q1", "a1", "q2", "other", "q3", "a3"]);
    let summary = fixture.store.summary(&key(&branch)).await.unwrap().unwrap();
    assert_eq!(summary.parent, Some(Parent::new(key("c"), 2)));
}

#[tokio::test]
async fn a_second_answer_to_the_last_question_is_stored_in_a_branch() {
    let fixture = Fixture::new(&["another"]).await;
    let again = ["q1", "a1", "q2"];
    let retry = [("x-stainless-retry-count", "1")];
    assert_eq!(fixture.send("c", &again, &retry).await.2, "a2", "the stored answer");
    assert_eq!(fixture.branches().await, 0);
    let (_, branch, text) = fixture.send("c", &again, &[]).await;
    assert_eq!(text, "another");
    assert_eq!(fixture.texts(&branch).await, ["q1", "a1", "q2", "another"]);
    assert_eq!(fixture.texts("c").await, ["q1", "a1", "q2", "a2"]);
}

#[tokio::test]
async fn a_repeated_request_of_a_run_continues_in_the_branch_of_the_run() {
    let fixture = Fixture::new(&["another", "and another"]).await;
    let run = [(RUN_HEADER, "0197a5c2-0000-7000-8000-000000000001")];
    for sent in [["q1", "a1", "edited"], ["q1", "a1", "edited"]] {
        let (status, branch, text) = fixture.send("c", &sent, &run).await;
        assert_eq!((status, text.as_str()), (StatusCode::OK, "another"));
        assert_eq!(fixture.texts(&branch).await, ["q1", "a1", "edited", "another"]);
    }
    assert_eq!((fixture.branches().await, fixture.model.requests().len()), (1, 3));
}

#[tokio::test]
async fn a_client_can_request_another_answer_to_an_earlier_question() {
    let fixture = Fixture::new(&["a3", "another"]).await;
    fixture.send("c", &["q1", "a1", "q2", "a2", "q3"], &[]).await;
    let (_, branch, text) = fixture.send("c", &["q1", "a1", "q2"], &[]).await;
    assert_eq!(text, "another");
    assert_eq!(fixture.texts(&branch).await, ["q1", "a1", "q2", "another"]);
}

#[tokio::test]
async fn a_transcript_that_shares_no_turn_with_the_history_begins_an_empty_branch() {
    let fixture = Fixture::new(&["new"]).await;
    let (status, branch, _) = fixture.send("c", &["other", "answer", "q2"], &[]).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(fixture.texts(&branch).await, ["other", "answer", "q2", "new"]);
    let summary = fixture.store.summary(&key(&branch)).await.unwrap().unwrap();
    assert_eq!(summary.parent, Some(Parent::new(key("c"), 0)));
}

#[tokio::test]
async fn a_branch_from_the_end_of_a_transcript_contains_all_earlier_turns() {
    let fixture = Fixture::new(&["a3", "a4", "new"]).await;
    fixture.send("c", &["q1", "a1", "q2", "a2", "q3"], &[]).await;
    fixture.send("c", &["q1", "a1", "q2", "a2", "q3", "a3", "q4"], &[]).await;
    let (status, branch, _) = fixture.send("c", &["q3", "a3", "edited"], &[]).await;
    assert_eq!(status, StatusCode::OK);
    let expected = ["q1", "a1", "q2", "a2", "q3", "a3", "edited", "new"];
    assert_eq!(fixture.texts(&branch).await, expected);
}

#[tokio::test]
async fn the_end_of_a_transcript_that_is_not_found_in_the_history_is_refused() {
    let fixture = Fixture::new(&["a3", "never"]).await;
    fixture.send("c", &["q1", "a1", "q2", "a2", "q3"], &[]).await;
    let sent = ["changed", "a2", "q3", "a3", "q4"];
    assert_eq!(fixture.send("c", &sent, &[]).await.0, StatusCode::CONFLICT);
    assert_eq!(fixture.branches().await, 0);
}

#[tokio::test]
async fn a_branch_contains_the_messages_that_a_tool_has_queued() {
    let calls = Message::tool_calls([tower_chat_layers::ToolCall::new("c1", "note", "{}")]);
    let steps = [Step::message(calls), Step::text("a1"), Step::text("a2")];
    let model = ScriptedModel::new(steps.into_iter().chain([Step::text("new")]));
    let definition = ToolDefinition::new("note", "Queues a message.", json!({"type": "object"}));
    let note = tool_fn(definition, |context: ToolContext| async move {
        context.queue(Message::user("queued"));
        Ok("noted")
    });
    let store = MemoryStore::new();
    let pipeline = ChatPipeline::builder(model.clone()).tools(Tools::new().with(note));
    let pipeline = pipeline.history(store.clone()).build().unwrap();
    let endpoint = ChatEndpoint::new(pipeline, store.clone()).in_one_scope("alice");
    let fixture = Fixture { model, store, endpoint: endpoint.with_branches() };
    for sent in [&["q1"][..], &["q1", "a1", "q2"]] {
        assert_eq!(fixture.send("c", sent, &[]).await.0, StatusCode::OK);
    }
    let (status, branch, _) = fixture.send("c", &["q1", "a1", "edited"], &[]).await;
    assert_eq!(status, StatusCode::OK);
    let texts = fixture.texts(&branch).await;
    assert!(texts.contains(&"queued".to_owned()), "{texts:?}");
    assert_eq!(texts[texts.len() - 3..], ["a1", "edited", "new"]);
}

#[tokio::test]
async fn a_complete_transcript_is_recognised_although_the_history_was_pruned() {
    let fixture = Fixture::new(&["a3", "new"]).await;
    fixture.send("c", &["q1", "a1", "q2", "a2", "q3"], &[]).await;
    assert_eq!(fixture.store.prune(&key("c"), Keep::Messages(4)).await.unwrap().messages, 2);
    let (status, branch, _) = fixture.send("c", &["q1", "a1", "q2", "a2", "edited"], &[]).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(fixture.texts(&branch).await, ["q2", "a2", "edited", "new"]);
}

#[tokio::test]
async fn no_branch_is_created_if_its_id_is_not_valid_in_a_header() {
    let fixture = Fixture::new(&["b1", "never"]).await;
    assert_eq!(fixture.send("gespräch", &["q1"], &[]).await.0, StatusCode::OK);
    let (status, _, _) = fixture.send("gespräch", &["q1", "other", "q2"], &[]).await;
    assert_eq!(status, StatusCode::CONFLICT);
    let query = ConversationQuery::in_scope("alice").branches_of(key("gespräch"));
    assert!(fixture.store.conversations(&query).await.unwrap().conversations.is_empty());
}
