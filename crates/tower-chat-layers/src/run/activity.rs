//! The activity of a run, which each write reports to the directory of the store. The directory
//! contains the description, times, counts and usage of each conversation.

use tower_chat_core::store::RunActivity;

use super::{Run, log::RunLog};

/// Returns the activity at the current time, without usage.
pub(super) fn activity_now(run: &Run) -> RunActivity {
    let activity = RunActivity::new(run.clock().now()).with_mode(run.mode());
    run.stored().iter().fold(activity, |activity, stored| activity.with_start(stored.arrived_at))
}

/// Returns the activity for the next write. Only a write with messages reports usage. If such a
/// write is repeated, the store recognises the repetition. If a write without messages is repeated,
/// the store would count its usage twice.
pub(super) fn activity(run: &Run, log: &mut RunLog, has_messages: bool) -> RunActivity {
    let activity = activity_now(run);
    match has_messages {
        true => activity.with_usage(std::mem::take(&mut log.calls.unreported_usage.usage)),
        false => activity,
    }
}
