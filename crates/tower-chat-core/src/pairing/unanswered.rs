//! The calls of earlier rounds without a result.

use std::{borrow::Borrow, sync::Arc};

use imbl::OrdSet;

use super::{Candidate, Target};
use crate::CallPosition;

/// The number of a call's round, and the number of the call. A later call has a higher number, and
/// is in the same round or a later one.
pub type CallNumber = (usize, usize);

/// Calls without a result, by id and by position. A late result, which is stored after the round of
/// its call has ended, may answer them. A clone shares its data with the original.
#[derive(Debug, Clone, Default)]
pub struct UnansweredCalls {
    by_id: OrdSet<(Arc<str>, CallNumber)>,
    by_position: OrdSet<(CallPosition, CallNumber)>,
}

impl UnansweredCalls {
    /// Adds a call.
    pub fn insert<K: Borrow<str>>(&mut self, number: CallNumber, call: &Candidate<K>) {
        self.by_position.extend(call.position.map(|position| (position, number)));
        self.by_id.extend(call.ids().map(|id| (id.borrow().into(), number)));
    }

    /// Removes a call.
    pub fn remove<K: Borrow<str>>(&mut self, number: CallNumber, call: &Candidate<K>) {
        if let Some(position) = call.position {
            self.by_position.remove(&(position, number));
        }
        for id in call.ids() {
            self.by_id.remove(&(id.borrow().into(), number));
        }
    }

    /// Returns the call that a late result answers: the one with the id or the position in the
    /// result. If there are several such calls, returns the first one in the latest round with such
    /// a call.
    pub fn find<'t>(&self, target: impl Into<Target<'t>>) -> Option<CallNumber> {
        let target = target.into();
        match target.position {
            Some(position) => first_of_last(&self.by_position, &position),
            None => first_of_last(&self.by_id, &target.id?.into()),
        }
    }
}

fn first_of_last<N: Ord + Clone>(calls: &OrdSet<(N, CallNumber)>, name: &N) -> Option<CallNumber> {
    const LAST: usize = usize::MAX;
    let within = |from: CallNumber, to: CallNumber| (name.clone(), from)..=(name.clone(), to);
    let &(_, (round, _)) = calls.range(within((0, 0), (LAST, LAST))).next_back()?;
    let &(_, number) = calls.range(within((round, 0), (round, LAST))).next()?;
    Some(number)
}
