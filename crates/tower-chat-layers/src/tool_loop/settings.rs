//! The settings of a loop.

use std::{num::NonZeroUsize, sync::Arc};

use crate::{next_step::UnknownTools, tool::ToolSource};

#[derive(Clone)]
pub(super) struct Settings {
    pub(super) source: Arc<dyn ToolSource>,
    /// The maximum number of rounds in a run. A round consists of the calls of one answer and their
    /// results. `None` for no limit.
    pub(super) max_rounds: Option<NonZeroUsize>,
    pub(super) max_calls: Option<usize>,
    pub(super) max_calls_per_answer: Option<usize>,
    pub(super) concurrent: bool,
    pub(super) unknown_tools: UnknownTools,
    pub(super) max_failing_rounds: Option<usize>,
    pub(super) include_error_details: bool,
    /// Whether the loop assumes a persister below, although polling for readiness does not find
    /// one.
    pub(super) assumes_persister_below: bool,
}
