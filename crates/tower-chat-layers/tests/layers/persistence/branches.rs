//! Tests edited questions and regenerated answers. Each of them continues in a branch of the
//! conversation.

use tower_chat::{ConversationKey, HistoryStore, Message, message::MessageId, store::Directory};
use tower_chat_testkit::Step;

use crate::common::*;

fn branch(name: &str) -> ConversationKey {
    ConversationKey::new("alice", name)
}

async fn ids(store: &Store) -> Vec<MessageId> {
    let history = store.inner().load(&key()).await.unwrap();
    history.messages.iter().map(|message| message.id.unwrap()).collect()
}

#[tokio::test]
async fn a_question_is_edited_and_an_answer_regenerated_in_a_branch() {
    every_id(async |case| {
        let steps = [
            case.calls([("pay", "c1")]),
            Step::text("two"),
            Step::text("three"),
            Step::text("edited three"),
            Step::text("regenerated three"),
            Step::text("regenerated one"),
        ];
        let (store, _, model, client) = case.begin_with_log(steps).await;
        let answer = send(&client, case.ask("buy")).await.unwrap();
        let waiting = answer.approval_requests().next().unwrap();
        let no = Message::approvals([waiting.reject("no")]);
        let no = case.way(tower_chat::ChatRequest::new(no)).in_conversation(key());
        send(&client, no).await.unwrap();
        send(&client, case.ask("and?")).await.unwrap();
        store.inner().flush().await.unwrap();
        let original = stored(&store).await;
        let ids = ids(&store).await;
        let [.., question, answer] = ids.as_slice() else { panic!("no messages") };

        let original_key = key();
        let edited = Message::user("or?");
        let request = tower_chat::ChatRequest::edit(
            store.inner(),
            &original_key,
            *question,
            edited,
            branch("1"),
        );
        send(&client, case.way(request.await.unwrap())).await.unwrap();
        let again = Some(*answer);
        let request =
            tower_chat::ChatRequest::regenerate(store.inner(), &original_key, again, branch("2"));
        send(&client, case.way(request.await.unwrap())).await.unwrap();
        // The run with the decision about a call is part of the turn with this call.
        let first = Some(ids[ids.len() - 3]);
        let request =
            tower_chat::ChatRequest::regenerate(store.inner(), &original_key, first, branch("3"));
        send(&client, case.way(request.await.unwrap())).await.unwrap();

        store.inner().flush().await.unwrap();
        assert_eq!(stored(&store).await, original, "the original is unchanged");
        let before = &original[..original.len() - 2];
        for (name, expected) in
            [("1", ["user or?", "edited three"]), ("2", ["user and?", "regenerated three"])]
        {
            let found = stored_of(&store, &branch(name)).await;
            assert_eq!(&found[..before.len()], before);
            let texts = &found[before.len()..];
            assert_eq!(texts.len(), 2);
            assert!(texts[0] == expected[0] && texts[1].ends_with(expected[1]), "{texts:?}");
        }
        assert_eq!(stored_of(&store, &branch("3")).await.len(), 2);
        assert_eq!(sent_texts(&model, 5), ["user buy"]);
        let parent = store.inner().summary(&branch("3")).await.unwrap().unwrap().parent.unwrap();
        assert_eq!((parent.key, parent.position), (key(), 0));
    })
    .await;
}
