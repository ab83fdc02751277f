//! Reads the wait before the next attempt from the headers of a response.

use std::time::{Duration, SystemTime};

use http::HeaderMap;

/// Returns the wait before the next attempt, from the headers of a refusal. The first of these
/// values that the headers contain is used:
///
/// 1. `retry-after-ms`;
/// 2. `retry-after` (RFC 9110, section 10.2.3: seconds or a date);
/// 3. the reset time of the exhausted rate limit that is reset last;
/// 4. the reset time of the rate limit that is reset first, if no rate limit is exhausted.
pub(crate) fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    explicit_retry_after(headers, now).or_else(|| reset_after(headers, now))
}

/// Returns the wait from `retry-after-ms`, or else from `retry-after`.
pub(crate) fn explicit_retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let millis = header_text(headers, "retry-after-ms").and_then(|text| seconds(text, 1_000.0));
    millis.or_else(|| {
        let text = header_text(headers, "retry-after")?;
        seconds(text, 1.0).or_else(|| time_until(httpdate::parse_http_date(text).ok()?, now))
    })
}

/// Returns the longest time until an exhausted rate limit is reset. If no rate limit is exhausted,
/// returns the shortest time until a rate limit is reset.
fn reset_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let (mut exhausted, mut others) = (None, None);
    for name in headers.keys() {
        let name = name.as_str();
        let Some(limit) = rate_limit(name) else { continue };
        let Some(wait) = header_text(headers, name).and_then(|text| time_until_reset(text, now))
        else {
            continue;
        };
        let remaining =
            header_text(headers, &limit.remaining).and_then(|text| text.parse::<f64>().ok());
        if remaining.is_some_and(|remaining| remaining <= 0.0) {
            exhausted = exhausted.max(Some(wait));
        } else {
            others = Some(others.map_or(wait, |other: Duration| other.min(wait)));
        }
    }
    exhausted.or(others)
}

/// A rate limit that is reported in the headers.
struct RateLimit {
    /// The name of the header with the remaining amount of the limit.
    remaining: String,
}

/// Returns the rate limit whose reset time is in the header `name`: `x-ratelimit-reset-requests`
/// and similar names (OpenAI, Groq, Azure), `x-ratelimit-reset` (OpenRouter), or
/// `anthropic-ratelimit-requests-reset` and similar names. Returns `None` for any other header.
fn rate_limit(name: &str) -> Option<RateLimit> {
    let remaining = if let Some(rest) = name.strip_prefix("anthropic-ratelimit-") {
        format!("anthropic-ratelimit-{}-remaining", rest.strip_suffix("-reset")?)
    } else {
        let rest = name.strip_prefix("x-ratelimit-reset")?;
        format!("x-ratelimit-remaining{rest}")
    };
    Some(RateLimit { remaining })
}

/// Returns the time until a reset. `text` is a duration (`1s`, `6m0s`, `88ms`), a number of
/// seconds, a Unix time in seconds or milliseconds, or a time in the format of RFC 3339. Returns
/// `None` for any other text.
pub(crate) fn time_until_reset(text: &str, now: SystemTime) -> Option<Duration> {
    /// The smallest number that is a Unix time in seconds (September 2001). A smaller number is a
    /// duration in seconds.
    const MIN_UNIX_SECONDS: f64 = 1e9;
    /// The smallest number that is a Unix time in milliseconds (September 2001).
    const MIN_UNIX_MILLISECONDS: f64 = 1e12;
    if let Ok(number) = text.parse::<f64>() {
        let point = match number {
            number if number >= MIN_UNIX_MILLISECONDS => number / 1_000.0,
            number if number >= MIN_UNIX_SECONDS => number,
            number => return Duration::try_from_secs_f64(number).ok(),
        };
        let since_epoch = Duration::try_from_secs_f64(point).ok()?;
        return time_until(SystemTime::UNIX_EPOCH.checked_add(since_epoch)?, now);
    }
    if let Ok(point) = text.parse::<jiff::Timestamp>() {
        return time_until(point.into(), now);
    }
    text.parse::<jiff::SignedDuration>().ok()?.try_into().ok()
}

