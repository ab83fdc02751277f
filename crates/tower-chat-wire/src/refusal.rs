//! Reads the errors that services report.

use std::time::Duration;

use serde_json::Value;

use crate::{
    AnswerError,
    object::{Object, has_value, text},
};

/// The fields from which the code of an error is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CodeFields {
    /// For OpenAI's and compatible APIs: `code`, or `type` if there is no `code`. The type `error`
    /// is ignored, because it contains no information.
    OpenAi,
    /// For other APIs: the first of `status`, `type` and `code` that the error has. `code` is last,
    /// because Google's `code` repeats the HTTP status.
    Others,
}

/// Returns whether the body of an answer, or an event of a stream, is an error. The HTTP status can
/// be 200, because a service can fail after it has begun a stream.
///
/// `content` is the name of a field that every answer has, with a value that is not a string. If
/// the object has this field, fields such as `detail` and `message` do not make it an error.
///
/// Most services send the error in the field `error`. vLLM and Mistral send
/// `{"object": "error", "message": …}`, and services that use FastAPI send `{"detail": …}`.
pub(crate) fn is_error(fields: &Object, content: &str) -> bool {
    let is_named = |name| text(fields, name).is_some_and(|kind| kind == "error");
    let has_reason = |name| fields.get(name).is_some_and(|it| !is_empty(it.get()));
    let is_text = |name| text(fields, name).is_some_and(|text| !text.is_empty());
    has_failed_at_minimax(fields)
        || has_value(fields, "error")
        || is_named("object")
        || is_named("type")
        || (!has_value(fields, content) || is_text(content))
            && (has_reason("detail")
                || has_reason("errors")
                || is_text("message")
                || is_text("msg"))
}

/// Returns whether the field `base_resp` reports an error. MiniMax reports errors in this field,
/// with the HTTP status 200 (<https://platform.minimax.io/docs/api-reference/errorcode>).
fn has_failed_at_minimax(fields: &Object) -> bool {
    let base = fields.get("base_resp").and_then(|base| base.parse::<Object>().ok());
    let code = base.and_then(|base| base.get("status_code").map(|code| code.get().to_owned()));
    code.is_some_and(|code| code != "0")
}

/// Returns whether a JSON value is `null`, `false` or empty.
fn is_empty(json: &str) -> bool {
    matches!(json, "null" | "\"\"" | "[]" | "{}" | "false")
}

/// Reads the error in a body, such as `{"error": {…}}`, `{"error": "text"}`, `{"message": "text"}`,
/// or a list that begins with one of these. If `status` is `None`, the error gets the status that
/// the body contains, if any.
pub(crate) fn parse(status: Option<u16>, body: &str, fields: CodeFields) -> AnswerError {
    let json: Value = serde_json::from_str(body).unwrap_or(Value::Null);
    // Google and other services send a list with the error if the request requires a stream.
    let json = json.get(0).unwrap_or(&json);
    let of_service = |name| json.get(name).filter(|error: &&Value| !error.is_null());
    let error = of_service("error").or_else(|| of_service("base_resp")).unwrap_or(json);
    let message = ["message", "Message", "msg", "status_msg", "detail", "errors", "error"]
        .into_iter()
        .find_map(|field| error.get(field).or_else(|| json.get(field)).filter(|v| !v.is_null()))
        .unwrap_or(error);
    let message = match message {
        Value::Null => body.trim().to_owned(),
        message => text_or_json(message),
    };
    let field = |name| error.get(name).filter(|value: &&Value| !value.is_null()).map(text_or_json);
    let code = match fields {
        CodeFields::OpenAi => {
            field("code").or_else(|| field("type").filter(|kind| kind != "error"))
        }
        CodeFields::Others => field("status").or_else(|| field("type")).or_else(|| field("code")),
    };
    let status = status.or_else(|| status_in_error(error)).or_else(|| status_in_error(json));
    let retry_after = retry_info(error);
    AnswerError::Refused { status, code, message, retry_after, body: body.to_owned() }
}

fn text_or_json(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Returns the HTTP status in the fields of an error. If an error occurs after the status 200 was
/// sent, services send it in `code` (OpenRouter, Google), `status_code` (Groq) or `status`.
fn status_in_error(error: &Value) -> Option<u16> {
    ["status_code", "code", "status", "http_status"].into_iter().find_map(|name| {
        let status = match error.get(name)? {
            Value::Number(status) => status.as_u64().and_then(|status| status.try_into().ok()),
            Value::String(status) => status.parse().ok(),
            _ => None,
        };
        status.filter(|status| (400..600).contains(status))
    })
}

/// Returns the wait in Google's `google.rpc.RetryInfo`, such as `"retryDelay": "34.5s"`.
fn retry_info(error: &Value) -> Option<Duration> {
    let details = error.get("details")?.as_array()?;
    let delay = details.iter().find_map(|detail| detail.get("retryDelay")?.as_str())?;
    let seconds = delay.strip_suffix('s')?.parse().ok()?;
    Duration::try_from_secs_f64(seconds).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::status_in_error;

    #[test]
    fn the_status_of_an_error_is_read_as_a_number_or_digits_from_one_of_four_fields() {
        assert_eq!(status_in_error(&json!({"message": "no", "status_code": 400})), Some(400));
        let google = json!({"code": "429", "status": "RESOURCE_EXHAUSTED"});
        assert_eq!(status_in_error(&google), Some(429));
        assert_eq!(status_in_error(&json!({"code": "server_error"})), None);
    }
}
