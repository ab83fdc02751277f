//! What the store is called in spans, metrics and events.

use tower_chat_core::telemetry::StoreTelemetry;

/// `db.system.name`.
pub(crate) const SYSTEM: &str = "postgresql";

pub(crate) const TELEMETRY: StoreTelemetry = StoreTelemetry::new(SYSTEM);
