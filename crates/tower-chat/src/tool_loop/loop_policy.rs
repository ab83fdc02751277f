//! What the loop will do with an answer, for the layer below that stores it first.

use std::{fmt, sync::Arc};

use tower_chat_core::{ChatOptions, Message, RunHandle};

use super::{
    batch::{self, Action, CallRules, Plan},
    call_count::CallCount,
    settings::UnknownTools,
};
use crate::{run::CallOfRun, tool::Tools};

/// A request extension by which the loop lets the layers below know how it decides.
///
/// A persister can so store with an answer that the run ended with it, and decide what becomes a
/// request for approval as the loop decides it. A journal stages the start of a tool together with
/// the answer that asks for it, and commits a run together with its last answer.
#[derive(Clone)]
pub(crate) struct LoopPolicy {
    pub(super) tools: Tools,
    /// The caller's, for the tools they declare.
    pub(super) options: Arc<ChatOptions>,
    pub(super) unknown_tools: UnknownTools,
    pub(super) is_last_call: bool,
    pub(super) concurrent: bool,
    pub(super) budget_left: Option<usize>,
    pub(super) max_calls_per_answer: Option<usize>,
    pub(super) handle: RunHandle,
}

/// What follows a complete answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Next {
    /// Tools run, these at once.
    Tools(Vec<CallOfRun>),
    /// Another service call, or nobody knows.
    Call,
    /// Nothing: it is the last answer of the run.
    End,
}

impl LoopPolicy {
    /// A count of the calls of the answer.
    pub(crate) fn call_count(&self) -> CallCount {
        CallCount::up_to(self.max_calls_per_answer)
    }

    /// Who answers the calls of the answer.
    pub(crate) fn rules(&self) -> CallRules<'_> {
        CallRules {
            tools: &self.tools,
            callers_tools: &self.options.tools,
            unknown_tools: self.unknown_tools,
        }
    }
}

impl Next {
    /// What follows these messages. A loop that says nothing may run every tool they ask for.
    pub(crate) fn after(loop_policy: Option<&LoopPolicy>, messages: &[Arc<Message>]) -> Self {
        let Some(loop_policy) = loop_policy else {
            let calls = batch::pending_calls(messages);
            let positions: Vec<_> = calls.into_iter().filter_map(|call| call.position()).collect();
            return if positions.is_empty() { Self::Call } else { Self::Tools(positions) };
        };
        match batch::plan(messages, loop_policy.rules(), |_| false) {
            Plan::Run(mut calls) if !loop_policy.is_last_call => {
                batch::charge(&mut calls, &mut 0, loop_policy.budget_left);
                let to_run = calls.iter().filter(|call| matches!(call.action, Action::Run(_)));
                let at_once = if loop_policy.concurrent { calls.len() } else { 1 };
                Self::Tools(
                    to_run.take(at_once).filter_map(|call| call.pending.position()).collect(),
                )
            }
            Plan::Answer if loop_policy.handle.has_queued() => Self::Call,
            Plan::Answer | Plan::Return | Plan::Ask | Plan::Run(_) => Self::End,
        }
    }
}

impl fmt::Debug for LoopPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LoopPolicy")
    }
}
