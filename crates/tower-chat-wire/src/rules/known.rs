//! The rules of known services, and where each is documented.

use super::service_rules::{
    ArgumentRule, EmptyRule, ForeignRule, IdForm, IdRule, MediaKind, MediaRule, NameRule,
    Otherwise, ReasoningRule, ResultRule, ServiceRules, Sources, Unique,
};
use crate::body::BodyWire;

/// A service whose rules are known.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct KnownService {
    /// Its name, which is also that of its [provider](ServiceRules::choose) and its
    /// [issuer](ServiceRules::issuer).
    pub name: &'static str,
    /// The wire that these rules are about. A service with several wires is in the list several times.
    pub wire: BodyWire,
    /// The hosts of its addresses, and of those beneath them.
    pub hosts: &'static [&'static str],
    /// What its rules are, beyond those of any service of the wire.
    change: fn(&mut ServiceRules),
    /// The field of [`ServiceRules`] that a source is about, and the source.
    pub sources: &'static [(&'static str, &'static str)],
}

impl KnownService {
    /// Its rules, whatever the model is.
    pub fn rules(&self) -> ServiceRules {
        let mut rules = ServiceRules::unknown(self.wire, self.name);
        (self.change)(&mut rules);
        rules
    }
}

const fn kind(media_type: &'static str, sources: Sources) -> MediaKind {
    MediaKind { media_type, sources }
}

const ANYTHING: &[MediaKind] = &[kind("*/*", Sources::Any)];
const IMAGES: &[MediaKind] = &[kind("image/*", Sources::BytesOrUrl)];
const IMAGE_BYTES: &[MediaKind] = &[kind("image/*", Sources::Bytes)];
const OPENAI_CHAT: &[MediaKind] = &[
    kind("image/png", Sources::BytesOrUrl),
    kind("image/jpeg", Sources::BytesOrUrl),
    kind("image/gif", Sources::BytesOrUrl),
    kind("image/webp", Sources::BytesOrUrl),
    kind("audio/wav", Sources::Bytes),
    kind("audio/mpeg", Sources::Bytes),
    kind("audio/mp3", Sources::Bytes),
    kind("application/pdf", Sources::Bytes),
    kind("*/*", Sources::File),
];
const RESPONSES_RESULTS: &[MediaKind] = &[
    kind("image/*", Sources::Any),
    kind("application/*", Sources::Any),
    kind("text/*", Sources::Any),
];
const ANTHROPIC: &[MediaKind] = &[
    kind("image/png", Sources::Any),
    kind("image/jpeg", Sources::Any),
    kind("image/gif", Sources::Any),
    kind("image/webp", Sources::Any),
    kind("application/pdf", Sources::Any),
    kind("*/*", Sources::File),
];
const BEDROCK: &[MediaKind] = &[
    kind("image/png", Sources::Bytes),
    kind("image/jpeg", Sources::Bytes),
    kind("image/gif", Sources::Bytes),
    kind("image/webp", Sources::Bytes),
    kind("application/pdf", Sources::Bytes),
    kind("text/csv", Sources::Bytes),
    kind("application/msword", Sources::Bytes),
    kind("application/vnd.openxmlformats-officedocument.wordprocessingml.document", Sources::Bytes),
    kind("application/vnd.ms-excel", Sources::Bytes),
    kind("application/vnd.openxmlformats-officedocument.spreadsheetml.sheet", Sources::Bytes),
    kind("text/html", Sources::Bytes),
    kind("text/plain", Sources::Bytes),
    kind("text/markdown", Sources::Bytes),
];
const GEMINI: &[MediaKind] = &[
    kind("image/*", Sources::Any),
    kind("audio/*", Sources::Any),
    kind("video/*", Sources::Any),
    kind("text/*", Sources::Any),
    kind("application/pdf", Sources::Any),
    kind("application/octet-stream", Sources::File),
];

const WORDS: NameRule = NameRule { also: "", begins_with_letter: false, longest: 64 };
const WORD_IDS: IdRule =
    IdRule { form: IdForm::Word, longest: 64, unique: Unique::Answer, required: true };
const ANY_IDS: IdRule =
    IdRule { form: IdForm::Any, longest: usize::MAX, unique: Unique::Answer, required: false };
const BEHIND: MediaRule = MediaRule { otherwise: Otherwise::Behind, ..MediaRule::NONE };

