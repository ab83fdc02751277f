//! The activity of a run, which each write reports to the directory of the store. The directory
//! contains the description, times, counts and usage of each conversation.

use tower_chat_core::store::RunActivity;

use super::{Run, log::RunLog};

pub(super) fn activity_now(run: &Run) -> RunActivity {
    let activity = RunActivity::new(run.clock().now()).with_mode(run.mode());
    run.stored().iter().fold(activity, |activity, stored| activity.with_start(stored.arrived_at))
}

/// Returns the activity for the next write. Only a write with messages reports usage: the store
/// recognises a repetition of such a write, but would count the usage of another repeated write
/// twice.
pub(super) fn activity(run: &Run, log: &mut RunLog, has_messages: bool) -> RunActivity {
    let activity = activity_now(run);
    match has_messages {
        true => activity.with_usage(std::mem::take(&mut log.calls.unreported_usage.usage)),
        false => activity,
    }
}
