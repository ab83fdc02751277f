//! A server's hints about the effects of a tool.

use rmcp::model::ToolAnnotations;

/// A server's hints about the effects of a tool. If the server does not send a hint, the hint has
/// the default of the specification.
///
/// A server may send false hints. Base decisions on hints only if you trust the server (MCP
/// specification 2025-11-25, `ToolAnnotations`).
///
/// ```
/// use tower_chat_mcp::ToolHints;
/// let hints = ToolHints::default();
/// assert!(!hints.read_only && hints.destructive && !hints.idempotent && hints.open_world);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct ToolHints {
    /// Whether the tool does not change its environment.
    pub read_only: bool,
    /// Whether the tool may delete or overwrite data. `false` if the tool is read-only.
    pub destructive: bool,
    /// Whether another call with the same arguments has no further effect. `true` if the tool is
    /// read-only.
    pub idempotent: bool,
    /// Whether the tool interacts with systems outside of the server, as a tool for web searches
    /// does.
    pub open_world: bool,
}

impl ToolHints {
    pub(crate) fn of_annotations(annotations: &ToolAnnotations) -> Self {
        let read_only = annotations.read_only_hint.unwrap_or(false);
        Self {
            read_only,
            destructive: !read_only && annotations.is_destructive(),
            idempotent: read_only || annotations.is_idempotent(),
            open_world: annotations.open_world_hint.unwrap_or(true),
        }
    }
}

/// The defaults of the specification, for a tool without hints.
impl Default for ToolHints {
    fn default() -> Self {
        Self::of_annotations(&ToolAnnotations::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hint_read_only_implies_idempotent_and_not_destructive() {
        let annotations = ToolAnnotations::new().read_only(true).destructive(true);
        let hints = ToolHints::of_annotations(&annotations);
        assert!(hints.read_only && !hints.destructive && hints.idempotent);
    }

    #[test]
    fn the_hints_of_a_tool_are_those_that_the_server_declares() {
        let annotations =
            ToolAnnotations::new().destructive(false).idempotent(true).open_world(false);
        let hints = ToolHints::of_annotations(&annotations);
        assert!(!hints.read_only && !hints.destructive && hints.idempotent && !hints.open_world);
    }
}
