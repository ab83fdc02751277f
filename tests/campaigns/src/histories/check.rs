//! Converts a recorded history to the form of the checker, and finds the first answer that no order
//! of the operations explains.

use std::{collections::HashMap, sync::Arc};

use todc_utils::linearizability::{
    WGLChecker,
    history::{Action, History},
};

use super::{
    event::{Event, Request, Response},
    specification::{Operation, Step, Store},
};

/// The first unexplained answer of a history.
#[derive(Debug)]
pub(super) struct Unexplained {
    /// The last answer of the shortest prefix of the history that no order explains.
    pub(super) answer: Event,
    /// The request that received this answer, with its client.
    pub(super) asked: Option<Event>,
}

/// Searches for an order of the operations that explains every answer. Each operation must take
/// effect between its begin and its end.
pub(super) fn check(events: &[Event]) -> Result<(), Box<Unexplained>> {
    if is_explained(events) {
        return Ok(());
    }
    // An order that explains a history also explains each prefix of it. The first unexplained
    // answer is therefore found by bisection.
    let answers: Vec<usize> = (0..events.len())
        .filter(|index| matches!(events.get(*index), Some(Event::Return { .. })))
        .collect();
    let unexplained =
        answers.partition_point(|index| events.get(..=*index).is_some_and(is_explained));
    let answer = answers.get(unexplained).and_then(|index| events.get(*index)).cloned();
    let Some(answer) = answer.or_else(|| events.last().cloned()) else { return Ok(()) };
    let asked = events.iter().find(|event| {
        matches!((event, &answer),
            (Event::Invoke { operation: asked, .. }, Event::Return { operation, .. })
                if asked == operation)
    });
    Err(Box::new(Unexplained { asked: asked.cloned(), answer }))
}

fn is_explained(events: &[Event]) -> bool {
    let actions = actions(events);
    // The checker does not accept a history without operations.
    actions.is_empty() || WGLChecker::<Store>::is_linearizable(History::from_actions(actions))
}

/// Converts the events to the actions of the checker:
///
/// - The two steps of a fork overlap. Each step of an operation therefore has its own process
///   number.
/// - A change with an unknown outcome ends after all other operations. It may take effect at any
///   time after its begin, or never, which is the same as after all reads.
/// - A read with an unknown outcome does not restrict the order, and is omitted.
fn actions(events: &[Event]) -> Vec<(usize, Action<Arc<Operation>>)> {
    let mut responses = HashMap::new();
    for event in events {
        if let Event::Return { operation, response, .. } = event
            && !matches!(response, Response::Failed(_))
        {
            responses.insert(*operation, response);
        }
    }
    let (mut actions, mut open) = (Vec::new(), Vec::new());
    let mut begun: HashMap<u64, Vec<(usize, Arc<Operation>)>> = HashMap::new();
    let mut processes = 0..;
    for event in events {
        match event {
            Event::Invoke { operation, request, .. } => {
                let response = responses.get(operation).map(|response| (*response).clone());
                let is_known = response.is_some();
                if !is_known && !changes(request) {
                    continue;
                }
                let steps = steps(*operation, request).into_iter().map(|step| {
                    let (request, response) = (request.clone(), response.clone());
                    Arc::new(Operation { step, request, response })
                });
                let steps: Vec<_> =
                    steps.zip(processes.by_ref()).map(|(step, it)| (it, step)).collect();
                let calls = steps.iter().cloned();
                actions.extend(calls.map(|(process, step)| (process, Action::Call(step))));
                match is_known {
                    true => drop(begun.insert(*operation, steps)),
                    false => open.extend(ends(steps)),
                }
            }
            Event::Return { operation, .. } => {
                // If the operation failed, its outcome is unknown, and `begun` does not contain it.
                actions.extend(ends(begun.remove(operation).unwrap_or_default()));
            }
        }
    }
    actions.extend(open);
    actions
}

fn ends(
    steps: Vec<(usize, Arc<Operation>)>,
) -> impl Iterator<Item = (usize, Action<Arc<Operation>>)> {
    steps.into_iter().map(|(process, step)| (process, Action::Response(step)))
}

