//! Finds the call that each result answers, and moves results before the other parts of the user.
//!
//! A content is an entry of `contents`, with the parts of one message. The envelope of a content is
//! its fields besides the parts.

use std::collections::BTreeSet;

use tower_chat_core::{RawJson, ToolCall, ToolResult};

use super::{call::nonempty_id, content};
use crate::fields::{Fields, raw};

/// A content of the request that is being written.
#[derive(Debug)]
pub(super) struct Content {
    envelope: Fields,
    is_user: bool,
    /// Whether the content may be joined with an adjacent content. Contents that were read from
    /// Gemini's JSON may not.
    may_join: bool,
    results: Vec<RawJson>,
    other_parts: Vec<RawJson>,
}

impl Content {
    pub(super) fn model(mut envelope: Fields, parts: Vec<RawJson>) -> Self {
        envelope.set("role", raw("model"));
        Self { envelope, is_user: false, may_join: false, results: Vec::new(), other_parts: parts }
    }

    /// Creates a content of the user. If the envelope has the role `model`, replaces this role.
    pub(super) fn user(envelope: Option<Fields>) -> Self {
        let mut envelope = envelope.unwrap_or_else(usual_envelope);
        if envelope.is_text("role", "model") {
            envelope.extend(usual_envelope());
        }
        Self {
            envelope,
            is_user: true,
            may_join: false,
            results: Vec::new(),
            other_parts: Vec::new(),
        }
    }

    /// Creates a content for results, which can be joined with other contents of this kind.
    pub(super) fn results() -> Self {
        Self { may_join: true, ..Self::user(None) }
    }

    pub(super) fn push_result(&mut self, response: RawJson, media: Vec<RawJson>) {
        self.results.push(response);
        self.other_parts.extend(media);
    }

    pub(super) fn push_other_parts(&mut self, parts: Vec<RawJson>) {
        self.other_parts.extend(parts);
    }

    pub(super) fn is_user(&self) -> bool {
        self.is_user
    }

    pub(super) fn is_empty(&self) -> bool {
        self.results.is_empty() && self.other_parts.is_empty()
    }

    pub(super) fn can_join(&self, next: &Self) -> bool {
        self.may_join && next.may_join
    }

    pub(super) fn join(&mut self, next: Self) {
        self.results.extend(next.results);
        self.other_parts.extend(next.other_parts);
    }

    pub(super) fn into_json(self) -> RawJson {
        let Self { envelope, mut results, other_parts, is_user: _, may_join: _ } = self;
        results.extend(other_parts);
        content::render(envelope, &results)
    }
}

/// In the contents of the user at the end of the list, moves the parts that are not results after
/// the last result.
pub(super) fn put_results_first(contents: &mut [Content]) {
    let length = contents.iter().rev().take_while(|content| content.is_user).count();
    let begin = contents.len() - length;
    let Some(turn) = contents.get_mut(begin..) else { return };
    let Some(last) = turn.iter().rposition(|content| !content.results.is_empty()) else { return };
    let Some((last, before)) = turn.get_mut(..=last).and_then(<[Content]>::split_last_mut) else {
        return;
    };
    let mut other_parts: Vec<RawJson> =
        before.iter_mut().flat_map(|content| std::mem::take(&mut content.other_parts)).collect();
    other_parts.append(&mut last.other_parts);
    last.other_parts = other_parts;
}

/// The open calls of consecutive contents of the model: the calls that have no result yet. A result
/// may have the id of its call, the name of its tool, or both.
#[derive(Debug, Default)]
pub(super) struct OpenCalls<'a> {
    /// All calls of these contents. A position is an index into this list.
    calls: Vec<&'a ToolCall>,
    /// The id and the position of each open call with an id.
    by_id: BTreeSet<(&'a str, usize)>,
    /// All open calls.
    all: CallPositions<'a>,
    /// The open calls without an id.
    without_id: CallPositions<'a>,
}

/// The positions of calls, which can be searched by the name of the tool.
#[derive(Debug, Default)]
struct CallPositions<'a> {
    /// The positions of the calls.
    all: BTreeSet<usize>,
    /// The tool name and the position of each call.
    by_name: BTreeSet<(&'a str, usize)>,
}

impl<'a> OpenCalls<'a> {
    pub(super) fn extend(&mut self, calls: Vec<&'a ToolCall>) {
        for call in calls {
            let position = self.calls.len();
            self.calls.push(call);
            self.all.insert(call, position);
            match nonempty_id(call.id.as_deref()) {
                Some(id) => _ = self.by_id.insert((id, position)),
                None => self.without_id.insert(call, position),
            }
        }
    }

    /// Removes and returns the open call that a result answers. This is the first open call that is
    /// found in this order:
    ///
    /// - for a result with an id: with the same id, or without an id;
    /// - for a result without an id: without an id, or with any id.
    ///
    /// A call that is not found by its id must have the name of the result, if the result has one.
    pub(super) fn answer(&mut self, result: &ToolResult) -> Option<&'a ToolCall> {
        let name = result.name.as_deref().filter(|name| !name.is_empty());
        let position = match nonempty_id(result.call_id.as_deref()) {
            Some(id) => first_named(&self.by_id, id).or_else(|| self.without_id.first(name)),
            None => self.without_id.first(name).or_else(|| self.all.first(name)),
        }?;
        let call = *self.calls.get(position)?;
        self.all.remove(call, position);
        match nonempty_id(call.id.as_deref()) {
            Some(id) => _ = self.by_id.remove(&(id, position)),
            None => self.without_id.remove(call, position),
        }
        Some(call)
    }
}

impl<'a> CallPositions<'a> {
    fn insert(&mut self, call: &'a ToolCall, position: usize) {
        self.all.insert(position);
        self.by_name.insert((&call.name, position));
    }

    fn remove(&mut self, call: &'a ToolCall, position: usize) {
        self.all.remove(&position);
        self.by_name.remove(&(call.name.as_str(), position));
    }

    /// Returns the position of the first call of the tool `name`, or of any tool.
    fn first(&self, name: Option<&str>) -> Option<usize> {
        match name {
            Some(name) => first_named(&self.by_name, name),
            None => self.all.first().copied(),
        }
    }
}

fn first_named(calls: &BTreeSet<(&str, usize)>, name: &str) -> Option<usize> {
    calls.range((name, 0)..=(name, usize::MAX)).next().map(|(_, position)| *position)
}

fn usual_envelope() -> Fields {
    let mut fields = Fields::default();
    fields.set("role", raw("user"));
    fields
}
