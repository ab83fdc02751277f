//! The entries of the write queue, and the groups that one transaction stores. A submission is an
//! entry of the queue with the writes of one caller. The leader is the thread that executes the
//! next work of the queue.

use std::{collections::VecDeque, fmt};

use crate::submission::Submission;

/// The maximum number of bytes of a group of several submissions. In a larger group, all callers
/// would wait longer.
const GROUP_BYTES: usize = 1 << 20;
/// The maximum number of submissions in one group.
const GROUP_SUBMISSIONS: usize = 256;

/// An entry of the write queue.
#[derive(Debug)]
pub(crate) enum Waiting {
    Submission(Submission),
    Exclusive(Exclusive),
}

/// Work, such as a checkpoint, that needs the file while the writer's connection executes nothing.
pub(crate) struct Exclusive(pub(crate) Box<dyn FnOnce() + Send>);

/// The next work of a leader.
pub(crate) enum Due {
    Group(Vec<Submission>),
    Exclusive(Exclusive),
}

/// Removes the next work from the queue: one piece of exclusive work, or as many consecutive
/// submissions as fit.
pub(crate) fn first(waiting: &mut VecDeque<Waiting>) -> Option<Due> {
    let mut group = Vec::new();
    let mut bytes = 0;
    while group.len() < GROUP_SUBMISSIONS {
        match waiting.pop_front() {
            Some(Waiting::Submission(next))
                if bytes == 0 || bytes + next.bytes() <= GROUP_BYTES =>
            {
                bytes += next.bytes();
                group.push(next);
            }
            Some(Waiting::Exclusive(work)) if group.is_empty() => {
                return Some(Due::Exclusive(work));
            }
            Some(later @ (Waiting::Submission(_) | Waiting::Exclusive(_))) => {
                waiting.push_front(later);
                break;
            }
            None => break,
        }
    }
    if group.is_empty() { None } else { Some(Due::Group(group)) }
}

impl fmt::Debug for Exclusive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exclusive").finish_non_exhaustive()
    }
}
