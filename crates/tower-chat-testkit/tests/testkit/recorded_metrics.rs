//! Tests that metrics are sent to the recorder of the thread, and that no metrics are measured
//! without a recorder.

use std::{future::ready, io::ErrorKind, time::Duration};

use tower_chat_core::{
    store::author::Retry,
    telemetry::{
        StoreTelemetry, Timer, is_recorded,
        metric::{CONNECTIONS, READ_BYTES, STORE_OPERATION_DURATION, label},
    },
};
use tower_chat_testkit::RecordedMetrics;

#[test]
fn without_a_recorder_nothing_is_measured() {
    assert!(!is_recorded());
    assert_eq!(Timer::start().elapsed(), None);
    assert!(CONNECTIONS.hold(1, &[]).is_none());
    let metrics = RecordedMetrics::new();
    let recording = metrics.record_this_thread();
    assert!(is_recorded());
    let timer = Timer::start();
    assert!(timer.elapsed().is_some());
    timer.record(STORE_OPERATION_DURATION, &[(label::STORE_OPERATION, Some("load"))]);
    drop(recording);
    assert!(!is_recorded());
    READ_BYTES.record(1.0, &[]);
    let lines = ["tower_chat.store.operation.duration{db.operation.name=load} 1 values"];
    assert_eq!(metrics.lines(), lines);
}

#[test]
fn a_gauge_is_the_sum_of_its_parts_and_a_label_without_a_value_is_omitted() {
    let metrics = RecordedMetrics::new();
    let _recording = metrics.record_this_thread();
    let labels = |system| [(label::SYSTEM, system)];
    let three = CONNECTIONS.hold(3, &labels(Some("redis")));
    let five = CONNECTIONS.hold(5, &labels(Some("redis")));
    let unnamed = CONNECTIONS.hold(7, &labels(None));
    let lines = [
        "tower_chat.store.connections = 7",
        "tower_chat.store.connections{db.system.name=redis} = 8",
    ];
    assert_eq!(metrics.lines(), lines);
    drop((three, unnamed));
    let lines = [
        "tower_chat.store.connections = 0",
        "tower_chat.store.connections{db.system.name=redis} = 5",
    ];
    assert_eq!(metrics.lines(), lines);
    drop(five);
}

#[tokio::test]
async fn each_retry_of_a_request_is_counted() {
    let metrics = RecordedMetrics::new();
    let _recording = metrics.record_this_thread();
    let retry = Retry::new(Duration::from_secs(3600));
    let retry = retry.with_telemetry(StoreTelemetry::new("postgresql"));
    let mut attempts = 0;
    let attempt = || {
        attempts += 1;
        ready(if attempts < 4 { Err(ErrorKind::NotConnected) } else { Ok("there") })
    };
    assert_eq!(retry.run(attempt, |_| true).await, Ok("there"));
    let lines = ["tower_chat.store.retries{db.system.name=postgresql} 3"];
    assert_eq!(metrics.lines(), lines);
}
