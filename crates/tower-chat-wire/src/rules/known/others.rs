//! The known services of Gemini, Bedrock Converse, Cohere and Ollama.

use super::{
    ANTHROPIC_TOOLS, CLAUDE_SAME_ID, CLAUDE_THINKING_ELSEWHERE, GEMINI_FUNCTION, GEMINI_SIGNATURES,
    KnownService, no_change, service, unique_ids,
};
use crate::body::BodyWire;

pub(super) const GEMINI: KnownService = service(
    "gemini",
    BodyWire::Gemini,
    &["generativelanguage.googleapis.com"],
    unique_ids,
    GEMINI_SOURCES,
);
pub(super) const VERTEX: KnownService =
    service("vertex", BodyWire::Gemini, &["aiplatform.googleapis.com"], unique_ids, GEMINI_SOURCES);
pub(super) const BEDROCK: KnownService = service(
    "bedrock",
    BodyWire::BedrockConverse,
    &["amazonaws.com"],
    unique_ids,
    &[
        ("tool_names", BEDROCK_TOOL),
        ("call_ids", BEDROCK_CALL),
        ("call_ids", CLAUDE_SAME_ID),
        ("arguments", BEDROCK_CALL),
        ("tool_media", BEDROCK_RESULT),
        ("user_media", BEDROCK_DOCUMENT),
        ("user_media", BEDROCK_MESSAGE),
        ("error_results", ANTHROPIC_TOOLS),
        ("thinking_first", CLAUDE_THINKING_ELSEWHERE),
        ("definitions_with_calls", "https://github.com/vercel/ai/pull/7537"),
        ("user_first", BEDROCK_CONVERSE),
    ],
);
pub(super) const COHERE: KnownService = service(
    "cohere",
    BodyWire::Cohere,
    &["api.cohere.com", "api.cohere.ai"],
    no_change,
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
    no_change,
    &[
        ("arguments", OLLAMA_API),
        ("tool_media", OLLAMA_API),
        ("user_media", OLLAMA_API),
        ("assistant_media", OLLAMA_API),
    ],
);

const BEDROCK_CONVERSE: &str = "https://github.com/langgenius/dify/issues/9294";
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
const COHERE_NAMES: &str = "https://docs.oracle.com/en-us/iaas/tools/python/latest/api/generative_ai_inference/models/oci.generative_ai_inference.models.CohereTool.html";
const OLLAMA_API: &str = "https://github.com/ollama/ollama/blob/main/docs/api.md";
const GEMINI_SOURCES: &[(&str, &str)] = &[
    ("tool_names", GEMINI_FUNCTION),
    ("call_ids", GEMINI_FUNCTION),
    ("call_ids", "https://github.com/oguzbilgic/kern-ai/issues/412"),
    ("arguments", GEMINI_FUNCTION),
    ("tool_media", GEMINI_FUNCTION),
    ("user_media", GEMINI_FILES),
    (
        "user_media",
        "https://docs.cloud.google.com/vertex-ai/docs/generative-ai/image/image-captioning",
    ),
    ("assistant_media", GEMINI_FILES),
    ("foreign_calls", GEMINI_SIGNATURES),
];
