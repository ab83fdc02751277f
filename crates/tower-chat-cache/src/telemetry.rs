//! Telemetry of a cache.

use tower_chat_core::{
    ConversationKey,
    telemetry::{
        GaugeGuard,
        metric::{CACHE_BYTES, CACHE_ENTRIES, CACHE_EVICTIONS, CACHE_LOADS, label},
    },
};

macro_rules! event {
    ($($event:tt)*) => { tracing::debug!(target: "tower_chat::store", $($event)*) };
}

/// Records the result of a lookup: `hit`, `revalidated` or `miss`.
pub(crate) fn answered(result: &'static str) {
    CACHE_LOADS.add(1, &[(label::CACHE_RESULT, Some(result))]);
    event!(result, "a cache was queried");
}

pub(crate) fn evicted(key: &ConversationKey) {
    CACHE_EVICTIONS.add(1, &[]);
    event!(conversation = %key, "a conversation was evicted from the cache");
}

/// Counts an entry of a cache in the gauges until the guards are dropped.
pub(crate) fn cached(bytes: u64) -> Vec<GaugeGuard> {
    let guards = [CACHE_ENTRIES.hold(1, &[]), CACHE_BYTES.hold(bytes, &[])];
    guards.into_iter().flatten().collect()
}
