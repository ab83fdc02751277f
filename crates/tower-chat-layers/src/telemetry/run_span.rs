//! The data that the layer for the span of a run shares with the layers below it.

use std::sync::{Arc, OnceLock};

use tower_chat_core::ChatRequest;

use crate::PersistenceMode;

/// The request extension of the layer that creates the span of a run.
#[derive(Debug, Clone, Default)]
pub(crate) struct RunSpan {
    /// Whether the spans of service calls and tools contain content.
    pub(super) has_content: bool,
    /// Empty until a layer below reports the mode of the run.
    mode: Arc<OnceLock<&'static str>>,
}

impl RunSpan {
    pub(super) fn new(has_content: bool) -> Self {
        Self { has_content, ..Self::default() }
    }

    /// Returns the persistence mode that a layer below has reported.
    pub(super) fn mode(&self) -> Option<&'static str> {
        self.mode.get().copied()
    }
}

pub(crate) fn report_mode(request: &ChatRequest, mode: PersistenceMode) {
    if let Some(span) = request.extensions.get::<RunSpan>() {
        span.mode.get_or_init(|| match mode {
            PersistenceMode::PerRun => "per_run",
            PersistenceMode::PerServiceCall => "per_service_call",
            PersistenceMode::Journaled => "journaled",
        });
    }
}

/// Returns whether the layer that creates the span of the run enables content in the spans below.
pub(crate) fn records_content(extensions: &http::Extensions) -> bool {
    extensions.get::<RunSpan>().is_some_and(|span| span.has_content)
}
