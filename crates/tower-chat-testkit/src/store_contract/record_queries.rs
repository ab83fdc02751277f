//! The rules for queries of the record of tool calls, which has one row for each call.

use std::{collections::BTreeMap, time::Duration};

use tower_chat_core::{
    ConversationKey, Message, ToolStatus,
    store::{
        InvocationQuery, Revision, ToolCallQueries, ToolTotals, UnreadableInvocation,
        author::{RecordedResult, ToolRecord},
    },
};

use super::{
    Store,
    fixture::{
        asking, at, invocations, key, pending, position, recorded, stored, with_outcome,
        with_times, write_messages, write_rows,
    },
};

/// Stores conversations in two scopes, with calls of several tools, statuses and times.
async fn stored_calls(store: &Store) -> Vec<(ConversationKey, ToolRecord)> {
    const TOOLS: [&str; 3] = ["a", "A", "a%"];
    let mut calls = Vec::new();
    for (scope, id) in [("one", "x"), ("one", "y"), ("two", "x")] {
        let key = ConversationKey::new(scope, id);
        let mut rows = Vec::new();
        for sequence in [1, 3, 4] {
            for index in 0..3 {
                let number = rows.len();
                let status = ToolStatus::ALL[(number * 2 + id.len()) % ToolStatus::ALL.len()];
                let row = pending(sequence, index, TOOLS[(number + index as usize) % 3]);
                let row = with_outcome(row, status, RecordedResult::None);
                let started = number as u64 * 100;
                rows.push(if number % 4 == 3 {
                    row
                } else {
                    with_times(row, started, started + 7)
                });
            }
        }
        let messages =
            [asking(&["t"; 3]), Message::user("between"), asking(&["t"; 3]), asking(&["t"; 3])];
        let write = write_messages(&key, Revision::ABSENT, messages).with_tools(rows.clone());
        stored(store, write).await;
        calls.extend(rows.into_iter().map(|row| (key.clone(), row)));
    }
    calls
}

/// Returns queries with all combinations of the criteria.
fn all_queries() -> Vec<InvocationQuery> {
    let keys = [("one", "y"), ("two", "x")];
    let mut queries: Vec<_> = ["one", "three"].map(InvocationQuery::in_scope).into();
    let keys = keys.map(|(scope, id)| ConversationKey::new(scope, id));
    queries.extend(keys.iter().map(InvocationQuery::of));
    let mut with = |variants: &[&dyn Fn(InvocationQuery) -> InvocationQuery]| {
        let plain = queries.clone();
        for variant in variants {
            queries.extend(plain.iter().cloned().map(variant));
        }
    };
    with(&[&|query| query.in_messages([4, 1, 1]), &|query| {
        query.in_messages([2, 0, u64::MAX, (1 << 32) + 1])
    }]);
    with(&[&|query| query.of_tool("a"), &|query| query.of_tool("A")]);
    with(&[&|query| query.with_status(ToolStatus::Ok), &|query| {
        query.with_status(ToolStatus::Interrupted)
    }]);
    with(&[
        &|query| query.started_in(at(100)..at(600)),
        &|query| query.started_in(at(0) + Duration::from_nanos(1)..at(400)),
        &|query| query.started_in(at(500)..at(500)),
    ]);
    with(&[&|query| query.with_limit(2), &|query| query.with_limit(usize::MAX)]);
    queries
}

/// A query can select calls by scope, conversation, message, tool, status, time and limit, and by
/// any combination of these. Totals count the same calls.
pub async fn calls_are_found_by_everything_a_query_can_name(store: Store) {
    let calls = stored_calls(&store).await;
    let mut answered = 0;
    for query in all_queries() {
        let is_asked_for = |(key, row): &&(ConversationKey, ToolRecord)| {
            key.scope() == query.scope
                && query.conversation.as_deref().is_none_or(|id| id == key.id())
                && query.fits(row)
        };
        let expected: Vec<_> = calls.iter().filter(is_asked_for).collect();
        let mut totals = BTreeMap::new();
        for (_, row) in &expected {
            let of_tool = totals.entry(&*row.name).or_insert_with(|| ToolTotals::new(&*row.name));
            of_tool.count(row.status, row.started_at, row.finished_at);
        }
        let expected: Vec<_> = expected
            .iter()
            .take(query.limit.unwrap_or(usize::MAX))
            .map(|(key, row)| (key, row.call, &*row.name, row.status))
            .collect();
        let found = invocations(&store, &query).await;
        let found: Vec<_> = found
            .iter()
            .map(|(key, call)| {
                let position = position(call.sequence, call.sequence_index);
                (key, position, &*call.name, call.status)
            })
            .collect();
        assert_eq!(found, expected, "{query:?}");
        let counted = store.tool_totals(&query).await.expect("the totals are read");
        assert_eq!(counted, totals.into_values().collect::<Vec<_>>(), "{query:?}");
        answered += usize::from(!found.is_empty());
    }
    assert!(answered > 50, "only {answered} queries found calls");
}

