//! The rules that determine which writes are stored. A write states the revision of its
//! conversation that it expects: the number of the last message, and the incarnation (a random
//! number that changes when the conversation is created again). A submission is the writes of one
//! call of `append`.

use std::{str::FromStr, sync::Arc};

use tower_chat_core::{
    ApprovalRequest, ErrorPart, Media, MediaSource, Message, MessageId, Native, Part, RawJson,
    Reasoning, Role, RunId, Text, ToolCall, ToolResult,
    store::{Revision, ServiceIdChange, author::Write},
};

use super::{
    Store,
    fixture::{
        asking, assert_listed, conflict, key, pending, recorded, refused, revision, stored, submit,
        texts, with_times, write, write_messages,
    },
};

/// A conversation that was never written has no messages and no service id (the id under which the
/// model's service has the history). Its revision is [`Revision::ABSENT`].
pub async fn an_unknown_conversation_is_absent_and_empty(store: Store) {
    assert_eq!(revision(&store, &key("unknown")).await, Revision::ABSENT);
    let history = store.load(&key("unknown")).await.expect("the history is loaded");
    assert!(history.messages.is_empty());
    assert_eq!(history.head.service_id, None);
    assert!(!store.delete(&key("unknown")).await.expect("an absent conversation is deleted"));
    assert_listed(&store, "scope", &[]).await;
}

/// A load returns messages in the order in which they were appended, even over several writes and
/// runs.
pub async fn what_is_appended_is_returned_in_order(store: Store) {
    let key = key("order");
    let first = stored(&store, write(&key, Revision::ABSENT, &["1", "2"])).await;
    assert_eq!(revision(&store, &key).await, first);
    let second = stored(&store, write(&key, first, &["3"])).await;
    let third = submit(
        &store,
        vec![
            write(&key, second, &["4", "5"]),
            write(&key, Revision { sequence: 5, ..second }, &["6"]),
        ],
    );
    let third = third.await.expect("both writes are stored");
    assert_eq!(third, Revision { sequence: 6, ..first }, "the incarnation is unchanged");
    assert_eq!(texts(&store, &key).await, ["1", "2", "3", "4", "5", "6"]);
    assert_eq!(revision(&store, &key).await, third);
}

/// Loaded messages have the ids that their writes assigned.
pub async fn loaded_messages_carry_their_ids(store: Store) {
    let key = key("ids");
    let (run, other) = (RunId::new(), RunId::new());
    let messages = |texts: &[&str]| texts.iter().map(|text| Message::user(*text).into()).collect();
    let messages: [Vec<_>; 2] = [messages(&["a", "b"]), messages(&["c"])];
    let [first, second] = messages;
    let first = Write::new(key.clone(), MessageId { run, index: 5 }, Revision::ABSENT, first);
    let after = stored(&store, first).await;
    let second = Write::new(key.clone(), MessageId { run: other, index: 0 }, after, second);
    stored(&store, second).await;
    let history = store.load(&key).await.expect("the history is loaded");
    let ids: Vec<_> = history.messages.iter().filter_map(|message| message.id).collect();
    assert_eq!(ids, [(run, 5), (run, 6), (other, 0)].map(|(run, index)| MessageId { run, index }));
}

