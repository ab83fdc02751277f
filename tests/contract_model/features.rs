//! The features of generated cases. A batch is the calls of one answer of the model.

use std::env;

use crate::contract_model::tools::Tool;

#[derive(Debug, Clone)]
pub(crate) struct Features {
    pub(crate) approvals: bool,
    pub(crate) partial_approvals: bool,
    pub(crate) approved_twice: bool,
    pub(crate) hooked_approvals: bool,
    /// Whether a batch may contain both calls that need approval and calls of the caller's tools.
    pub(crate) mixed_batches: bool,
    pub(crate) late_results: bool,
    pub(crate) pending_results: bool,
    pub(crate) changing_tools: bool,
    pub(crate) several_messages: bool,
    pub(crate) any_ids: bool,
    pub(crate) hooks: bool,
    pub(crate) stops: bool,
    pub(crate) returned: bool,
    pub(crate) round_limit: bool,
    pub(crate) failures: bool,
    /// Whether a request may be sent again in another mode.
    pub(crate) mode_changes: bool,
    pub(crate) drops: bool,
    pub(crate) repeats: bool,
    pub(crate) persister_alone: bool,
    /// Whether tools may queue messages.
    pub(crate) queued: bool,
    /// Whether tools may stop their runs.
    pub(crate) halts: bool,
    /// Whether run ids may be used again with another input.
    pub(crate) reused_ids: bool,
    /// Whether conversations may be copied while approvals are pending.
    pub(crate) forks: bool,
    /// Whether conversations may have summaries.
    pub(crate) summaries: bool,
    /// Whether calls may be approved with other arguments than those of the model.
    pub(crate) other_arguments: bool,
    /// Whether messages and results may contain media, with or without a policy for old media.
    pub(crate) media: bool,
    /// Whether answers may contain a summary by their service, and the service may change.
    pub(crate) compaction: bool,
    /// Whether the case may continue in branches of the conversation.
    pub(crate) branches: bool,
}

impl Features {
    /// Returns the features whose names are in `TOWER_CHAT_FEATURES`, or the default features if
    /// the variable is not set.
    pub(crate) fn enabled() -> Self {
        let chosen = env::var("TOWER_CHAT_FEATURES").ok();
        let has = |name: &str, is_enabled: bool| match &chosen {
            Some(chosen) => chosen.split(',').any(|it| it == name || it == "all"),
            None => is_enabled,
        };
        Self {
            approvals: has("approvals", true),
            partial_approvals: has("partial_approvals", true),
            approved_twice: has("approved_twice", true),
            hooked_approvals: has("hooked_approvals", true),
            mixed_batches: has("mixed_batches", true),
            late_results: has("late_results", true),
            pending_results: has("pending_results", true),
            changing_tools: has("changing_tools", true),
            several_messages: has("several_messages", true),
            any_ids: has("any_ids", true),
            hooks: has("hooks", true),
            stops: has("stops", true),
            returned: has("returned", true),
            round_limit: has("round_limit", true),
            failures: has("failures", true),
            mode_changes: has("mode_changes", true),
            drops: has("drops", true),
            repeats: has("repeats", true),
            persister_alone: has("persister_alone", true),
            queued: has("queued", true),
            halts: has("halts", true),
            reused_ids: has("reused_ids", true),
            forks: has("forks", true),
            summaries: has("summaries", true),
            other_arguments: has("other_arguments", true),
            media: has("media", true),
            compaction: has("compaction", true),
            branches: has("branches", true),
        }
    }

    /// Returns the features for a stack without `PerRunPersistence`. It has no approvals, because
    /// only this layer finds the stored call that an approval answers.
    pub(crate) fn without_approvals(&self) -> Self {
        Self { approvals: false, hooked_approvals: false, ..self.clone() }
    }

    pub(crate) fn tools(&self) -> Vec<Tool> {
        let mut tools = vec![Tool::Look, Tool::Fail, Tool::Unknown];
        if self.stops {
            tools.push(Tool::Stop);
        }
        if self.queued {
            tools.push(Tool::Note);
        }
        if self.halts {
            tools.push(Tool::Halt);
        }
        if self.returned {
            tools.push(Tool::Ask);
        }
        if self.hooks {
            tools.extend([Tool::Hide, Tool::Mask, Tool::Spill, Tool::Forget]);
        }
        if self.approvals {
            tools.extend([Tool::Pay, Tool::Pay]);
        }
        if self.approvals && self.hooks {
            tools.push(Tool::Sign);
        }
        if self.hooked_approvals {
            tools.extend([Tool::Vote, Tool::Wire, Tool::Token]);
        }
        tools
    }
}
