//! Tests calls in user and system messages, which no provider accepts.

use tower_chat::{
    HistoryStore, Message, Part, Role, ToolCall, ToolResult,
    message::MessageId,
    run::{Conversation, RunId},
    store::{Revision, author::Write},
    validate::validate_messages,
};
use tower_chat_testkit::{ScriptedModel, Step};

use crate::common::*;

fn with_call(role: Role, text: &str, id: &str) -> Message {
    Message::new(role, vec![Part::text(text), ToolCall::new(id, "look", "{}").into()])
}

/// Returns a store that another program, such as an import, has filled.
async fn store_of_another_writer() -> Store {
    let store = store();
    let messages = [
        with_call(Role::System, "system words", "c1"),
        with_call(Role::User, "first words", "c2"),
        Message::tool_results([ToolResult::new("c2", "a result that somebody made up")]),
        Message::assistant("first answer"),
    ];
    let first = MessageId { run: RunId::new(), index: 0 };
    let write = Write::new(key(), first, Revision::ABSENT, messages.map(Into::into));
    let slot = store.inner().reserve().await.unwrap();
    store.inner().append(slot, vec![write]).await.unwrap();
    store
}

#[tokio::test]
async fn calls_of_users_and_systems_are_stored_and_shown_to_no_model() {
    every_case(async |case| {
        let store = store_of_another_writer().await;
        let model = ScriptedModel::new([
            case.calls([("look", "c1")]),
            Step::text("second answer"),
            Step::text("third answer"),
        ]);
        let tool_log = ToolLog::default();
        let client = case.stack(model.clone(), &store, policy(), tools(&tool_log));
        let words = with_call(Role::User, "second words", "c1");
        let second = case.request_with([words]);
        send(&client, second.clone()).await.unwrap();
        let third = case.request_with([with_call(Role::Developer, "third words", "c3")]);
        send(&client, third).await.unwrap();

        for (call, request) in model.requests().iter().enumerate() {
            let messages = request.messages().iter().map(|message| &**message);
            let checked = validate_messages(messages);
            assert!(checked.is_ok(), "{case} call {call}: {checked:?}");
        }
        let conversation = ["system system words", "user first words", "assistant first answer"];
        let round = ["user second words", "assistant look#c1", "tool c1=looked c1"];
        let shown = [&conversation[..], &round, &["assistant second answer"]].concat();
        assert_eq!(sent_texts(&model, 2), [&shown[..], &["developer third words"]].concat());
        assert_eq!(tool_log.names(), ["look"], "the calls of users run no tool");

        // The calls are stored, so that the layers recognise the request when it is sent again.
        assert!(stored(&store).await.contains(&"user second words look#c1".to_owned()));
        let run = second.extensions.get::<Conversation>().unwrap().run;
        let rows = store.inner().load(&key()).await.unwrap().messages;
        let of_run = rows.iter().filter(|message| message.id.is_some_and(|id| id.run == run));
        assert_eq!(of_run.count(), 4);
        let again = send(&client, second).await.unwrap();
        assert_eq!(again.text(), "second answer");
        assert_eq!(model.requests().len(), 3);
    })
    .await;
}
