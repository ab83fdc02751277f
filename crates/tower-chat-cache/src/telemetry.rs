//! Telemetry of a cache and of a write-behind store.

use std::time::Duration;

use tower_chat_core::{
    ConversationKey,
    telemetry::{
        GaugeGuard,
        metric::{
            CACHE_BYTES, CACHE_ENTRIES, CACHE_EVICTIONS, CACHE_LOADS, FLUSH_DURATION, FLUSH_WRITES,
            UNSTORED_WRITES, label,
        },
    },
};

/// Emits an event with the target of stores.
macro_rules! event {
    ($($event:tt)*) => { tracing::debug!(target: "tower_chat::store", $($event)*) };
}

/// Records the result of a lookup: `hit`, `revalidated` or `miss`.
pub(crate) fn answered(result: &'static str) {
    CACHE_LOADS.add(1, &[(label::CACHE_RESULT, Some(result))]);
    event!(result, "a cache was asked");
}

/// Records that a conversation was evicted.
pub(crate) fn evicted(key: &ConversationKey) {
    CACHE_EVICTIONS.add(1, &[]);
    event!(conversation = %key, "a conversation was evicted from the cache");
}

/// Counts an entry of a cache in the gauges until the guards are dropped.
pub(crate) fn cached(bytes: u64) -> Vec<GaugeGuard> {
    let guards = [CACHE_ENTRIES.hold(1, &[]), CACHE_BYTES.hold(bytes, &[])];
    guards.into_iter().flatten().collect()
}

/// Counts writes that are acknowledged and not stored in a gauge, until the guard is dropped.
pub(crate) fn unstored(writes: usize) -> Option<GaugeGuard> {
    UNSTORED_WRITES.hold(writes as u64, &[])
}

/// Records that gathered writes were stored.
pub(crate) fn flushed(key: &ConversationKey, writes: usize, duration: Duration) {
    FLUSH_WRITES.record_count(writes as u64, &[]);
    FLUSH_DURATION.record(duration.as_secs_f64(), &[]);
    event!(conversation = %key, writes, ?duration, "gathered writes were stored");
}
