//! What a server says about the effects of a tool.

use rmcp::model::ToolAnnotations;

/// What a server says about the effects of a tool, with what the specification assumes where it
/// says nothing.
///
/// They are hints: a server may say what it likes. Decide by them only where you trust it
/// (MCP specification 2025-11-25, `ToolAnnotations`).
///
/// ```
/// use tower_chat_mcp::ToolHints;
/// let hints = ToolHints::default();
/// assert!(!hints.read_only && hints.destructive && !hints.idempotent && hints.open_world);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct ToolHints {
    /// The tool changes nothing.
    pub read_only: bool,
    /// It may destroy something, rather than only add. Never, if it changes nothing.
    pub destructive: bool,
    /// A second call with the same arguments changes nothing more. Always, if it changes nothing.
    pub idempotent: bool,
    /// It deals with things outside of the server, as a search of the web does.
    pub open_world: bool,
}

impl ToolHints {
    pub(crate) fn of(annotations: &ToolAnnotations) -> Self {
        let read_only = annotations.read_only_hint.unwrap_or(false);
        Self {
            read_only,
            destructive: !read_only && annotations.is_destructive(),
            idempotent: read_only || annotations.is_idempotent(),
            open_world: annotations.open_world_hint.unwrap_or(true),
        }
    }
}

/// What is assumed of a tool whose server says nothing.
impl Default for ToolHints {
    fn default() -> Self {
        Self::of(&ToolAnnotations::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_only_reads_destroys_nothing_and_can_be_repeated() {
        let annotations = ToolAnnotations::new().read_only(true).destructive(true);
        let hints = ToolHints::of(&annotations);
        assert!(hints.read_only && !hints.destructive && hints.idempotent);
    }

    #[test]
    fn what_the_server_says_counts() {
        let annotations =
            ToolAnnotations::new().destructive(false).idempotent(true).open_world(false);
        let hints = ToolHints::of(&annotations);
        assert!(!hints.read_only && !hints.destructive && hints.idempotent && !hints.open_world);
    }
}
