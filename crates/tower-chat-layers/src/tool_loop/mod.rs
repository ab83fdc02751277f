//! The tool loop: calls the model, runs the tools it asks for, and calls it again.
//!
//! # Where it stands in a stack
//!
//! ```text
//! PerRunPersistence           above: opens and closes the run
//!   ToolLoop
//!     PerServiceCallPersistence    below: sees every service call
//!       retry, idle timeout, cache      below: bound one service call each
//!         model
//! ```
//!
//! What goes wrong in another order:
//!
//! - `PerServiceCallPersistence` above the loop would see a whole run as one service call, and a
//!   crash would lose all of it. The loop refuses such a request with
//!   [`ToolLoopError::PersisterAbove`].
//! - `PerRunPersistence` below the loop would take every service call for a run of its own: the
//!   results of a round would be stored as a new input, and a failed run would leave half a round.
//!   It is refused with [`ToolLoopError::PerRunPersistenceBelow`].
//! - No `PerServiceCallPersistence` below, in per-service-call or journaled mode, would store
//!   nothing. It is refused before any tool runs and before the model is called; see
//!   [`MissingPersister`](crate::MissingPersister).
//! - A retry above the loop runs the tools again that have run already. Put it below, around each
//!   service call; above, only a request with a conversation resumes instead of repeating.
//! - tower's `Timeout` above the loop bounds a whole run up to the head of its answer, tools
//!   included; below, it bounds a service call up to the head of its answer. A stream that stalls is
//!   found by an [`IdleTimeout`](crate::idle_timeout::IdleTimeout) below.
//! - A second loop below the loop runs the calls first; the outer one finds them answered.
//!
//! A layer between the loop and the model client that is bounded (`ConcurrencyLimit`, `Buffer`)
//! works: each service call waits for its own readiness, and none is held while tools run, so a
//! tool may call the same service.
//!
//! # What the loop sends
//!
//! Without persistence below, each service call carries the whole history. Once a response names
//! a [`HistoryOwner`](tower_chat_core::HistoryOwner), a layer below or the service keeps the history,
//! and the next call carries only what is new: the results, and what was queued. If a later response
//! names none, the whole history is sent again. The sentinel `HistoryOwner::Local` goes no further
//! than the loop, in either direction.
//!
//! # What it returns
//!
//! Every message the run added, in order: the model's messages, the results of each batch as one
//! message, and messages that were queued while the run was under way. Answers of a streamed
//! request pass through live. The one [`Finish`](tower_chat_core::Finish) at the end is that of
//! the last service call, with the usage of all.
//!
//! # Calls that wait
//!
//! Where a call of an answer needs approval, the run ends with that answer, and nothing of it is
//! run. The calls of tools that run here become approval requests, of which those that need no
//! approval are not [`required`](tower_chat_core::ApprovalRequest::required). The calls that the
//! caller executes (of declared tools, of tools in the request's options, unknown ones that are
//! returned) stay calls. A streamed answer shows its deltas live, and its messages with calls once
//! the answer is complete, in their order and in this form.
//!
//! A later request brings the approvals. Once all requests of the answer have one (where the caller
//! executes a part of it: all required requests), and all calls of the caller have their results,
//! what waits is run, and the model is sent the results of
//! the whole answer. Results may come in the same request or in an earlier one, which the model
//! answers without being shown the calls that wait. Approvals before the results are refused with
//! [`ToolLoopError::ResultsMissing`], and approvals of a part with
//! [`ToolLoopError::ApprovalMissing`]; neither uses them up.
//!
//! Dropping the response, or the future of it, cancels whatever has not happened yet, running
//! tools included: nothing is detached.

mod approvals;
mod begin;
mod counters;
mod error;
mod execute;
mod layer;
mod options;
mod outcomes;
mod results;
mod resume;
mod rounds;
mod service;
mod service_call;
mod settings;
mod stop;
mod transcript;

pub(crate) use self::{approvals::check as check_approvals, outcomes::rejection};
pub use self::{
    error::{CallNotRun, ToolFailure, ToolLoopError, ToolPanicked, ZeroRounds},
    layer::ToolLoop,
    service::ToolLoopService,
};
pub use crate::next_step::UnknownTools;
