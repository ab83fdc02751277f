//! A model of the contract of persistence. From the events of a trace, it computes the messages of
//! each run that must be visible. It does not use writes, revisions or leases.
//!
//! A run has several attempts if its request is sent again. A batch is the calls of one answer. The
//! staged messages of a journaled run become visible when the run is committed.

use tower_chat::PersistenceMode;

use crate::faults::{
    script::input_text,
    trace::{Closed, Event, Outcome},
    trace_index::TraceIndex,
};

#[derive(Debug, PartialEq)]
pub(crate) struct Turn {
    pub(crate) run: usize,
    pub(crate) labels: Vec<String>,
}

#[derive(Debug, Clone, PartialEq)]
enum Entry {
    Input,
    Answer(u32),
    /// The results of the calls that these service calls returned.
    Results(Vec<u32>),
    /// As `Results`, but without the calls that had not finished when the run was cut off.
    Finished(Vec<u32>),
}

/// Returns the visible messages of every run, or an error if the events contradict the contract.
pub(crate) fn history(
    mode: PersistenceMode,
    index: &TraceIndex<'_>,
    runs: usize,
) -> Result<Vec<Turn>, String> {
    let mut turns = Vec::new();
    for run in 0..runs {
        let entries = match mode {
            PersistenceMode::PerRun => per_run(run, index),
            PersistenceMode::PerServiceCall => per_service_call(run, index),
            PersistenceMode::Journaled => match index.closed(run).last() {
                Some((_, Closed::Commit)) => staged(run, index),
                Some((_, Closed::Discard)) | None => Vec::new(),
            },
        };
        if !entries.is_empty() {
            turns.push(Turn { run, labels: say(run, &entries, index)? });
        }
    }
    Ok(turns)
}

pub(crate) fn open_run(run: usize, index: &TraceIndex<'_>) -> Result<Vec<String>, String> {
    say(run, &staged(run, index), index)
}

/// Returns the entries of a run in per-run mode. One append at the end of an attempt stores all
/// entries or none.
fn per_run(run: usize, index: &TraceIndex<'_>) -> Vec<Entry> {
    let mut without_answer = Vec::new();
    for attempt in index.attempts().iter().filter(|attempt| attempt.run == run) {
        let mut entries = vec![Entry::Input];
        entries.extend(approved(run, attempt.from, index));
        let mut waiting = None;
        for event in attempt.events {
            if let Event::Answered { serial, calls, waits, .. } = event {
                entries.extend(waiting.take());
                entries.push(Entry::Answer(*serial));
                waiting = (!calls.is_empty() && !waits).then_some(Entry::Results(vec![*serial]));
            }
        }
        // If one answer of an attempt is stored, all its entries are.
        let is_stored = |entry: &Entry| match entry {
            Entry::Answer(serial) => index.is_stored(&index.answer_label(*serial)),
            Entry::Results(_) | Entry::Finished(_) | Entry::Input => false,
        };
        if entries.iter().any(is_stored) {
            return entries;
        }
        if !entries.iter().any(|entry| matches!(entry, Entry::Answer(_))) {
            without_answer = entries;
        }
    }
    // An approved call may have ended the run before any service call, without an answer.
    let is_stored = |entry: &Entry| match entry {
        Entry::Results(serials) => !index.result_labels(run, serials).is_empty(),
        Entry::Finished(_) | Entry::Input | Entry::Answer(_) => false,
    };
    if without_answer.iter().any(is_stored) { without_answer } else { Vec::new() }
}

/// Returns the entries of a run in per-service-call mode. An answer is stored with the new messages
/// of its service call. The new messages of a service call without an answer are included if they
/// are stored.
fn per_service_call(run: usize, index: &TraceIndex<'_>) -> Vec<Entry> {
    let mut log: Vec<Entry> = Vec::new();
    for attempt in index.attempts().iter().filter(|attempt| attempt.run == run) {
        let mut new = Vec::new();
        if !log.contains(&Entry::Input) {
            new.push(Entry::Input);
        }
        let approved = approved(run, attempt.from, index);
        new.extend(approved.into_iter().filter(|entry| !log.contains(entry)));
        for event in attempt.events {
            match event {
                Event::Answered { serial, calls, waits, .. } => {
                    if index.is_stored(&index.answer_label(*serial)) {
                        log.append(&mut new);
                        log.push(Entry::Answer(*serial));
                    }
                    new.clear();
                    if !calls.is_empty() && !waits {
                        new.push(Entry::Results(vec![*serial]));
                    }
                }
                Event::Unanswered { .. } => {
                    append_stored(&mut log, &mut new, run, index);
                    new.clear();
                }
                Event::Ended { outcome, .. } if *outcome != Outcome::Killed => {
                    append_stored(&mut log, &mut new, run, index);
                }
                Event::Ended { .. } => {}
                _ => {}
            }
        }
    }
    log
}

