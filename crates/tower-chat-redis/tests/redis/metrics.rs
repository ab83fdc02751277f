//! Tests of the telemetry of the queue, the connections and the server.

use std::time::Duration;

use tower_chat_core::{
    format,
    store::{HistoryStore, Revision, StoreError},
    telemetry::metric,
};
use tower_chat_testkit::RecordedMetrics;

use crate::common::{append, key, options, start, write};

const SYSTEM: &str = "{db.system.name=redis}";

#[tokio::test]
async fn writes_reads_conflicts_retries_and_connections_are_recorded() {
    let metrics = RecordedMetrics::new();
    let _recording = metrics.record_this_thread();
    let mut server = start(&[]);
    let options = options().with_retry_timeout(Duration::from_millis(300));
    let store = options.connect(&server.address(0)).await.unwrap();
    let first = write(&key("measured"), Revision::ABSENT, &["one", "the other"]);
    let bytes: usize = first.messages().iter().map(|it| format::encode(it).len()).sum();
    append(&store, first).await.unwrap();
    let second = write(&key("measured"), Revision::ABSENT, &["not expected"]);
    let error = append(&store, second).await.unwrap_err().source;
    assert!(matches!(error, StoreError::Conflict(_)), "{error:?}");
    assert_eq!(store.load(&key("measured")).await.unwrap().messages.len(), 2);
    assert_eq!(
        metrics.lines(),
        [
            format!("tower_chat.store.commit.duration{SYSTEM} 1 values"),
            format!("tower_chat.store.commit.size{SYSTEM} 1 values"),
            format!("tower_chat.store.commit.writes{SYSTEM} 1 values"),
            format!("tower_chat.store.conflicts{SYSTEM} 1"),
            format!("tower_chat.store.connections{SYSTEM} = 2"),
            format!("tower_chat.store.queue.duration{SYSTEM} 2 values"),
            format!("tower_chat.store.queue.length{SYSTEM} = 0"),
            format!("tower_chat.store.queue.size{SYSTEM} = 0"),
            format!("tower_chat.store.queue.writes{SYSTEM} = 0"),
            format!("tower_chat.store.read.size{SYSTEM} 1 values"),
        ]
    );
    assert_eq!(metrics.values(metric::COMMIT_BYTES.name()), [f64::from(bytes as u32)]);

    server.crash();
    append(&store, write(&key("lost"), Revision::ABSENT, &["unsent"])).await.unwrap_err();
    let retries = metrics.lines_of(metric::RETRIES.name());
    let [line] = retries.as_slice() else { panic!("{retries:?}") };
    let count = line.strip_prefix(&format!("tower_chat.store.retries{SYSTEM} ")).unwrap();
    assert!(count.parse::<u32>().unwrap() > 0, "{line}");
    drop(store);
    let connections = format!("tower_chat.store.connections{SYSTEM} = 0");
    assert_eq!(metrics.lines_of(metric::CONNECTIONS.name()), [connections]);
}