/// Totals contain, for each tool, the numbers of calls, errors and open calls, and the durations of
/// the calls.
pub async fn tool_calls_are_counted_per_tool(store: Store) {
    let key = key("totals");
    let row =
        |index, tool, status| with_outcome(pending(1, index, tool), status, RecordedResult::None);
    let mut never_finished = row(5, "b", ToolStatus::Interrupted);
    never_finished.started_at = Some(at(5));
    let rows = vec![
        with_times(row(0, "b", ToolStatus::Ok), 1_000, 1_250),
        with_times(row(1, "b", ToolStatus::Error), 2_000, 2_001),
        with_times(row(2, "B", ToolStatus::Ok), 3_000, 3_000),
        row(3, "b", ToolStatus::UnknownTool),
        row(4, "b", ToolStatus::PendingApproval),
        never_finished,
        // A call that ended before its start, because the clock was set back, has the duration 0.
        with_times(row(6, "b", ToolStatus::Error), 2_000, 1_000),
    ];
    let write = write_messages(&key, Revision::ABSENT, [asking(&["t"; 7])]).with_tools(rows);
    stored(&store, write).await;
    let totals = store
        .tool_totals(&InvocationQuery::of(&key).with_limit(1))
        .await
        .expect("the totals are read");
    let times = totals.iter().map(|tool| (tool.times.calls(), tool.times.percentile(100)));
    let longest = |milliseconds| Some(Duration::from_millis(milliseconds));
    assert_eq!(times.collect::<Vec<_>>(), [(1, longest(0)), (3, longest(250))]);
    let days = totals.iter().flat_map(|tool| tool.days.values());
    let days: Vec<_> = days.map(|of_day| (of_day.calls, of_day.errors)).collect();
    assert_eq!(days, [(1, 0), (4, 2)]);
    let totals: Vec<_> = totals
        .iter()
        .map(|tool| (&*tool.name, tool.calls, tool.errors, tool.open, tool.duration.as_millis()))
        .collect();
    assert_eq!(totals, [("B", 1, 0, 0, 0), ("b", 6, 2, 2, 251)]);
}

/// A query returns calls in the byte order of the conversation ids and, within a conversation, in
/// the order of the messages. The order in which the rows were written has no effect.
pub async fn calls_come_in_the_order_of_conversation_message_and_position(store: Store) {
    let ids = ["b", "\u{e9}", "", "a\0", "B", "a"];
    for id in ids {
        let key = ConversationKey::new("ordered", id);
        let messages = [asking(&["t"; 300]), asking(&["t"; 3])];
        let rows = [(2, 2), (1, 299), (1, 0), (2, 0), (1, 17)];
        let rows = rows.map(|(sequence, index)| pending(sequence, index, "t"));
        let write = write_messages(&key, Revision::ABSENT, messages).with_tools(rows[2..].to_vec());
        let after = stored(&store, write).await;
        stored(&store, write_rows(&key, after, rows[..2].to_vec())).await;
    }
    let mut sorted = ids;
    sorted.sort_unstable();
    let positions = [(1, 0), (1, 17), (1, 299), (2, 0), (2, 2)];
    let expected: Vec<_> =
        sorted.iter().flat_map(|id| positions.map(|position| (id.to_string(), position))).collect();
    let found = async |query: &InvocationQuery| {
        let found = invocations(&store, query).await.into_iter();
        found
            .map(|(key, call)| (key.id().to_owned(), (call.sequence, call.sequence_index)))
            .collect::<Vec<_>>()
    };
    let query = InvocationQuery::in_scope("ordered");
    assert_eq!(found(&query).await, expected);
    assert_eq!(found(&query.clone().with_limit(7)).await, expected[..7]);
    let first: Vec<_> =
        expected.iter().filter(|(_, (message, _))| *message == 1).cloned().collect();
    assert_eq!(found(&query.in_messages([1]).with_limit(4)).await, first[..4]);
}

/// No query returns calls of a scope or a conversation that the query does not name.
pub async fn questions_never_cross_a_scope(store: Store) {
    let halves = ["", "a", "A", "a ", "a/", "a%", "_", "a\0", "'", "1", "01"];
    for (number, scope) in halves.iter().enumerate() {
        for id in halves {
            let key = ConversationKey::new(*scope, id);
            let tool = format!("{scope:?} {id:?}");
            let write = write_messages(&key, Revision::ABSENT, [asking(&[&tool])])
                .with_tools(vec![pending(1, 0, &tool)]);
            stored(&store, write).await;
        }
        let all = invocations(&store, &InvocationQuery::in_scope(*scope)).await;
        assert_eq!(all.len(), halves.len(), "{number}");
        assert!(all.iter().all(|(key, _)| key.scope() == *scope));
    }
    for scope in halves {
        for id in halves {
            let key = ConversationKey::new(scope, id);
            let tool = format!("{scope:?} {id:?}");
            let found = recorded(&store, &key).await;
            assert_eq!((found.len(), &*found[0].name), (1, &*tool));
            let totals =
                store.tool_totals(&InvocationQuery::of(&key)).await.expect("the totals are read");
            assert_eq!((totals.len(), &*totals[0].name), (1, &*tool));
            let elsewhere = InvocationQuery::in_scope(format!("not {scope}")).of_tool(tool);
            assert_eq!(invocations(&store, &elsewhere).await, []);
        }
    }
}

