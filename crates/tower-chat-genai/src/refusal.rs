//! How providers say no.

use std::time::Duration;

use http::HeaderMap;
use serde_json::Value;
use tower_chat_wire::stream::named_status;

use crate::GenAiError;

/// The error of a body that came with a status other than success.
pub(crate) fn by_status(status: u16, headers: &HeaderMap, body: &str) -> GenAiError {
    let mut error = in_body(Some(status), body);
    if let GenAiError::Refused { code, retry_after: wait, .. } = &mut error {
        // Bedrock names the error in a header, with more behind a colon.
        let named = headers.get("x-amzn-errortype").and_then(|value| value.to_str().ok());
        let named = named.and_then(|name| name.split(':').next()).map(str::to_owned);
        *code = named.or(code.take());
        *wait = retry_after(headers).or(*wait);
    }
    error
}

/// The error of a body: `{"error": {...}}`, `{"error": "words"}` or `{"message": "words"}`.
pub(crate) fn in_body(status: Option<u16>, body: &str) -> GenAiError {
    let json: Value = serde_json::from_str(body).unwrap_or(Value::Null);
    // Google puts the body into a list where a stream was asked for.
    let json = json.get(0).unwrap_or(&json);
    let error = json.get("error").filter(|error| !error.is_null()).unwrap_or(json);
    let message = ["message", "Message", "msg", "detail"]
        .into_iter()
        .find_map(|field| error.get(field).filter(|message| !message.is_null()))
        .unwrap_or(error);
    let message = match message {
        Value::Null => body.trim().to_owned(),
        message => in_words(message),
    };
    let field = |name| error.get(name).filter(|value: &&Value| !value.is_null()).map(in_words);
    let code = field("status").or_else(|| field("type")).or_else(|| field("code"));
    let status = status.or_else(|| named_status(error)).or_else(|| named_status(json));
    let retry_after = retry_info(error);
    let body = body.to_owned();
    GenAiError::Refused { status, code, message, retry_after, body }
}

fn in_words(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// How long the service asks to wait: `retry-after-ms`, or `retry-after` in seconds.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let number = |name| headers.get(name)?.to_str().ok()?.trim().parse::<f64>().ok();
    let milliseconds = number("retry-after-ms").map(|milliseconds| milliseconds / 1_000.0);
    let seconds = milliseconds.or_else(|| number("retry-after"))?;
    Duration::try_from_secs_f64(seconds).ok()
}

/// Google says it in the body, as `"retryDelay": "34.5s"` of a `google.rpc.RetryInfo`.
fn retry_info(error: &Value) -> Option<Duration> {
    let details = error.get("details")?.as_array()?;
    let delay = details.iter().find_map(|detail| detail.get("retryDelay")?.as_str())?;
    let seconds = delay.strip_suffix('s')?.parse().ok()?;
    Duration::try_from_secs_f64(seconds).ok()
}
