//! The rules for [staged](tower_chat_core::store::author::Staged) writes. The messages of a staged
//! write are stored, but readers do not see them. The run of these writes is open until a commit
//! makes its messages visible, or a discard deletes them.

use tower_chat_core::{
    Message, ToolCall, ToolResult, ToolStatus,
    store::{
        Capability, Directory, HistoryStore, InvocationQuery, Revision, SequencePosition,
        ServiceIdChange, StoreError, author::RecordedResult,
    },
};

use super::{
    Store,
    fixture::{
        StagedRun, acknowledged, asking, assert_counted, assert_listed, commit, discard,
        invocations, key, lacks, open_run, pending, position, recorded, refused, revision, set,
        staged_content, staging, stored, submit, texts, with_outcome, with_times, write,
        write_messages, write_rows,
    },
};

/// Staged messages are durable. Of all reads, only `open_run` returns staged messages.
pub async fn staged_messages_are_invisible_to_readers(store: Store) {
    let (key, unseen) = (key("staged"), key("staged from the start"));
    let first = write_messages(&key, Revision::ABSENT, [Message::user("hi"), asking(&["a"])])
        .with_tools(vec![pending(2, 0, "a")]);
    let mut run = StagedRun::new(&key, stored(&store, first).await);
    let input = run.text(staging(1), "staged");
    let response = run.write(staging(1), [asking(&["b", "c"])]).with_tools(vec![
        pending(4, 1, "c"),
        pending(4, 0, "b"),
        pending(5, 0, "none"),
    ]);
    for write in [&input, &response] {
        assert_eq!(stored(&store, write.clone()).await, write.result());
    }
    let mut other = StagedRun::new(&unseen, Revision::ABSENT);
    stored(&store, other.write(staging(1), [asking(&["a"])]).with_tools(vec![pending(1, 0, "a")]))
        .await;

    assert_eq!(texts(&store, &key).await, ["hi", ""]);
    assert_eq!(revision(&store, &key).await, response.result());
    assert!(texts(&store, &unseen).await.is_empty());
    assert_eq!(revision(&store, &unseen).await, other.at);
    assert_listed(&store, "scope", std::slice::from_ref(&key)).await;
    if !lacks(&store, &[Capability::Directory]) {
        assert_eq!(store.list("scope", Some("staged"), 10).await.expect("the list is read"), []);
    }
    for query in [
        InvocationQuery::in_scope("scope"),
        InvocationQuery::of(&key).in_messages([1, 2, 3, 4]),
        InvocationQuery::in_scope("scope").in_messages([2, 4]),
    ] {
        if !lacks(&store, &[Capability::ToolCallQueries]) {
            let found = invocations(&store, &query).await;
            assert_eq!(found.iter().map(|(_, call)| &*call.name).collect::<Vec<_>>(), ["a"]);
        }
        assert_counted(&store, &query, &[1]).await;
    }
    assert!(recorded(&store, &unseen).await.is_empty());

    let content = staged_content(&store, &key).await;
    let messages: Vec<_> = [input.messages(), response.messages()].concat();
    assert_eq!(content.messages, messages);
    assert_eq!(content.tools, [pending(4, 0, "b"), pending(4, 1, "c")]);
    assert_eq!((content.open.run, content.open.visible), (run.run, 2));
}

