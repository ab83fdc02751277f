//! What Vertex AI wants in the body besides.

use crate::object::{Object, raw};

/// The version of the API in Vertex AI
/// (<https://docs.claude.com/en/api/claude-on-vertex-ai>).
const VERSION: &str = "vertex-2023-10-16";

/// The most tokens of an answer where the request names no number: the service demands one, and
/// every Claude can write this many.
const TOKENS: u64 = 4096;

/// Adds what genai adds for Anthropic itself.
pub(crate) fn complete_for_vertex(body: &mut Object, is_streamed: bool) {
    let mut set = |name: &str, value| {
        body.entry(name.to_owned()).or_insert(value);
    };
    set("anthropic_version", raw(VERSION));
    set("max_tokens", raw(&TOKENS));
    if is_streamed {
        set("stream", raw(&true));
    }
}
