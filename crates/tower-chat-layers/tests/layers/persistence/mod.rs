//! Tests the guarantees of the persistence layers, with whole and streamed answers: which layer
//! stores which messages at which time, and which messages the store contains after a run stops at
//! any point.

mod answer_end;
mod approval_claims;
mod approvals;
mod branches;
mod call_limit;
mod cancellation;
mod concurrency;
mod conflicts;
mod conflicts_mid_run;
mod empty_requests;
mod foreign_loops;
mod forks;
mod full_queue;
mod idle_timeout;
mod large_requests;
mod logs;
mod lost_history;
mod matrix;
mod misplaced_calls;
mod numbered_input;
mod own_loops;
mod partial_text;
mod per_run;
mod per_service_call;
mod queued_by_tools;
mod ranges;
mod refused_content;
mod resume;
mod run_end;
mod run_ids;
mod stack_errors;
mod stop_between_tools;
mod stopping;
mod store_failure;
mod summaries;
mod transcripts;