/// A commit makes all staged messages visible. The committing write may itself contain messages. A
/// reader sees either all messages of the run or none of them.
pub async fn a_commit_shows_the_whole_run_at_once(store: Store) {
    for with_messages in [true, false] {
        let key = key(if with_messages { "committed" } else { "committed alone" });
        let mut run =
            StagedRun::new(&key, stored(&store, write(&key, Revision::ABSENT, &["0"])).await);
        let answered = |status| {
            with_outcome(pending(3, 0, "a"), status, RecordedResult::InMessage(position(4, 0)))
        };
        let apart = RecordedResult::Apart(ToolResult::new("id 0", "done").into());
        let outcome = with_outcome(pending(3, 0, "a"), ToolStatus::Ok, apart);
        let results = Message::tool_results([ToolResult::new("id 0", "done")]);
        for write in [
            run.text(staging(1), "1"),
            run.write(staging(1), [asking(&["a"])]).with_tools(vec![pending(3, 0, "a")]),
            run.write(staging(1), []).with_tools(vec![with_times(outcome, 1, 2)]),
            run.write(staging(1), [results]).with_tools(vec![answered(ToolStatus::Ok)]),
        ] {
            stored(&store, write).await;
        }
        assert_eq!(texts(&store, &key).await, ["0"]);
        let last = with_messages.then(|| Message::user("4"));
        let all = 4 + last.iter().len();
        let reader = tokio::spawn({
            let (store, key) = (store.clone(), key.clone());
            async move {
                loop {
                    let seen =
                        store.load(&key).await.expect("the history is loaded").messages.len();
                    if seen == all {
                        break;
                    }
                    assert_eq!(seen, 1, "a reader sees only a part of a run");
                    tokio::task::yield_now().await;
                }
            }
        });
        stored(&store, run.write(commit(1), last)).await;
        assert_eq!(texts(&store, &key).await.len(), all);
        reader.await.expect("the reader sees no message or all of them");
        assert_eq!(revision(&store, &key).await, run.at);
        assert_eq!(open_run(&store, &key).await, None);
        let calls = recorded(&store, &key).await;
        assert_eq!(calls.len(), 1);
        assert_eq!(calls[0].status, ToolStatus::Ok);
        assert_eq!(calls[0].result, Some(ToolResult::new("id 0", "done")));
        stored(&store, write(&key, run.at, &["next"])).await;
    }
    assert_listed(&store, "scope", &[key("committed"), key("committed alone")]).await;
}

/// A discard deletes all data of the open run. Later writes follow the visible messages.
pub async fn a_discarded_run_leaves_nothing(store: Store) {
    let (key, unseen) = (key("discarded"), key("discarded from the start"));
    let before = stored(&store, write(&key, Revision::ABSENT, &["0"])).await;
    for (key, before) in [(&key, before), (&unseen, Revision::ABSENT)] {
        let visible = before.sequence;
        let mut run = StagedRun::new(key, before);
        let mut staged = staging(1);
        (staged.service_id, staged.partial_text) = (set("discarded"), Some("half a".into()));
        let row = pending(visible + 1, 0, "a");
        stored(&store, run.write(staged, [asking(&["a"])]).with_tools(vec![row])).await;
        stored(&store, run.text(staging(1), "more")).await;
        stored(&store, run.write(discard(1, visible), [])).await;
        assert_eq!(texts(&store, key).await.len() as u64, visible);
        assert_eq!((revision(&store, key).await, run.at.sequence), (run.at, visible));
        assert_ne!(run.at.incarnation, before.incarnation);
        assert_eq!(open_run(&store, key).await, None);
        assert_eq!(store.load(key).await.expect("the history is loaded").head.service_id, None);
        stored(&store, write_messages(key, run.at, [asking(&["b", "c"])])).await;
        assert!(recorded(&store, key).await.is_empty(), "the row of a discarded call is deleted");
    }
    assert_eq!(texts(&store, &key).await, ["0", ""]);
}

/// If all messages of a conversation were discarded, lists do not contain the conversation.
pub async fn a_conversation_that_was_discarded_whole_is_not_listed(store: Store) {
    let key = key("discarded whole");
    let mut run = StagedRun::new(&key, Revision::ABSENT);
    stored(&store, run.text(staging(1), "staged")).await;
    stored(&store, run.write(discard(1, 0), [])).await;
    assert_listed(&store, "scope", &[]).await;
    refused(&store, write(&key, Revision::ABSENT, &["as if there were none"])).await;
    stored(&store, write(&key, run.at, &["first"])).await;
    assert_listed(&store, "scope", &[key]).await;
}

