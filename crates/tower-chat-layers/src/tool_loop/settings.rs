//! The settings of a loop.

use std::{num::NonZeroUsize, sync::Arc};

use crate::{next_step::UnknownTools, tool::ToolSource};

/// The settings that all runs of a loop share.
#[derive(Clone)]
pub(super) struct Settings {
    pub(super) source: Arc<dyn ToolSource>,
    /// The maximum number of rounds in a run. A round consists of the calls of one answer and their
    /// results. `None` for no limit.
    pub(super) max_rounds: Option<NonZeroUsize>,
    /// The maximum number of tool calls that run in a run. `None` for no limit.
    pub(super) max_calls: Option<usize>,
    /// The maximum number of calls in one answer of the model. `None` for no limit.
    pub(super) max_calls_per_answer: Option<usize>,
    /// Whether the calls of one answer run concurrently.
    pub(super) concurrent: bool,
    pub(super) unknown_tools: UnknownTools,
    /// The maximum number of consecutive failing rounds. `None` for no limit.
    pub(super) max_failing_rounds: Option<usize>,
    /// Whether the model receives the texts of tool errors.
    pub(super) include_error_details: bool,
    /// Whether the loop assumes that a layer below stores each service call, although polling for
    /// readiness does not find such a layer.
    pub(super) assumes_persister_below: bool,
}