fn steps(operation: u64, request: &Request) -> Vec<Step> {
    match request {
        Request::Fork { .. } => vec![Step::Reads(operation), Step::Creates(operation)],
        _ => vec![Step::Whole],
    }
}

fn changes(request: &Request) -> bool {
    match request {
        Request::Append(_)
        | Request::Fork { .. }
        | Request::Prune { .. }
        | Request::Delete { .. }
        | Request::Summarize(_)
        | Request::Undo { .. } => true,
        Request::Head { .. } | Request::Load { .. } | Request::OpenRun { .. } => false,
    }
}

impl std::fmt::Display for Unexplained {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let line = |event: &Event| serde_json::to_string(event).unwrap_or_default();
        let answer = line(&self.answer);
        let asked = self.asked.as_ref().map(line).unwrap_or_default();
        write!(f, "no order of the operations explains the answer {answer} to {asked}")
    }
}

#[cfg(test)]
mod tests {
    use super::super::event::{AppendRequest, HeadSeen, MessageSeen, RevisionSeen};
    use super::*;

    const RESULT: RevisionSeen = RevisionSeen { incarnation: 7, sequence: 1 };

    fn asks(at: u64, operation: u64, request: Request) -> Event {
        Event::Invoke { at, operation, client: "0.0".to_owned(), request }
    }

    fn answers(at: u64, operation: u64, response: Response) -> Event {
        Event::Return { at, operation, response }
    }

    fn append() -> Request {
        Request::Append(AppendRequest {
            key: "main".to_owned(),
            run: "run".to_owned(),
            index: 0,
            expected: RevisionSeen { incarnation: 0, sequence: 0 },
            result: RESULT,
            texts: vec!["hello".to_owned()],
            staged: None,
        })
    }

    /// Returns the request and the answer of a load, with the message if `is_stored` is set.
    fn load(at: u64, operation: u64, is_stored: bool) -> [Event; 2] {
        let hello = MessageSeen { run: "run".to_owned(), index: 0, text: "hello".to_owned() };
        let absent = RevisionSeen { incarnation: 0, sequence: 0 };
        let revision = if is_stored { RESULT } else { absent };
        let response = Response::Loaded {
            head: HeadSeen { revision, pruned: 0, open: None, summary: None },
            messages: is_stored.then_some(hello).into_iter().collect(),
        };
        let request = Request::Load { key: "main".to_owned() };
        [asks(at, operation, request), answers(at + 1, operation, response)]
    }

    #[test]
    fn a_write_without_an_answer_may_appear_later_but_may_not_disappear_again() {
        let history = |seen: &[bool]| {
            let loads = seen.iter().zip(1..);
            let loads = loads.flat_map(|(seen, number)| load(number * 10, number, *seen));
            std::iter::once(asks(0, 0, append())).chain(loads).collect::<Vec<_>>()
        };
        for explained in [[false, false], [false, true], [true, true]] {
            assert!(check(&history(&explained)).is_ok(), "{explained:?}");
        }
        let unexplained = check(&history(&[true, false])).unwrap_err();
        assert!(matches!(unexplained.answer, Event::Return { at: 21, operation: 2, .. }));
    }

    #[test]
    fn an_acknowledged_write_is_in_every_later_load() {
        let stored = answers(15, 0, Response::Stored(RESULT));
        let mut during = vec![asks(0, 0, append())];
        during.extend(load(10, 1, false));
        during.push(stored.clone());
        assert!(check(&during).is_ok());
        let mut after = vec![asks(0, 0, append()), stored];
        after.extend(load(20, 1, false));
        assert!(check(&after).is_err());
    }

    #[test]
    fn a_failed_write_may_have_taken_effect() {
        let failed = answers(5, 0, Response::Failed("connection reset".to_owned()));
        for is_stored in [false, true] {
            let mut history = vec![asks(0, 0, append()), failed.clone()];
            history.extend(load(10, 1, is_stored));
            assert!(check(&history).is_ok());
        }
    }
}