/// A write that expects a revision from before a discard is refused. The conversation may meanwhile
/// have the same number of messages as before the discard.
pub async fn nothing_late_matches_after_a_discard(store: Store) {
    let key = key("late");
    let before = stored(&store, write(&key, Revision::ABSENT, &["0"])).await;
    let mut run = StagedRun::new(&key, before);
    let (one, two) = (run.text(staging(1), "1"), run.text(staging(1), "2"));
    let three = run.text(staging(1), "3");
    let at_two = two.result();
    stored(&store, one.clone()).await;
    stored(&store, two.clone()).await;
    run.at = at_two;
    stored(&store, run.write(discard(1, 1), [])).await;
    let late = [one, two, three, write(&key, before, &["from before"])];
    for write in &late {
        refused(&store, write.clone()).await;
    }
    stored(&store, write(&key, run.at, &["1", "2"])).await;
    for write in late {
        assert_eq!(refused(&store, write).await.open_run, None);
    }
    assert_eq!(texts(&store, &key).await, ["0", "1", "2"]);
}

/// If a stored write of an open run is submitted again, the store acknowledges the write. The rule
/// applies to every kind of staged write.
pub async fn a_repeated_staged_write_stores_nothing_twice(store: Store) {
    let key = key("repeated");
    let mut run = StagedRun::new(&key, stored(&store, write(&key, Revision::ABSENT, &["0"])).await);
    let input = run.text(staging(1), "1");
    let mark = run.write(staging(1), []);
    for write in [&input, &mark, &mark, &input] {
        acknowledged(&store, write).await;
    }
    let response = run.write(staging(1), [asking(&["a"])]).with_tools(vec![pending(3, 0, "a")]);
    let outcome = with_outcome(pending(3, 0, "a"), ToolStatus::Ok, RecordedResult::None);
    let outcome = run.write(staging(1), []).with_tools(vec![outcome]);
    for write in [&response, &outcome, &outcome, &response, &input] {
        acknowledged(&store, write).await;
    }
    assert_eq!(staged_content(&store, &key).await.tools[0].status, ToolStatus::Ok);
    let end = run.write(commit(1), []);
    for write in [&end, &end, &response, &input, &end] {
        acknowledged(&store, write).await;
        assert_eq!(open_run(&store, &key).await, None, "a repeated write opens no run");
    }
    assert_eq!(texts(&store, &key).await, ["0", "1", ""]);

    let mut run = StagedRun::new(&key, run.at);
    let one = run.text(staging(1), "one");
    let end = run.text(commit(1), "two");
    for write in [&one, &one, &end, &end, &one] {
        acknowledged(&store, write).await;
    }
    assert_eq!(texts(&store, &key).await, ["0", "1", "", "one", "two"]);

    let mut run = StagedRun::new(&key, run.at);
    let one = run.text(staging(1), "gone");
    let end = run.write(discard(1, 5), []);
    for write in [&one, &end, &end] {
        acknowledged(&store, write).await;
    }
    assert_eq!(revision(&store, &key).await, end.result());
    assert_eq!(texts(&store, &key).await.len(), 5);
}

/// While a run is open, the store refuses writes of other runs, whatever revision they expect. The
/// conflict contains the open run.
pub async fn only_the_open_run_writes(store: Store) {
    let key = key("owned");
    let before = stored(&store, write_messages(&key, Revision::ABSENT, [asking(&["a"])])).await;
    let mut run = StagedRun::new(&key, before);
    stored(&store, run.text(staging(1), "staged")).await;
    let row = || vec![pending(1, 0, "foreign")];
    let foreign = || StagedRun::new(&key, run.at);
    for write in [
        write(&key, run.at, &["visible"]),
        write(&key, before, &["visible, and too late"]),
        write_rows(&key, run.at, row()),
        write(&key, run.at, &[]).with_service_id(ServiceIdChange::Set("foreign".into())),
        foreign().text(staging(9), "staged").with_tools(row()),
        foreign().write(staging(9), []),
        foreign().write(commit(9), []),
        foreign().text(commit(9), "committed"),
        foreign().write(discard(9, 1), []),
    ] {
        let conflict = refused(&store, write).await;
        assert_eq!((conflict.found, conflict.open_run), (run.at, Some(run.run)));
    }
    let own = run.write(staging(1), []);
    let unstaged = tower_chat_core::store::author::Write::new(key.clone(), own.id(), run.at, []);
    assert_eq!(refused(&store, unstaged).await.open_run, Some(run.run));
    assert_eq!(revision(&store, &key).await, run.at);
    assert!(recorded(&store, &key).await.is_empty());
    stored(&store, run.write(commit(1), [])).await;
    assert_eq!(texts(&store, &key).await, ["", "staged"]);
}

