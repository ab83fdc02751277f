//! Tests of requests: clones, prepended histories, and requests that a model client refuses.

use std::sync::Arc;

use tower_chat_core::{
    ChatOptions, ChatRequest, ConversationKey, HistoryOwner, Message, MessageId, Messages, RunId,
    SentinelAtClient,
};

fn history(length: usize) -> Messages {
    (0..length).map(|number| Message::user(format!("old {number}"))).collect()
}

#[test]
fn service_id_returns_an_error_for_a_request_with_the_sentinel() {
    let mut request = ChatRequest::user("hi");
    assert_eq!(request.service_id(), Ok(None));
    request.history_owner = Some(HistoryOwner::Local);
    assert_eq!(request.service_id(), Err(SentinelAtClient));
    let request = request.with_service_id("conv_1");
    assert_eq!(request.service_id().map(|id| id.map(|id| &**id)), Ok(Some("conv_1")));
}

#[test]
fn prepended_history_is_before_the_messages_and_is_not_part_of_the_new_messages() {
    for length in [0, 1, 64, 65, 10_000] {
        let mut request = ChatRequest::new([Message::user("a"), Message::user("b")]);
        let before = history(length);
        request.prepend(&before);
        assert_eq!((request.messages().len(), request.history_len()), (length + 2, length));
        let texts: Vec<_> = request.new_messages().iter().map(|m| m.text()).collect();
        assert_eq!(texts, ["a", "b"]);
        assert!(request.messages().iter().zip(before.iter()).all(|(l, r)| Arc::ptr_eq(l, r)));
        assert_eq!(request.history(), before);
    }
}

#[test]
fn the_history_is_never_longer_than_all_messages() {
    let texts = |messages: Messages| messages.iter().map(|it| it.text()).collect::<Vec<_>>();
    let mut request = ChatRequest::user("a");
    request.prepend(&history(2));
    request.push(Message::user("b"));
    assert_eq!(texts(request.new_messages()), ["a", "b"]);
    request.set_new_messages([Message::user("c")]);
    assert_eq!(texts(request.history()), ["old 0", "old 1"]);
    assert_eq!(texts(request.messages().clone()), ["old 0", "old 1", "c"]);
    request.set_messages(history(3), 1);
    assert_eq!(texts(request.history()), ["old 0"]);
    assert_eq!(texts(request.new_messages()), ["old 1", "old 2"]);
    request.set_messages(history(1), 4);
    assert_eq!((request.history_len(), request.new_messages().len()), (1, 0));
    request.set_new_messages(Messages::new());
    assert_eq!(request.messages(), &history(1));
}

#[test]
fn a_cloned_request_is_the_same_run_in_the_same_conversation() {
    let key = ConversationKey::new("alice", "support");
    let request = ChatRequest::user("hi").in_conversation(key.clone());
    let again = request.clone();
    assert_eq!(request.conversation(), again.conversation());
    assert_eq!(request.conversation().map(|conversation| &conversation.key), Some(&key));
    let other = ChatRequest::user("hi").in_conversation(key);
    assert_ne!(request.conversation(), other.conversation());
}

#[test]
fn changing_a_cloned_request_does_not_change_the_original() {
    let request = ChatRequest::user("hi");
    let mut changed = request.clone().streamed();
    changed.push(Message::user("more"));
    assert!(changed.options.stream && !request.options.stream);
    assert_eq!(request.messages().len(), 1);
}

#[test]
fn with_options_keeps_the_stream_flag_and_the_instructions_unless_they_are_replaced() {
    let request = ChatRequest::user("hi").streamed().with_instructions("be brief");
    let asked = |options: ChatOptions| {
        let options = request.clone().with_options(options).options;
        (options.stream, options.instructions.clone())
    };
    assert_eq!(asked(ChatOptions::new()), (true, Some("be brief".to_owned())));
    let rhyming = ChatOptions::new().with_instructions("rhyme");
    assert_eq!(asked(rhyming), (true, Some("rhyme".to_owned())));
}

#[test]
fn clones_of_a_request_share_one_queue_of_messages_in_order() {
    let mut request = ChatRequest::user("hi");
    let handle = request.run_handle();
    let mut clone = request.clone();
    clone.run_handle().queue(Message::user("one"));
    handle.queue(Message::user("two"));
    assert!(handle.has_queued());
    let texts: Vec<_> = handle.take_queued().iter().map(Message::text).collect();
    assert_eq!(texts, ["one", "two"]);
    assert!(!clone.run_handle().has_queued());
    assert!(clone.run_handle().take_queued().is_empty());
}

