//! Services of Gemini, Bedrock Converse, Cohere and Ollama.

use super::{
    ANTHROPIC_TOOLS, GEMINI_FUNCTION, GEMINI_SIGNATURES, KnownService, nothing, service,
};
use crate::body::BodyWire;

pub(super) const GEMINI: KnownService = service(
    "gemini",
    BodyWire::Gemini,
    &["generativelanguage.googleapis.com"],
    nothing,
    GEMINI_SOURCES,
);
pub(super) const VERTEX: KnownService =
    service("vertex", BodyWire::Gemini, &["aiplatform.googleapis.com"], nothing, GEMINI_SOURCES);
pub(super) const BEDROCK: KnownService = service(
    "bedrock",
    BodyWire::BedrockConverse,
    &["amazonaws.com"],
    nothing,
    &[
        ("tool_names", BEDROCK_TOOL),
        ("call_ids", BEDROCK_CALL),
        ("arguments", BEDROCK_CALL),
        ("tool_media", BEDROCK_RESULT),
        ("user_media", BEDROCK_DOCUMENT),
        ("user_media", BEDROCK_MESSAGE),
        ("error_results", ANTHROPIC_TOOLS),
        ("definitions_with_calls", "https://github.com/vercel/ai/pull/7537"),
    ],
);
pub(super) const COHERE: KnownService = service(
    "cohere",
    BodyWire::Cohere,
    &["api.cohere.com", "api.cohere.ai"],
    nothing,
    &[
        ("tool_names", COHERE_NAMES),
        ("call_ids", COHERE_API),
        ("arguments", COHERE_API),
        ("tool_media", COHERE_API),
        ("user_media", COHERE_API),
    ],
);
pub(super) const OLLAMA: KnownService = service(
    "ollama",
    BodyWire::Ollama,
    &[],
    nothing,
    &[
        ("arguments", OLLAMA_API),
        ("tool_media", OLLAMA_API),
        ("user_media", OLLAMA_API),
        ("assistant_media", OLLAMA_API),
    ],
);

const BEDROCK_TOOL: &str =
    "https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ToolSpecification.html";
const BEDROCK_CALL: &str =
    "https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ToolUseBlock.html";
const BEDROCK_RESULT: &str = "https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ToolResultContentBlock.html";
const BEDROCK_DOCUMENT: &str =
    "https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_DocumentBlock.html";
const BEDROCK_MESSAGE: &str =
    "https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_Message.html";
const GEMINI_FILES: &str = "https://ai.google.dev/gemini-api/docs/file-input-methods";
const COHERE_API: &str = "https://docs.cohere.com/reference/chat";
const COHERE_NAMES: &str = "https://docs.cohere.com/v1/reference/chat";
const OLLAMA_API: &str = "https://github.com/ollama/ollama/blob/main/docs/api.md";
const GEMINI_SOURCES: &[(&str, &str)] = &[
    ("tool_names", GEMINI_FUNCTION),
    ("call_ids", GEMINI_FUNCTION),
    ("arguments", GEMINI_FUNCTION),
    ("tool_media", GEMINI_FUNCTION),
    ("user_media", GEMINI_FILES),
    ("assistant_media", GEMINI_FILES),
    ("foreign_calls", GEMINI_SIGNATURES),
];