/// A discard of a conversation without an open run gets a conflict.
pub async fn a_discard_without_an_open_run_is_a_conflict(store: Store) {
    let key = key("closed");
    let before = stored(&store, write(&key, Revision::ABSENT, &["0"])).await;
    for (key, at) in [(&key, before), (&super::fixture::key("absent"), Revision::ABSENT)] {
        let mut run = StagedRun::new(key, at);
        let conflict = refused(&store, run.write(discard(1, at.sequence), [])).await;
        assert_eq!((conflict.found, conflict.open_run), (at, None));
        assert_eq!(revision(&store, key).await, at);
    }
    let mut run = StagedRun::new(&key, before);
    stored(&store, run.text(staging(1), "staged")).await;
    let at = run.at;
    for wrong in [0, 2] {
        let conflict = refused(&store, run.write(discard(1, wrong), [])).await;
        assert_eq!(
            conflict.open_run,
            Some(run.run),
            "the discard names another number of visible messages"
        );
        run.at = at;
    }
    stored(&store, run.write(discard(1, 1), [])).await;
    assert_eq!(texts(&store, &key).await, ["0"]);
}

/// A staged service id (the id under which the model's service has the history) takes effect when
/// the run is committed. If several service ids were staged, the last one takes effect.
pub async fn a_staged_service_id_is_set_by_the_commit(store: Store) {
    let key = key("service");
    let id = async || {
        let head = store.head(&key).await.expect("the head is read");
        head.service_id.map(|id| id.to_string())
    };
    let with = |mut staged: tower_chat_core::store::author::Staged, change| {
        staged.service_id = change;
        staged
    };
    let first = write(&key, Revision::ABSENT, &["0"])
        .with_service_id(ServiceIdChange::Set("before".into()));
    let mut run = StagedRun::new(&key, stored(&store, first).await);
    stored(&store, run.text(with(staging(1), set("one")), "1")).await;
    stored(&store, run.write(with(staging(1), set("two")), [])).await;
    stored(&store, run.text(staging(1), "2")).await;
    assert_eq!(id().await.as_deref(), Some("before"));
    let open = open_run(&store, &key).await.expect("the open run is read");
    assert_eq!(open.service_id, set("two"));
    stored(&store, run.write(commit(1), [])).await;
    assert_eq!(id().await.as_deref(), Some("two"));

    let mut run = StagedRun::new(&key, run.at);
    stored(&store, run.text(with(staging(1), Some(ServiceIdChange::Clear)), "3")).await;
    assert_eq!(id().await.as_deref(), Some("two"));
    let open = open_run(&store, &key).await.expect("the open run is read");
    assert_eq!(open.service_id, Some(ServiceIdChange::Clear));
    stored(&store, run.write(commit(1), [])).await;
    assert_eq!(id().await, None);

    let mut run = StagedRun::new(&key, run.at);
    stored(&store, run.text(with(commit(1), set("at once")), "4")).await;
    assert_eq!(id().await.as_deref(), Some("at once"));
}

