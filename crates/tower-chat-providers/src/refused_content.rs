//! Determines whether a service has refused a request because of the content of its messages.

use std::sync::Arc;

use serde_json::Value;
use tower_chat_core::{ContentKind, ContentRefused};

use crate::error::Refusal;

/// Texts, in lower case, in the codes and messages of errors whose cause is not the messages, but
/// the model, an option, a schema or the account. From errors of OpenAI, Azure, Anthropic, Gemini,
/// Bedrock and Mistral.
const OTHER_REASONS: [&str; 38] = [
    "anthropic-beta",
    "anthropic_version",
    "api key",
    "api_key",
    "authentication",
    "billing",
    "credit balance",
    "extra inputs are not permitted",
    "function_declarations",
    "functiondeclarations",
    "generation_config",
    "generationconfig",
    "invalid model",
    "invalid_function_parameters",
    "max_completion_tokens",
    "max_output_tokens",
    "max_tokens",
    "missing_required_parameter",
    "model identifier is invalid",
    "model_not_found",
    "no such model",
    "not a valid model",
    "previous_response",
    "quota",
    "response_format",
    "schema",
    "temperature",
    "tool_choice",
    "toolconfig",
    "tools.",
    "tools[",
    "top_p",
    "unknown model",
    "unknown parameter",
    "unknown_parameter",
    "unrecognized request argument",
    "unsupported parameter",
    "unsupported_parameter",
];

/// Texts, in lower case, in errors about an unknown model, which also contain the word "model".
const UNKNOWN_MODEL: [&str; 4] = ["does not exist", "not found", "not exist", "not available"];

/// Texts, in lower case, in errors of a content filter that has refused a text.
const CONTENT_FILTER: [&str; 6] = [
    "content_filter",
    "content_policy",
    "content management policy",
    "content policy",
    "data_inspection_failed",
    "responsibleaipolicyviolation",
];

/// The beginnings of the parameter names in OpenAI's errors about messages.
const MESSAGE_PARAMETERS: [&str; 4] = ["messages", "input", "contents", "prompt"];

/// Returns a [`ContentRefused`] if the content of the messages may be the cause of a refusal, with
/// the kind of content if the refusal names it. This is possible if the refusal has the status 400,
/// 413 or 422, or no status and a permanent cause, and does not name another cause.
pub(crate) fn content_refused(refusal: &Refusal, issuer: &Arc<str>) -> Option<ContentRefused> {
    let may_be_content = match refusal.status {
        Some(status) => matches!(status, 400 | 413 | 422),
        None => !refusal.is_retryable(),
    };
    let code = refusal.code.as_deref().unwrap_or_default();
    let text = format!("{code} {}", refusal.message).to_ascii_lowercase();
    if !may_be_content || blames_something_else(&text, &refusal.body) {
        return None;
    }
    let refused = ContentRefused::by(issuer.clone());
    Some(match named_kind(&text) {
        Some(kind) => refused.naming(kind),
        None => refused,
    })
}

/// Returns whether a refusal names another cause than the messages. `text` is its code and its
/// message in lower case, and `body` the error as the service sent it.
fn blames_something_else(text: &str, body: &str) -> bool {
    let has_one_of = |parts: &[&str]| parts.iter().any(|part| text.contains(part));
    let is_of_messages =
        |param: &str| MESSAGE_PARAMETERS.iter().any(|start| param.starts_with(start));
    has_one_of(&OTHER_REASONS)
        || (text.contains("model") && has_one_of(&UNKNOWN_MODEL))
        || parameter(body).is_some_and(|param| !is_of_messages(&param))
}

/// Returns the parameter that an error of OpenAI or of a compatible service names in `param`.
fn parameter(body: &str) -> Option<String> {
    let body: Value = serde_json::from_str(body).ok()?;
    let param = body.get("error").unwrap_or(&body).get("param")?.as_str()?;
    (!param.is_empty()).then(|| param.to_owned())
}

/// Returns the first kind of content that an error names. `text` must be in lower case.
fn named_kind(text: &str) -> Option<ContentKind> {
    if CONTENT_FILTER.iter().any(|part| text.contains(part)) {
        return Some(ContentKind::Text);
    }
    text.split(|symbol: char| !symbol.is_ascii_alphanumeric()).find_map(|word| match word {
        "image" | "images" | "picture" | "pictures" => Some(ContentKind::Image),
        "audio" | "sound" => Some(ContentKind::Audio),
        "video" | "videos" => Some(ContentKind::Video),
        "document" | "documents" | "file" | "files" | "pdf" => Some(ContentKind::Document),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(
        status: Option<u16>,
        code: &str,
        message: &str,
        body: &str,
    ) -> Option<ContentRefused> {
        let refusal = Refusal {
            status,
            code: Some(code.to_owned()),
            message: message.to_owned(),
            body: body.to_owned(),
            ..Refusal::default()
        };
        content_refused(&refusal, &"s".into())
    }

    #[test]
    fn an_error_is_refused_content_if_it_names_content_and_no_other_cause() {
        use ContentKind::{Audio, Document, Image, Text, Video};
        let invalid = "invalid_request_error";
        for (status, code, message, expected) in [
            (400, invalid, "Could not process image", Some(Some(Image))),
            (
                400,
                invalid,
                "messages.5.content.1.image.source.base64: too large",
                Some(Some(Image)),
            ),
            (400, "invalid_image_url", "Error while downloading.", Some(Some(Image))),
            (400, invalid, "The PDF specified was not valid.", Some(Some(Document))),
            (400, "INVALID_ARGUMENT", "The input audio is corrupt", Some(Some(Audio))),
            (422, "", "Unsupported video codec", Some(Some(Video))),
            (400, "content_filter", "The response was filtered", Some(Some(Text))),
            (400, "ValidationException", "The model returned the following errors", Some(None)),
            (413, "request_too_large", "Request exceeds the maximum size", Some(None)),
            (422, "", "Input should be a valid string", Some(None)),
            (400, "context_length_exceeded", "The maximum is 8192 tokens.", Some(None)),
            (400, "model_not_found", "The model `gpt-image-9` does not exist", None),
            (400, "INVALID_ARGUMENT", "models/vision is not found for API version v1", None),
            (400, "invalid_function_parameters", "Invalid schema for function 'make_image'", None),
            (400, "INVALID_ARGUMENT", "GenerateContentRequest.tools[0].function: bad", None),
            (400, invalid, "temperature: range: 0..1", None),
            (400, invalid, "Your credit balance is too low", None),
            (401, invalid, "Could not process image", None),
            (429, "rate_limit_error", "too many images", None),
            (500, "api_error", "Could not process image", None),
        ] {
            let found = refused(Some(status), code, message, "").map(|refused| refused.named);
            assert_eq!(found, expected, "{status} {code} {message}");
        }
    }

    #[test]
    fn an_error_about_a_parameter_outside_the_messages_is_not_refused_content() {
        for (param, expected) in [
            ("messages[3].content[1].image_url", true),
            ("input[2]", true),
            ("model", false),
            ("reasoning.effort", false),
            ("", true),
        ] {
            let body = format!(r#"{{"error": {{"message": "bad", "param": {param:?}}}}}"#);
            let found = refused(Some(400), "invalid_value", "bad", &body);
            assert_eq!(found.is_some(), expected, "{param}");
        }
    }

    #[test]
    fn an_error_without_a_status_is_refused_content_if_it_names_content() {
        assert!(refused(None, "invalid_request_error", "Could not process image", "").is_some());
        assert!(refused(None, "overloaded_error", "Overloaded", "").is_none());
    }
}
