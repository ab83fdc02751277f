//! The output limits of Anthropic's models.

/// Returns the maximum number of output tokens of a model
/// (<https://docs.claude.com/en/docs/about-claude/models/overview>). This number is sent if the
/// caller sets no token limit. An unknown model is probably newer than the known models, and gets
/// the limit of Claude Sonnet 4.
pub(super) fn max_output_tokens(model: &str) -> u64 {
    let is = |names: &[&str]| names.iter().any(|name| model.contains(name));
    if is(&["3-opus", "3-haiku", "3-sonnet"]) {
        4096
    } else if is(&["3-5-"]) {
        8192
    } else if is(&["opus-4-0", "opus-4-1", "opus-4-2025"]) {
        32_000
    } else {
        64_000
    }
}

#[cfg(test)]
mod tests {
    use super::max_output_tokens;

    #[test]
    fn max_output_tokens_is_the_limit_of_each_model() {
        for (model, tokens) in [
            ("claude-3-haiku-20240307", 4096),
            ("claude-3-5-sonnet-latest", 8192),
            ("claude-opus-4-20250514", 32_000),
            ("claude-opus-4-5", 64_000),
            ("claude-sonnet-4-5", 64_000),
        ] {
            assert_eq!(max_output_tokens(model), tokens, "{model}");
        }
    }
}
