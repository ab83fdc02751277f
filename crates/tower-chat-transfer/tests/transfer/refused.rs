//! Tests of conversations that a transfer refuses, and of the reasons.

use tower_chat::{
    MemoryStore, Message,
    message::MessageId,
    store::{Directory, StoreError, author::Write},
    transfer::{OutcomeKind, Selection, TransferOutcome, TransferRefusal, copy},
};
use tower_chat_testkit::FaultyStore;

use crate::{
    conversations::{add_run, append, export_alice, fill, id, import_file, key, revision},
    stores::Kind,
};

fn refusal(outcome: &TransferOutcome) -> &TransferRefusal {
    let TransferOutcome::Refused(refusal) = outcome else { panic!("{outcome:?}") };
    refusal
}

#[tokio::test(flavor = "multi_thread")]
async fn another_conversation_under_the_same_key_at_the_target_is_not_changed() {
    for kind in Kind::all() {
        eprintln!("to {kind:?}");
        let (from, to) = (Kind::Memory.open().await, kind.open().await);
        let (key, other) = (key("coats"), key("hats"));
        let first = add_run(&*from, &key, 1, &["common", "of the source"]).await;
        add_run(&*from, &other, 2, &["not refused"]).await;
        let common = Write::new(
            key.clone(),
            id(first, 0),
            revision(&*to, &key).await,
            [Message::user("common").into()],
        );
        append(&*to, common).await;
        let second = add_run(&*to, &key, 3, &["of the target"]).await;
        let before = to.load(&key).await.unwrap();

        let receipt = import_file(&*to, &export_alice(&*from).await).await;
        assert_eq!(receipt.total(OutcomeKind::Written).conversations, 1);
        let expected = TransferRefusal::Differs {
            message: 2,
            source_id: MessageId { run: first, index: 1 },
            target_id: MessageId { run: second, index: 0 },
        };
        assert_eq!(
            (receipt.refused[0].key(), refusal(&receipt.refused[0].outcome)),
            (key.clone(), &expected)
        );
        let after = to.load(&key).await.unwrap();
        assert_eq!((after.head, after.messages), (before.head, before.messages));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_with_the_same_id_but_other_content_is_a_difference() {
    let (from, to) = (Kind::Memory.open().await, Kind::Memory.open().await);
    let key = key("coats");
    let run = add_run(&*from, &key, 1, &["as it was"]).await;
    let other = Write::new(
        key.clone(),
        id(run, 0),
        revision(&*to, &key).await,
        [Message::user("as it is").into()],
    );
    append(&*to, other).await;
    let receipt = copy(&*from, &*to, &Selection::conversation(key), &mut |_| Ok(())).await.unwrap();
    let refusal = refusal(&receipt.refused[0].outcome);
    assert!(
        matches!(refusal, TransferRefusal::Differs { message: 1, source_id, target_id } if source_id == target_id)
    );
    assert!(refusal.to_string().contains("with other content"), "{refusal}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_that_was_continued_at_the_target_is_not_changed() {
    for kind in Kind::all() {
        eprintln!("to {kind:?}");
        let (from, to) = (Kind::Memory.open().await, kind.open().await);
        fill(&*from, &key("coats")).await;
        let file = export_alice(&*from).await;
        import_file(&*to, &file).await;
        add_run(&*to, &key("coats"), 70, &["only here", "and here"]).await;
        let before = export_alice(&*to).await;
        let receipt = import_file(&*to, &file).await;
        assert_eq!(
            refusal(&receipt.refused[0].outcome),
            &TransferRefusal::TargetHasMore { messages: 2 }
        );
        assert_eq!(export_alice(&*to).await, before);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_that_the_target_rejects_is_refused_and_the_others_are_written() {
    let from = Kind::Memory.open().await;
    for id in ["boots", "coats", "hats"] {
        fill(&*from, &key(id)).await;
    }
    let refusals: [fn() -> StoreError; 2] = [
        || StoreError::backend("append", false, "a message is too large"),
        || StoreError::Corrupt { reason: "a number is too large".to_owned() },
    ];
    for refuses in refusals {
        let target = MemoryStore::new();
        let refusing = FaultyStore::new(target.clone());
        refusing.fail_next_append(refuses());
        let selection = Selection::scope("alice");
        let receipt = copy(&*from, &refusing, &selection, &mut |_| Ok(())).await.unwrap();
        assert_eq!(receipt.total(OutcomeKind::Written).conversations, 2);
        assert_eq!(receipt.refused.len(), 1);
        let refused = &receipt.refused[0];
        assert_eq!(refused.key(), key("boots"));
        let reason = refusal(&refused.outcome);
        assert!(
            matches!(reason, TransferRefusal::RejectedByTarget { reason } if reason.contains("is too large")),
            "{reason}"
        );
        let stored = target.list("alice", None, 9).await.unwrap();
        assert_eq!(stored, [key("coats"), key("hats")]);
        // When the target accepts writes again, a second copy writes the missing conversation.
        let receipt = copy(&*from, &refusing, &selection, &mut |_| Ok(())).await.unwrap();
        assert_eq!(receipt.total(OutcomeKind::Written).conversations, 1);
        assert!(receipt.refused.is_empty());
    }
    // A retryable error of the target must end the whole copy.
    let passing = FaultyStore::new(MemoryStore::new());
    passing.fail_next_append(StoreError::backend("append", true, "too busy"));
    let outcome = copy(&*from, &passing, &Selection::scope("alice"), &mut |_| Ok(())).await;
    assert!(outcome.is_err(), "{outcome:?}");
}
