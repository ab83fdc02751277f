//! Tests of the requests for edited questions and for regenerated answers. Each of these requests
//! continues in a branch of the conversation.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::SystemTime,
};

use futures_util::FutureExt;
use tower_chat_core::{
    BranchError, ChatRequest, ConversationKey, MemoryStore, Message, MessageId, RunId, ToolCall,
    ToolResult, ToolStatus, is_retryable,
    store::{
        self, Head, History, HistoryStore, Keep, Maintenance, Revision, SequencePosition,
        StoreError,
        author::{RecordedResult, ToolRecord, Write},
    },
};

fn key() -> ConversationKey {
    ConversationKey::new("alice", "c")
}

fn branch() -> ConversationKey {
    ConversationKey::new("alice", "branch")
}

fn user(text: &str) -> Message {
    Message::user(text)
}

fn answer(text: &str) -> Message {
    Message::assistant(text)
}

/// Returns a store with a conversation that has these runs. Each run is given as its messages and
/// the rows of its calls.
fn store(runs: Vec<(Vec<Message>, Vec<ToolRecord>)>) -> MemoryStore {
    let store = MemoryStore::new();
    let mut at = Revision::ABSENT;
    for (messages, rows) in runs {
        let id = MessageId { run: RunId::new(), index: 0 };
        let write = Write::new(key(), id, at, messages.into_iter().map(Arc::new)).with_tools(rows);
        at = write.result();
        let slot = store.reserve().now_or_never().unwrap().unwrap();
        store.append(slot, vec![write]).now_or_never().unwrap().unwrap();
    }
    store
}

/// Returns the id of the message with this number.
fn id(store: &MemoryStore, number: usize) -> MessageId {
    let history = store.load(&key()).now_or_never().unwrap().unwrap();
    history.messages.get(number - 1).unwrap().id.unwrap()
}

fn texts(request: &ChatRequest) -> Vec<String> {
    request.messages().iter().map(|message| message.text()).collect()
}

fn edit(store: &MemoryStore, number: usize, text: &str) -> Result<ChatRequest, BranchError> {
    let question = id(store, number);
    ChatRequest::edit(store, &key(), question, user(text), branch()).now_or_never().unwrap()
}

fn regenerate(store: &MemoryStore, number: Option<usize>) -> Result<ChatRequest, BranchError> {
    let answer = number.map(|number| id(store, number));
    ChatRequest::regenerate(store, &key(), answer, branch()).now_or_never().unwrap()
}

fn branched(store: &MemoryStore) -> Option<usize> {
    let history = store.load(&branch()).now_or_never().unwrap().unwrap();
    (history.head.revision != Revision::ABSENT).then_some(history.messages.len())
}

/// A conversation with two turns, the second with two messages as its input.
fn two_turns() -> MemoryStore {
    store(vec![
        (vec![user("q1"), answer("a1")], vec![]),
        (vec![Message::system("be short"), user("q2"), answer("a2")], vec![]),
    ])
}

#[test]
fn an_edited_request_contains_the_edited_message_and_the_other_input_of_its_turn() {
    let store = two_turns();
    let request = edit(&store, 4, "edited").unwrap();
    assert_eq!(texts(&request), ["be short", "edited"]);
    assert!(request.messages().iter().all(|message| message.id.is_none()));
    assert_eq!(request.conversation().map(|it| it.key.clone()), Some(branch()));
    assert_eq!(branched(&store), Some(2));
    let store = two_turns();
    assert_eq!(texts(&edit(&store, 3, "be long").unwrap()), ["be long", "q2"]);
    let store = two_turns();
    assert_eq!(texts(&edit(&store, 1, "edited").unwrap()), ["edited"]);
    assert_eq!(branched(&store), Some(0));
}

#[test]
fn regenerate_accepts_any_message_of_a_turn_and_defaults_to_the_last_turn() {
    for number in [None, Some(3), Some(4), Some(5)] {
        let store = two_turns();
        assert_eq!(texts(&regenerate(&store, number).unwrap()), ["be short", "q2"], "{number:?}");
        assert_eq!(branched(&store), Some(2));
    }
    let store = two_turns();
    assert_eq!(texts(&regenerate(&store, Some(2)).unwrap()), ["q1"]);
}

