//! The errors of the pipeline builder.

use crate::{PersistenceMode, store::Capability};

/// The error for a pipeline whose configuration contradicts itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The configuration contains tools, but the client is used as it is, so the pipeline has no
    /// layer that can run them.
    #[error(
        "tools were given, but the client is used as it is and gets no tool loop: \
         put ToolLoopLayer into the client's own stack, or drop use_client_as_is"
    )]
    ToolsForClientAsIs,
    /// The configuration contains tools, but the pipeline has no tool loop that can run them.
    #[error("tools were given, but the pipeline has no tool loop: drop without_tool_loop")]
    ToolsWithoutLoop,
    /// The policy removes uncited sources when a run is stored, but the mode stores the run in
    /// several writes.
    #[error(
        "uncited sources cannot be left out when a run is saved, because {mode:?} mode stores \
         results before the answer cites them: choose CompactionTime::AtReplay, or another mode"
    )]
    CitationsAtSave {
        /// The mode.
        mode: PersistenceMode,
    },
    /// The store lacks a capability that the mode or the policy needs.
    #[error(
        "the store lacks the capability {capability}, which {needed_by} needs: use a store that has it"
    )]
    MissingCapability {
        /// The capability.
        capability: Capability,
        /// The setting that needs the capability.
        needed_by: &'static str,
    },
    /// A persistence mode or policy was set without a store.
    #[error("a persistence mode or policy was chosen, but no store: add history(store)")]
    NoStore,
}
