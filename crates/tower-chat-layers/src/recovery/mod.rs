//! Open runs, which are journaled runs that were neither committed nor discarded, and the functions that
//! resume or end them.
//!
//! A run in [`PersistenceMode::Journaled`](crate::PersistenceMode::Journaled) is durable from its
//! beginning, and becomes part of the history at its end. A run that fails, is dropped, or dies with
//! its process remains open. [`open_run`] returns its staged messages and the states of its calls. An
//! open run can be
//!
//! - **resumed**: send [`OpenRunReport::resume`] through the stack, or the same request again. Answered
//!   service calls are not repeated. A tool that has finished does not run again, a tool that was never
//!   started runs, and a call with an unknown outcome follows its tool's
//!   [declaration](crate::ToolDefinition::safe_to_retry) or [`UnknownCalls`]. A call whose arguments a
//!   hook has [redacted](crate::tool::StoredCall::redact_arguments) does not run;
//! - **committed** in its current state, with a result for every call that has none, by [`close`];
//! - **discarded**, also by [`close`].
//!
//! [`recover`] resumes, commits or discards the open run of a conversation in one call.
//!
//! Before a new run of the conversation begins, it resumes, commits or discards the open run, or the new
//! run is rejected. [`OnOpenRun`] selects this. If the caller of the open run has disconnected, the new
//! run makes no paid service call for the open run ([`OnDisconnect`]). If the service refuses the open
//! run, the open run does not block the conversation ([`OnRefusal`]). [`sweep`] ends
//! all open runs of a scope that are older than a given age.

mod close;
mod open_runs;
mod recover;

pub(crate) use self::{close::close_open_run, open_runs::ResumesRun};
pub use self::{
    close::{close, sweep},
    open_runs::{CallState, OpenRunReport, ReportedCall, open_run},
    recover::{Recovered, RecoveryPolicy, recover},
};
pub use crate::policy::{
    JournalPolicy, OnDisconnect, OnOpenRun, OnRefusal, RunEnd, UnknownAnswer, UnknownCall,
    UnknownCalls,
};
