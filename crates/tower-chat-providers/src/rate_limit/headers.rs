//! Reads the rate limits in the headers of a response.

use std::time::{Duration, SystemTime};

use http::HeaderMap;

use crate::retry_after::{header_text, time_until_reset};

/// The state of a rate limit, as a response reports it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Limit {
    /// The name of the limit, such as `requests`, `input-tokens` or `tokens-minute`.
    pub(super) name: String,
    /// The number of requests or tokens that may be sent before the reset.
    pub(super) remaining: f64,
    /// The time until the limit is reset, if the headers contain it.
    pub(super) reset: Option<Duration>,
}

impl Limit {
    /// Returns whether the limit counts requests: each call reduces the remaining amount by 1.
    pub(super) fn counts_requests(&self) -> bool {
        self.name.split('-').any(|word| matches!(word, "requests" | "req"))
    }
}

/// Returns the limits in the headers of a response.
pub(super) fn limits(headers: &HeaderMap, now: SystemTime) -> Vec<Limit> {
    let limits = headers.keys().filter_map(|header| {
        let (name, reset_header) = limit_and_reset_header(header.as_str())?;
        let remaining: f64 = header_text(headers, header.as_str())?.parse().ok()?;
        let reset =
            header_text(headers, &reset_header).and_then(|text| time_until_reset(text, now));
        Some(Limit { name, remaining, reset })
    });
    limits.filter(|limit| limit.remaining.is_finite()).collect()
}

/// Returns the name of the limit whose remaining amount is in the header, and the name of the
/// header with its reset time.
fn limit_and_reset_header(header: &str) -> Option<(String, String)> {
    if let Some(rest) = header.strip_prefix("anthropic-ratelimit-") {
        let name = rest.strip_suffix("-remaining")?;
        return Some((name.to_owned(), format!("anthropic-ratelimit-{name}-reset")));
    }
    let prefix = ["x-ratelimit", "ratelimit"].into_iter().find(|it| header.starts_with(it))?;
    let rest = header.strip_prefix(prefix)?.strip_prefix("-remaining")?;
    let name = match rest.strip_prefix('-') {
        Some(name) => name.to_owned(),
        None if rest.is_empty() => "requests".to_owned(),
        None => return None,
    };
    Some((name, format!("{prefix}-reset{rest}")))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use http::{HeaderName, HeaderValue};
    use tower_chat_testkit::recordings::Recordings;

    use super::*;

    /// Returns 2026-11-23T01:00:00Z.
    fn now() -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_395_600)
    }

    fn map(headers: &[(&str, &str)]) -> HeaderMap {
        let headers = headers.iter().map(|(name, value)| {
            let name: HeaderName = name.parse().unwrap();
            (name, HeaderValue::from_str(value).unwrap())
        });
        headers.collect()
    }

    fn limit(name: &str, remaining: f64, reset_millis: Option<u64>) -> Limit {
        Limit { name: name.to_owned(), remaining, reset: reset_millis.map(Duration::from_millis) }
    }

    #[test]
    fn the_rate_limit_headers_of_each_provider_are_read() {
        let cases = [
            // OpenAI and Groq.
            (
                "x-ratelimit-remaining-requests",
                "59",
                "x-ratelimit-reset-requests",
                "1s",
                limit("requests", 59.0, Some(1_000)),
            ),
            (
                "x-ratelimit-remaining-tokens",
                "0",
                "x-ratelimit-reset-tokens",
                "6m0s",
                limit("tokens", 0.0, Some(360_000)),
            ),
            (
                "x-ratelimit-remaining-tokens",
                "7",
                "x-ratelimit-reset-tokens",
                "20ms",
                limit("tokens", 7.0, Some(20)),
            ),
            // Cerebras.
            (
                "x-ratelimit-remaining-requests-day",
                "14",
                "x-ratelimit-reset-requests-day",
                "33.25",
                limit("requests-day", 14.0, Some(33_250)),
            ),
            // OpenRouter.
            (
                "x-ratelimit-remaining",
                "3",
                "x-ratelimit-reset",
                "1795395612500",
                limit("requests", 3.0, Some(12_500)),
            ),
            (
                "ratelimit-remaining",
                "4",
                "ratelimit-reset",
                "50",
                limit("requests", 4.0, Some(50_000)),
            ),
            // Anthropic.
            (
                "anthropic-ratelimit-input-tokens-remaining",
                "29000",
                "anthropic-ratelimit-input-tokens-reset",
                "2026-11-23T01:00:41Z",
                limit("input-tokens", 29_000.0, Some(41_000)),
            ),
            // Mistral does not send a reset time.
            (
                "x-ratelimit-remaining-req-minute",
                "8",
                "x-other",
                "9s",
                limit("req-minute", 8.0, None),
            ),
        ];
        for (remaining, amount, reset, time, expected) in cases {
            let found = limits(&map(&[(remaining, amount), (reset, time)]), now());
            assert_eq!(found, [expected], "{remaining}");
        }
        let none = [("x-ratelimit-limit-requests", "60"), ("x-ratelimit-remaining-x", "many")];
        assert_eq!(limits(&map(&none), now()), []);
    }

    #[test]
    fn limits_of_requests_are_distinguished_from_limits_of_tokens() {
        for (name, expected) in [
            ("requests", true),
            ("req-minute", true),
            ("requests-day", true),
            ("tokens", false),
            ("input-tokens", false),
        ] {
            assert_eq!(limit(name, 1.0, None).counts_requests(), expected, "{name}");
        }
    }

    #[test]
    fn the_rate_limit_headers_of_recorded_responses_are_read() {
        let recordings = Recordings::all();
        let (mut found, mut with_reset) = (0, 0);
        for cassette in recordings.cassettes().unwrap() {
            for exchange in &cassette.exchanges {
                let of_limits = exchange
                    .headers
                    .iter()
                    .filter(|(name, _)| name.contains("ratelimit") && !name.contains("-limit-"));
                let headers: Vec<(&str, &str)> =
                    of_limits.map(|(name, value)| (name.as_str(), value.as_str())).collect();
                let understood = limits(&map(&headers), now());
                let expected = headers.iter().filter(|(name, _)| name.contains("remaining"));
                assert_eq!(understood.len(), expected.count(), "{}", exchange.source);
                let resets = headers.iter().filter(|(name, _)| name.contains("reset")).count();
                let read = understood.iter().filter(|limit| limit.reset.is_some()).count();
                assert_eq!(read, resets, "{}: {headers:?}", exchange.source);
                found += understood.len();
                with_reset += read;
            }
        }
        println!("{found} limits, {with_reset} with their reset");
    }
}
