//! Checks how deeply JSON is nested.

use super::limits::{Limit, LimitExceeded, Limits};

/// Returns an error if the objects and lists of a JSON text are nested more deeply than the limit.
///
/// `serde_json` limits the depth of values that it parses, but not of values that it returns as
/// text ([`RawJson`](tower_chat_core::RawJson)). Code that parses such a text recursively therefore
/// calls this function first. The check itself is not recursive and allocates no memory. The text
/// need not be valid JSON.
///
/// # Errors
///
/// [`LimitExceeded`] with [`Limit::Depth`].
///
/// ```
/// use tower_chat_wire::stream::{Limits, check_depth};
/// let limits = Limits::default().with_max_depth(2);
/// assert!(check_depth(r#"{"a":["[[[", "\"[["]}"#, &limits).is_ok());
/// assert!(check_depth(r#"{"a":[[]]}"#, &limits).is_err());
/// ```
pub fn check_depth(json: &str, limits: &Limits) -> Result<(), LimitExceeded> {
    let (mut depth, mut is_in_text, mut is_escaped) = (0_usize, false, false);
    for byte in json.bytes() {
        if is_in_text {
            match byte {
                _ if is_escaped => is_escaped = false,
                b'\\' => is_escaped = true,
                b'"' => is_in_text = false,
                _ => {}
            }
            continue;
        }
        match byte {
            b'"' => is_in_text = true,
            b'{' | b'[' => {
                depth += 1;
                limits.check(Limit::Depth, depth)?;
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    Ok(())
}
