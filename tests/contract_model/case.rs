//! A test case: a conversation as a list of steps. Each step is a run.
//!
//! An attempt sends the request of a run once. A batch is the calls of one answer. It is pending
//! while one of its calls waits for approval.

mod generate;
mod simpler;

use std::fmt;

use tower_chat::PersistenceMode;

use crate::contract_model::{
    approvals::ApprovalInput,
    branches::BranchPlan,
    compaction::{ItemPlan, Service},
    media::{Kind, MediaLimit},
    tools::{Tool, ToolMask},
};

/// A conversation: the layers of its stack, and its steps.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    /// Whether the stack has `PerRunPersistence` above `PerServiceCallPersistence`.
    pub(crate) has_run_layer: bool,
    /// Whether the calls of one round run at the same time.
    pub(crate) concurrent: bool,
    pub(crate) max_rounds: Option<usize>,
    /// Whether a request is sent again after its run has ended.
    pub(crate) repeats: bool,
    /// The limit above which runs make summaries, if they make any.
    pub(crate) summarize: Option<Limit>,
    /// A bit mask of the requests for summaries that fail: bit n is set if request n fails.
    pub(crate) failing_summaries: u64,
    /// Whether runs load only the messages after the last summary.
    pub(crate) loads_ranges: bool,
    /// The media that are sent again. `None` if all media are sent again.
    pub(crate) old_media: Option<MediaLimit>,
    /// A bit mask that selects the results with a medium.
    pub(crate) media_in_results: u64,
    pub(crate) steps: Vec<Step>,
}

/// The limit above which a summary is made: the size of the conversation, in texts, media and
/// results. No summary covers the newest `turns` turns.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Limit {
    pub(crate) size: usize,
    pub(crate) turns: usize,
}

/// A change of the summaries of the conversation between two attempts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum SummaryChange {
    /// The application makes summaries with `Summarize::now`.
    Make(Limit),
    /// The application adds a summary to the store. The summary ends with one of the turns.
    Add { end: usize },
    /// The application removes the summary in force.
    Undo,
}

/// A run: its input, the answers of the model, and the attempts at its request.
#[derive(Debug, Clone)]
pub(crate) struct Step {
    pub(crate) input: Input,
    /// The branch that begins before the run, if any.
    pub(crate) branch: Option<BranchPlan>,
    /// The media in the message of the user, if the input has a text.
    pub(crate) media: Vec<Kind>,
    /// The tools that are registered when the run begins.
    pub(crate) tools: ToolMask,
    /// The answers of the model, in order. After the last one, the model answers with a text.
    pub(crate) answers: Vec<AnswerPlan>,
    /// The attempts at the request of the run.
    pub(crate) attempts: Vec<Attempt>,
    /// Whether the run id is used again with another input after each attempt.
    pub(crate) reuses_id: bool,
    /// Whether the conversation is copied after the last attempt, and the pending calls are
    /// approved in the copy.
    pub(crate) forks: bool,
}

/// The input of a run. If no pending call can be answered in this way, the caller sends a text.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Input {
    Text,
    /// Approvals and rejections of calls in pending batches.
    Approvals(ApprovalInput),
    /// Results of calls that were returned to the caller.
    Results(ResultInput),
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ResultInput {
    pub(crate) calls: usize,
    pub(crate) skipped: usize,
    pub(crate) has_text: bool,
    pub(crate) from_record: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct AnswerPlan {
    pub(crate) messages: Vec<MessagePlan>,
    pub(crate) ids: Ids,
    /// The change of the registered tools, if any.
    pub(crate) tools_then: Option<ToolChange>,
    /// The summary of the earlier messages in the answer, if any.
    pub(crate) compaction: Option<ItemPlan>,
}

#[derive(Debug, Clone)]
pub(crate) struct MessagePlan {
    pub(crate) has_text: bool,
    pub(crate) calls: Vec<Tool>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct ToolChange {
    pub(crate) tools: ToolMask,
    /// Whether the tools change while the first tool of the answer runs, and not while the model
    /// answers.
    pub(crate) while_tool_runs: bool,
}

/// The ids of the calls of the model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Ids {
    /// Each call of the conversation has a different id.
    Distinct,
    Missing,
    Empty,
    /// All calls of all answers have the same id.
    Equal,
    /// The calls of each answer are numbered from 0.
    Counted,
    /// Each call has an id of one of the other kinds.
    Mixed,
}

#[derive(Debug, Clone)]
pub(crate) struct Attempt {
    pub(crate) mode: PersistenceMode,
    pub(crate) streamed: bool,
    pub(crate) cut: Option<Cut>,
    /// Whether another process makes this attempt.
    pub(crate) restarts: bool,
    /// A change of the summaries after the attempt.
    pub(crate) summary: Option<SummaryChange>,
    pub(crate) service: Service,
}

/// The service call at which an attempt is cut off, if the attempt reaches it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Cut {
    /// The index of the service call in the attempt.
    pub(crate) at_call: usize,
    pub(crate) how: How,
}

/// How a service call is cut off.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum How {
    /// The service fails.
    Fails,
    /// The service fails after this number of updates.
    FailsAfter(usize),
    /// The service hangs, and the caller drops the response.
    Hangs,
    /// The service hangs after this number of updates, and the caller drops the response.
    HangsAfter(usize),
}

impl AnswerPlan {
    /// Returns whether the service pauses the answer after it has summarized the earlier messages.
    pub(crate) fn is_paused(&self) -> bool {
        let has_calls = self.messages.iter().any(|message| !message.calls.is_empty());
        !has_calls && self.compaction.is_some_and(|item| item.pauses)
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { has_run_layer, concurrent, max_rounds, repeats: _, steps, .. } = self;
        let Self { summarize, failing_summaries, loads_ranges, .. } = self;
        let stack = if *has_run_layer { "" } else { ", PerServiceCallPersistence alone" };
        writeln!(f, "concurrent: {concurrent}, max_rounds: {max_rounds:?}{stack}")?;
        writeln!(
            f,
            "summarize: {summarize:?}, failing: {failing_summaries:b}, ranges: {loads_ranges}"
        )?;
        let Self { old_media, media_in_results, .. } = self;
        writeln!(f, "old media: {old_media:?}, in results: {media_in_results:b}")?;
        for (run, step) in steps.iter().enumerate() {
            let Step { input, branch, media, tools, answers, attempts, reuses_id, forks } = step;
            branch.iter().try_for_each(|branch| writeln!(f, "{branch:?}"))?;
            writeln!(f, "run {run}: {input:?}, {media:?}, {tools:?}")?;
            if *reuses_id || *forks {
                writeln!(f, "    reuses its id: {reuses_id}, forks: {forks}")?;
            }
            answers.iter().try_for_each(|answer| writeln!(f, "    {answer:?}"))?;
            attempts.iter().try_for_each(|attempt| writeln!(f, "    {attempt:?}"))?;
        }
        Ok(())
    }
}
