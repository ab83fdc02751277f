//! The rules for the record of tool calls. The record has one
//! [row](tower_chat_core::store::author::ToolRecord) for each call, with its status, times and
//! result.

use std::{str::FromStr, time::Duration};

use tower_chat_core::{
    ApprovalRequest, Media, MediaSource, Message, Native, Part, RawJson, Role, Text, ToolCall,
    ToolResult, ToolStatus,
    store::{CallSelection, HistoryStore, InvocationQuery, Revision, author::RecordedResult},
};

use super::{
    Store,
    fixture::{
        asking, assert_counted, at, key, pending, position, recorded, refused, revision, stored,
        submit, texts, with_outcome, with_times, write, write_messages, write_rows,
    },
};

/// A write stores messages and rows of the record together. Both are returned unchanged.
pub async fn a_tool_call_is_recorded_with_the_write_of_its_message(store: Store) {
    let key = key("recorded");
    let tools = ["weather \0 'x'"; ToolStatus::ALL.len()];
    let rows = (0..).zip(ToolStatus::ALL).map(|(index, status)| {
        let mut row = with_outcome(pending(2, index, tools[0]), status, RecordedResult::None);
        row.round_index = index * 7;
        row.call_id = format!("seen by the model: {index} \0 \u{1F600}");
        row.error = (index > 0).then(|| format!("'{index}' went wrong"));
        if index % 2 == 0 {
            row = with_times(row, 1_750_000_000_123, 1_750_000_004_567);
        }
        if status == ToolStatus::PendingApproval {
            // The call has not finished. Its row contains the end of a lease: the time until which
            // no other process may start the call.
            row.held_until = row.finished_at.take();
        }
        row
    });
    let write = write_messages(&key, Revision::ABSENT, [Message::user("hi"), asking(&tools)])
        .with_tools(rows.collect());
    stored(&store, write.clone()).await;
    let found = recorded(&store, &key).await;
    assert_eq!(found.len(), ToolStatus::ALL.len());
    for ((index, found), row) in (0..).zip(&found).zip(write.tools()) {
        assert_eq!(Some(found.message), write.messages()[1].id);
        assert_eq!((found.sequence, found.sequence_index), (2, index));
        assert_eq!(found.round_index, row.round_index);
        assert_eq!((&found.call_id, &found.name), (&row.call_id, &row.name));
        assert_eq!(found.arguments, format!("{{\"cut off {index}"));
        assert_eq!((found.status, &found.result), (row.status, &None));
        assert_eq!(found.error, row.error);
        assert_eq!((found.started_at, found.finished_at), (row.started_at, row.finished_at));
        assert_eq!(found.held_until, row.held_until);
    }
    assert!(found.iter().any(|call| call.held_until.is_some()));
    if let Some(queries) = store.tool_calls() {
        let totals =
            queries.tool_totals(&InvocationQuery::of(&key)).await.expect("the totals are read");
        let timed = found.iter().filter(|call| call.finished_at.is_some()).count();
        assert_eq!(totals[0].times.calls(), timed as u64, "a claimed call has not ended");
    }
}

/// The calls of a conversation can be selected by message and by status.
pub async fn calls_are_selected_by_message_and_status(store: Store) {
    let (key, other) = (key("selected"), key("not selected"));
    for key in [&key, &other] {
        let waiting =
            with_outcome(pending(2, 1, "d"), ToolStatus::PendingApproval, RecordedResult::None);
        let rows = vec![pending(1, 0, "a"), pending(1, 1, "b"), pending(2, 0, "c"), waiting];
        let messages = [asking(&["a", "b"]), asking(&["c", "d"])];
        stored(&store, write_messages(key, Revision::ABSENT, messages).with_tools(rows)).await;
    }
    for (which, expected) in [
        (CallSelection::All, vec!["a", "b", "c", "d"]),
        (CallSelection::in_messages([2]), vec!["c", "d"]),
        (CallSelection::in_messages([2, 1, 7]), vec!["a", "b", "c", "d"]),
        (CallSelection::in_messages([]), vec![]),
        (CallSelection::WithStatus(ToolStatus::PendingApproval), vec!["d"]),
        (CallSelection::WithStatus(ToolStatus::Ok), vec![]),
    ] {
        let calls = store.calls(&key, &which).await.expect("the calls are read");
        assert_eq!(calls.unreadable, []);
        assert!(calls.found.iter().all(|(found, _)| *found == key), "{which:?}");
        let names: Vec<_> = calls.found.iter().map(|(_, call)| &*call.name).collect();
        assert_eq!(names, expected, "{which:?}");
    }
}

