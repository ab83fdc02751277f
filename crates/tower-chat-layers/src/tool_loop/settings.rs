//! The settings of a loop.

use std::{num::NonZeroUsize, sync::Arc};

use crate::{next_step::UnknownTools, tool::ToolSource};

/// The settings that all runs of a loop share.
#[derive(Clone)]
pub(super) struct Settings {
    pub(super) source: Arc<dyn ToolSource>,
    pub(super) max_rounds: Option<NonZeroUsize>,
    pub(super) max_calls: Option<usize>,
    pub(super) max_calls_per_answer: Option<usize>,
    pub(super) concurrent: bool,
    pub(super) unknown_tools: UnknownTools,
    pub(super) max_failing_rounds: Option<usize>,
    pub(super) include_error_details: bool,
    /// Whether the loop assumes that a persister is below, although polling for readiness does not find
    /// it.
    pub(super) assumes_persister_below: bool,
}
