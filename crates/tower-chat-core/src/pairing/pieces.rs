//! Splits a message that contains results among other parts. The pieces are the messages of a
//! regular history, in which the results of the client's tools are in separate messages.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    ops::Range,
};

use crate::{Message, Part, Role};

/// A range of a message's parts that becomes a separate message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// The role of the separate message: the role of the split message, or [`Role::Tool`].
    pub role: Role,
    /// The range of the parts in the split message.
    pub parts: Range<usize>,
}

/// Returns the pieces of a message, in the order of a regular history. A message that is regular
/// already is one piece.
pub fn pieces(message: &Message) -> Vec<Piece> {
    let role = message.role;
    if !has_foreign_results(message) {
        return vec![Piece { role, parts: 0..message.parts.len() }];
    }
    let mut pieces = pieces_by(role, message.parts.len(), &moved_results(message));
    if role == Role::User {
        // The results answer calls of earlier messages, so the pieces with results are sorted
        // before the user's content.
        pieces.sort_by_key(|piece| piece.role != Role::Tool);
    }
    pieces
}

fn pieces_by(role: Role, parts: usize, moved: &BTreeSet<usize>) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = Vec::new();
    for index in 0..parts {
        let role = if moved.contains(&index) { Role::Tool } else { role };
        match pieces.last_mut() {
            Some(piece) if piece.role == role => piece.parts.end = index + 1,
            _ => pieces.push(Piece { role, parts: index..index + 1 }),
        }
    }
    pieces
}

fn has_foreign_results(message: &Message) -> bool {
    message.role != Role::Tool && !foreign_results(message).is_empty()
}

/// Returns the indices of the results that belong in a tool message. Results of tools that the
/// provider executed itself belong in the assistant message instead.
pub fn foreign_results(message: &Message) -> BTreeSet<usize> {
    let is_result = |part: &&Part| matches!(part, Part::ToolResult(_));
    if !message.parts.iter().any(|part| is_result(&part)) {
        return BTreeSet::new();
    }
    let by_provider: HashSet<Option<&str>> = match message.role {
        Role::Assistant => message.parts.iter().filter_map(id_of_provider_call).collect(),
        _ => HashSet::new(),
    };
    let results = message.parts.iter().enumerate();
    let results = results.filter_map(|(index, part)| Some((index, part.as_tool_result()?)));
    let foreign = results.filter(|(_, result)| !by_provider.contains(&result.call_id.as_deref()));
    foreign.map(|(index, _)| index).collect()
}

/// Returns the indices of the results that are moved out of a message. These are the [foreign
/// results](foreign_results), and each result that another moved result separates from its call.
///
/// Moving a result out divides its piece in two. If this separates another result from its call,
/// either that result or its call is in the shorter of the two pieces. This function therefore
/// checks only the results in the shorter piece, and the results of the calls in it.
fn moved_results(message: &Message) -> BTreeSet<usize> {
    let mut moved = foreign_results(message);
    if message.role != Role::Assistant {
        return moved;
    }
    let calls = ProviderCalls::of(message);
    let mut unseen: Vec<usize> = calls
        .of_result
        .keys()
        .copied()
        .filter(|result| calls.is_separated(*result, &moved))
        .collect();
    while let Some(result) = unseen.pop() {
        if !moved.insert(result) {
            continue;
        }
        let before = moved.range(..result).next_back().map_or(0, |before| before + 1);
        let after = moved.range(result + 1..).next().copied().unwrap_or(message.parts.len());
        let shorter =
            if result - before < after - result { before..result } else { result + 1..after };
        for position in shorter {
            let of_call = calls.results.get(&position).into_iter().flatten().copied();
            let own = calls.of_result.contains_key(&position).then_some(position);
            let again = of_call.chain(own).filter(|result| calls.is_separated(*result, &moved));
            unseen.extend(again);
        }
    }
    moved
}

/// The calls that the provider executed, and the results that answer them.
#[derive(Default)]
struct ProviderCalls {
    /// For each result, the nearest call with the same id before the result, and the nearest one
    /// after it.
    of_result: BTreeMap<usize, [Option<usize>; 2]>,
    results: HashMap<usize, Vec<usize>>,
}

impl ProviderCalls {
    fn of(message: &Message) -> Self {
        let mut calls = Self::default();
        calls.take(message.parts.iter().enumerate(), 0);
        calls.take(message.parts.iter().enumerate().rev(), 1);
        calls
    }

    /// Finds, for each result, the nearest call on one side.
    fn take<'m>(&mut self, parts: impl Iterator<Item = (usize, &'m Part)>, side: usize) {
        let mut last: HashMap<Option<&str>, usize> = HashMap::new();
        for (position, part) in parts {
            if let Some(id) = id_of_provider_call(part) {
                last.insert(id, position);
            }
            let Some(result) = part.as_tool_result() else { continue };
            let call = last.get(&result.call_id.as_deref()).copied();
            if let Some(nearest) = self.of_result.entry(position).or_default().get_mut(side) {
                *nearest = call;
            }
            if let Some(call) = call {
                self.results.entry(call).or_default().push(position);
            }
        }
    }

    /// Returns whether the results in `moved` separate `result`, which is not one of them, from
    /// every call that it may answer.
    fn is_separated(&self, result: usize, moved: &BTreeSet<usize>) -> bool {
        let is_between = |call: usize| {
            let between = call.min(result)..call.max(result);
            moved.range(between).any(|moved| *moved != result)
        };
        let calls = self.of_result.get(&result).into_iter().flatten().flatten();
        !moved.contains(&result) && calls.copied().all(is_between)
    }
}

fn id_of_provider_call(part: &Part) -> Option<Option<&str>> {
    let call = part.as_tool_call().filter(|call| call.provider_executed)?;
    Some(call.id.as_deref())
}

#[cfg(test)]
#[path = "tests/pieces.rs"]
mod tests;