#[test]
fn keys_are_equal_only_if_both_halves_are() {
    let key = ConversationKey::new("a", "b/c");
    assert_ne!(key, ConversationKey::new("a/b", "c"));
    assert_eq!(key.to_string(), ConversationKey::new("a/b", "c").to_string());
}

#[test]
fn run_and_message_ids_are_equal_after_a_round_trip() {
    let run = RunId::new();
    assert_ne!(run, RunId::new());
    assert_eq!(RunId::from_bytes(run.to_bytes()), run);
    assert_eq!(run.to_string().parse(), Ok(run));
    let id = MessageId { run, index: u32::MAX };
    assert_eq!(id.to_string().parse(), Ok(id));
    for text in ["", ".", "x.1", &run.to_string(), &format!("{run}.-1"), &format!("{run}.1.2")] {
        assert!(text.parse::<MessageId>().is_err(), "{text}");
    }
}

#[test]
fn a_streamed_request_stays_streamed_with_other_options() {
    let request = ChatRequest::user("hi").streamed().with_options(ChatOptions::default());
    assert!(request.options.stream);
    assert!(!ChatRequest::user("hi").with_options(ChatOptions::default()).options.stream);
}

#[test]
fn the_answer_to_a_call_has_its_name_and_its_id_and_no_id_if_the_call_has_none() {
    use tower_chat_core::ToolCall;
    let result = ToolCall::new("call_7", "weather", "{}").answer("rain");
    let found = (result.call_id.as_deref(), result.name.as_deref(), result.text(), result.is_error);
    assert_eq!(found, (Some("call_7"), Some("weather"), "rain".to_owned(), false));
    assert_eq!(ToolCall::without_id("clock", "").answer("noon").call_id, None);
}

#[test]
fn a_run_id_created_for_a_given_time_contains_this_time() {
    use std::time::{Duration, SystemTime};
    let at = |milliseconds| SystemTime::UNIX_EPOCH + Duration::from_millis(milliseconds);
    for milliseconds in [0, 1, 1_600_000_000_999, (1 << 48) - 1] {
        let (one, other) = (RunId::at(at(milliseconds)), RunId::at(at(milliseconds)));
        assert_eq!(one.made_at(), Some(at(milliseconds)));
        assert_ne!(one, other);
        assert_eq!(one.to_string().as_bytes()[14], b'7', "{one}");
    }
    let before = SystemTime::UNIX_EPOCH - Duration::from_secs(5);
    assert_eq!(RunId::at(before).made_at(), Some(SystemTime::UNIX_EPOCH));
    assert_eq!(RunId::at(at(1 << 48)).made_at(), Some(at((1 << 48) - 1)));
    assert!(RunId::at(at(1_000)) < RunId::at(at(1_001)));
}

#[tokio::test]
async fn imported_turns_are_pruned_by_their_own_age() {
    use std::time::{Duration, SystemTime};
    use tower_chat_core::{
        MemoryStore,
        store::{HistoryStore, Keep, Maintenance, Revision, author::Write},
    };
    let store = MemoryStore::new();
    let key = ConversationKey::new("alice", "imported");
    let day = Duration::from_secs(24 * 3600);
    let now = SystemTime::now();
    let mut revision = Revision::ABSENT;
    for days in [400, 90, 2] {
        let first = MessageId { run: RunId::at(now - day * days), index: 0 };
        let turn = [format!("asked {days} days ago"), format!("answered {days} days ago")];
        let messages = turn.map(|text| Message::user(text).into());
        let write = Write::new(key.clone(), first, revision, messages);
        revision = store.append(store.reserve().await.unwrap(), vec![write]).await.unwrap();
    }
    let pruned = store.prune(&key, Keep::Since(now - day * 30)).await.unwrap();
    assert_eq!((pruned.runs, pruned.messages), (2, 4));
    let left: Vec<String> =
        store.load(&key).await.unwrap().messages.into_iter().map(|it| it.text()).collect();
    assert_eq!(left, ["asked 2 days ago", "answered 2 days ago"]);
}