/// A refused write neither adds nor changes rows.
pub async fn a_write_that_is_refused_records_nothing(store: Store) {
    let (key, other) = (key("refused"), key("refused too"));
    let first = write_messages(&key, Revision::ABSENT, [asking(&["a", "b"])])
        .with_tools(vec![pending(1, 0, "a")]);
    let after = stored(&store, first).await;
    let wrong = Revision { incarnation: after.incarnation ^ 1, ..after };
    let answered =
        |index| with_outcome(pending(1, index, "changed"), ToolStatus::Ok, RecordedResult::None);
    let rows = vec![answered(0), answered(1)];
    refused(&store, write(&key, wrong, &["x"]).with_tools(rows.clone())).await;
    refused(&store, write_rows(&key, wrong, rows.clone())).await;
    refused(&store, write_rows(&other, after, rows.clone())).await;
    let found = recorded(&store, &key).await;
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].name.as_str(), found[0].status), ("a", ToolStatus::Pending));

    let good = write(&key, after, &["good"]).with_tools(vec![answered(0)]);
    let late = write(&key, good.result(), &["late"]).with_tools(vec![answered(1)]);
    let bad = write(&key, wrong, &["bad"]).with_tools(rows);
    let error = submit(&store, vec![good, bad, late]).await.expect_err("a conflict");
    assert_eq!(error.completed, 1);
    let found = recorded(&store, &key).await;
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].name.as_str(), found[0].status), ("changed", ToolStatus::Ok));
    assert_eq!(recorded(&store, &other).await, []);
}

/// The record has one row for each call. A later row replaces all fields of the earlier row.
pub async fn a_later_row_replaces_what_was_known_of_a_call(store: Store) {
    let key = key("replaced");
    let mut first = with_times(pending(1, 0, "a"), 1, 2);
    first.error = Some("interrupted".to_owned());
    first.result = RecordedResult::Apart(ToolResult::new("id 0", "draft").into());
    let call = write_messages(&key, Revision::ABSENT, [asking(&["a", "a"])])
        .with_tools(vec![first.clone(), pending(1, 1, "a")]);
    let after = stored(&store, call).await;

    let mut second = pending(1, 0, "renamed");
    second.call_id = "another".to_owned();
    second.round_index = 3;
    let results = [Message::tool_results([ToolResult::new("id 0", "done")])];
    let in_message = RecordedResult::InMessage(position(2, 0));
    second = with_outcome(second, ToolStatus::Ok, in_message);
    let answer = write_messages(&key, after, results).with_tools(vec![second.clone()]);
    let after = stored(&store, answer).await;
    let found = recorded(&store, &key).await;
    assert_eq!(found.len(), 2);
    assert_eq!((found[0].call_id.as_str(), found[0].name.as_str()), ("another", "renamed"));
    assert_eq!((found[0].round_index, found[0].status), (3, ToolStatus::Ok));
    assert_eq!(found[0].result, Some(ToolResult::new("id 0", "done")));
    assert_eq!((&found[0].error, found[0].started_at, found[0].finished_at), (&None, None, None));
    assert_eq!(found[1].status, ToolStatus::Pending, "the other call of the message is unchanged");

    // If one write contains several rows for a call, the last one is stored.
    stored(&store, write_rows(&key, after, vec![second, first])).await;
    let found = recorded(&store, &key).await;
    assert_eq!(found.len(), 2);
    assert_eq!(found[0].result, Some(ToolResult::new("id 0", "draft")));
    assert_eq!((found[0].started_at, found[0].finished_at), (Some(at(1)), Some(at(2))));
    assert_eq!(found[0].error.as_deref(), Some("interrupted"));
}

