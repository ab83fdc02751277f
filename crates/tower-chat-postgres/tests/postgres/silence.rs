//! Tests of a server that accepts requests and does not answer.

use std::{net::TcpListener, time::Duration};

use crate::common::{
    append, key, options, ordinary_user, proxy::Proxy, schema, server, texts, write,
};
use futures_util::future::join_all;
use tower_chat_core::store::{HistoryStore, Keep, Maintenance, Revision};
use tower_chat_postgres::{OpenError, PostgresStore};

/// A number of requests that no operation reaches.
const NEVER: usize = 1_000;

/// The statement timeout, which is long enough for requests that the server answers, even on a busy
/// machine.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(5);

#[tokio::test]
async fn connecting_to_a_server_that_never_answers_fails_with_a_retryable_error() {
    // The operating system accepts connections to this listener, but no program reads from them.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    for sslmode in ["disable", "require"] {
        let address =
            format!("host=127.0.0.1 port={port} user=chat connect_timeout=1 sslmode={sslmode}");
        let error = options().connect(&address).await.unwrap_err();
        assert!(matches!(error, OpenError::Connect { .. }), "{error:?}");
        assert!(error.is_retryable());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn opening_a_store_ends_if_any_of_its_requests_is_not_answered() {
    let options =
        PostgresStore::options().with_schema(schema()).with_statement_timeout(STATEMENT_TIMEOUT);
    let address = server().address("postgres");
    options.clone().connect(&address).await.unwrap();
    let once = async |after| {
        let (proxy, through) = Proxy::start(&address).await;
        proxy.fall_silent_after(after);
        let opened = options.clone().connect(&through).await;
        (proxy.asked(), opened)
    };
    let (count, opened) = once(NEVER).await;
    opened.unwrap();
    for (after, (_, opened)) in join_all((0..count).map(once)).await.into_iter().enumerate() {
        match opened {
            // The client does not wait for the answer to the last request, which only closes a
            // prepared statement.
            Ok(_) => assert_eq!(after + 1, count),
            Err(error) => assert!(error.is_retryable(), "{after}: {error:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn after_one_silent_connection_the_store_opens_a_new_connection() {
    let (proxy, through) = Proxy::start(&server().address("postgres")).await;
    let options = options().with_statement_timeout(STATEMENT_TIMEOUT);
    let store = options.connect(&through).await.unwrap();
    let key = key("a");
    join_all((0..8).map(|_| store.head(&key))).await;
    assert_eq!(proxy.connections(), 4);
    proxy.fall_silent_after(0);
    assert_eq!(store.head(&key).await.unwrap().revision, Revision::ABSENT);
    assert_eq!((proxy.unread(), proxy.connections()), (1, 5));
}

/// Executes `work` once for each request that `work` sends, with a connection that becomes silent
/// at this request. Before each execution, `prepare` runs over a connection that is never silent.
async fn silent_at_each_question<Answer>(
    prepare: impl AsyncFn(&PostgresStore, &str),
    work: impl AsyncFn(&PostgresStore, &str) -> Answer,
) -> (PostgresStore, Vec<Answer>) {
    let address = ordinary_user().await;
    let options = PostgresStore::options()
        .with_schema(schema())
        .with_row_level_security(true)
        .with_statement_timeout(STATEMENT_TIMEOUT);
    let other = options.clone().connect(&address).await.unwrap();
    let once = async |after: usize| {
        let name = after.to_string();
        prepare(&other, &name).await;
        let (proxy, through) = Proxy::start(&address).await;
        let store = options.clone().with_max_connections(1).connect(&through).await.unwrap();
        // After this answer, the proxy has counted all earlier requests.
        store.head(&key("nothing")).await.unwrap();
        let before = proxy.asked();
        proxy.fall_silent_after(after);
        let answer = work(&store, &name).await;
        (proxy.asked() - before, answer)
    };
    let (count, _) = once(NEVER).await;
    let answers = join_all((0..count).map(&once)).await;
    let answers = answers.into_iter().map(|(_, answer)| answer).collect();
    (other, answers)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_append_that_is_not_answered_is_sent_again() {
    let work = async |store: &PostgresStore, name: &str| {
        append(store, write(&key(name), Revision::ABSENT, &["a"])).await.unwrap();
        texts(store, &key(name)).await
    };
    let (_, found) = silent_at_each_question(async |_, _| {}, work).await;
    assert!(found.len() > 2);
    assert!(found.iter().all(|texts| texts == &["a"]), "{found:?}");
}

async fn two_messages(store: &PostgresStore, name: &str) {
    let revision = append(store, write(&key(name), Revision::ABSENT, &["a"])).await.unwrap();
    append(store, write(&key(name), revision, &["b"])).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fork_that_is_not_answered_is_sent_again() {
    let work = async |store: &PostgresStore, name: &str| {
        let copy = key(&format!("copy {name}"));
        store.fork_at(&key(name), None, &copy).await.unwrap().position
    };
    let (other, found) = silent_at_each_question(two_messages, work).await;
    for (after, sequence) in found.into_iter().enumerate() {
        assert_eq!(sequence, 2);
        assert_eq!(texts(&other, &key(&format!("copy {after}"))).await, ["a", "b"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prune_that_is_not_answered_is_sent_again_unless_it_may_have_been_committed() {
    let work =
        async |store: &PostgresStore, name: &str| store.prune(&key(name), Keep::Messages(1)).await;
    let (other, mut found) = silent_at_each_question(two_messages, work).await;
    // The last unanswered request was the commit.
    let error = found.pop().unwrap().unwrap_err();
    assert!(!error.is_retryable(), "{error:?}");
    assert!(found.len() > 5);
    for (after, pruned) in found.into_iter().enumerate() {
        assert_eq!(pruned.unwrap().messages, 1);
        assert_eq!(texts(&other, &key(&after.to_string())).await, ["b"]);
    }
}
