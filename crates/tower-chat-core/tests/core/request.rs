//! Requests: what a clone shares, what a history before them moves, what a model client refuses.

use std::sync::Arc;

use tower_chat_core::{
    ChatOptions, ChatRequest, ConversationKey, HistoryOwner, Message, MessageId, Messages, RunId,
    SentinelAtClient,
};

fn history(length: usize) -> Messages {
    (0..length).map(|number| Message::user(format!("old {number}"))).collect()
}

#[test]
fn the_sentinel_is_refused_at_a_model() {
    let mut request = ChatRequest::user("hi");
    assert_eq!(request.service_id(), Ok(None));
    request.history_owner = Some(HistoryOwner::Local);
    assert_eq!(request.service_id(), Err(SentinelAtClient));
    let request = request.with_service_id("conv_1");
    assert_eq!(request.service_id().map(|id| id.map(|id| &**id)), Ok(Some("conv_1")));
}

#[test]
fn a_history_goes_before_the_messages_and_is_not_the_requests_own() {
    for length in [0, 1, 64, 65, 10_000] {
        let mut request = ChatRequest::new([Message::user("a"), Message::user("b")]);
        let before = history(length);
        request.prepend(&before);
        assert_eq!((request.messages.len(), request.new_from), (length + 2, length));
        let texts: Vec<_> = request.new_messages().iter().map(|m| m.text()).collect();
        assert_eq!(texts, ["a", "b"]);
        assert!(request.messages.iter().zip(before.iter()).all(|(l, r)| Arc::ptr_eq(l, r)));
    }
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
fn changing_a_clone_leaves_the_original_alone() {
    let request = ChatRequest::user("hi");
    let mut changed = request.clone().streamed();
    changed.messages.push(Message::user("more"));
    assert!(changed.options.stream && !request.options.stream);
    assert_eq!(request.messages.len(), 1);
}

#[test]
fn other_options_leave_the_stream_and_the_instructions() {
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
fn clones_share_the_run_handle_and_take_in_order() {
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
fn run_and_message_ids_come_back_from_text_and_bytes() {
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