impl ServiceRules {
    /// The rules of a service of the wire that is not known: it receives its own native items alone, names
    /// and ids consist of 1 to 64 ASCII letters, digits, `_` and `-`, and nothing is added.
    pub fn unknown(wire: BodyWire, issuer: &str) -> Self {
        let rules = Self {
            wire,
            issuer: issuer.into(),
            tool_names: WORDS,
            call_ids: WORD_IDS,
            arguments: ArgumentRule::Object,
            tool_media: BEHIND,
            user_media: MediaRule::of(ANYTHING),
            assistant_media: false,
            error_results: ResultRule::Any,
            own_reasoning: ReasoningRule::Sent,
            reasoning_fields: None,
            foreign_calls: ForeignRule::Nothing,
            hosted_ids: &[],
            definitions_with_calls: false,
            empty_assistant: EmptyRule::AsStored,
            answer_after_results: false,
        };
        match wire {
            BodyWire::OpenAiChat => rules,
            BodyWire::OpenAiResponses => {
                Self { tool_media: MediaRule::of(RESPONSES_RESULTS), ..rules }
            }
            BodyWire::Anthropic => Self {
                call_ids: IdRule { longest: 256, ..WORD_IDS },
                tool_media: MediaRule::of(ANTHROPIC),
                user_media: MediaRule::of(ANTHROPIC),
                error_results: ResultRule::TextOnly,
                ..rules
            },
            BodyWire::Gemini => Self {
                tool_names: NameRule { also: ".:", begins_with_letter: true, ..WORDS },
                call_ids: ANY_IDS,
                tool_media: MediaRule::of(GEMINI),
                user_media: MediaRule::of(GEMINI),
                assistant_media: true,
                ..rules
            },
            BodyWire::BedrockConverse => {
                let media = MediaRule {
                    most_images: Some(20),
                    most_documents: Some(5),
                    named_documents: true,
                    ..MediaRule::of(BEDROCK)
                };
                Self {
                    tool_media: media,
                    user_media: media,
                    error_results: ResultRule::TextOnly,
                    definitions_with_calls: true,
                    ..rules
                }
            }
            BodyWire::Cohere => Self {
                tool_names: NameRule { begins_with_letter: true, ..WORDS },
                call_ids: IdRule { required: true, ..ANY_IDS },
                tool_media: MediaRule::NONE,
                user_media: MediaRule::of(IMAGES),
                ..rules
            },
            BodyWire::Ollama => Self {
                call_ids: ANY_IDS,
                tool_media: MediaRule::of(IMAGE_BYTES),
                user_media: MediaRule::of(IMAGE_BYTES),
                assistant_media: true,
                ..rules
            },
        }
    }

    /// The rules of a [known](KNOWN) service on a wire, whatever the model is.
    pub fn named(wire: BodyWire, name: &str) -> Option<Self> {
        let known = KNOWN.iter().find(|known| known.wire == wire && known.name == name);
        known.map(KnownService::rules)
    }
}

fn unique_ids(rules: &mut ServiceRules) {
    rules.call_ids.unique = Unique::Request;
}

fn strict_chat(rules: &mut ServiceRules) {
    unique_ids(rules);
    rules.empty_assistant = EmptyRule::LeaveOut;
}

fn openai_chat(rules: &mut ServiceRules) {
    strict_chat(rules);
    rules.call_ids.longest = 40;
    rules.user_media = MediaRule::of(OPENAI_CHAT);
}

fn openai_responses(rules: &mut ServiceRules) {
    unique_ids(rules);
    rules.tool_names.longest = 128;
}

/// Results of xAI and DeepSeek are texts.
fn text_results(rules: &mut ServiceRules) {
    unique_ids(rules);
    rules.tool_media = BEHIND;
}

fn claude(rules: &mut ServiceRules) {
    rules.issuer = "anthropic".into();
    rules.hosted_ids = &[("server_tool_use", "srvtoolu_"), ("mcp_tool_use", "mcptoolu_")];
}

fn deepseek(rules: &mut ServiceRules) {
    strict_chat(rules);
    rules.user_media = MediaRule::NONE;
    rules.own_reasoning = ReasoningRule::Required;
    rules.foreign_calls = ForeignRule::EmptyReasoning("reasoning_content");
}

fn mistral(rules: &mut ServiceRules) {
    strict_chat(rules);
    rules.call_ids = IdRule { form: IdForm::Nine, longest: 9, ..rules.call_ids };
    rules.user_media = MediaRule::of(IMAGES);
    rules.reasoning_fields = Some(&[]);
    rules.answer_after_results = true;
}

