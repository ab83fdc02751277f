//! How a loop behaves.

use std::{num::NonZeroUsize, sync::Arc};

use super::options::OptionsCache;
use crate::tool::ToolSource;

/// What happens when the model calls a tool that nobody knows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum UnknownTools {
    /// The call gets an error result that says so, and the run goes on.
    #[default]
    ErrorResult,
    /// All calls of the answer are returned to the caller, unexecuted; where one of them needs
    /// approval, those of unknown tools.
    Return,
}

/// Everything the runs of a loop share.
#[derive(Clone)]
pub(super) struct Settings {
    pub(super) source: Arc<dyn ToolSource>,
    pub(super) max_rounds: Option<NonZeroUsize>,
    pub(super) call_budget: Option<usize>,
    pub(super) max_calls_per_answer: Option<usize>,
    pub(super) concurrent: bool,
    pub(super) unknown_tools: UnknownTools,
    pub(super) max_failing_rounds: Option<usize>,
    pub(super) include_error_details: bool,
    /// A persister stands below, where polling for readiness does not find it.
    pub(super) assumes_persister_below: bool,
    pub(super) options: Arc<OptionsCache>,
}
