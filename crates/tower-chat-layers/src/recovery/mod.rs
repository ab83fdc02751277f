//! Functions that resume or end open runs. An open run is a journaled run that was neither
//! committed nor discarded.
//!
//! A run in [`PersistenceMode::Journaled`](crate::PersistenceMode::Journaled) is durable from its
//! beginning, and becomes part of the history at its end. The run remains open if it fails, if it
//! is dropped, or if its process dies. [`open_run`] returns the staged messages, which are stored
//! but not yet part of the history, and the states of the tool calls. An open run can be
//!
//! - **resumed**, by sending [`OpenRunReport::resume`] or the same request through the stack.
//!   Answered service calls are not repeated. A tool call that has finished does not run again, and
//!   a call that was never started runs. The [declaration](crate::ToolDefinition::safe_to_retry) of
//!   the tool and [`UnknownCalls`] decide about a call with an unknown outcome. A call whose
//!   arguments the `persist` hook of its tool has
//!   [redacted](crate::tool::StoredCall::redact_arguments) does not run;
//! - **committed** in its current state by [`close`], which adds a result to every call without a
//!   result;
//! - **discarded** by [`close`].
//!
//! [`recover`] resumes, commits or discards the open run of a conversation in one call, and
//! [`recover_all`] the open runs of all conversations.
//!
//! [`OnOpenRun`] decides whether a new run of the conversation first resumes, commits or discards
//! the open run, or fails. If the caller of the open run has disconnected, the new run makes no
//! paid service call for the open run ([`OnDisconnect`]). If the service refuses the open run
//! permanently, [`OnRefusal`] decides how the open run ends, so that the conversation is not
//! blocked. [`sweep`] ends all open runs of a scope that are older than a limit.

mod close;
mod open_runs;
mod recover;

pub(crate) use self::{close::close_open_run, open_runs::ResumesRun};
pub use self::{
    close::{close, sweep},
    open_runs::{CallState, OpenRunReport, ReportedCall, open_run},
    recover::{Recovered, RecoveryPolicy, recover, recover_all},
};
pub use crate::policy::{
    JournalPolicy, OnDisconnect, OnOpenRun, OnRefusal, RunEnd, UnknownAnswer, UnknownCall,
    UnknownCalls,
};