/// A load returns every kind of part unchanged. Arguments, and items in a provider's own format,
/// are returned byte for byte.
pub async fn messages_are_returned_as_they_were(store: Store) {
    let item = RawJson::from_str(r#"{ "z":1.50, "a":1E+2, "a":[ ], "e":"\u00e9\/" }"#);
    let native = Native::new("some-wire", item.expect("the JSON is valid"));
    let mut text = Text::new("\"quotes\" 'single' \0 \u{1F600} \r\n\t \\ %s ?1 $1");
    text.native = Some(native.clone());
    let mut reasoning = Reasoning::new("");
    reasoning.native = Some(native.clone());
    let mut call = ToolCall::new("", "weather", "{\"city\": \"Pa\0");
    call.native = Some(native.clone());
    let mut result = ToolResult::error("", "no such city");
    result.name = Some("weather".to_owned());
    let approval = ApprovalRequest::new("a1", ToolCall::without_id("pay", ""), true);
    let media = Media::new("image/png", MediaSource::Base64("AAAA".to_owned()));
    let mut named = Message::user("");
    named.author = Some("alice".to_owned());
    named.metadata.insert("key".to_owned(), true.into());
    let messages = [
        Message::system("be brief"),
        Message::new(Role::Developer, vec![]),
        named,
        Message::new(
            Role::Assistant,
            vec![reasoning.into(), text.into(), call.into(), Part::Native(native)],
        ),
        Message::tool_results([result]),
        Message::new(Role::Assistant, vec![approval.clone().into(), ErrorPart::new("x").into()]),
        Message::new(Role::User, vec![approval.reject("no").into(), media.into()]),
    ];
    let key = key("parts");
    let write = write_messages(&key, Revision::ABSENT, messages);
    stored(&store, write.clone()).await;
    let loaded = store.load(&key).await.expect("the history is loaded").messages;
    assert_eq!(loaded.len(), write.messages().len());
    for (loaded, written) in loaded.iter().zip(write.messages()) {
        assert_eq!(loaded, written);
    }
}

/// A write is refused as a whole if it does not expect the current revision of the conversation.
/// The conflict contains the revision of the conversation.
pub async fn a_write_at_another_revision_is_a_conflict_and_stores_nothing(store: Store) {
    let (key, unknown) = (key("conflict"), key("conflict of nothing"));
    let current = stored(&store, write(&key, Revision::ABSENT, &["1", "2"])).await;
    for expected in [
        Revision::ABSENT,
        Revision { sequence: 1, ..current },
        Revision { sequence: 3, ..current },
        Revision { sequence: 0, ..current },
        Revision { incarnation: current.incarnation ^ 1, ..current },
        Revision { incarnation: 0, ..current },
    ] {
        let conflict = refused(&store, write(&key, expected, &["x", "y"])).await;
        assert_eq!(conflict.found, current, "expecting {expected:?}");
        let empty = write(&key, expected, &[]);
        let empty = empty.with_service_id(ServiceIdChange::Set("other".into()));
        assert_eq!(refused(&store, empty).await.found, current, "expecting {expected:?}");
    }
    assert_eq!(refused(&store, write(&unknown, current, &["x"])).await.found, Revision::ABSENT);
    assert_eq!(texts(&store, &key).await, ["1", "2"]);
    assert_eq!(store.head(&key).await.expect("the head is read").service_id, None);
    assert_eq!(revision(&store, &unknown).await, Revision::ABSENT);
    assert_listed(&store, "scope", &[key]).await;
}

/// If a stored write is submitted again, the store reports success and changes nothing. The
/// repetition may be the next submission or a later one.
pub async fn a_repeated_write_stores_nothing_twice(store: Store) {
    let key = key("repeat");
    let first = write(&key, Revision::ABSENT, &["1", "2"])
        .with_service_id(ServiceIdChange::Set("old".into()));
    stored(&store, first.clone()).await;
    stored(&store, first.clone()).await;
    let second =
        write(&key, first.result(), &["3"]).with_service_id(ServiceIdChange::Set("new".into()));
    let repeated = submit(&store, vec![second.clone(), second.clone()]).await;
    assert_eq!(repeated.expect("the write is acknowledged"), second.result());
    assert_eq!(stored(&store, first).await.sequence, 2);
    assert_eq!(texts(&store, &key).await, ["1", "2", "3"]);
    let head = store.head(&key).await.expect("the head is read");
    assert_eq!((head.revision, head.service_id.as_deref()), (second.result(), Some("new")));
}

/// A store identifies a write by its id and not by its content.
pub async fn equal_messages_of_different_writes_are_all_stored(store: Store) {
    let key = key("equal");
    let mut expected = Revision::ABSENT;
    for _ in 0..3 {
        expected = stored(&store, write(&key, expected, &["same", "same"])).await;
    }
    assert_eq!(texts(&store, &key).await, ["same"; 6]);
}

/// If a write of a submission fails, the earlier writes of the submission are durable, and the
/// later writes are not stored.
pub async fn a_submission_stops_at_the_first_write_that_fails(store: Store) {
    let (key, other) = (key("several"), key("other"));
    let first = write(&key, Revision::ABSENT, &["1"]);
    let second = write(&key, first.result(), &["2"]);
    let wrong = write(&key, first.result(), &["x"]);
    let late = write(&other, Revision::ABSENT, &["late"]);
    let error = submit(&store, vec![first, second, wrong, late]).await.expect_err("a conflict");
    assert_eq!(error.completed, 2);
    assert_eq!(conflict(error).found.sequence, 2);
    assert_eq!(texts(&store, &key).await, ["1", "2"]);
    assert_eq!(revision(&store, &other).await, Revision::ABSENT);
}

/// The service id (the id under which the model's service has the history) changes only if a write
/// sets or clears it.
pub async fn a_service_id_is_set_kept_and_cleared(store: Store) {
    let key = key("service id");
    let service_id = async || store.head(&key).await.expect("the head is read").service_id;
    let set = |id: &str| ServiceIdChange::Set(id.into());
    let mut at =
        stored(&store, write(&key, Revision::ABSENT, &["1"]).with_service_id(set("conv '1'\0")))
            .await;
    assert_eq!(service_id().await.as_deref(), Some("conv '1'\0"));
    at = stored(&store, write(&key, at, &["2"])).await;
    assert_eq!(service_id().await.as_deref(), Some("conv '1'\0"));
    at = stored(&store, write(&key, at, &["3"]).with_service_id(set("conv_2"))).await;
    assert_eq!(service_id().await.as_deref(), Some("conv_2"));
    at = stored(&store, write(&key, at, &[]).with_service_id(set(""))).await;
    assert_eq!(service_id().await.as_deref(), Some(""));
    at = stored(&store, write(&key, at, &[]).with_service_id(ServiceIdChange::Clear)).await;
    assert_eq!(service_id().await, None);
    assert_eq!(revision(&store, &key).await, at);
    assert_eq!(texts(&store, &key).await, ["1", "2", "3"]);
}

/// A write may have no messages. Such a write creates the conversation, and may set a service id.
pub async fn a_write_without_messages_makes_a_conversation(store: Store) {
    let key = key("empty");
    let empty =
        write(&key, Revision::ABSENT, &[]).with_service_id(ServiceIdChange::Set("conv_1".into()));
    let at = stored(&store, empty.clone()).await;
    assert_ne!(at, Revision::ABSENT);
    assert_eq!(revision(&store, &key).await, at);
    stored(&store, empty).await;
    assert_eq!(refused(&store, write(&key, Revision::ABSENT, &["x"])).await.found, at);
    assert_listed(&store, "scope", std::slice::from_ref(&key)).await;
    stored(&store, write(&key, at, &["1"])).await;
    assert_eq!(texts(&store, &key).await, ["1"]);
    let head = store.head(&key).await.expect("the head is read");
    assert_eq!(head.service_id.as_deref(), Some("conv_1"));
}

/// A store accepts a message of 4 MB and a write of 2,000 messages, and does not truncate them.
pub async fn large_messages_and_writes_are_stored(store: Store) {
    let key = key("large");
    let text = "0123456789abcde\u{e9}".repeat(256 * 1024);
    let at = stored(&store, write(&key, Revision::ABSENT, &[&text])).await;
    let numbers: Vec<String> = (0..2_000).map(|number| number.to_string()).collect();
    let numbers: Vec<&str> = numbers.iter().map(String::as_str).collect();
    stored(&store, write(&key, at, &numbers)).await;
    let loaded = texts(&store, &key).await;
    assert_eq!(loaded.len(), 2_001);
    assert!(loaded[0] == text, "the long text is returned unchanged");
    assert_eq!(loaded[1..], numbers);
}

/// Messages are returned in the order of the writes, even if their ids are out of order, because
/// the clock was set back between two writes. The recorded end of a tool may precede its start.
pub async fn messages_keep_their_order_when_clocks_are_set_back(store: Store) {
    let key = key("clocks");
    let mut at = Revision::ABSENT;
    let seconds = [5_000_000_u64, 4_000_000, 4_000_001, 0, 9_000_000_000, 1, 5_000_000];
    for second in seconds {
        let mut bytes = RunId::new().to_bytes();
        bytes[..6].copy_from_slice(&(second * 1000).to_be_bytes()[2..]);
        let id = MessageId { run: RunId::from_bytes(bytes), index: 0 };
        let call = at.sequence + 2;
        let messages = [Message::user(second.to_string()), asking(&["tool"])];
        let row = with_times(pending(call, 0, "tool"), second + 10, second);
        let write = Write::new(key.clone(), id, at, messages.map(Arc::new)).with_tools(vec![row]);
        at = stored(&store, write).await;
    }
    let expected: Vec<String> =
        seconds.iter().flat_map(|second| [second.to_string(), String::new()]).collect();
    assert_eq!(texts(&store, &key).await, expected);
    let calls: Vec<u64> = recorded(&store, &key).await.iter().map(|call| call.sequence).collect();
    assert_eq!(calls, [2, 4, 6, 8, 10, 12, 14]);
    // The loaded history identifies the last message of each run.
    let history = store.load(&key).await.expect("the history is loaded");
    let runs: Vec<_> =
        history.messages.iter().filter_map(|message| Some(message.id?.run)).collect();
    for (position, run) in runs.iter().enumerate().skip(1).step_by(2) {
        assert_eq!(history.end_of_run(*run), Some(position + 1), "run {position} is found");
    }
    assert_eq!(history.end_of_run(RunId::new()), None);
}
