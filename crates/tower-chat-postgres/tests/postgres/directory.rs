//! Tests of the directory: long names, damaged rows, pages that are read in batches, row-level
//! security, and the use of indexes.

use std::time::{Duration, SystemTime};

use crate::common::{
    append, key, open, options, ordinary_user, quoted, raw, schema, server, write,
};
use tower_chat_core::{
    ConversationKey, RunId,
    store::{
        ConversationQuery, ConversationState, Description, Directory, HistoryStore, Maintenance,
        ModelUsage, Parent, Revision, RunActivity, UsageGroup, UsageGrouping, UsageQuery, UsageSum,
        author::Write,
    },
};
use tower_chat_postgres::PostgresStore;

fn at(milliseconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_millis(milliseconds)
}

fn calls(model: &str, service_calls: u64) -> ModelUsage {
    ModelUsage::new(Some(model.into()), UsageSum::of_calls(service_calls, 0))
}

fn with_activity(write: Write, milliseconds: u64, usage: &[ModelUsage]) -> Write {
    write.with_activity(RunActivity::new(at(milliseconds)).with_usage(usage.iter().cloned()))
}

/// The primary keys contain shortened forms of names that are too long for an index.
#[tokio::test]
async fn long_names_of_models_scopes_and_conversations_are_returned_whole() {
    let store = open(options()).await;
    let [one, other] = ["1", "2"].map(|end| "m".repeat(4000) + end);
    let keys =
        ["a", "b"].map(|end| ConversationKey::new("s".repeat(3000) + end, "c".repeat(3000) + end));
    for (key, time) in keys.iter().zip([5, 7]) {
        let first = write(key, Revision::ABSENT, &[key.id()]);
        let usage = [calls(&one, time), calls(&other, 10 * time)];
        append(&store, with_activity(first, time, &usage)).await.unwrap();
    }
    let page = store.conversations(&ConversationQuery::in_all_scopes()).await.unwrap();
    let found: Vec<_> = page.conversations.into_iter().map(|summary| summary.key).collect();
    assert_eq!(found, [keys[1].clone(), keys[0].clone()]);
    let by_model = UsageQuery::in_scope(keys[0].scope(), UsageGrouping::Model);
    let totals = store.usage(&by_model).await.unwrap();
    let totals: Vec<_> =
        totals.into_iter().map(|it| (it.group, it.runs, it.sum.service_calls)).collect();
    let model = |name: &str| UsageGroup::Model(Some(name.into()));
    assert_eq!(totals, [(model(&one), 1, 5), (model(&other), 1, 50)]);
    let by_conversation = UsageQuery::in_all_scopes(UsageGrouping::Conversation);
    let totals = store.usage(&by_conversation).await.unwrap();
    let totals: Vec<_> = totals.into_iter().map(|it| (it.group, it.sum.service_calls)).collect();
    let of = |key: &ConversationKey| UsageGroup::Conversation(key.clone());
    assert_eq!(totals, [(of(&keys[0]), 55), (of(&keys[1]), 77)]);
    let runs = store.runs(&keys[1], None, 5).await.unwrap();
    assert_eq!(runs[0].usage, [calls(&one, 7), calls(&other, 70)]);
}

#[tokio::test]
async fn a_list_reports_damaged_conversations_and_contains_the_others() {
    let schema = schema();
    let store = open(PostgresStore::options().with_schema(&schema)).await;
    for (id, time) in [("metadata", 40), ("title", 30), ("number", 20), ("whole", 10)] {
        let first = write(&key(id), Revision::ABSENT, &[id]);
        append(&store, with_activity(first, time, &[])).await.unwrap();
    }
    let client = raw(&server().address("postgres")).await;
    let table = format!("{}.conversations", quoted(&schema));
    for (id, change) in [
        ("metadata", "metadata = '{'"),
        ("title", "title = '\\xff'"),
        ("number", "last_sequence = -1"),
    ] {
        let sql = format!("UPDATE {table} SET {change} WHERE conversation = $1");
        assert_eq!(client.execute(&sql, &[&id.as_bytes()]).await.unwrap(), 1);
    }
    let page = store.conversations(&ConversationQuery::in_scope("scope")).await.unwrap();
    let unreadable: Vec<_> = page.unreadable.iter().map(|it| it.key.id()).collect();
    assert_eq!(unreadable, ["metadata", "title"]);
    let listed: Vec<_> = page.conversations.iter().map(|it| (it.key.id(), it.state)).collect();
    assert_eq!(
        listed,
        [("number", ConversationState::Damaged), ("whole", ConversationState::Idle)]
    );
    store.summary(&key("metadata")).await.unwrap_err();
    let damaged = ConversationQuery::in_scope("scope").in_state(ConversationState::Damaged);
    assert_eq!(store.conversations(&damaged).await.unwrap().conversations.len(), 1);
}