/// The text of an unfinished answer is stored with the open run. An empty text, and the end of the
/// run, delete the stored text.
pub async fn partial_text_stays_with_the_open_run(store: Store) {
    let key = key("partial");
    let mut run = StagedRun::new(&key, Revision::ABSENT);
    let with = |text: Option<&str>| {
        let mut staged = staging(1);
        staged.partial_text = text.map(Into::into);
        staged
    };
    for (given, kept) in [
        (None, None),
        (Some("half an ans\0 \u{1F600}"), Some("half an ans\0 \u{1F600}")),
        (None, Some("half an ans\0 \u{1F600}")),
        (Some("another"), Some("another")),
        (Some(""), None),
        (Some("again"), Some("again")),
    ] {
        stored(&store, run.text(with(given), "message")).await;
        let open = open_run(&store, &key).await.expect("the open run is read");
        assert_eq!(open.partial_text.as_deref(), kept);
    }
    stored(&store, run.write(commit(1), [])).await;
    stored(&store, StagedRun::new(&key, run.at).text(staging(1), "another run")).await;
    assert_eq!(open_run(&store, &key).await.expect("the open run is read").partial_text, None);
}

/// A staged write changes the rows of calls in visible messages immediately. A discard does not
/// undo these changes.
pub async fn rows_of_calls_that_are_seen_are_put_at_once(store: Store) {
    let key = key("seen");
    let first = write_messages(&key, Revision::ABSENT, [asking(&["a", "b"])])
        .with_tools(vec![pending(1, 0, "a"), pending(1, 1, "b")]);
    let mut run = StagedRun::new(&key, stored(&store, first).await);
    let done = |index, tool| {
        let result = RecordedResult::Apart(ToolResult::new("id", format!("{index}")).into());
        with_outcome(pending(1, index, tool), ToolStatus::Ok, result)
    };
    let call = ToolCall::new("id 0", "c", "{}");
    let staged = run
        .write(staging(1), [Message::tool_calls([call])])
        .with_tools(vec![done(0, "a"), pending(2, 0, "c")]);
    stored(&store, staged).await;
    let statuses = async || {
        let calls = recorded(&store, &key).await;
        calls.iter().map(|call| (call.sequence, call.status)).collect::<Vec<_>>()
    };
    assert_eq!(statuses().await, [(1, ToolStatus::Ok), (1, ToolStatus::Pending)]);
    let end = run.write(discard(1, 1), []).with_tools(vec![done(1, "b"), pending(2, 0, "c")]);
    stored(&store, end).await;
    assert_eq!(statuses().await, [(1, ToolStatus::Ok), (1, ToolStatus::Ok)]);
    let SequencePosition { sequence, .. } = position(2, 0);
    stored(&store, write_messages(&key, run.at, [asking(&["d"])])).await;
    assert!(recorded(&store, &key).await.iter().all(|call| call.sequence < sequence));
}

/// A deletion of a conversation also deletes its open run.
pub async fn a_deleted_conversation_takes_its_open_run_along(store: Store) {
    let key = key("deleted");
    let mut run = StagedRun::new(&key, Revision::ABSENT);
    let write = run.write(staging(1), [asking(&["a"])]).with_tools(vec![pending(1, 0, "a")]);
    stored(&store, write.clone()).await;
    assert!(
        store.delete(&key).await.expect("the conversation is deleted"),
        "the deletion reports that the conversation existed"
    );
    assert_eq!(open_run(&store, &key).await, None);
    assert_eq!(revision(&store, &key).await, Revision::ABSENT);
    refused(&store, run.text(staging(1), "late")).await;
    stored(&store, write_messages(&key, Revision::ABSENT, [asking(&["b"])])).await;
    assert_eq!(open_run(&store, &key).await, None);
    assert!(recorded(&store, &key).await.is_empty());
}

/// A store without the capability `Journal` refuses staged writes, because it would otherwise store
/// staged messages as visible ones.
pub(super) async fn a_staged_write_is_refused(store: &Store) {
    let key = key("staged");
    let staged = StagedRun::new(&key, Revision::ABSENT).text(staging(1), "staged");
    let error = submit(store, vec![staged]).await.expect_err("it cannot stage").source;
    assert!(matches!(error, StoreError::MissingCapability { .. }), "{error:?}");
    assert_eq!(revision(store, &key).await, Revision::ABSENT);
}
