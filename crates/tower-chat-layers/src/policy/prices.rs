//! The costs of service calls.

use std::{collections::HashMap, sync::Arc};

use tower_chat_core::Usage;

/// The price of a million tokens of a model, in billionths of a currency.
///
/// ```
/// use tower_chat::{policy::Price, request::Usage};
/// // Dollars for a million tokens: 0.25 for input, 0.025 for cached input, 2 for output.
/// let price = Price::per_million(250_000_000, 2_000_000_000).with_cached_input(25_000_000);
/// assert_eq!(price.cost_nanos(&Usage::new(1000, 100)), 250_000 + 200_000);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Price {
    input: u64,
    cached_input: u64,
    output: u64,
    reasoning: u64,
}

impl Price {
    /// Creates a price from the prices of a million input and output tokens, in billionths of a
    /// currency. Unless other prices are set, cached tokens have the price of input tokens, and
    /// reasoning tokens have the price of output tokens.
    pub const fn per_million(input_nanos: u64, output_nanos: u64) -> Self {
        Self {
            input: input_nanos,
            cached_input: input_nanos,
            output: output_nanos,
            reasoning: output_nanos,
        }
    }

    /// Sets the price of a million input tokens that the provider has cached.
    #[must_use]
    pub const fn with_cached_input(mut self, nanos: u64) -> Self {
        self.cached_input = nanos;
        self
    }

    /// Sets the price of a million tokens of reasoning.
    #[must_use]
    pub const fn with_reasoning(mut self, nanos: u64) -> Self {
        self.reasoning = nanos;
        self
    }

    /// Returns the cost of the tokens in `usage`, in billionths of the currency, rounded to the
    /// nearest integer.
    pub fn cost_nanos(&self, usage: &Usage) -> u64 {
        const MILLION: u128 = 1_000_000;
        let cost = |tokens: u64, price: u64| u128::from(tokens) * u128::from(price);
        // The sum of four products below 2^126 does not overflow, which is the case for prices
        // below 2^62. Other sums are limited to the maximum.
        let cost = [
            cost(usage.input_tokens.saturating_sub(usage.cached_input_tokens), self.input),
            cost(usage.cached_input_tokens, self.cached_input),
            cost(usage.output_tokens.saturating_sub(usage.reasoning_tokens), self.output),
            cost(usage.reasoning_tokens, self.reasoning),
        ];
        let cost = cost.into_iter().fold(0, u128::saturating_add);
        u64::try_from(cost.saturating_add(MILLION / 2) / MILLION).unwrap_or(u64::MAX)
    }
}

/// The prices of models. The key is the model's name as the service returns it in an answer, such
/// as `gpt-5-mini-2025-08-07`. Names are compared exactly: an alias of a model needs a price of its
/// own. A clone shares the list.
///
/// The cost of each answer is stored with the answer, and `Directory::usage` returns the sum. The
/// cost of an answer is unknown if its model is not in the list.
///
/// ```
/// use tower_chat::{PersistencePolicy, policy::{Price, PriceList}};
/// let prices = PriceList::new()
///     .with_model("gpt-5-mini-2025-08-07", Price::per_million(250_000_000, 2_000_000_000));
/// let policy = PersistencePolicy::default().with_prices(prices);
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PriceList(Arc<HashMap<String, Price>>);

impl PriceList {
    /// Creates a list without any model.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a model.
    #[must_use]
    pub fn with_model(mut self, name: impl Into<String>, price: Price) -> Self {
        Arc::make_mut(&mut self.0).insert(name.into(), price);
        self
    }

    /// Returns the price of a model, if it is in the list.
    pub fn of(&self, model: &str) -> Option<Price> {
        self.0.get(model).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_tokens_has_its_price_and_the_sum_is_rounded() {
        let price = Price::per_million(1_000_000, 10_000_000)
            .with_cached_input(100_000)
            .with_reasoning(20_000_000);
        let mut usage = Usage::new(15, 7);
        usage.cached_input_tokens = 5;
        usage.reasoning_tokens = 3;
        assert_eq!(price.cost_nanos(&usage), 10 + 1 + 40 + 60, "half is rounded up");
        usage.cached_input_tokens = 4;
        assert_eq!(price.cost_nanos(&usage), 11 + 40 + 60);
        usage.cached_input_tokens = 99;
        assert_eq!(Price::per_million(0, 0).cost_nanos(&usage), 0);
        let largest = Usage::new(u64::MAX, u64::MAX);
        assert_eq!(Price::per_million(u64::MAX, u64::MAX).cost_nanos(&largest), u64::MAX);
    }
}
