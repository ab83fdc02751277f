//! What the headers of a refusal say.

use std::time::Duration;

use http::HeaderMap;
use tower_chat_wire::body::BodyWire;

use crate::GenAiError;

/// The error of an answer with a status other than success.
pub(crate) fn by_status(
    wire: BodyWire,
    status: u16,
    headers: &HeaderMap,
    body: &str,
) -> GenAiError {
    let mut error = wire.parse_error(status, body).into();
    if let GenAiError::Refused { code, retry_after: wait, .. } = &mut error {
        // Bedrock names the error in a header, with more behind a colon.
        let named = headers.get("x-amzn-errortype").and_then(|value| value.to_str().ok());
        let named = named.and_then(|name| name.split(':').next()).map(str::to_owned);
        *code = named.or(code.take());
        *wait = retry_after(headers).or(*wait);
    }
    error
}

/// How long the service asks to wait: `retry-after-ms`, or `retry-after` in seconds.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let number = |name| headers.get(name)?.to_str().ok()?.trim().parse::<f64>().ok();
    let milliseconds = number("retry-after-ms").map(|milliseconds| milliseconds / 1_000.0);
    let seconds = milliseconds.or_else(|| number("retry-after"))?;
    Duration::try_from_secs_f64(seconds).ok()
}