fn groq(rules: &mut ServiceRules) {
    strict_chat(rules);
    rules.user_media = MediaRule::of(IMAGES);
    rules.reasoning_fields = Some(&["reasoning"]);
}

fn xai(rules: &mut ServiceRules) {
    strict_chat(rules);
    rules.user_media = MediaRule::of(IMAGES);
}

fn without_reasoning_fields(rules: &mut ServiceRules) {
    strict_chat(rules);
    rules.reasoning_fields = Some(&[]);
}

fn openrouter(rules: &mut ServiceRules) {
    strict_chat(rules);
    rules.call_ids.longest = 40;
}

fn reads_result_images(rules: &mut ServiceRules) {
    rules.tool_media = MediaRule { otherwise: Otherwise::Behind, ..MediaRule::of(IMAGES) };
}

fn gemini_chat(rules: &mut ServiceRules) {
    strict_chat(rules);
    rules.tool_names.begins_with_letter = true;
}

fn nothing(_: &mut ServiceRules) {}

const OPENAI_CHAT_API: &str = "https://platform.openai.com/docs/api-reference/chat/create";
const OPENAI_CHAT_TYPES: &str = "openai-python, types/chat/chat_completion_tool_message_param.py";
const OPENAI_RESPONSES_API: &str =
    "https://platform.openai.com/docs/api-reference/responses/create";
const OPENAI_FILES: &str = "https://developers.openai.com/api/docs/guides/file-inputs";
const OPENAI_LONG_ID: &str = "https://github.com/agno-agi/agno/issues/5382";
const OPENAI_SAME_ID: &str = "https://github.com/agno-agi/agno/issues/5116";
const ANTHROPIC_TOOLS: &str =
    "https://docs.claude.com/en/docs/agents-and-tools/tool-use/implement-tool-use";
const ANTHROPIC_API: &str = "https://docs.claude.com/en/api/messages";
const ANTHROPIC_TYPES: &str = "anthropic-sdk-python, types/tool_result_block_param.py";
const BEDROCK_TOOL: &str =
    "https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ToolSpecification.html";
const BEDROCK_CALL: &str =
    "https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ToolUseBlock.html";
const BEDROCK_RESULT: &str = "https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ToolResultContentBlock.html";
const BEDROCK_DOCUMENT: &str =
    "https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_DocumentBlock.html";
const BEDROCK_MESSAGE: &str =
    "https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_Message.html";
const GEMINI_FUNCTION: &str = "https://ai.google.dev/api/caching#FunctionDeclaration";
const GEMINI_SIGNATURES: &str = "https://ai.google.dev/gemini-api/docs/thought-signatures";
const GEMINI_FILES: &str = "https://ai.google.dev/gemini-api/docs/file-input-methods";
const DEEPSEEK_THINKING: &str = "https://api-docs.deepseek.com/guides/thinking_mode";
const MISTRAL_TYPES: &str = "mistralai, models/assistantmessage.py and toolmessage.py";
const MISTRAL_IDS: &str = "https://github.com/langchain-ai/langchain/pull/24668";
const MISTRAL_ORDER: &str = "https://github.com/mistralai/mistral-vibe/issues/578";
const MISTRAL_SAME_ID: &str = "https://github.com/NousResearch/hermes-agent/pull/11722";
const GROQ_FIELD: &str = "https://github.com/janhq/jan/issues/8136";
const GROQ_TYPES: &str = "groq-python, types/chat/chat_completion_assistant_message_param.py";
const CEREBRAS_FIELD: &str = "https://github.com/Kilo-Org/kilocode/issues/10375";
const XAI_API: &str = "https://docs.x.ai/docs/api-reference";
const OPENROUTER_REASONING: &str = "https://openrouter.ai/docs/use-cases/reasoning-tokens";
const OPENROUTER_LONG_ID: &str = "https://github.com/openclaw/openclaw/pull/875";
const COHERE_API: &str = "https://docs.cohere.com/reference/chat";
const COHERE_NAMES: &str = "https://docs.cohere.com/v1/reference/chat";
const OLLAMA_API: &str = "https://github.com/ollama/ollama/blob/main/docs/api.md";
const OLLAMA_OPENAI: &str = "https://github.com/ollama/ollama/blob/main/openai/openai.go";
const LLAMA_SERVER: &str = "https://github.com/ggml-org/llama.cpp/tree/master/tools/server";
const VLLM_SERVER: &str =
    "https://github.com/vllm-project/vllm/blob/main/vllm/entrypoints/chat_utils.py";

