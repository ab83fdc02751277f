//! Tests that a store with sealed data refuses changes that do not come from the store wrapper that
//! seals the data.

use std::sync::Arc;

use crate::common::{append, key, ordinary_user, quoted, raw, schema, write};
use tower_chat_core::{
    Message, MessageId, Native, Part, RawJson, Role, RunId,
    store::{Revision, ServiceIdChange, author::Write},
};
use tower_chat_postgres::PostgresStore;
use tower_chat_testkit::store_contract::{self, Store};

#[tokio::test]
async fn plain_changes_are_refused_once_a_sealed_write_is_stored() {
    let options = PostgresStore::options().with_schema(schema());
    let address = ordinary_user().await;
    let open = async || {
        let store: Store = Arc::new(options.clone().connect(&address).await.unwrap());
        store
    };
    store_contract::plain_changes_are_refused_once_a_sealed_write_is_stored(open).await;
}

/// The migration of version 6 marks tables that contain sealed data, with and without row-level
/// security.
#[tokio::test]
async fn migrated_tables_refuse_plain_writes_if_they_contain_sealed_data() {
    let item: RawJson = "\"tower-chat-1:k:1:0:AAAA\"".parse().unwrap();
    let envelope =
        Message::new(Role::User, vec![Part::from(Native::new("tower-chat-encrypted", item))]);
    let quoted_text = Message::user("what is {\"wire\":\"tower-chat-encrypted\",?");
    let set = |id: &str| ServiceIdChange::Set(id.into());
    let tried = [
        (quoted_text, set("resp_1"), false),
        (envelope, set("resp_1"), true),
        (Message::user("x"), set("tower-chat-2:k:AAAA"), true),
    ];
    let address = ordinary_user().await;
    for (message, change, is_sealed) in tried {
        for has_policies in [false, true] {
            let schema = schema();
            let options =
                PostgresStore::options().with_schema(&schema).with_row_level_security(has_policies);
            let store = options.clone().connect(&address).await.unwrap();
            let id = MessageId { run: RunId::new(), index: 0 };
            let first = Write::new(key("c"), id, Revision::ABSENT, [message.clone().into()])
                .with_service_id(change.clone());
            append(&store, first).await.unwrap();
            let sql = "DROP TABLE {schema}.store_marks;
                DROP TABLE {schema}.history_summaries;
                ALTER TABLE {schema}.conversations DROP COLUMN parent_scope,
                    DROP COLUMN parent_conversation, DROP COLUMN parent_position,
                    DROP COLUMN parent_key, DROP COLUMN rewrites, DROP COLUMN load_from;
                UPDATE {schema}.schema_version SET version = 6";
            let client = raw(&address).await;
            client.batch_execute(&sql.replace("{schema}", &quoted(&schema))).await.unwrap();
            let store = options.connect(&address).await.unwrap();
            let plain = append(&store, write(&key("new"), Revision::ABSENT, &["more"])).await;
            assert_eq!(plain.is_err(), is_sealed, "{has_policies}: {plain:?}");
        }
    }
}
