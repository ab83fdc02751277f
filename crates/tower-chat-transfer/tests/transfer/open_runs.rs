//! Tests of open runs in the source and at the target.

use tower_chat::{
    HistoryStore, Message, ToolCall,
    store::{
        Journal, LeaseEnd, SequencePosition, ServiceIdChange,
        author::{Close, Staged, ToolRecord, Write},
    },
    transfer::{OutcomeKind, Selection, TransferRefusal, copy},
};

use crate::{
    conversations::{
        activity, add_run, append, assert_same, at, export_alice, fill, id, import_file, key,
        revision, run_at, staged, usage,
    },
    stores::Kind,
};

/// Opens a run after the visible messages, and stages two writes of this run.
pub(crate) async fn open_run(
    store: &dyn HistoryStore,
    conversation: &str,
) -> tower_chat::run::RunId {
    let (key, run) = (key(conversation), run_at(60));
    let expected = revision(store, &key).await;
    let asks = Message::tool_calls([ToolCall::new("call_7", "book", r#"{"seat": 7}"#)]);
    let row = ToolRecord::pending(
        SequencePosition { sequence: expected.sequence + 2, index: 0 },
        0,
        "call_7",
        "book",
    );
    let input = [Message::user(format!("Book it, in {conversation}.")).into(), asks.into()];
    let first = Write::new(key.clone(), id(run, 0), expected, input)
        .with_activity(activity(60, [usage("gpt-5", 1)]))
        .with_tools(vec![row])
        .staged(staged(store, 60, None))
        .beginning_attempt();
    let expected = append(store, first).await;
    let more = Staged {
        service_id: Some(ServiceIdChange::Set("resp_9".into())),
        partial_text: Some("I am bo".into()),
        ..staged(store, 61, None)
    };
    let second = Write::new(key, id(run, 2), expected, [Message::assistant("Wait for it.").into()])
        .with_activity(activity(62, []))
        .staged(more);
    append(store, second).await;
    run
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transfer_copies_an_open_run_with_all_staged_messages() {
    let pairs =
        Kind::all().into_iter().flat_map(|kind| [(Kind::Memory, kind), (kind, Kind::Memory)]);
    for (source, target) in pairs {
        eprintln!("from {source:?} to {target:?}");
        let (from, to) = (source.open().await, target.open().await);
        fill(&*from, &key("coats")).await;
        let run = open_run(&*from, "coats").await;
        let only_staged = open_run(&*from, "all staged").await;
        let file = export_alice(&*from).await;
        assert_eq!(String::from_utf8_lossy(&file).matches(r#""staged":true"#).count(), 8);

        let receipt = import_file(&*to, &file).await;
        assert_eq!(
            (receipt.total(OutcomeKind::Written).conversations, &receipt.differing[..]),
            (2, &[][..])
        );
        for (conversation, run) in [("coats", run), ("all staged", only_staged)] {
            let key = key(conversation);
            assert_same(&*from, &*to, &key).await;
            let was = from.open_run(&key).await.unwrap().unwrap();
            let is = to.open_run(&key).await.unwrap().unwrap();
            assert_eq!((is.open.run, is.open.opened_at), (run, at(60)));
            assert_eq!((&is.messages, &is.tools), (&was.messages, &was.tools));
            assert_eq!(is.open.service_id, was.open.service_id);
            assert_eq!(is.open.partial_text.as_deref(), Some("I am bo"));
            assert_eq!(is.open.lease.until, LeaseEnd::NotHeld);
        }
        assert_eq!(String::from_utf8(export_alice(&*to).await), String::from_utf8(file.clone()));
        let again = import_file(&*to, &file).await;
        assert_eq!(again.total(OutcomeKind::Unchanged).conversations, 2, "{again:?}");

        // The copied run can be committed at the target.
        let key = key("coats");
        let open = to.open_run(&key).await.unwrap().unwrap();
        let close = Write::new(key.clone(), id(run, 3), open.head.revision, [])
            .staged(Staged { lease: open.open.lease, ..staged(&*to, 70, Some(Close::Commit)) });
        append(&*to, close).await;
        let history = to.load(&key).await.unwrap();
        assert_eq!(history.messages.last().unwrap().text(), "Wait for it.");
        assert_eq!(history.head.service_id.as_deref(), Some("resp_9"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_with_an_open_run_only_at_the_target_is_not_changed() {
    for kind in Kind::all() {
        eprintln!("to {kind:?}");
        let (from, to) = (Kind::Memory.open().await, kind.open().await);
        add_run(&*from, &key("hats"), 1, &["A hat?"]).await;
        let alice = Selection::scope("alice");
        copy(&*from, &*to, &alice, &mut |_| Ok(())).await.unwrap();
        let run = open_run(&*to, "hats").await;
        let before = export_alice(&*to).await;

        // In the first pass the source has no new messages, and in the second pass it has one.
        for second in [80, 81] {
            let receipt = copy(&*from, &*to, &alice, &mut |_| Ok(())).await.unwrap();
            let step = &receipt.refused[0];
            assert_eq!(
                step.outcome,
                tower_chat::transfer::TransferOutcome::Refused(TransferRefusal::OpenRun { run })
            );
            assert_eq!(export_alice(&*to).await, before);
            add_run(&*from, &key("hats"), second, &["A blue one."]).await;
        }
    }
}

/// After a copy of an open run, the run ends in the source, and the copy is repeated.
#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_copy_ends_a_copied_open_run_as_the_source_has_ended_it() {
    for kind in Kind::all() {
        for (close, has_later_run) in
            [(Close::Commit, false), (Close::Commit, true), (Close::Discard { visible: 1 }, true)]
        {
            eprintln!("to {kind:?}: {close:?}, {has_later_run}");
            let (from, to) = (Kind::Memory.open().await, kind.open().await);
            let key = key("hats");
            add_run(&*from, &key, 1, &["A hat?"]).await;
            let run = open_run(&*from, "hats").await;
            let alice = Selection::scope("alice");
            copy(&*from, &*to, &alice, &mut |_| Ok(())).await.unwrap();
            assert!(to.open_run(&key).await.unwrap().is_some());

            let open = from.open_run(&key).await.unwrap().unwrap();
            let last = [Message::assistant("It is booked.").into()];
            let last = last.into_iter().filter(|_| close == Close::Commit);
            let end = Write::new(key.clone(), id(run, 3), open.head.revision, last)
                .with_activity(activity(70, []))
                .staged(Staged { lease: open.open.lease, ..staged(&*from, 70, Some(close)) });
            append(&*from, end).await;
            if has_later_run {
                add_run(&*from, &key, 80, &["And a blue one."]).await;
            }
            let receipt = copy(&*from, &*to, &alice, &mut |_| Ok(())).await.unwrap();
            assert_eq!(receipt.total(OutcomeKind::Extended).conversations, 1, "{receipt:?}");
            assert!(to.open_run(&key).await.unwrap().is_none());
            let (was, is) = (from.load(&key).await.unwrap(), to.load(&key).await.unwrap());
            assert!(was.messages.iter().eq(is.messages.iter()));
            assert_eq!(was.head.service_id, is.head.service_id);
            let again = copy(&*from, &*to, &alice, &mut |_| Ok(())).await.unwrap();
            assert_eq!(again.total(OutcomeKind::Unchanged).conversations, 1, "{again:?}");
        }
    }
}

/// The open run was continued at the target, and is no longer a copy.
#[tokio::test(flavor = "multi_thread")]
async fn an_open_run_that_was_continued_differently_at_the_target_is_not_changed() {
    let (from, to) = (Kind::Memory.open().await, Kind::Memory.open().await);
    let key = key("hats");
    add_run(&*from, &key, 1, &["A hat?"]).await;
    let run = open_run(&*from, "hats").await;
    let alice = Selection::scope("alice");
    copy(&*from, &*to, &alice, &mut |_| Ok(())).await.unwrap();
    for (store, text) in [(&from, "booked"), (&to, "not booked")] {
        let open = store.open_run(&key).await.unwrap().unwrap();
        let message = [Message::assistant(text).into()];
        let close = (text == "booked").then_some(Close::Commit);
        let write = Write::new(key.clone(), id(run, 3), open.head.revision, message)
            .staged(Staged { lease: open.open.lease, ..staged(&**store, 70, close) });
        append(&**store, write).await;
    }
    let receipt = copy(&*from, &*to, &alice, &mut |_| Ok(())).await.unwrap();
    let refused = tower_chat::transfer::TransferOutcome::Refused(TransferRefusal::OpenRun { run });
    assert_eq!(receipt.refused[0].outcome, refused);
    let left = to.open_run(&key).await.unwrap().unwrap();
    assert_eq!(left.messages.last().unwrap().text(), "not booked");
}
