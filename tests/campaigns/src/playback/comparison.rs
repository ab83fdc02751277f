//! Compares the messages of a request with the expected messages.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::{divergence::Difference, expected_messages::ExpectedMessage};

/// Returns every difference between two lists of messages, each with its position in the second
/// list. The messages before the position `from` are known to be equal. Messages are matched from
/// both ends, so that a missing or additional message is only one difference.
pub(super) fn differences(
    expected: &[ExpectedMessage],
    found: &[Value],
    from: usize,
) -> Vec<(usize, Difference)> {
    let is_same = |(expected, found): (&ExpectedMessage, &Value)| {
        message_differences(&expected.json, found).is_empty()
    };
    let shorter = expected.len().min(found.len());
    let from = from.min(shorter);
    let pairs = expected.iter().zip(found).skip(from);
    let head = from + pairs.take_while(|pair| is_same(*pair)).count();
    let tail = expected.iter().rev().zip(found.iter().rev()).take(shorter - head);
    let tail = tail.take_while(|pair| is_same(*pair)).count();
    let position_of = |position: usize| {
        if position >= expected.len() - tail {
            Some(position + found.len() - expected.len())
        } else {
            (position < found.len() - tail).then_some(position)
        }
    };

    let mut differences = Vec::new();
    for (position, message) in expected.iter().enumerate().skip(from) {
        match position_of(position).and_then(|at| Some((at, found.get(at)?))) {
            None => {
                let expected = message.json.to_string();
                differences.push((position, Difference::Missing { expected }));
            }
            Some((at, json)) => {
                let here = message_differences(&message.json, json);
                differences.extend(here.into_iter().map(|difference| (at, difference)));
                let asked = message.answers.and_then(|(asked, call)| {
                    let asked = found.get(position_of(asked)?)?;
                    asked.pointer(&format!("/tool_calls/{call}/id"))
                });
                let id = json.get("tool_call_id");
                if asked.is_some() && asked != id {
                    differences.push((at, Difference::field("tool_call_id", asked, id)));
                }
            }
        }
    }
    let extra = expected.len() - tail..found.len() - tail;
    for (at, json) in found.iter().enumerate().take(extra.end).skip(extra.start) {
        differences.push((at, Difference::Extra { found: json.to_string() }));
    }
    differences.sort_by_key(|(at, _)| *at);
    differences
}

/// Returns the differences between a recorded message and the found message, except the call id of
/// a result, which depends on the id of its call.
pub(super) fn message_differences(expected: &Value, found: &Value) -> Vec<Difference> {
    if expected == found {
        return Vec::new();
    }
    let empty = Map::new();
    let fields = |value: &'_ Value| value.as_object().cloned().unwrap_or_else(|| empty.clone());
    let (expected, found) = (fields(expected), fields(found));
    let names: BTreeSet<&String> = expected.keys().chain(found.keys()).collect();
    let mut differences = Vec::new();
    for name in names {
        let (left, right) = (expected.get(name), found.get(name));
        match (name.as_str(), left, right) {
            ("tool_call_id", ..) => {}
            ("tool_calls", Some(Value::Array(left)), Some(Value::Array(right))) => {
                call_differences(left, right, &mut differences);
            }
            _ if left != right => differences.push(Difference::field(name, left, right)),
            _ => {}
        }
    }
    differences
}

fn call_differences(expected: &[Value], found: &[Value], differences: &mut Vec<Difference>) {
    for position in 0..expected.len().max(found.len()) {
        let (Some(left), Some(right)) = (expected.get(position), found.get(position)) else {
            let (left, right) = (expected.get(position), found.get(position));
            differences.push(Difference::field(format!("tool_calls[{position}]"), left, right));
            continue;
        };
        let (mut left, mut right) = (left.clone(), right.clone());
        let (left_id, right_id) = (take(&mut left, "id"), take(&mut right, "id"));
        // If calls of a message have the same id, replay keeps the id only for the first of them.
        let earlier = expected.iter().take(position);
        let was_recorded = left_id.as_ref().is_some_and(is_id)
            && earlier.map(|call| call.get("id")).all(|id| id != left_id.as_ref());
        if was_recorded && left_id != right_id {
            let field = format!("tool_calls[{position}].id");
            differences.push(Difference::field(field, left_id.as_ref(), right_id.as_ref()));
        }
        for kind in ["function", "custom"] {
            let (left, right) = (take(&mut left, kind), take(&mut right, kind));
            let (left, right) = (left.unwrap_or_default(), right.unwrap_or_default());
            let of = |value: &Value| value.as_object().cloned().unwrap_or_default();
            let (left, right) = (of(&left), of(&right));
            let names: BTreeSet<&String> = left.keys().chain(right.keys()).collect();
            for name in names.into_iter().filter(|name| left.get(*name) != right.get(*name)) {
                let field = format!("tool_calls[{position}].{kind}.{name}");
                differences.push(Difference::field(field, left.get(name), right.get(name)));
            }
        }
        if left != right {
            let field = format!("tool_calls[{position}]");
            differences.push(Difference::field(field, Some(&left), Some(&right)));
        }
    }
}

fn take(value: &mut Value, field: &str) -> Option<Value> {
    value.as_object_mut()?.remove(field)
}

pub(super) fn is_id(value: &Value) -> bool {
    value.as_str().is_some_and(|id| !id.is_empty())
}
