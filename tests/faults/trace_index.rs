//! Answers queries about a trace, the list of the events of a case.

use std::collections::HashMap;

use crate::faults::{
    compacted,
    trace::{Call, Closed, Event, Outcome},
};

pub(crate) struct TraceIndex<'a> {
    pub(crate) trace: &'a [Event],
    /// The position of the event that first stored each label.
    stored: HashMap<&'a str, usize>,
    results: Vec<(usize, &'a str)>,
    pub(crate) answers: HashMap<u32, Answered<'a>>,
}

pub(crate) struct Answered<'a> {
    pub(crate) run: usize,
    pub(crate) at: usize,
    pub(crate) calls: &'a [Call],
    pub(crate) waits: bool,
    pub(crate) has_item: bool,
}

impl<'a> TraceIndex<'a> {
    pub(crate) fn of(trace: &'a [Event]) -> Self {
        let mut stored = HashMap::new();
        let mut results: Vec<(usize, &str)> = Vec::new();
        let mut answers = HashMap::new();
        for (at, event) in trace.iter().enumerate() {
            match event {
                Event::Stored { run, labels, .. } => {
                    for label in labels {
                        stored.entry(label.as_str()).or_insert(at);
                        if label.starts_with("tool:") && !results.contains(&(*run, label)) {
                            results.push((*run, label));
                        }
                    }
                }
                Event::Answered { run, serial, calls, waits, has_item } => {
                    let (run, waits, has_item) = (*run, *waits, *has_item);
                    answers.insert(*serial, Answered { run, at, calls, waits, has_item });
                }
                _ => {}
            }
        }
        Self { trace, stored, results, answers }
    }

    pub(crate) fn stored_at(&self, label: &str) -> Option<usize> {
        self.stored.get(label).copied()
    }

    pub(crate) fn is_stored(&self, label: &str) -> bool {
        self.stored.contains_key(label)
    }

    pub(crate) fn answer_label(&self, serial: u32) -> String {
        let Some(answer) = self.answers.get(&serial) else { return format!("assistant:a{serial}") };
        let calls = answer.calls.iter().map(|call| match answer.waits {
            true => format!("({})", call.id),
            false => format!("[{}]", call.id),
        });
        let item = answer.has_item.then_some(compacted::SIGN).into_iter();
        format!("assistant:a{serial}{}{}", item.collect::<String>(), calls.collect::<String>())
    }

    /// Returns the labels of the stored messages of a run that contain results of these service
    /// calls.
    pub(crate) fn result_labels(&self, run: usize, serials: &[u32]) -> Vec<&'a str> {
        let prefixes: Vec<String> = serials.iter().map(|serial| format!("s{serial}.")).collect();
        let is_of_them = |label: &str| {
            let mut results = label.split_whitespace().skip(1);
            results.any(|result| prefixes.iter().any(|prefix| result.starts_with(prefix)))
        };
        let of_run = self.results.iter().filter(|(of, label)| *of == run && is_of_them(label));
        of_run.map(|(_, label)| *label).collect()
    }

    pub(crate) fn is_answered_before(&self, run: usize, call: &str) -> bool {
        let prefix = format!("{call}=");
        self.results.iter().any(|(of, label)| {
            let is_discarded =
                self.closed(*of).last().is_some_and(|(_, closed)| *closed == Closed::Discard);
            *of < run
                && !is_discarded
                && label.split_whitespace().any(|result| result.starts_with(&prefix))
        })
    }

    pub(crate) fn results_of(&self, call: &str) -> Vec<(usize, &'a str)> {
        let prefix = format!("result {call}=");
        let mut found: Vec<_> = self
            .stored
            .iter()
            .filter_map(|(label, at)| Some((*at, label.strip_prefix(&prefix)?)))
            .collect();
        found.sort_unstable();
        found
    }

    pub(crate) fn is_started_on_disk(&self, call: &str, before: usize) -> bool {
        self.stored_at(&format!("start {call}")).is_some_and(|at| at < before)
    }

    pub(crate) fn call(&self, id: &str) -> Option<(u32, &'a Call)> {
        self.answers.iter().find_map(|(serial, answer)| {
            Some((*serial, answer.calls.iter().find(|call| call.id == id)?))
        })
    }

    pub(crate) fn closed(&self, of: usize) -> Vec<(usize, Closed)> {
        let closes = self.trace.iter().enumerate().filter_map(|(at, event)| match event {
            Event::Stored { run, close: Some(close), .. } if *run == of => Some((at, *close)),
            _ => None,
        });
        closes.collect()
    }

    /// Returns whether the run was committed without being resumed: by an explicit operation, or by
    /// the request of another run after the caller of this run had disconnected.
    pub(crate) fn is_closed_as_it_was(&self, of: usize) -> bool {
        let is_closing = |event: &Event| matches!(event, Event::Closing { run } if *run == of);
        self.trace.iter().any(is_closing) || self.is_committed_by_another(of)
    }

    fn is_committed_by_another(&self, of: usize) -> bool {
        let mut is_other = false;
        for event in self.trace {
            match event {
                Event::Began { run, .. } => is_other = *run != of,
                Event::Asked { run, .. } if *run == of => is_other = false,
                Event::Stored { run, close: Some(Closed::Commit), .. } if *run == of => {
                    return is_other;
                }
                _ => {}
            }
        }
        false
    }

    pub(crate) fn attempts(&self) -> Vec<AttemptAt<'a>> {
        let mut attempts = Vec::new();
        let mut began = None;
        for (at, event) in self.trace.iter().enumerate() {
            match event {
                Event::Began { run, .. } => began = Some((*run, at)),
                Event::Ended { outcome, .. } => {
                    if let Some((run, from)) = began.take() {
                        let events = &self.trace[from..=at];
                        attempts.push(AttemptAt { run, from, to: at, outcome, events });
                    }
                }
                _ => {}
            }
        }
        attempts
    }
}

pub(crate) struct AttemptAt<'a> {
    pub(crate) run: usize,
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) outcome: &'a Outcome,
    pub(crate) events: &'a [Event],
}

impl AttemptAt<'_> {
    /// Returns whether the store had no fault in this attempt.
    pub(crate) fn had_a_working_store(&self) -> bool {
        const OTHERS: [&str; 3] = ["the model", "a tool", "an update"];
        !self
            .events
            .iter()
            .any(|event| matches!(event, Event::Fault { what } if !OTHERS.contains(&what.as_str())))
    }

    pub(crate) fn had_faults(&self) -> bool {
        self.events.iter().any(|event| matches!(event, Event::Fault { .. }))
    }
}
