//! Tests of reading and rewriting damaged rows.

use tower_chat_core::{
    Message,
    store::{Maintenance, Revision, Rewrite, SequencePosition, StoreError, author::ToolRecord},
};
use tower_chat_postgres::PostgresStore;

use crate::common::{append, key, open, options, quoted, raw, schema, server, texts, write};

fn record(sequence: u64) -> ToolRecord {
    ToolRecord::pending(SequencePosition { sequence, index: 0 }, 0, "c1", "look")
}

/// Writes a conversation `c` of five messages with two recorded calls, and a conversation `d`,
/// which the tests must not affect.
async fn fill(store: &PostgresStore) -> Revision {
    append(store, write(&key("d"), Revision::ABSENT, &["untouched"])).await.unwrap();
    let five = write(&key("c"), Revision::ABSENT, &["one", "two", "three", "four", "five"]);
    append(store, five.with_tools(vec![record(1), record(2)])).await.unwrap()
}

async fn damage(schema: &str, statements: &[&str]) {
    let client = raw(&server().address("postgres")).await;
    for sql in statements {
        let sql = sql.replace("{schema}", &quoted(schema));
        assert_eq!(client.execute(&sql, &[]).await.unwrap(), 1, "{sql}");
    }
}

#[tokio::test]
async fn unreadable_rows_are_returned_as_errors_among_the_other_rows() {
    let schema = schema();
    let store = open(options().with_schema(&schema)).await;
    let at = fill(&store).await;
    damage(
        &schema,
        &[
            "UPDATE {schema}.messages SET body = '{' WHERE conversation = 'c' AND sequence = 2",
            "DELETE FROM {schema}.messages WHERE conversation = 'c' AND sequence = 3",
            "DELETE FROM {schema}.messages WHERE conversation = 'c' AND sequence = 5",
            "UPDATE {schema}.tool_invocations SET status = 'odd' WHERE sequence = 1",
        ],
    )
    .await;
    let rows = store.rows(&key("c")).await.unwrap().unwrap();
    assert_eq!(rows.head.revision, at);
    let read: Vec<_> = rows.messages.iter().map(|(number, it)| (*number, it.is_ok())).collect();
    assert_eq!(read, [(1, true), (2, false), (4, true)]);
    let read: Vec<_> = rows.tools.iter().map(|(call, it)| (call.sequence, it.is_ok())).collect();
    assert_eq!(read, [(1, false), (2, true)]);

    let mut rewrite = Rewrite::new(key("c"), at);
    rewrite.messages.push((2, Message::user("zwei")));
    rewrite.tools.push(record(1));
    rewrite.expected = store.rewrite(rewrite.clone()).await.unwrap();
    let rows = store.rows(&key("c")).await.unwrap().unwrap();
    let texts_of_rows: Vec<_> =
        rows.messages.iter().map(|(_, message)| message.as_ref().unwrap().text()).collect();
    assert_eq!(texts_of_rows, ["one", "zwei", "four"]);
    assert!(rows.tools.iter().all(|(_, row)| row.is_ok()));
    rewrite.messages.push((3, Message::user("drei")));
    let refused = store.rewrite(rewrite).await.unwrap_err();
    assert!(matches!(refused, StoreError::Corrupt { .. }), "{refused:?}");
    assert_eq!(texts(&store, &key("d")).await, ["untouched"]);
}

#[tokio::test]
async fn an_impossible_number_is_reported_with_its_row_or_its_conversation() {
    let schema = schema();
    let store = open(options().with_schema(&schema)).await;
    fill(&store).await;
    damage(
        &schema,
        &[
            "UPDATE {schema}.messages SET sequence = -1 WHERE conversation = 'c' AND sequence = 3",
            "UPDATE {schema}.tool_invocations SET call_index = -7 WHERE sequence = 2",
        ],
    )
    .await;
    let rows = store.rows(&key("c")).await.unwrap().unwrap();
    let read: Vec<_> = rows.messages.iter().map(|(number, it)| (*number, it.is_ok())).collect();
    assert_eq!(read, [(0, false), (1, true), (2, true), (4, true), (5, true)]);
    assert_eq!(rows.tools[1].0, SequencePosition { sequence: 2, index: u32::MAX });
    assert!(rows.tools[0].1.is_ok() && rows.tools[1].1.is_err());
    damage(&schema, &["UPDATE {schema}.conversations SET pruned = -1 WHERE conversation = 'c'"])
        .await;
    let damaged = store.rows(&key("c")).await.unwrap_err();
    assert!(matches!(damaged, StoreError::Corrupt { .. }), "{damaged:?}");
    assert!(store.rows(&key("d")).await.unwrap().is_some());
}