const OPENAI_CHAT_SOURCES: &[(&str, &str)] = &[
    ("tool_names", OPENAI_CHAT_API),
    ("call_ids", OPENAI_LONG_ID),
    ("call_ids", OPENAI_SAME_ID),
    ("arguments", OPENAI_CHAT_API),
    ("tool_media", OPENAI_CHAT_TYPES),
    ("user_media", OPENAI_FILES),
    ("empty_assistant", OPENAI_CHAT_API),
];
const OPENAI_RESPONSES_SOURCES: &[(&str, &str)] = &[
    ("tool_names", OPENAI_RESPONSES_API),
    ("call_ids", OPENAI_RESPONSES_API),
    ("arguments", OPENAI_RESPONSES_API),
    ("tool_media", OPENAI_RESPONSES_API),
    ("user_media", OPENAI_FILES),
];
const CLAUDE_SOURCES: &[(&str, &str)] = &[
    ("tool_names", ANTHROPIC_TOOLS),
    ("call_ids", ANTHROPIC_API),
    ("arguments", ANTHROPIC_API),
    ("tool_media", ANTHROPIC_TYPES),
    ("user_media", ANTHROPIC_API),
    ("error_results", ANTHROPIC_TOOLS),
    ("hosted_ids", ANTHROPIC_API),
];
const GEMINI_SOURCES: &[(&str, &str)] = &[
    ("tool_names", GEMINI_FUNCTION),
    ("call_ids", GEMINI_FUNCTION),
    ("arguments", GEMINI_FUNCTION),
    ("tool_media", GEMINI_FUNCTION),
    ("user_media", GEMINI_FILES),
    ("assistant_media", GEMINI_FILES),
    ("foreign_calls", GEMINI_SIGNATURES),
];

/// A service of this name on this wire.
const fn service(
    name: &'static str,
    wire: BodyWire,
    hosts: &'static [&'static str],
    change: fn(&mut ServiceRules),
    sources: &'static [(&'static str, &'static str)],
) -> KnownService {
    KnownService { name, wire, hosts, change, sources }
}