/// Returns the time from `now` until a point in time, or zero if the point has passed.
fn time_until(point: SystemTime, now: SystemTime) -> Option<Duration> {
    Some(point.duration_since(now).unwrap_or_default())
}

/// Parses a number as a duration. `per_second` is the number of the units in one second.
fn seconds(text: &str, per_second: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(text.parse::<f64>().ok()? / per_second).ok()
}

/// Returns the value of a header without surrounding white space, if it is visible ASCII.
pub(crate) fn header_text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok().map(str::trim)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    /// The time 2026-11-23T01:00:00Z, in seconds since 1970.
    const NOW: u64 = 1_795_395_600;

    fn wait(headers: &[(&'static str, &str)]) -> Option<Duration> {
        let headers = headers.iter().map(|(name, value)| {
            (http::HeaderName::from_static(name), http::HeaderValue::from_str(value).unwrap())
        });
        retry_after(&headers.collect(), SystemTime::UNIX_EPOCH + Duration::from_secs(NOW))
    }

    fn millis(millis: u64) -> Option<Duration> {
        Some(Duration::from_millis(millis))
    }

    #[test]
    fn the_time_to_wait_is_read_in_seconds_in_milliseconds_or_as_a_date() {
        assert_eq!(wait(&[("retry-after", "7")]), millis(7_000));
        assert_eq!(wait(&[("retry-after", "0.25")]), millis(250));
        assert_eq!(wait(&[("retry-after-ms", "1250"), ("retry-after", "2")]), millis(1_250));
        assert_eq!(wait(&[("retry-after", "Mon, 23 Nov 2026 01:00:30 GMT")]), millis(30_000));
        assert_eq!(wait(&[("retry-after", "Mon, 23 Nov 2026 00:00:30 GMT")]), millis(0));
        for nonsense in ["soon", "-3", "NaN", "", "1e400"] {
            assert_eq!(wait(&[("retry-after", nonsense)]), None, "{nonsense}");
        }
    }

    #[test]
    fn the_reset_of_a_rate_limit_is_read_in_every_form() {
        let reset = |value: &str| wait(&[("x-ratelimit-reset-requests", value)]);
        assert_eq!(reset("6m0s"), millis(360_000));
        assert_eq!(reset("88ms"), millis(88));
        assert_eq!(reset("7.66s"), millis(7_660));
        assert_eq!(reset("1h2m3s"), millis(3_723_000));
        assert_eq!(reset("1.5"), millis(1_500));
        assert_eq!(wait(&[("x-ratelimit-reset", "1795395612")]), millis(12_000));
        assert_eq!(wait(&[("x-ratelimit-reset", "1795395613500")]), millis(13_500));
        let anthropic = wait(&[("anthropic-ratelimit-tokens-reset", "2026-11-23T01:00:41Z")]);
        assert_eq!(anthropic, millis(41_000));
        assert_eq!(reset("at noon"), None);
    }

    #[test]
    fn the_wait_ends_at_the_latest_reset_of_the_exhausted_limits() {
        let requests = ("x-ratelimit-reset-requests", "23h");
        let tokens = ("x-ratelimit-reset-tokens", "9s");
        let images = ("x-ratelimit-reset-images", "4s");
        let left = ("x-ratelimit-remaining-requests", "900");
        let none = ("x-ratelimit-remaining-tokens", "0");
        let no_images = ("x-ratelimit-remaining-images", "0");
        assert_eq!(wait(&[requests, left, tokens, none, images, no_images]), millis(9_000));
        assert_eq!(wait(&[requests, left, tokens]), millis(9_000));
        assert_eq!(wait(&[requests, tokens, ("retry-after", "2")]), millis(2_000));
    }
}