/// If few conversations match the query, the store reads a page in several batches.
#[tokio::test]
async fn pages_that_are_read_in_several_batches_miss_no_conversation() {
    let schema = schema();
    let store = open(PostgresStore::options().with_schema(&schema)).await;
    let client = raw(&server().address("postgres")).await;
    // Many conversations have the same time, and some have times in later hours.
    let sql = format!(
        "INSERT INTO {}.conversations (scope, conversation, incarnation, last_sequence, created,
             last_active, metadata)
         SELECT 'scope', convert_to(to_char(n, 'FM0000'), 'UTF8'), 1, 0, 0,
             CASE WHEN n < 700 THEN 5 ELSE n::bigint * 3600000 END,
             CASE WHEN n % 100 = 7 THEN '{{\"n\": 1e2}}' ELSE '{{\"n\": 1}}' END
         FROM generate_series(0, 999) AS n",
        quoted(&schema)
    );
    client.execute(&sql, &[]).await.unwrap();
    let asked = ConversationQuery::in_scope("scope").with_metadata("n", 100.0);
    let expected = ["0907", "0807", "0707", "0007", "0107", "0207", "0307", "0407", "0507", "0607"];
    for limit in [1, 3, 9, 10, 11] {
        let mut query = asked.clone().with_limit(limit);
        let mut found = Vec::new();
        loop {
            let page = store.conversations(&query).await.unwrap();
            found.extend(page.conversations.iter().map(|it| it.key.id().to_owned()));
            let Some(next) = page.next else { break };
            assert_eq!(page.conversations.len(), limit);
            query = query.after(next);
        }
        assert_eq!(found, expected, "{limit} at a time");
    }
    // A number in the metadata matches only the same number.
    let other = ConversationQuery::in_scope("scope").with_metadata("n", 100);
    assert_eq!(store.conversations(&other).await.unwrap().conversations, []);
}

#[tokio::test]
async fn with_row_level_security_the_directory_is_visible_only_with_the_setting_for_all_scopes() {
    let schema = schema();
    let options = PostgresStore::options()
        .with_schema(&schema)
        .with_partitions(2)
        .with_row_level_security(true);
    let store = options.connect(&ordinary_user().await).await.unwrap();
    let [alice, bob] = ["alice", "bob"].map(|scope| ConversationKey::new(scope, "support"));
    for key in [&alice, &bob] {
        let first = write(key, Revision::ABSENT, &[key.scope()]);
        append(&store, with_activity(first, 5, &[calls("m", 1)])).await.unwrap();
    }
    let title = Description::new().with_title("Alice's").unwrap();
    assert_eq!(store.set_description(&alice, &title, 0).await.unwrap(), 1);
    let client = raw(&ordinary_user().await).await;
    let count = async |table: &str| {
        let sql = format!("SELECT count(*) FROM {}.{table}", quoted(&schema));
        client.query_one(&sql, &[]).await.unwrap().get::<_, i64>(0)
    };
    let tables = ["conversations", "run_usage", "run_usage_0", "run_usage_1", "messages"];
    for table in tables {
        assert_eq!(count(table).await, 0, "{table}");
    }
    client.batch_execute("SET tower_chat.all_scopes = 'on'").await.unwrap();
    let mut counts = Vec::new();
    for table in tables {
        counts.push(count(table).await);
    }
    assert_eq!(counts, [2, 2, 0, 0, 0], "neither partitions nor messages are visible");
}