/// The services whose rules are known.
///
/// ```
/// use tower_chat_wire::rules::KNOWN;
/// let deepseek = KNOWN.iter().find(|service| service.name == "deepseek").expect("a known service");
/// assert!(deepseek.sources.iter().any(|(field, _)| *field == "foreign_calls"));
/// ```
pub const KNOWN: &[KnownService] = &[
    service("openai", BodyWire::OpenAiChat, &["api.openai.com"], openai_chat, OPENAI_CHAT_SOURCES),
    service(
        "azure",
        BodyWire::OpenAiChat,
        &["openai.azure.com", "services.ai.azure.com", "cognitiveservices.azure.com"],
        openai_chat,
        OPENAI_CHAT_SOURCES,
    ),
    service(
        "openrouter",
        BodyWire::OpenAiChat,
        &["openrouter.ai"],
        openrouter,
        &[
            ("call_ids", OPENROUTER_LONG_ID),
            ("own_reasoning", OPENROUTER_REASONING),
            ("empty_assistant", OPENAI_CHAT_API),
        ],
    ),
    service(
        "deepseek",
        BodyWire::OpenAiChat,
        &["api.deepseek.com"],
        deepseek,
        &[
            ("call_ids", "https://github.com/HKUDS/nanobot/issues/3945"),
            ("user_media", "https://api-docs.deepseek.com/api/create-chat-completion"),
            ("own_reasoning", DEEPSEEK_THINKING),
            ("foreign_calls", "https://github.com/anomalyco/opencode/issues/17523"),
            ("empty_assistant", "https://api-docs.deepseek.com/api/create-chat-completion"),
        ],
    ),
    service(
        "mistral",
        BodyWire::OpenAiChat,
        &["mistral.ai"],
        mistral,
        &[
            ("call_ids", MISTRAL_IDS),
            ("call_ids", MISTRAL_SAME_ID),
            ("user_media", MISTRAL_TYPES),
            ("reasoning_fields", MISTRAL_TYPES),
            ("empty_assistant", MISTRAL_TYPES),
            ("answer_after_results", MISTRAL_ORDER),
        ],
    ),
    service(
        "groq",
        BodyWire::OpenAiChat,
        &["api.groq.com"],
        groq,
        &[
            ("call_ids", OPENAI_SAME_ID),
            ("user_media", "https://console.groq.com/docs/vision"),
            ("reasoning_fields", GROQ_FIELD),
            ("reasoning_fields", GROQ_TYPES),
            ("empty_assistant", GROQ_TYPES),
        ],
    ),
    service(
        "xai",
        BodyWire::OpenAiChat,
        &["api.x.ai"],
        xai,
        &[("call_ids", OPENAI_SAME_ID), ("user_media", XAI_API), ("empty_assistant", XAI_API)],
    ),
    service(
        "fireworks",
        BodyWire::OpenAiChat,
        &["api.fireworks.ai"],
        strict_chat,
        &[("call_ids", MISTRAL_SAME_ID), ("empty_assistant", OPENAI_CHAT_API)],
    ),
    service(
        "together",
        BodyWire::OpenAiChat,
        &["api.together.xyz", "api.together.ai"],
        strict_chat,
        &[("call_ids", OPENAI_SAME_ID), ("empty_assistant", OPENAI_CHAT_API)],
    ),
    service(
        "cerebras",
        BodyWire::OpenAiChat,
        &["api.cerebras.ai"],
        without_reasoning_fields,
        &[
            ("call_ids", OPENAI_SAME_ID),
            ("reasoning_fields", CEREBRAS_FIELD),
            ("empty_assistant", OPENAI_CHAT_API),
        ],
    ),
    service(
        "gemini",
        BodyWire::OpenAiChat,
        &["generativelanguage.googleapis.com"],
        gemini_chat,
        &[
            ("tool_names", GEMINI_FUNCTION),
            ("call_ids", OPENAI_SAME_ID),
            ("foreign_calls", GEMINI_SIGNATURES),
            ("empty_assistant", OPENAI_CHAT_API),
        ],
    ),
    service("vllm", BodyWire::OpenAiChat, &[], nothing, &[("arguments", VLLM_SERVER)]),
    service(
        "llama.cpp",
        BodyWire::OpenAiChat,
        &[],
        reads_result_images,
        &[("arguments", LLAMA_SERVER), ("tool_media", LLAMA_SERVER)],
    ),
    service(
        "ollama",
        BodyWire::OpenAiChat,
        &[],
        reads_result_images,
        &[("arguments", OLLAMA_OPENAI), ("tool_media", OLLAMA_OPENAI)],
    ),
    service(
        "openai",
        BodyWire::OpenAiResponses,
        &["api.openai.com"],
        openai_responses,
        OPENAI_RESPONSES_SOURCES,
    ),
    service(
        "azure",
        BodyWire::OpenAiResponses,
        &["openai.azure.com", "services.ai.azure.com", "cognitiveservices.azure.com"],
        openai_responses,
        OPENAI_RESPONSES_SOURCES,
    ),
    service(
        "xai",
        BodyWire::OpenAiResponses,
        &["api.x.ai"],
        text_results,
        &[("call_ids", OPENAI_RESPONSES_API), ("tool_media", XAI_API)],
    ),
    service(
        "deepseek",
        BodyWire::OpenAiResponses,
        &["api.deepseek.com"],
        text_results,
        &[("call_ids", OPENAI_RESPONSES_API), ("tool_media", DEEPSEEK_THINKING)],
    ),
    service("anthropic", BodyWire::Anthropic, &["api.anthropic.com"], claude, CLAUDE_SOURCES),
    service("vertex", BodyWire::Anthropic, &["aiplatform.googleapis.com"], claude, CLAUDE_SOURCES),
    service("bedrock", BodyWire::Anthropic, &["amazonaws.com"], claude, CLAUDE_SOURCES),
    service(
        "minimax",
        BodyWire::Anthropic,
        &["api.minimax.io", "api.minimaxi.com"],
        nothing,
        &[("error_results", "https://platform.minimax.io/docs/api-reference/text-anthropic-api")],
    ),
    service(
        "zai",
        BodyWire::Anthropic,
        &["api.z.ai", "open.bigmodel.cn"],
        nothing,
        &[("error_results", "https://docs.z.ai/devpack/tool/claude")],
    ),
    service(
        "gemini",
        BodyWire::Gemini,
        &["generativelanguage.googleapis.com"],
        nothing,
        GEMINI_SOURCES,
    ),
    service("vertex", BodyWire::Gemini, &["aiplatform.googleapis.com"], nothing, GEMINI_SOURCES),
    service(
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
    ),
    service(
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
    ),
    service(
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
    ),
];