#[test]
fn a_refused_request_makes_no_branch() {
    let store = two_turns();
    let refused = edit(&store, 5, "edited");
    assert!(matches!(refused, Err(BranchError::NoQuestion { sequence: 5, .. })), "{refused:?}");
    let unknown = MessageId { run: RunId::new(), index: 0 };
    let refused = ChatRequest::regenerate(&store, &key(), Some(unknown), branch()).now_or_never();
    let refused = refused.unwrap();
    assert!(matches!(refused, Err(BranchError::NoMessage { .. })), "{refused:?}");
    let refused = ChatRequest::regenerate(&store, &branch(), None, key()).now_or_never().unwrap();
    assert!(matches!(refused, Err(BranchError::NoMessage { .. })), "{refused:?}");
    assert_eq!(branched(&store), None);
    let refused = ChatRequest::regenerate(&store, &key(), None, key()).now_or_never().unwrap();
    assert!(matches!(refused, Err(BranchError::Store(StoreError::Exists { .. }))), "{refused:?}");
    assert_eq!(store.load(&key()).now_or_never().unwrap().unwrap().messages.len(), 5);
}

#[test]
fn a_turn_joined_to_an_earlier_turn_by_a_late_result_cannot_be_regenerated_or_edited() {
    let call = SequencePosition { sequence: 2, index: 0 };
    let mut answered = ToolRecord::pending(call, 0, "c1", "weather");
    let asked = answered.clone();
    answered.status = ToolStatus::Ok;
    answered.result = RecordedResult::InMessage(SequencePosition { sequence: 5, index: 0 });
    let asks = Message::tool_calls([ToolCall::new("c1", "weather", "{}")]);
    let result = Message::tool_results([ToolResult::new("c1", "Rain.")]);
    let late = || {
        store(vec![
            (vec![user("q1"), asks.clone()], vec![asked.clone()]),
            (vec![user("q2"), answer("a2")], vec![]),
            (vec![result.clone(), user("q3"), answer("a3")], vec![answered.clone()]),
        ])
    };
    let store = late();
    for refused in [regenerate(&store, None), edit(&store, 3, "edited")] {
        assert!(
            matches!(refused, Err(BranchError::JoinedTurns { position: 0, .. })),
            "{refused:?}"
        );
        assert_eq!(branched(&store), None);
    }
    assert_eq!(texts(&regenerate(&store, Some(2)).unwrap()), ["q1"]);
}

#[test]
fn an_answer_after_an_approval_is_regenerated_from_the_question() {
    let call = SequencePosition { sequence: 4, index: 0 };
    let mut waits = ToolRecord::pending(call, 0, "c1", "pay");
    waits.status = ToolStatus::PendingApproval;
    let mut paid = waits.clone();
    paid.status = ToolStatus::Ok;
    paid.result = RecordedResult::InMessage(SequencePosition { sequence: 5, index: 0 });
    let asks = Message::tool_calls([ToolCall::new("c1", "pay", "{}")]);
    let result = Message::tool_results([ToolResult::new("c1", "paid")]);
    let store = store(vec![
        (vec![user("q1"), answer("a1")], vec![]),
        (vec![user("buy"), asks], vec![waits]),
        (vec![result, answer("bought")], vec![paid]),
    ]);
    assert_eq!(texts(&regenerate(&store, None).unwrap()), ["buy"]);
    assert_eq!(branched(&store), Some(2));
}

#[test]
fn the_input_of_a_turn_includes_messages_up_to_the_last_question_of_its_run() {
    let examples = || {
        let turn = [user("example"), answer("like this"), Message::system("short"), user("q")];
        store(vec![
            (vec![user("q1"), answer("a1")], vec![]),
            (turn.into_iter().chain([answer("a")]).collect(), vec![]),
        ])
    };
    for named in [None, Some(3), Some(4), Some(6), Some(7)] {
        let store = examples();
        let asked = texts(&regenerate(&store, named).unwrap());
        assert_eq!(asked, ["example", "like this", "short", "q"], "{named:?}");
        assert_eq!(branched(&store), Some(2));
    }
    let asked = texts(&edit(&examples(), 6, "edited").unwrap());
    assert_eq!(asked, ["example", "like this", "short", "edited"]);
    for number in [3, 4, 7] {
        let store = examples();
        let refused = edit(&store, number, "edited");
        assert!(matches!(refused, Err(BranchError::NoQuestion { .. })), "{refused:?}");
        assert_eq!(branched(&store), None);
    }
}

#[test]
fn a_turn_with_a_user_message_right_after_a_result_cannot_be_regenerated_or_edited() {
    let asks = Message::tool_calls([ToolCall::new("c1", "weather", "{}")]);
    let result = Message::tool_results([ToolResult::new("c1", "Rain.")]);
    let store = store(vec![(vec![user("q"), asks, result, user("hurry"), answer("a")], vec![])]);
    for refused in [regenerate(&store, None), edit(&store, 1, "edited")] {
        assert!(
            matches!(refused, Err(BranchError::UnclearInput { sequence: 4, .. })),
            "{refused:?}"
        );
        assert_eq!(branched(&store), None);
    }
}

