//! Formats usage for people and for programs.
//!
//! *Usage* is the number of calls of models and tools, the number of tokens, and the cost.

use serde::Serialize;
use tower_chat::store::UsageSum;

use crate::output::counted;

/// Usage as fields of a JSON object.
#[derive(Debug, Serialize)]
pub(crate) struct Figures {
    service_calls: u64,
    tool_calls: u64,
    input_tokens: u64,
    cached_input_tokens: u64,
    output_tokens: u64,
    reasoning_tokens: u64,
    total_tokens: u64,
    cost_nanos: Option<u64>,
}

impl From<&UsageSum> for Figures {
    fn from(sum: &UsageSum) -> Self {
        Self {
            service_calls: sum.service_calls,
            tool_calls: sum.tool_calls,
            input_tokens: sum.tokens.input_tokens,
            cached_input_tokens: sum.tokens.cached_input_tokens,
            output_tokens: sum.tokens.output_tokens,
            reasoning_tokens: sum.tokens.reasoning_tokens,
            total_tokens: sum.tokens.total_tokens(),
            cost_nanos: sum.cost_nanos,
        }
    }
}

/// The headings of [`cells`].
pub(crate) const HEADINGS: [&str; 7] =
    ["calls", "tool calls", "input", "cached", "output", "reasoning", "cost"];

/// Formats usage as the cells of a table row.
pub(crate) fn cells(sum: &UsageSum) -> [String; 7] {
    [
        sum.service_calls.to_string(),
        sum.tool_calls.to_string(),
        sum.tokens.input_tokens.to_string(),
        sum.tokens.cached_input_tokens.to_string(),
        sum.tokens.output_tokens.to_string(),
        sum.tokens.reasoning_tokens.to_string(),
        cost(sum.cost_nanos),
    ]
}

/// Formats a cost with six decimals, in the currency of the price list. Returns `-` if the cost is
/// unknown.
pub(crate) fn cost(nanos: Option<u64>) -> String {
    let Some(nanos) = nanos else { return "-".to_owned() };
    let micros = nanos.saturating_add(500) / 1000;
    format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000)
}

/// Formats usage as a text, such as
/// `2 calls, 100 in (20 cached), 30 out (5 reasoning), cost 0.000450`.
pub(crate) fn in_words(sum: &UsageSum) -> String {
    let tokens = &sum.tokens;
    let part = |count: u64, name: &str| match count {
        0 => String::new(),
        count => format!(" ({count} {name})"),
    };
    let cost = sum.cost_nanos.map(|nanos| format!(", cost {}", cost(Some(nanos))));
    format!(
        "{}, {} in{}, {} out{}{}",
        counted(sum.service_calls, "call"),
        tokens.input_tokens,
        part(tokens.cached_input_tokens, "cached"),
        tokens.output_tokens,
        part(tokens.reasoning_tokens, "reasoning"),
        cost.unwrap_or_default(),
    )
}

pub(crate) fn json_line(value: &impl Serialize) -> String {
    #[allow(clippy::expect_used, reason = "the values contain only texts, numbers and JSON values")]
    serde_json::to_string(value).expect("it has a JSON form")
}

#[cfg(test)]
mod tests {
    use tower_chat::request::Usage;

    use super::*;

    #[test]
    fn costs_are_rounded_to_the_millionth() {
        let costs = [None, Some(0), Some(499), Some(500), Some(450_000), Some(12_345_678_901)];
        let costs = costs.map(cost);
        assert_eq!(costs, ["-", "0.000000", "0.000000", "0.000001", "0.000450", "12.345679"]);
        assert_eq!(cost(Some(u64::MAX)), "18446744073.709551");
    }

    #[test]
    fn only_usage_that_is_not_zero_is_reported_in_words() {
        let mut tokens = Usage::new(100, 30);
        let sum = UsageSum::of_calls(1, 4).with_tokens(tokens);
        assert_eq!(in_words(&sum), "1 call, 100 in, 30 out");
        (tokens.cached_input_tokens, tokens.reasoning_tokens) = (20, 5);
        let sum = UsageSum::of_calls(2, 0).with_tokens(tokens).with_cost_nanos(7_000);
        let expected = "2 calls, 100 in (20 cached), 30 out (5 reasoning), cost 0.000007";
        assert_eq!(in_words(&sum), expected);
    }
}