/// Appends the new messages of a service call without an answer, if they are stored. A batch
/// without a finished call adds no entry.
fn append_stored(log: &mut Vec<Entry>, new: &mut Vec<Entry>, run: usize, index: &TraceIndex<'_>) {
    let is_stored = |entry: &Entry| match entry {
        Entry::Input => index.is_stored(&input_label(run, index)),
        Entry::Results(serials) | Entry::Finished(serials) => {
            let before = log.iter().filter(|entry| is_of(entry, serials)).count();
            index.result_labels(run, serials).len() > before
        }
        Entry::Answer(_) => false,
    };
    let finished = new.drain(..).filter(is_stored).map(|entry| match entry {
        Entry::Results(serials) => Entry::Finished(serials),
        other => other,
    });
    let finished: Vec<_> = finished.collect();
    log.extend(finished);
}

fn is_of(entry: &Entry, of: &[u32]) -> bool {
    matches!(entry, Entry::Results(serials) | Entry::Finished(serials) if serials == of)
}

fn staged(run: usize, index: &TraceIndex<'_>) -> Vec<Entry> {
    let mut entries = Vec::new();
    if index.is_stored(&input_label(run, index)) {
        entries.push(Entry::Input);
    }
    let mut results: Vec<Entry> = approved(run, 0, index);
    for event in index.trace {
        if let Event::Answered { run: of, serial, calls, waits, .. } = event
            && *of == run
            && index.is_stored(&index.answer_label(*serial))
        {
            entries.append(&mut results);
            entries.push(Entry::Answer(*serial));
            if !calls.is_empty() && !waits {
                results.push(Entry::Results(vec![*serial]));
            }
        }
    }
    // A run that was committed without being resumed also has the results of its last round. Calls
    // that did not finish have an error result.
    if index.is_closed_as_it_was(run) || !matches!(entries.last(), Some(Entry::Answer(_))) {
        let is_there = |entry: &Entry| match entry {
            Entry::Results(serials) => !index.result_labels(run, serials).is_empty(),
            Entry::Finished(_) | Entry::Input | Entry::Answer(_) => true,
        };
        entries.extend(results.into_iter().filter(is_there));
    }
    entries
}

/// Returns an entry for the results of the calls that the input of a run decides about, if any.
fn approved(run: usize, from: usize, index: &TraceIndex<'_>) -> Vec<Entry> {
    let began = index.trace.iter().skip(from).find_map(|event| match event {
        Event::Began { run: of, answers, .. } if *of == run => Some(answers),
        _ => None,
    });
    let serials = began.into_iter().find(|serials| !serials.is_empty());
    serials.map(|serials| Entry::Results(serials.clone())).into_iter().collect()
}

fn input_label(run: usize, index: &TraceIndex<'_>) -> String {
    let prefix = format!("user:{}", input_text(run));
    let label = index.trace.iter().find_map(|event| match event {
        Event::Submitted { labels, .. } => labels.iter().find(|label| {
            label.strip_prefix(&prefix).is_some_and(|rest| !rest.starts_with(char::is_numeric))
        }),
        _ => None,
    });
    label.cloned().unwrap_or(prefix)
}

fn say(run: usize, entries: &[Entry], index: &TraceIndex<'_>) -> Result<Vec<String>, String> {
    let mut labels: Vec<String> = Vec::new();
    for (at, entry) in entries.iter().enumerate() {
        match entry {
            Entry::Input => labels.push(input_label(run, index)),
            Entry::Answer(serial) => labels.push(index.answer_label(*serial)),
            Entry::Results(serials) => {
                let may_lack = at + 1 == entries.len() || serials.iter().any(|of| ends(*of, index));
                labels.extend(results(run, serials, &entries[..at], may_lack, index)?);
            }
            Entry::Finished(serials) => {
                labels.extend(results(run, serials, &entries[..at], true, index)?);
            }
        }
    }
    Ok(labels)
}

/// Returns the label of the results of a batch, in the order of the calls. Every call without an
/// earlier result (in `before`) must have a result, unless `may_lack` is set.
fn results(
    run: usize,
    serials: &[u32],
    before: &[Entry],
    may_lack: bool,
    index: &TraceIndex<'_>,
) -> Result<Option<String>, String> {
    let before = before.iter().filter(|entry| is_of(entry, serials)).count();
    let mut found = index.result_labels(run, serials);
    let earlier: Vec<&str> = found.drain(..before.min(found.len())).collect();
    let mut pending: Vec<&str> = serials
        .iter()
        .flat_map(|serial| index.answers[serial].calls.iter().map(|call| call.id.as_str()))
        .collect();
    pending.retain(|call| {
        !earlier.iter().any(|label| names(label).contains(call))
            && !index.is_answered_before(run, call)
    });
    let Some(label) = found.first() else {
        return match pending.is_empty() || may_lack {
            true => Ok(None),
            false => Err(format!("the calls {pending:?} have no result")),
        };
    };
    let named = names(label);
    let mut asked = pending.iter();
    let in_order = named.iter().all(|name| asked.any(|call| call == name));
    match in_order && (may_lack || named.len() == pending.len()) {
        true => Ok(Some((*label).to_owned())),
        false => Err(format!("the calls {pending:?} were answered with {label:?}")),
    }
}

fn names(label: &str) -> Vec<&str> {
    let results = label.split_whitespace().skip(1);
    results.filter_map(|result| Some(result.split_once('=')?.0)).collect()
}

/// Returns whether a tool of the batch ends the run. The other calls may then have no result.
fn ends(serial: u32, index: &TraceIndex<'_>) -> bool {
    index.answers[&serial].calls.iter().any(|call| call.tool == "stop")
}