#[test]
fn the_messages_of_the_request_have_no_id_and_no_time() {
    let timed = |mut message: Message| {
        message.added_at = Some(SystemTime::UNIX_EPOCH);
        message
    };
    let turn = vec![timed(Message::system("s")), timed(user("q")), timed(answer("a"))];
    let store = store(vec![(turn, vec![])]);
    let mut edited = timed(user("edited"));
    edited.id = Some(id(&store, 2));
    let question = id(&store, 2);
    let request = ChatRequest::edit(&store, &key(), question, edited, branch()).now_or_never();
    let request = request.unwrap().unwrap();
    assert_eq!(texts(&request), ["s", "edited"]);
    assert!(request.messages().iter().all(|it| it.id.is_none() && it.added_at.is_none()));
}

/// A change of the original conversation.
type Change = fn(&MemoryStore);

/// A store in which the original conversation changes directly after the first load.
struct Racing {
    inner: MemoryStore,
    change: Change,
    loads: AtomicUsize,
    deletions: AtomicUsize,
    fails_at_head: bool,
}

#[async_trait::async_trait]
impl store::author::StoreWrapper for Racing {
    type Inner = MemoryStore;

    fn inner(&self) -> &MemoryStore {
        &self.inner
    }

    async fn head(&self, key: &ConversationKey) -> Result<Head, StoreError> {
        if self.fails_at_head { Err(StoreError::Closed) } else { self.inner.head(key).await }
    }

    async fn load(&self, key: &ConversationKey) -> Result<History, StoreError> {
        let loaded = self.inner.load(key).await;
        if self.loads.fetch_add(1, Ordering::Relaxed) == 0 {
            (self.change)(&self.inner);
        }
        loaded
    }

    async fn delete(&self, key: &ConversationKey) -> Result<bool, StoreError> {
        self.deletions.fetch_add(1, Ordering::Relaxed);
        self.inner.delete(key).await
    }

    fn maintenance(&self) -> Option<&dyn Maintenance> {
        self.inner.maintenance()
    }
}

fn racing(change: Change) -> Racing {
    Racing {
        inner: two_turns(),
        change,
        loads: AtomicUsize::new(0),
        deletions: AtomicUsize::new(0),
        fails_at_head: false,
    }
}

fn delete_original(store: &MemoryStore) {
    assert!(store.delete(&key()).now_or_never().unwrap().unwrap());
}

fn append(store: &MemoryStore, texts: [&str; 2]) {
    let at = store.head(&key()).now_or_never().unwrap().unwrap().revision;
    let id = MessageId { run: RunId::new(), index: 0 };
    let turn = [user(texts[0]), answer(texts[1])].map(Arc::new);
    let slot = store.reserve().now_or_never().unwrap().unwrap();
    store.append(slot, vec![Write::new(key(), id, at, turn)]).now_or_never().unwrap().unwrap();
}

fn race(store: &Racing, number: usize) -> Result<ChatRequest, BranchError> {
    let answer = Some(id(&store.inner, number));
    ChatRequest::regenerate(store, &key(), answer, branch()).now_or_never().unwrap()
}

#[test]
fn a_conversation_that_changes_during_the_fork_is_not_branched() {
    let prune: Change = |store| {
        let pruned = store.prune(&key(), Keep::Messages(2)).now_or_never().unwrap().unwrap();
        assert_eq!(pruned.messages, 2);
    };
    let replace: Change = |store| {
        delete_original(store);
        append(store, ["other q1", "other a1"]);
        append(store, ["other q2", "other a2"]);
    };
    for (change, number) in [(prune, 2), (prune, 4), (replace, 4)] {
        let store = racing(change);
        let refused = race(&store, number).unwrap_err();
        assert!(matches!(refused, BranchError::Changed { .. }), "{refused:?}");
        assert_eq!(is_retryable(&refused), Some(true));
        assert_eq!(branched(&store.inner), None);
    }
}

#[test]
fn nothing_is_deleted_if_the_original_was_deleted_before_the_fork() {
    let store = racing(delete_original);
    let refused = race(&store, 4);
    assert!(matches!(refused, Err(BranchError::NoMessage { .. })), "{refused:?}");
    assert_eq!(store.deletions.load(Ordering::Relaxed), 0);
}

#[test]
fn the_branch_is_deleted_if_the_original_cannot_be_read_again() {
    let mut store = racing(|_| ());
    store.fails_at_head = true;
    let refused = race(&store, 4);
    assert!(matches!(refused, Err(BranchError::Store(StoreError::Closed))), "{refused:?}");
    assert_eq!(branched(&store.inner), None);
}

#[test]
fn an_append_to_the_original_during_the_fork_does_not_affect_the_branch() {
    let store = racing(|store| append(store, ["q3", "a3"]));
    assert_eq!(texts(&race(&store, 4).unwrap()), ["be short", "q2"]);
    assert_eq!(branched(&store.inner), Some(2));
}
