//! The name of the store in spans, metrics and events.

use tower_chat_core::telemetry::StoreTelemetry;

/// The value of `db.system.name`.
pub(crate) const SYSTEM: &str = "sqlite";

/// Records the metrics and events of the store.
pub(crate) const TELEMETRY: StoreTelemetry = StoreTelemetry::new(SYSTEM);
