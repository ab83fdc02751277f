//! The tool loop: calls the model, runs the tools that the model requests, and calls the model
//! again with the results. The calls of one answer and their results are a round.
//!
//! # Position in a stack
//!
//! ```text
//! PerRunPersistence           above: opens and closes the run
//!   ToolLoop
//!     PerServiceCallPersistence    below: sees every service call
//!       retry, idle timeout, cache      below: bound one service call each
//!         model
//! ```
//!
//! Failures in another order:
//!
//! - `PerServiceCallPersistence` above the loop would see a whole run as one service call, and a
//!   crash would lose the whole run. The loop refuses such a request with
//!   [`ToolLoopError::PersisterAbove`].
//! - `PerRunPersistence` below the loop would treat every service call as a separate run: the layer
//!   would store the results of a round as a new input, and a failed run would leave an incomplete
//!   round in the history. The loop refuses such a request with
//!   [`ToolLoopError::PerRunPersistenceBelow`].
//! - Without `PerServiceCallPersistence` below, nothing would be stored in per-service-call or
//!   journaled mode. The loop refuses the request before any tool runs and before the model is
//!   called; see [`MissingPersister`](crate::MissingPersister).
//! - A retry layer above the loop runs tools again that have already run, unless the request names
//!   a conversation. A repeated request with a conversation resumes its run. Put the retry layer
//!   below the loop, where it repeats one service call.
//! - tower's `Timeout` above the loop limits the time, including tools, until the run returns its
//!   response. The stream of the response is not limited. Below the loop, `Timeout` limits the time
//!   until a service call returns its response. An
//!   [`IdleTimeoutLayer`](crate::idle_timeout::IdleTimeoutLayer) below detects a stream that
//!   stalls.
//! - If a second tool loop is below the loop, the inner loop runs the calls, and the outer loop
//!   receives the calls with their results.
//!
//! A layer with bounded capacity (`ConcurrencyLimit`, `Buffer`) may be between the loop and the
//! model client. Each service call waits for readiness separately, and the loop has no permit while
//! tools run. A tool may therefore call the same service.
//!
//! # Messages that the loop sends
//!
//! Without persistence below, each service call sends the whole history. After a response that
//! contains a [`HistoryOwner`](tower_chat_core::HistoryOwner), a layer below or the service stores
//! the history, and the next call sends only new messages: the results, and queued messages. If a
//! later response contains no owner, the whole history is sent again. The owner
//! `HistoryOwner::Local` means that a layer below stores the history. The loop sends this owner
//! neither to the service below nor to its caller.
//!
//! # Messages that the loop returns
//!
//! The loop returns every message that the run has added, in order: the model's messages, the
//! results of each round as one message, and messages that were queued during the run. If the
//! service streams an answer, the loop passes its updates on immediately. The response of the loop
//! ends with the [`Finish`](tower_chat_core::Finish) of the last service call. The usage in this
//! `Finish` is the sum over all service calls.
//!
//! # Calls that wait for approval
//!
//! If a call of an answer needs approval, the run ends with that answer, and none of its calls is
//! run. In the answer that the caller receives,
//! - each call of a tool of this loop is an approval request, which is
//!   [`required`](tower_chat_core::ApprovalRequest::required) only if this call needs approval;
//! - each call that the caller executes remains a call: the calls of tools that are only declared,
//!   of tools in the request's options, and of unknown tools under [`UnknownTools::Return`].
//!
//! The loop passes the updates of a streamed answer on immediately. If a tool of the loop may need
//! approval, the first message with calls and all later updates follow after the answer is
//! complete.
//!
//! A later request contains the approvals. The pending calls run, and the model receives the
//! results of the whole answer, if both conditions hold:
//! - All approval requests of the answer have a decision. If the caller executes some calls of the
//!   answer, only required approval requests need one. Otherwise the loop refuses the decisions
//!   with [`ToolLoopError::ApprovalMissing`].
//! - All calls that the caller executes have results. The caller may send these results together
//!   with the approvals, or in an earlier request, which the model answers without receiving the
//!   pending calls. Otherwise the loop refuses the approvals with
//!   [`ToolLoopError::ResultsMissing`].
//!
//! The caller can send refused approvals again.
//!
//! Dropping the response or its future cancels the service call in flight and the running tools.
//! The loop spawns no tasks.

mod approvals;
mod begin;
mod counters;
mod drive;
mod error;
mod execute;
mod layer;
mod loop_run;
mod options;
mod outcomes;
mod results;
mod resume;
mod service;
mod service_call;
mod settings;
mod stop;
mod transcript;

pub(crate) use self::{approvals::check as check_approvals, settings::Settings};
pub use self::{
    error::{CallNotRun, ToolFailure, ToolLoopError, ToolPanicked, ZeroRounds},
    layer::ToolLoopLayer,
    service::ToolLoop,
};
pub use crate::next_step::UnknownTools;
