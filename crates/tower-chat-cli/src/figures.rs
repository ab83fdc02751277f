//! What was used, for people and for programs.

use serde::Serialize;
use tower_chat::store::UsageSum;

/// What was used, as fields of a JSON object.
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

/// What was used, as cells of a table.
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

/// A cost in the currency of the price list, to the millionth; `-` if no price was known.
pub(crate) fn cost(nanos: Option<u64>) -> String {
    let Some(nanos) = nanos else { return "-".to_owned() };
    let micros = nanos.saturating_add(500) / 1000;
    format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000)
}

/// One JSON object in one line.
pub(crate) fn json_line(value: &impl Serialize) -> String {
    #[allow(clippy::expect_used, reason = "what is printed are texts, numbers and JSON values")]
    serde_json::to_string(value).expect("it has a JSON form")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_rounded_to_the_millionth() {
        let costs = [None, Some(0), Some(499), Some(500), Some(450_000), Some(12_345_678_901)];
        let costs = costs.map(cost);
        assert_eq!(costs, ["-", "0.000000", "0.000000", "0.000001", "0.000450", "12.345679"]);
        assert_eq!(cost(Some(u64::MAX)), "18446744073.709551");
    }
}
