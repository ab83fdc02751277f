//! The settings of a loop.

use std::{num::NonZeroUsize, sync::Arc};

use crate::{next_step::UnknownTools, tool::ToolSource};

/// The settings of a loop.
#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) source: Arc<dyn ToolSource>,
    /// The maximum number of rounds in a run. A round consists of the calls of one answer and their
    /// results. `None` for no limit.
    pub(crate) max_rounds: Option<NonZeroUsize>,
    pub(crate) max_calls: Option<usize>,
    /// The maximum number of calls in one answer, including calls that the provider executed.
    pub(crate) max_calls_per_answer: Option<usize>,
    pub(crate) concurrent: bool,
    pub(crate) unknown_tools: UnknownTools,
    pub(crate) max_failing_rounds: Option<usize>,
    pub(crate) include_error_details: bool,
    /// Whether the loop assumes a persister below, although polling for readiness does not find
    /// one.
    pub(crate) assumes_persister_below: bool,
}
