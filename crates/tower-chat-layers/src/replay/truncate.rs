//! Truncates results that are too long, before they are stored.

use std::sync::Arc;

use tower_chat_core::{Message, Part, Role, ToolResult, pairing::foreign_results};

/// The maximum size of a stored tool result. The default is 256 KiB.
///
/// The limit applies to the sum of all text parts of a result. Images, files and the arguments of
/// calls are never truncated. A longer text is cut between two characters, and a marker is added.
/// The text and the marker together fit into the limit. If the limit is shorter than the marker,
/// the marker is cut too.
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
    /// The text at the end of a truncated result.
    pub const MARKER: &str = "\n[truncated]";

    /// Limits the text of a result to this number of bytes.
    pub fn to(bytes: usize) -> Self {
        Self { limit: Some(bytes) }
    }

    /// Sets no limit.
    pub fn off() -> Self {
        Self { limit: None }
    }

    /// Truncates a result. Returns whether it was truncated. The native items of a truncated result are
    /// removed, because they contain the whole text.
    pub fn apply(&self, result: &mut ToolResult) -> bool {
        let Some(limit) = self.limit.filter(|&limit| text_len(result) > limit) else {
            return false;
        };
        let marker = Self::MARKER.get(..limit).unwrap_or(Self::MARKER);
        cut(&mut result.content, limit - marker.len(), marker);
        result.native = None;
        true
    }

    /// Truncates the long results in a message. Returns the same `Arc` if no result is too long.
    /// Results of tools that the provider executes are not truncated, because replays send the
    /// original items of the provider.
    pub fn apply_to(&self, mut message: Arc<Message>) -> Arc<Message> {
        self.apply_within(&mut message);
        message
    }

    /// Like [`apply_to`](Self::apply_to), in place.
    pub(crate) fn apply_within(&self, message: &mut Arc<Message>) {
        let Some(limit) = self.limit else { return };
        let foreign = (message.role != Role::Tool).then(|| foreign_results(message));
        let is_long = |(index, part): &(usize, &Part)| {
            part.as_tool_result().is_some_and(|result| text_len(result) > limit)
                && foreign.as_ref().is_none_or(|foreign| foreign.contains(index))
        };
        let long = message.parts.iter().enumerate().filter(is_long);
        let long: Vec<usize> = long.map(|(index, _)| index).collect();
        for index in long {
            if let Some(Part::ToolResult(result)) = Arc::make_mut(message).parts.get_mut(index) {
                self.apply(result);
            }
        }
    }
}

fn text_len(result: &ToolResult) -> usize {
    result.content.iter().filter_map(Part::as_text).map(str::len).sum()
}

/// Truncates the text to at most `limit` bytes and adds the marker after them. The text must be
/// longer than `limit` and the marker together. The cut then also removes the marker of an earlier
/// truncation at the end of the text.
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
