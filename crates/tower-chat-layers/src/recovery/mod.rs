//! Open runs: journaled runs that came to no end, and what becomes of them.
//!
//! A run in [`PersistenceMode::Journaled`](crate::PersistenceMode::Journaled) is durable from its
//! first moment, and no part of the history before its end. One that fails, is dropped, or dies
//! with its process is left open. [`open_run`] says how far it came; then it can be
//!
//! - **resumed**: send [`OpenRunReport::resume`] through the stack, or the same request again. What
//!   the model has answered is not asked again, a tool that has finished does not run again, one
//!   that was never started does, and one of which nobody knows follows its tool's
//!   [declaration](crate::ToolDefinition::safe_to_retry) or [`UnknownCalls`]. A call whose
//!   arguments a hook has [redacted](crate::tool::StoredCall::redact_arguments) does not run;
//! - **committed** as it is, with an answer to every call that has none, by [`close`];
//! - **discarded**, by the same.
//!
//! [`recover`] does one of the three in one call.
//!
//! A new run on the conversation does one of these first, as [`OnOpenRun`] says; it never pays for a
//! run whose caller has disconnected ([`OnDisconnect`]), and is not kept from its conversation by
//! one that the service refuses ([`OnRefusal`]). [`sweep`] does it
//! for all open runs of a scope that are older than a given age.

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