/// Appends within the same hour write the new version of the conversation's row to the same page,
/// and change no index.
#[tokio::test]
async fn an_append_within_the_same_hour_changes_no_index_of_the_conversation() {
    let schema = schema();
    let store = open(PostgresStore::options().with_schema(&schema)).await;
    let key = key("often written");
    let run = RunId::new();
    let mut revision = Revision::ABSENT;
    for number in 0_u32..20 {
        let id = tower_chat_core::MessageId { run, index: number };
        let message = tower_chat_core::Message::user(format!("message {number}"));
        let write = Write::new(key.clone(), id, revision, [message.into()]);
        let write = with_activity(write, u64::from(number) * 1000, &[calls("m", 1)]);
        revision = append(&store, write).await.unwrap();
    }
    let summary = store.summary(&key).await.unwrap().unwrap();
    assert_eq!((summary.runs, summary.usage.service_calls), (1, 20));
    assert_eq!([summary.created_at, summary.last_active_at], [at(0), at(19_000)]);
    // A connection reports its statistics to the server when the connection is closed.
    store.close().await.unwrap();
    drop(store);
    let client = raw(&server().address("postgres")).await;
    for (table, updates) in [("conversations", 20), ("run_usage", 19)] {
        let sql = "SELECT pg_stat_get_tuples_updated(c.oid), pg_stat_get_tuples_hot_updated(c.oid)
            FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
            WHERE n.nspname = $1 AND c.relname = $2";
        let found = loop {
            let row = client.query_one(sql, &[&schema, &table]).await.unwrap();
            let found: [i64; 2] = [row.get(0), row.get(1)];
            if found[0] >= updates {
                break found;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        };
        assert_eq!(found, [updates; 2], "{table}");
    }
}

#[tokio::test]
async fn a_conversation_is_found_by_the_primary_key_in_a_scope_without_statistics() {
    let (schema, user) = (schema(), ordinary_user().await);
    PostgresStore::options().with_schema(&schema).connect(&user).await.unwrap();
    let client = raw(&user).await;
    let table = format!("{}.conversations", quoted(&schema));
    let insert = |scope: &str| {
        format!(
            "INSERT INTO {table} (scope, conversation, incarnation, last_sequence)
             SELECT {scope}, convert_to(lpad(i::text, 36, '0'), 'UTF8'), 1, 1
             FROM generate_series(1, 5000) AS i"
        )
    };
    // When the server collects statistics, every scope has one conversation.
    client.batch_execute(&insert("convert_to('user ' || i, 'UTF8')")).await.unwrap();
    client.batch_execute(&format!("ANALYZE {table}")).await.unwrap();
    client.batch_execute(&insert("convert_to('large', 'UTF8')")).await.unwrap();
    let question = "WHERE scope = 'large' AND conversation = '1'";
    let sql = format!("EXPLAIN SELECT last_sequence FROM {table} {question}");
    let plan = client.query(&sql, &[]).await.unwrap();
    let plan: Vec<String> = plan.iter().map(|row| row.get(0)).collect();
    assert!(plan[0].contains("conversations_pkey"), "{plan:#?}");
}

/// The other conversations of the scope were active later, so that the index by activity would find
/// the branches last.
#[tokio::test]
async fn branches_are_found_by_an_index_in_a_large_scope() {
    let (schema, user) = (schema(), ordinary_user().await);
    PostgresStore::options().with_schema(&schema).connect(&user).await.unwrap();
    let client = raw(&user).await;
    let table = format!("{}.conversations", quoted(&schema));
    let insert = format!(
        "INSERT INTO {table} (scope, conversation, incarnation, last_sequence, last_active,
             created, parent_scope, parent_conversation, parent_key)
         SELECT 'large'::bytea, convert_to(lpad(i::text, 36, '0'), 'UTF8'), 1, 1,
             i * 3600000::bigint, i, p.scope, p.conversation, sha256(p.scope || p.conversation)
         FROM generate_series(1, 5000) AS i
         LEFT JOIN (SELECT 'large'::bytea AS scope, 'p'::bytea AS conversation) AS p ON i <= 10"
    );
    client.batch_execute(&insert).await.unwrap();
    let question = "WHERE scope = 'large' AND active_hour BETWEEN 0 AND 9000
            AND parent_key = sha256('large'::bytea || 'p'::bytea)
            AND parent_scope = 'large' AND parent_conversation = 'p'
        ORDER BY active_hour DESC, last_active DESC LIMIT 51";
    for statistics in ["", "ANALYZE"] {
        if !statistics.is_empty() {
            client.batch_execute(&format!("{statistics} {table}")).await.unwrap();
        }
        let sql = format!("EXPLAIN SELECT last_sequence FROM {table} {question}");
        let plan = client.query(&sql, &[]).await.unwrap();
        let plan: Vec<String> = plan.iter().map(|row| row.get(0)).collect();
        assert!(
            plan.iter()
                .any(|line| line.contains(" on branches ") || line.contains("using branches ")),
            "{plan:#?}"
        );
    }
}

#[tokio::test]
async fn branches_of_a_parent_with_a_long_key_are_found() {
    let store = open(options()).await;
    let of = |end: &str| ConversationKey::new("s".repeat(3000), "c".repeat(3000) + end);
    let (parent, other) = (of("a"), of("b"));
    append(&store, write(&parent, Revision::ABSENT, &["one"])).await.unwrap();
    let branch = ConversationKey::new(parent.scope(), "branch");
    store.fork_at(&parent, None, &branch).await.unwrap();
    let appended = write(&of("c"), Revision::ABSENT, &["one"]);
    let appended = appended.with_parent(Some(Parent::new(parent.clone(), 1)));
    append(&store, appended).await.unwrap();
    for (parent, expected) in [(&parent, vec![branch, of("c")]), (&other, vec![])] {
        for query in
            [ConversationQuery::in_scope(parent.scope()), ConversationQuery::in_all_scopes()]
        {
            let page = store.conversations(&query.branches_of(parent.clone())).await.unwrap();
            let mut found: Vec<_> = page.conversations.into_iter().map(|it| it.key).collect();
            found.sort_by_key(|key| key.id().len());
            assert_eq!(found, expected);
        }
    }
}
