//! What an error inside an answer says.

use serde_json::Value;

/// The HTTP status that the fields of an error name, as a number or as digits: services whose answer
/// has begun with the status 200 put the real one into `code` (OpenRouter, Google), `status_code`
/// (Groq) or `status`.
///
/// ```
/// use serde_json::json;
/// use tower_chat_wire::stream::named_status;
/// assert_eq!(named_status(&json!({"message": "no", "status_code": 400})), Some(400));
/// assert_eq!(named_status(&json!({"code": "429", "status": "RESOURCE_EXHAUSTED"})), Some(429));
/// assert_eq!(named_status(&json!({"code": "server_error"})), None);
/// ```
pub fn named_status(error: &Value) -> Option<u16> {
    ["status_code", "code", "status", "http_status"].into_iter().find_map(|name| {
        let status = match error.get(name)? {
            Value::Number(status) => status.as_u64().and_then(|status| status.try_into().ok()),
            Value::String(status) => status.parse().ok(),
            _ => None,
        };
        status.filter(|status| (400..600).contains(status))
    })
}