/// A query with an empty list of messages, or with the limit 0, finds nothing.
pub async fn a_question_for_nothing_finds_nothing(store: Store) {
    let calls = stored_calls(&store).await;
    let of_first = InvocationQuery::of(&calls[0].0);
    for query in [of_first.clone(), InvocationQuery::in_scope("one")] {
        assert_ne!(invocations(&store, &query).await, []);
        assert_eq!(invocations(&store, &query.clone().with_limit(0)).await, []);
        assert_ne!(
            store.tool_totals(&query.clone().with_limit(0)).await.expect("the totals are read"),
            []
        );
        let query = query.in_messages([]);
        assert_eq!(invocations(&store, &query).await, []);
        assert_eq!(store.tool_totals(&query).await.expect("the totals are read"), []);
    }
    let unknown = InvocationQuery::of(&key("unknown"));
    assert_eq!(invocations(&store, &unknown).await, []);
    assert_eq!(store.tool_totals(&unknown).await.expect("the totals are read"), []);
}

/// A query can return hundreds of calls of one turn, and can name thousands of messages.
pub async fn any_number_of_calls_and_messages_can_be_asked_for(store: Store) {
    const CALLS: u32 = 300;
    let key = key("many");
    let rows = (0..CALLS).map(|index| pending(1, index, "t"));
    let many = write_messages(&key, Revision::ABSENT, [asking(&["t"; CALLS as usize])])
        .with_tools(rows.collect());
    let after = stored(&store, many).await;
    assert_eq!(recorded(&store, &key).await.len() as u32, CALLS);
    let rows = (2..=2_000).map(|sequence| pending(sequence, 0, "t"));
    let messages = (2..=2_000).map(|_| asking(&["t"]));
    stored(&store, write_messages(&key, after, messages).with_tools(rows.collect())).await;

    let of_list = async |sequences: Vec<u64>| {
        let query = InvocationQuery::of(&key).in_messages(sequences);
        let found = invocations(&store, &query).await;
        found.iter().map(|(_, call)| call.sequence).collect::<Vec<_>>()
    };
    let even: Vec<u64> = (1..=2_000).map(|number| number * 2).collect();
    let expected: Vec<u64> = (1..=1_000).map(|number| number * 2).collect();
    assert_eq!(of_list(even.into_iter().rev().collect()).await, expected);
    let all = of_list((0..40_000).chain([u64::MAX, 2, 2, 2]).collect()).await;
    assert_eq!(all.len() as u32, CALLS + 1_999);
    assert_eq!(of_list(vec![1_999, 7, 7, 5_000]).await, [7, 1_999]);
}

/// A query reports a row whose call or result does not exist, and returns all other calls.
pub async fn a_row_that_cannot_be_read_does_not_hide_the_others(store: Store) {
    let key = key("unreadable");
    let result = |index, sequence, result| {
        let position = RecordedResult::InMessage(position(sequence, result));
        with_outcome(pending(2, index, "t"), ToolStatus::Ok, position)
    };
    let rows = vec![
        pending(1, 0, "t"),
        pending(2, 0, "t"),
        result(1, 2, 0),
        result(2, 9, 0),
        result(3, u64::MAX, 0),
        result(4, 1 << 32, 0),
        pending(2, 5, "t"),
        pending(2, 6, "t"),
        pending(2, u32::MAX, "t"),
    ];
    let messages = [Message::user("calls nothing"), asking(&["t"; 6])];
    let write = write_messages(&key, Revision::ABSENT, messages).with_tools(rows);
    let after = stored(&store, write).await;
    let query = InvocationQuery::of(&key);
    let invocations = store.invocations(&query).await.expect("the record is queried");
    let found: Vec<_> =
        invocations.found.iter().map(|(_, call)| (call.sequence, call.sequence_index)).collect();
    assert_eq!(found, [(2, 0), (2, 5)]);
    let unreadable = |row: &UnreadableInvocation| {
        assert_eq!(row.key, key);
        assert!(!row.reason.is_empty());
        (row.sequence, row.index)
    };
    let unreadable: Vec<_> = invocations.unreadable.iter().map(unreadable).collect();
    assert_eq!(unreadable, [(1, 0), (2, 1), (2, 2), (2, 3), (2, 4), (2, 6), (2, u32::MAX)]);
    assert_eq!(
        store.tool_totals(&query).await.expect("the totals are read")[0].calls,
        9,
        "unreadable rows are counted too"
    );
    stored(&store, write_rows(&key, after, vec![pending(2, 1, "t")])).await;
    let invocations = store.invocations(&query).await.expect("the record is queried");
    assert_eq!(
        (invocations.found.len(), invocations.unreadable.len()),
        (3, 6),
        "one row is repaired"
    );
}
