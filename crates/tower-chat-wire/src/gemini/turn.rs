//! The user's side of a turn: results, paired with their calls and before anything else.

use tower_chat_core::{RawJson, ToolCall, ToolResult};

use super::{call::some_id, content};
use crate::fields::{Fields, raw};

/// A content that is being written.
#[derive(Debug)]
pub(super) struct Content {
    shell: Fields,
    is_user: bool,
    /// It was no content of its own, and may be one with its like.
    may_join: bool,
    results: Vec<RawJson>,
    others: Vec<RawJson>,
}

impl Content {
    pub(super) fn model(mut shell: Fields, parts: Vec<RawJson>) -> Self {
        shell.set("role", raw("model"));
        Self { shell, is_user: false, may_join: false, results: Vec::new(), others: parts }
    }

    /// A content of the user; the shell of another role does not make it another's.
    pub(super) fn user(shell: Option<Fields>) -> Self {
        let mut shell = shell.unwrap_or_else(usual_shell);
        if shell.is_text("role", "model") {
            shell.extend(usual_shell());
        }
        Self { shell, is_user: true, may_join: false, results: Vec::new(), others: Vec::new() }
    }

    /// A content of results, which is one with those before it.
    pub(super) fn results() -> Self {
        Self { may_join: true, ..Self::user(None) }
    }

    pub(super) fn push_result(&mut self, response: RawJson, media: Vec<RawJson>) {
        self.results.push(response);
        self.others.extend(media);
    }

    pub(super) fn push_others(&mut self, parts: Vec<RawJson>) {
        self.others.extend(parts);
    }

    pub(super) fn is_user(&self) -> bool {
        self.is_user
    }

    pub(super) fn is_empty(&self) -> bool {
        self.results.is_empty() && self.others.is_empty()
    }

    pub(super) fn can_join(&self, next: &Self) -> bool {
        self.may_join && next.may_join
    }

    pub(super) fn join(&mut self, next: Self) {
        self.results.extend(next.results);
        self.others.extend(next.others);
    }

    pub(super) fn into_json(self) -> RawJson {
        let Self { shell, mut results, others, is_user: _, may_join: _ } = self;
        results.extend(others);
        content::render(shell, &results)
    }
}

/// Moves what stands before a result in the user's turn at the end behind the turn's last result.
pub(super) fn put_results_first(contents: &mut [Content]) {
    let length = contents.iter().rev().take_while(|content| content.is_user).count();
    let begin = contents.len() - length;
    let Some(turn) = contents.get_mut(begin..) else { return };
    let Some(last) = turn.iter().rposition(|content| !content.results.is_empty()) else { return };
    let Some((last, before)) = turn.get_mut(..=last).and_then(<[Content]>::split_last_mut) else {
        return;
    };
    let mut others: Vec<RawJson> =
        before.iter_mut().flat_map(|content| std::mem::take(&mut content.others)).collect();
    others.append(&mut last.others);
    last.others = others;
}

/// The calls of a model's turn that no result has answered yet.
#[derive(Debug, Default)]
pub(super) struct OpenCalls<'a>(Vec<&'a ToolCall>);

impl<'a> OpenCalls<'a> {
    pub(super) fn extend(&mut self, calls: Vec<&'a ToolCall>) {
        self.0.extend(calls);
    }

    /// The first open call with the result's id; where either has none, with its name.
    pub(super) fn answer(&mut self, result: &ToolResult) -> Option<&'a ToolCall> {
        let id = some_id(result.call_id.as_deref());
        let name = result.name.as_deref().filter(|name| !name.is_empty());
        let has_name = |call: &ToolCall| name.is_none_or(|name| name == call.name);
        let with_id = || id.and_then(|id| self.find(|call| call.id.as_deref() == Some(id)));
        let without_id = || {
            let is_open = |call: &ToolCall| some_id(call.id.as_deref()).is_none() && has_name(call);
            id.is_none().then(|| self.find(is_open)).flatten()
        };
        let by_name = || {
            let lacks_id = |call: &ToolCall| id.is_none() || some_id(call.id.as_deref()).is_none();
            self.find(|call| lacks_id(call) && has_name(call))
        };
        let place = with_id().or_else(without_id).or_else(by_name)?;
        Some(self.0.remove(place))
    }

    fn find(&self, is_it: impl Fn(&ToolCall) -> bool) -> Option<usize> {
        self.0.iter().position(|call| is_it(call))
    }
}

fn usual_shell() -> Fields {
    let mut fields = Fields::default();
    fields.set("role", raw("user"));
    fields
}
