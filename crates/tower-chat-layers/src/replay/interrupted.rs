//! Finds and removes interrupted calls. The run of such a call ended before the result of the call
//! was stored. The replay contains the call with an error result that reports the interruption.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use tower_chat_core::{Message, MessageId, Messages, Role, pairing::asked_call};

use super::{
    broken_links,
    round::{RoundCall, has_content, interrupted_id},
};

/// An interrupted call whose real result was pushed later. The replay still contains the call and
/// the error result.
///
/// Such calls are collected, and removed in one walk over the messages.
#[derive(Debug, Clone)]
pub(super) struct Retracted {
    pub(super) call: Arc<RoundCall>,
    /// The number of messages in the replay when the call was retracted. One of them contains the
    /// call.
    pub(super) within: usize,
}

pub(super) fn without(output: &Messages, retracted: &[Retracted]) -> Messages {
    let calls = retracted.iter().map(|retracted| (&*retracted.call, retracted.within));
    let mut rest = Messages::new();
    let mut from = 0;
    for (position, ids) in find(output, calls).into_iter().rev() {
        let Some(asking) = output.get(position) else { continue };
        rest.append_range(output, from..position);
        let is_results = |message: &&Arc<Message>| message.role == Role::Tool;
        let results = output.iter_from(position + 1).take_while(is_results);
        let results: Vec<_> = results.cloned().collect();
        from = position + 1 + results.len();
        let mut asking = (**asking).clone();
        broken_links::retain(&mut asking.parts, |part| {
            let id = asked_call(part).and_then(|call| call.id.as_deref());
            !id.is_some_and(|id| ids.contains(id))
        });
        rest.extend(has_content(&asking).then(|| Arc::new(asking)));
        for results in results {
            let mut results = Message::clone(&results);
            results.parts.retain(|part| !interrupted_id(part).is_some_and(|id| ids.contains(id)));
            rest.extend((!results.parts.is_empty()).then(|| Arc::new(results)));
        }
    }
    rest.append_range(output, from..output.len());
    rest
}

/// Returns the position of the first message of `output` that contains one of the calls.
pub(super) fn first_position<'a>(
    output: &Messages,
    calls: impl Iterator<Item = &'a RoundCall>,
) -> Option<usize> {
    find(output, calls.map(|call| (call, output.len()))).last().map(|(position, _)| *position)
}

/// Returns the position of each message with some of the interrupted calls, and their ids, in
/// descending order. The messages of results directly after it contain the results that report the
/// interruption.
///
/// Each item of `calls` is a call, and the number of messages at the beginning of `output` among
/// which the call is searched.
fn find<'a>(
    output: &Messages,
    calls: impl Iterator<Item = (&'a RoundCall, usize)>,
) -> Vec<(usize, HashSet<&'a str>)> {
    let mut wanted = HashMap::<_, Vec<(&'a str, usize)>>::new();
    let mut left = 0_usize;
    for (call, within) in calls {
        let message: Option<MessageId> = call.call_position.map(|(message, _)| message);
        wanted.entry((&*call.id, message)).or_default().push((&*call.id, within));
        left += 1;
    }
    let mut found = Vec::new();
    let mut results: Vec<&Arc<Message>> = Vec::new();
    for (position, message) in (0..output.len()).zip(output.iter()).rev() {
        if left == 0 {
            break;
        }
        if message.role == Role::Tool {
            results.push(message);
            continue;
        }
        let mut asked: Option<HashSet<&str>> = None;
        let mut ids: HashSet<&'a str> = HashSet::new();
        for id in
            results.drain(..).flat_map(|results| results.parts.iter().filter_map(interrupted_id))
        {
            for of_message in [message.id, None] {
                let Some(of_id) = wanted.get_mut(&(id, of_message)) else { continue };
                let is_within = of_id.last().is_some_and(|(_, within)| position < *within);
                let asked = asked.get_or_insert_with(|| {
                    let calls = message.parts.iter().filter_map(asked_call);
                    calls.filter_map(|call| call.id.as_deref()).collect()
                });
                if is_within && asked.contains(id) && !ids.contains(id) {
                    ids.extend(of_id.pop().map(|(id, _)| id));
                    left -= 1;
                }
            }
        }
        if !ids.is_empty() {
            found.push((position, ids));
        }
    }
    found
}