/// If a stored write is submitted again, its rows do not replace newer rows.
pub async fn a_repeated_write_does_not_bring_older_rows_back(store: Store) {
    let key = key("repeated rows");
    let call = write_messages(&key, Revision::ABSENT, [asking(&["a"])])
        .with_tools(vec![pending(1, 0, "a")]);
    stored(&store, call.clone()).await;
    let outcome = with_outcome(pending(1, 0, "a"), ToolStatus::Ok, RecordedResult::None);
    let answer = write(&key, call.result(), &["done"]).with_tools(vec![outcome.clone()]);
    stored(&store, answer).await;
    assert_eq!(stored(&store, call.clone()).await, call.result());
    assert_eq!(recorded(&store, &key).await[0].status, ToolStatus::Ok);

    // The rule also applies if the later write has only replaced the row.
    let call = write_messages(&key, revision(&store, &key).await, [asking(&["b"])])
        .with_tools(vec![pending(3, 0, "b")]);
    stored(&store, call.clone()).await;
    let mut outcome = outcome;
    outcome.call = position(3, 0);
    stored(&store, write_rows(&key, call.result(), vec![outcome])).await;
    stored(&store, call).await;
    assert_eq!(recorded(&store, &key).await[1].status, ToolStatus::Ok);
}

/// The result of a call is read from its message or from the row. All parts of a result are
/// preserved, and a result may be empty.
pub async fn results_are_returned_from_messages_and_from_the_record(store: Store) {
    let key = key("results");
    let item = RawJson::from_str(r#"{ "z":1.50, "a":[ ] }"#).expect("the JSON is valid");
    let mut text = Text::new("one \0 \u{1F600}");
    text.native = Some(Native::new("some-wire", item.clone()));
    let media = Media::new("image/png", MediaSource::Base64("AAAA".to_owned()));
    let mut several = ToolResult::error("", "");
    several.name = Some("b".to_owned());
    several.content = vec![text.into(), media.into(), Part::text("")];
    several.native = Some(Native::new("some-wire", item));
    let mut nothing = ToolResult::new("id 3", "");
    nothing.content.clear();
    let results = [ToolResult::new("id 0", ""), several, ToolResult::new("id 2", "x"), nothing];

    let calls = asking(&["a"; 8]);
    let first = Message::tool_results(results[..1].to_vec());
    let others = Message::tool_results(results[1..].to_vec());
    let in_message = [position(2, 0), position(4, 0), position(4, 1), position(4, 2)];
    let in_message = in_message.map(RecordedResult::InMessage).into_iter();
    let apart = results.iter().map(|result| RecordedResult::Apart(result.clone().into()));
    let rows = (0..)
        .zip(in_message.chain(apart))
        .map(|(index, result)| with_outcome(pending(1, index, "a"), ToolStatus::Ok, result));
    let messages = [calls, first, Message::assistant("between"), others];
    let write = write_messages(&key, Revision::ABSENT, messages).with_tools(rows.collect());
    stored(&store, write).await;
    let found: Vec<_> =
        recorded(&store, &key).await.into_iter().filter_map(|call| call.result).collect();
    assert_eq!(found[..4], results);
    assert_eq!(found[4..], results);
}

/// A write may contain rows and no messages. Such a write changes neither the messages nor the
/// revision of the conversation.
pub async fn rows_can_be_written_without_messages(store: Store) {
    let key = key("rows alone");
    let result = ToolResult::new("id 0", "late");
    let apart = RecordedResult::Apart(result.clone().into());
    let row = with_outcome(pending(2, 0, "a"), ToolStatus::Ok, apart);
    let call = write_messages(&key, Revision::ABSENT, [Message::user("hi"), asking(&["a"])]);
    let after = stored(&store, call).await;
    assert_eq!(recorded(&store, &key).await, []);
    let rows = write_rows(&key, after, vec![row]);
    assert_eq!(stored(&store, rows.clone()).await, after);
    assert_eq!(stored(&store, rows).await, after, "the same rows can be written again");
    assert_eq!(revision(&store, &key).await, after);
    assert_eq!(texts(&store, &key).await, ["hi", ""]);
    let found = recorded(&store, &key).await;
    assert_eq!((found.len(), &found[0].result), (1, &Some(result)));
    stored(&store, write(&key, after, &["next"])).await;
    assert_eq!(recorded(&store, &key).await, found);
}

/// A row is ignored if the message of its call is neither stored nor in the same write, even if
/// this message is written later.
pub async fn rows_of_messages_that_are_not_there_are_no_rows(store: Store) {
    let key = key("no such message");
    let rows =
        [0, 2, 3, 1 << 32, (1 << 32) + 1, u64::MAX].map(|sequence| pending(sequence, 0, "no"));
    let rows: Vec<_> = rows.into_iter().chain([pending(1, 0, "a")]).collect();
    let first = write_messages(&key, Revision::ABSENT, [asking(&["a"])]).with_tools(rows.clone());
    let mut after = stored(&store, first).await;
    after = stored(&store, write_messages(&key, after, [asking(&["b"])])).await;
    after = stored(&store, write_rows(&key, after, rows[2..].to_vec())).await;
    stored(&store, write_messages(&key, after, [asking(&["c"])])).await;
    let found = recorded(&store, &key).await;
    assert_eq!((found.len(), found[0].name.as_str()), (1, "a"));

    let empty = super::fixture::key("no message at all");
    let rows = write_rows(&empty, Revision::ABSENT, rows);
    let after = stored(&store, rows).await;
    stored(&store, write_messages(&empty, after, [asking(&["a"])])).await;
    assert_eq!(recorded(&store, &empty).await, []);
}

/// The index of a call in its batch (the calls of one answer) counts calls that wait for approval,
/// but not calls that the provider executed.
pub async fn calls_that_wait_for_approval_have_their_position_in_the_batch(store: Store) {
    let key = key("approvals");
    let mut executed = ToolCall::new("s", "search", "{}");
    executed.provider_executed = true;
    let pay = ApprovalRequest::new("a1", ToolCall::new("p", "pay", "{\"sum\":1}"), true);
    let look = ToolCall::new("l", "look", "{\"at\":2}");
    let asking = Message::new(Role::Assistant, vec![executed.into(), pay.into(), look.into()]);
    let waiting =
        with_outcome(pending(1, 0, "pay"), ToolStatus::PendingApproval, RecordedResult::None);
    let write = write_messages(&key, Revision::ABSENT, [asking])
        .with_tools(vec![waiting, pending(1, 1, "look")]);
    stored(&store, write).await;
    let found = recorded(&store, &key).await;
    let arguments: Vec<_> = found.iter().map(|call| call.arguments.as_str()).collect();
    assert_eq!(arguments, ["{\"sum\":1}", "{\"at\":2}"]);
}

/// Times are rounded down to a whole millisecond, even those before 1970.
pub async fn times_are_kept_to_the_millisecond(store: Store) {
    let key = key("times");
    let times = [
        at(0) - Duration::from_millis(86_400_000),
        at(0) - Duration::from_nanos(1_500_000),
        at(0),
        at(1_750_000_000_000) + Duration::from_nanos(999_999),
        at(253_402_300_799_999),
    ];
    let rows = (0..).zip(times).map(|(index, time)| {
        let mut row = pending(1, index, "a");
        row.started_at = Some(time);
        row
    });
    let write =
        write_messages(&key, Revision::ABSENT, [asking(&["a"; 5])]).with_tools(rows.collect());
    stored(&store, write).await;
    for (found, time) in recorded(&store, &key).await.iter().zip(times) {
        let found = found.started_at.expect("the call has a start time");
        assert!(found <= time, "{found:?} is not after {time:?}");
        assert!(time.duration_since(found).is_ok_and(|off| off < Duration::from_millis(1)));
    }
}

/// A query includes every write that was submitted before it, even if the ticket was not awaited.
pub async fn a_question_sees_what_was_submitted_before_it(store: Store) {
    let key = key("asked at once");
    let mut expected = Revision::ABSENT;
    let mut tickets = Vec::new();
    for count in 1..=20 {
        let write = write_messages(&key, expected, [asking(&["a"])])
            .with_tools(vec![pending(count, 0, "a")]);
        expected = write.result();
        tickets.push(store.append(store.reserve().await.expect("a slot is reserved"), vec![write]));
        assert_eq!(recorded(&store, &key).await.len() as u64, count);
        assert_counted(&store, &InvocationQuery::in_scope("scope"), &[count]).await;
    }
    for ticket in tickets {
        ticket.await.expect("the write is stored");
    }
}

/// A deletion of a conversation deletes its record. A new conversation with the same key has no
/// rows.
pub async fn a_deleted_conversation_takes_its_record_along(store: Store) {
    let (key, other) = (key("deleted record"), key("kept record"));
    // The deleted conversation is the newest one. A store that numbers its conversations may assign
    // the number of the deleted conversation to the next new conversation.
    for key in [&other, &key] {
        let write = write_messages(key, Revision::ABSENT, [asking(&["a", "b"])])
            .with_tools(vec![pending(1, 0, "a"), pending(1, 1, "b")]);
        stored(&store, write).await;
    }
    assert!(store.delete(&key).await.expect("the conversation is deleted"));
    assert_eq!(recorded(&store, &key).await, []);
    assert_counted(&store, &InvocationQuery::of(&key), &[]).await;
    let again = write_messages(&key, Revision::ABSENT, [asking(&["a", "b"])]);
    let after = stored(&store, again).await;
    assert_eq!(recorded(&store, &key).await, []);
    stored(&store, write_rows(&key, after, vec![pending(1, 1, "b")])).await;
    assert_eq!(recorded(&store, &key).await.len(), 1);
    assert_eq!(recorded(&store, &other).await.len(), 2);
}

/// A query may run at the same time as a write. The query then returns either all rows of the write
/// or none of them.
pub async fn readers_see_messages_and_rows_of_a_write_together(store: Store) {
    const CALLS: usize = 5;
    const WRITES: u64 = 20;
    let key = key("together");
    let writing = {
        let (store, key) = (store.clone(), key.clone());
        tokio::spawn(async move {
            let mut expected = Revision::ABSENT;
            for sequence in 1..=WRITES {
                let rows = (0..CALLS as u32).map(|index| pending(sequence, index, "a"));
                let write = write_messages(&key, expected, [asking(&["a"; CALLS])])
                    .with_tools(rows.collect());
                expected = stored(&store, write).await;
                tokio::task::yield_now().await;
            }
        })
    };
    while !writing.is_finished() {
        let before = store.head(&key).await.expect("the head is read").revision.sequence as usize;
        let found = recorded(&store, &key).await.len();
        let after = store.head(&key).await.expect("the head is read").revision.sequence as usize;
        assert_eq!(found % CALLS, 0, "a reader sees only a part of a write");
        assert!((before..=after).contains(&(found / CALLS)), "{before} {found} {after}");
        tokio::task::yield_now().await;
    }
    writing.await.expect("all writes are stored");
    assert_eq!(recorded(&store, &key).await.len(), WRITES as usize * CALLS);
}
