//! Counts the events in the cases. A test fails if the generator no longer creates some kind of
//! fault.

use std::sync::{
    Mutex,
    atomic::{AtomicU64, Ordering},
};

use crate::faults::{
    other_arguments::are_of_decision,
    pictures,
    summarized::SUMMARIZER,
    trace::{Closed, Event, Outcome},
};

#[derive(Debug, Default)]
pub(crate) struct Counters {
    cases: AtomicU64,
    had: Mutex<Vec<(&'static str, u64)>>,
}

/// The kinds of events, each with the minimum number of cases out of 1,000 in which it must occur.
const EXPECTED: [(&str, u64); 18] = [
    ("an answer", 990),
    ("an error", 100),
    ("a disconnected caller", 100),
    ("a process that died", 60),
    ("something unsaved", 5),
    ("a fault of the store", 150),
    ("a fault of the model or a tool", 50),
    ("a call with an unknown outcome", 5),
    ("a call that ran again", 2),
    ("a run committed without being resumed", 5),
    ("a run discarded", 5),
    ("a summary", 100),
    ("a call with other arguments", 10),
    ("a request without summarized messages", 100),
    ("a picture that is not sent again", 100),
    ("a branch", 100),
    ("a branch without an acknowledgement", 5),
    ("a branch that was not created", 20),
];

impl Counters {
    pub(crate) fn count(&self, trace: &[Event]) {
        self.cases.fetch_add(1, Ordering::Relaxed);
        let mut had = self.had.lock().unwrap();
        for (what, _) in EXPECTED {
            let happened = trace.iter().any(|event| is(event, what));
            match had.iter_mut().find(|(known, _)| *known == what) {
                Some((_, count)) => *count += u64::from(happened),
                None => had.push((what, u64::from(happened))),
            }
        }
    }

    pub(crate) fn check(&self) {
        let cases = self.cases.load(Ordering::Relaxed);
        let had = self.had.lock().unwrap();
        for ((what, least), (_, count)) in EXPECTED.iter().zip(had.iter()) {
            assert!(count * 1_000 >= least * cases, "{what} in {count} of {cases} cases: {had:?}");
        }
    }
}

fn is(event: &Event, what: &str) -> bool {
    let of_the_store =
        |fault: &str| !["the model", "a tool", "an update", SUMMARIZER].contains(&fault);
    match event {
        Event::Ended { outcome, .. } => match outcome {
            Outcome::Answer { unsaved: 0, .. } => what == "an answer",
            Outcome::Answer { .. } => what == "something unsaved",
            Outcome::Error(_) => what == "an error",
            Outcome::Gone => what == "a disconnected caller",
            Outcome::Killed => what == "a process that died",
        },
        Event::Asked { shown, .. } => {
            what == "a picture that is not sent again"
                && shown.iter().any(|label| label.contains(pictures::SENTENCE))
        }
        Event::Compacted { .. } => what == "a request without summarized messages",
        Event::Branched { exists, is_acknowledged } => match (exists, is_acknowledged) {
            (true, true) => what == "a branch",
            (true, false) => what == "a branch without an acknowledgement",
            (false, _) => what == "a branch that was not created",
        },
        Event::Summarized { .. } => what == "a summary",
        Event::Fault { what: fault } => match of_the_store(fault) {
            true => what == "a fault of the store",
            false => what == "a fault of the model or a tool",
        },
        Event::Started { token, arguments, .. } => {
            (what == "a call that ran again" && !token.ends_with("#1"))
                || (what == "a call with other arguments" && are_of_decision(arguments))
        }
        Event::Stored { labels, close, .. } => {
            (what == "a call with an unknown outcome"
                && labels.iter().any(|label| label.ends_with("=?")))
                || (what == "a run discarded" && *close == Some(Closed::Discard))
        }
        Event::Closing { .. } => what == "a run committed without being resumed",
        Event::Began { .. }
        | Event::Answered { .. }
        | Event::Unanswered { .. }
        | Event::Finished { .. }
        | Event::Submitted { .. }
        | Event::Restarted => false,
    }
}
