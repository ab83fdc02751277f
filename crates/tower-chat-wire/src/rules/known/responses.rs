//! The known services of Responses.

use super::{
    DEEPSEEK_THINKING, KnownService, OPENAI_FILES, OPENAI_UNIONS, UNIONS_AND_VALUES, XAI_API,
    service, unique_ids,
};
use crate::{
    body::BodyWire,
    rules::{
        service_rules::{MediaKind, MediaRule, ServiceRules, Sources},
        wires::{ATTACHMENTS_AFTER_RESULTS, kind},
    },
};

pub(super) const OPENAI: KnownService = service(
    "openai",
    BodyWire::OpenAiResponses,
    &["api.openai.com"],
    openai_responses,
    OPENAI_RESPONSES_SOURCES,
);
pub(super) const AZURE: KnownService = service(
    "azure",
    BodyWire::OpenAiResponses,
    &["openai.azure.com", "services.ai.azure.com", "cognitiveservices.azure.com"],
    openai_responses,
    OPENAI_RESPONSES_SOURCES,
);
pub(super) const XAI: KnownService = service(
    "xai",
    BodyWire::OpenAiResponses,
    &["api.x.ai"],
    text_results,
    &[("call_ids", OPENAI_RESPONSES_API), ("tool_media", XAI_API)],
);
pub(super) const DEEPSEEK: KnownService = service(
    "deepseek",
    BodyWire::OpenAiResponses,
    &["api.deepseek.com"],
    text_results,
    &[("call_ids", OPENAI_RESPONSES_API), ("tool_media", DEEPSEEK_THINKING)],
);

fn openai_responses(rules: &mut ServiceRules) {
    unique_ids(rules);
    rules.tool_names.max_length = 128;
    rules.refused_in_schemas = UNIONS_AND_VALUES;
    rules.tool_media = MediaRule::accepting(OPENAI_MEDIA);
    rules.user_media = MediaRule::accepting(OPENAI_MEDIA);
}

/// Sets the rules of xAI and DeepSeek, which accept only text in the results of tools.
fn text_results(rules: &mut ServiceRules) {
    unique_ids(rules);
    rules.tool_media = ATTACHMENTS_AFTER_RESULTS;
}

const OPENAI_RESPONSES_API: &str =
    "https://platform.openai.com/docs/api-reference/responses/create";
const OPENAI_RESPONSES_SOURCES: &[(&str, &str)] = &[
    ("tool_names", OPENAI_RESPONSES_API),
    ("call_ids", OPENAI_RESPONSES_API),
    ("arguments", OPENAI_RESPONSES_API),
    ("tool_media", OPENAI_RESPONSES_API),
    ("user_media", OPENAI_FILES),
    ("refused_in_schemas", OPENAI_UNIONS),
];

/// The types of media that OpenAI accepts. Audio and video are accepted only as files that OpenAI
/// stores.
const OPENAI_MEDIA: &[MediaKind] = &[
    kind("image/png", Sources::Any),
    kind("image/jpeg", Sources::Any),
    kind("image/gif", Sources::Any),
    kind("image/webp", Sources::Any),
    kind("application/*", Sources::Any),
    kind("text/*", Sources::Any),
    kind("*/*", Sources::File),
];
