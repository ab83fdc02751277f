//! At save: results that are too long.

use std::sync::Arc;

use tower_chat_core::{Message, Part, Role, ToolResult, pairing::foreign_results};

/// How much of a tool's result is stored: 256 KiB, unless another limit is set.
///
/// The limit is for the text of a result, all its text parts together; images and files are not
/// counted, and arguments never cut. What is over the limit is cut between two characters, and a
/// marker says so, within the limit. Where not even the marker fits, as much of it is left as
/// does.
///
/// ```
/// use tower_chat::{ToolResult, replay::Truncation};
/// let mut result = ToolResult::new("c1", "0123456789 0123456789");
/// assert!(Truncation::to(16).apply(&mut result));
/// assert_eq!(result.text(), "0123\n[truncated]");
/// assert!(!Truncation::to(16).apply(&mut result)); // it fits
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Truncation {
    limit: Option<usize>,
}

impl Default for Truncation {
    fn default() -> Self {
        Self::to(256 * 1024)
    }
}

impl Truncation {
    /// What stands at the end of a result that was cut.
    pub const MARKER: &str = "\n[truncated]";

    /// At most so many bytes.
    pub fn to(bytes: usize) -> Self {
        Self { limit: Some(bytes) }
    }

    /// Everything is stored, however long it is.
    pub fn off() -> Self {
        Self { limit: None }
    }

    /// Cuts a result; says whether it had to. Its provider's items go then, since they hold
    /// what was cut off.
    pub fn apply(&self, result: &mut ToolResult) -> bool {
        let Some(limit) = self.limit.filter(|&limit| text_len(result) > limit) else {
            return false;
        };
        let marker = Self::MARKER.get(..limit).unwrap_or(Self::MARKER);
        cut(&mut result.content, limit - marker.len(), marker);
        result.native = None;
        true
    }

    /// The message with the results of tools cut where they have to be; shared, if none has to.
    /// Results of the provider's own tools stay whole: they are replayed as the provider's items.
    pub fn apply_to(&self, mut message: Arc<Message>) -> Arc<Message> {
        self.apply_within(&mut message);
        message
    }

    /// The same in place.
    pub(crate) fn apply_within(&self, message: &mut Arc<Message>) {
        let Some(limit) = self.limit else { return };
        let is_long = |result: &ToolResult| text_len(result) > limit;
        if !message.results().any(is_long) {
            return;
        }
        let foreign = (message.role != Role::Tool).then(|| foreign_results(message));
        let is_foreign = |index| foreign.as_ref().is_none_or(|foreign| foreign.contains(&index));
        let results = message.parts.iter().enumerate();
        let results = results.filter_map(|(index, part)| Some((index, part.as_tool_result()?)));
        let long: Vec<usize> = results
            .filter(|(index, result)| is_long(result) && is_foreign(*index))
            .map(|(index, _)| index)
            .collect();
        if long.is_empty() {
            return;
        }
        let parts = &mut Arc::make_mut(message).parts;
        for index in long {
            if let Some(Part::ToolResult(result)) = parts.get_mut(index) {
                self.apply(result);
            }
        }
    }
}

fn text_len(result: &ToolResult) -> usize {
    result.content.iter().filter_map(Part::as_text).map(str::len).sum()
}

/// Keeps `limit` bytes of text and puts the marker after them. A marker from before is cut off,
/// as the limit leaves room for one and the text is longer.
fn cut(content: &mut Vec<Part>, limit: usize, marker: &str) {
    let mut left = limit;
    let mut is_cut = false;
    content.retain_mut(|part| {
        let Part::Text(text) = part else { return true };
        if is_cut {
            return false;
        }
        if text.text.len() <= left {
            left -= text.text.len();
            return true;
        }
        is_cut = true;
        let at = (0..=left).rev().find(|&at| text.text.is_char_boundary(at)).unwrap_or(0);
        *part = Part::text(format!("{}{marker}", text.text.get(..at).unwrap_or_default()));
        true
    });
}

#[cfg(test)]
mod tests;
