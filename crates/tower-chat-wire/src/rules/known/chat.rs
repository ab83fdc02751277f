//! The known services of Chat Completions.

use super::{
    DEEPSEEK_THINKING, GEMINI_FUNCTION, GEMINI_SIGNATURES, KnownService, OPENAI_FILES,
    OPENAI_UNIONS, UNIONS_AND_VALUES, XAI_API, service, unique_ids,
};
use crate::{
    body::BodyWire,
    rules::{
        service_rules::{
            EmptyRule, ForeignRule, IdForm, IdRule, ListRule, MediaKind, MediaRule, Otherwise,
            ReasoningRule, ServiceRules, Sources,
        },
        wires::{IMAGES, kind},
    },
};

pub(super) const OPENAI: KnownService =
    service("openai", BodyWire::OpenAiChat, &["api.openai.com"], openai_chat, OPENAI_CHAT_SOURCES);
pub(super) const AZURE: KnownService = service(
    "azure",
    BodyWire::OpenAiChat,
    &["openai.azure.com", "services.ai.azure.com", "cognitiveservices.azure.com"],
    openai_chat,
    OPENAI_CHAT_SOURCES,
);
pub(super) const OPENROUTER: KnownService = service(
    "openrouter",
    BodyWire::OpenAiChat,
    &["openrouter.ai"],
    openrouter,
    &[
        ("call_ids", OPENROUTER_LONG_ID),
        ("own_reasoning", OPENROUTER_REASONING),
        ("refused_in_schemas", "https://github.com/cecli-dev/cecli/issues/281"),
        ("empty_assistant", OPENAI_CHAT_API),
    ],
);
pub(super) const DEEPSEEK: KnownService = service(
    "deepseek",
    BodyWire::OpenAiChat,
    &["api.deepseek.com"],
    deepseek,
    &[
        ("call_ids", "https://github.com/HKUDS/nanobot/issues/3945"),
        ("user_media", "https://api-docs.deepseek.com/api/create-chat-completion"),
        ("own_reasoning", DEEPSEEK_THINKING),
        ("foreign_calls", "https://github.com/anomalyco/opencode/issues/17523"),
        ("content_lists", "https://github.com/BerriAI/litellm/issues/6642"),
        ("content_lists", "https://github.com/QwenLM/qwen-code/issues/2318"),
        ("empty_assistant", "https://api-docs.deepseek.com/api/create-chat-completion"),
    ],
);
pub(super) const MOONSHOT: KnownService = service(
    "moonshot",
    BodyWire::OpenAiChat,
    &["api.moonshot.ai", "api.moonshot.cn"],
    moonshot,
    &[
        ("call_ids", "https://github.com/openclaw/openclaw/issues/84730"),
        ("own_reasoning", "https://github.com/continuedev/continue/issues/11600"),
        ("foreign_calls", MOONSHOT_LITELLM),
        ("empty_assistant", MOONSHOT_LITELLM),
        ("content_lists", MOONSHOT_LITELLM),
    ],
);
pub(super) const MISTRAL: KnownService = service(
    "mistral",
    BodyWire::OpenAiChat,
    &["mistral.ai"],
    mistral,
    &[
        ("call_ids", MISTRAL_IDS),
        ("call_ids", MISTRAL_SAME_ID),
        ("user_media", "https://docs.mistral.ai/capabilities/vision"),
        ("reasoning_fields", MISTRAL_TYPES),
        ("empty_assistant", MISTRAL_TYPES),
        ("answer_after_results", MISTRAL_ORDER),
        ("author_names", "mistralai, models/usermessage.py"),
    ],
);
pub(super) const GROQ: KnownService = service(
    "groq",
    BodyWire::OpenAiChat,
    &["api.groq.com"],
    groq,
    &[
        ("call_ids", OPENAI_SAME_ID),
        ("user_media", "https://console.groq.com/docs/vision"),
        ("reasoning_fields", GROQ_FIELD),
        ("reasoning_fields", GROQ_TYPES),
        ("content_lists", "https://github.com/CherryHQ/cherry-studio/issues/3307"),
        ("empty_assistant", GROQ_TYPES),
    ],
);
pub(super) const XAI: KnownService = service(
    "xai",
    BodyWire::OpenAiChat,
    &["api.x.ai"],
    xai,
    &[
        ("call_ids", OPENAI_SAME_ID),
        ("user_media", "https://docs.x.ai/docs/guides/image-understanding"),
        ("empty_assistant", XAI_API),
    ],
);
pub(super) const FIREWORKS: KnownService = service(
    "fireworks",
    BodyWire::OpenAiChat,
    &["api.fireworks.ai"],
    strict_chat,
    &[("call_ids", MISTRAL_SAME_ID), ("empty_assistant", OPENAI_CHAT_API)],
);
pub(super) const TOGETHER: KnownService = service(
    "together",
    BodyWire::OpenAiChat,
    &["api.together.xyz", "api.together.ai"],
    strict_chat,
    &[("call_ids", OPENAI_SAME_ID), ("empty_assistant", OPENAI_CHAT_API)],
);
pub(super) const CEREBRAS: KnownService = service(
    "cerebras",
    BodyWire::OpenAiChat,
    &["api.cerebras.ai"],
    without_reasoning_fields,
    &[
        ("call_ids", OPENAI_SAME_ID),
        ("reasoning_fields", CEREBRAS_FIELD),
        ("empty_assistant", OPENAI_CHAT_API),
    ],
);
pub(super) const GEMINI: KnownService = service(
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
);
pub(super) const VERTEX: KnownService = service(
    "vertex",
    BodyWire::OpenAiChat,
    &["aiplatform.googleapis.com"],
    gemini_chat,
    &[
        ("tool_names", GEMINI_FUNCTION),
        ("call_ids", OPENAI_SAME_ID),
        ("foreign_calls", VERTEX_SIGNATURES),
        ("empty_assistant", OPENAI_CHAT_API),
    ],
);
pub(super) const VLLM: KnownService = service(
    "vllm",
    BodyWire::OpenAiChat,
    &[],
    vllm,
    &[("arguments", VLLM_ARGUMENTS), ("user_media", VLLM_PARTS)],
);
pub(super) const LLAMA_CPP: KnownService = service(
    "llama.cpp",
    BodyWire::OpenAiChat,
    &[],
    llama_cpp,
    &[
        ("arguments", "https://github.com/ggml-org/llama.cpp/issues/25510"),
        ("tool_media", LLAMA_SERVER),
        ("user_media", LLAMA_SERVER),
    ],
);
pub(super) const OLLAMA: KnownService = service(
    "ollama",
    BodyWire::OpenAiChat,
    &[],
    ollama,
    &[
        ("arguments", OLLAMA_OPENAI),
        ("tool_media", OLLAMA_OPENAI),
        ("user_media", OLLAMA_OPENAI),
        ("empty_assistant", OLLAMA_OPENAI),
    ],
);

fn strict_chat(rules: &mut ServiceRules) {
    unique_ids(rules);
    rules.empty_assistant = EmptyRule::LeaveOut;
}

fn openai_chat(rules: &mut ServiceRules) {
    strict_chat(rules);
    rules.call_ids.max_length = 40;
    rules.user_media = MediaRule::accepting(OPENAI_MEDIA);
    rules.refused_in_schemas = UNIONS_AND_VALUES;
    // None of the models at these services reads reasoning in requests.
    rules.reasoning_fields = Some(&[]);
}

fn deepseek(rules: &mut ServiceRules) {
    strict_chat(rules);
    rules.user_media = MediaRule::NONE;
    rules.own_reasoning = ReasoningRule::Required;
    rules.foreign_calls = ForeignRule::Reasoning { field: "reasoning_content", text: "" };
    rules.content_lists = ListRule::None;
}

fn moonshot(rules: &mut ServiceRules) {
    strict_chat(rules);
    rules.own_reasoning = ReasoningRule::Required;
    rules.foreign_calls = ForeignRule::Reasoning { field: "reasoning_content", text: " " };
    rules.content_lists = ListRule::OfUser;
}

fn mistral(rules: &mut ServiceRules) {
    strict_chat(rules);
    rules.call_ids = IdRule { form: IdForm::Nine, max_length: 9, ..rules.call_ids };
    rules.user_media = MediaRule::accepting(IMAGES);
    rules.reasoning_fields = Some(&[]);
    rules.author_names = None;
    rules.answer_after_results = true;
}

fn groq(rules: &mut ServiceRules) {
    strict_chat(rules);
    rules.user_media = MediaRule::accepting(IMAGES);
    rules.reasoning_fields = Some(&["reasoning"]);
    rules.content_lists = ListRule::OfUserAndSystem;
}

fn xai(rules: &mut ServiceRules) {
    strict_chat(rules);
    rules.user_media = MediaRule::accepting(XAI_IMAGES);
}

fn without_reasoning_fields(rules: &mut ServiceRules) {
    strict_chat(rules);
    rules.reasoning_fields = Some(&[]);
}

fn openrouter(rules: &mut ServiceRules) {
    strict_chat(rules);
    rules.call_ids.max_length = 40;
    // OpenRouter forwards requests to OpenAI, to Anthropic and to other services.
    rules.refused_in_schemas = UNIONS_AND_VALUES;
}

fn vllm(rules: &mut ServiceRules) {
    rules.user_media = MediaRule::accepting(VLLM_MEDIA);
}

fn llama_cpp(rules: &mut ServiceRules) {
    rules.tool_media =
        MediaRule { otherwise: Otherwise::AfterResults, ..MediaRule::accepting(LLAMA_IMAGES) };
    rules.user_media = MediaRule::accepting(LLAMA_MEDIA);
}

fn ollama(rules: &mut ServiceRules) {
    rules.tool_media =
        MediaRule { otherwise: Otherwise::AfterResults, ..MediaRule::accepting(OLLAMA_IMAGES) };
    rules.user_media = MediaRule::accepting(OLLAMA_IMAGES);
    rules.empty_assistant = EmptyRule::LeaveOut;
}

fn gemini_chat(rules: &mut ServiceRules) {
    strict_chat(rules);
    rules.tool_names.begins_with_letter = true;
}

const OPENAI_MEDIA: &[MediaKind] = &[
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
const XAI_IMAGES: &[MediaKind] =
    &[kind("image/png", Sources::BytesOrUrl), kind("image/jpeg", Sources::BytesOrUrl)];
const VLLM_MEDIA: &[MediaKind] =
    &[kind("image/*", Sources::BytesOrUrl), kind("audio/*", Sources::Bytes)];
const LLAMA_IMAGES: &[MediaKind] = &[kind("image/*", Sources::BytesOrUrl)];
const LLAMA_MEDIA: &[MediaKind] = &[
    kind("image/*", Sources::BytesOrUrl),
    kind("audio/wav", Sources::Bytes),
    kind("audio/mpeg", Sources::Bytes),
    kind("audio/mp3", Sources::Bytes),
];
const OLLAMA_IMAGES: &[MediaKind] = &[
    kind("image/png", Sources::Bytes),
    kind("image/jpeg", Sources::Bytes),
    kind("image/jpg", Sources::Bytes),
    kind("image/webp", Sources::Bytes),
];

const OPENAI_CHAT_API: &str = "https://platform.openai.com/docs/api-reference/chat/create";
const OPENAI_CHAT_ANSWER: &str =
    "openai-python, types/chat/chat_completion_assistant_message_param.py";
const OPENAI_CHAT_TYPES: &str = "openai-python, types/chat/chat_completion_tool_message_param.py";
const OPENAI_LONG_ID: &str = "https://github.com/agno-agi/agno/issues/5382";
const OPENAI_SAME_ID: &str = "https://github.com/agno-agi/agno/issues/5116";
const MISTRAL_TYPES: &str = "mistralai, models/assistantmessage.py and toolmessage.py";
const MISTRAL_IDS: &str = "https://github.com/langchain-ai/langchain/pull/24668";
const MISTRAL_ORDER: &str = "https://github.com/mistralai/mistral-vibe/issues/578";
const MISTRAL_SAME_ID: &str = "https://github.com/NousResearch/hermes-agent/pull/11722";
const GROQ_FIELD: &str = "https://github.com/janhq/jan/issues/8136";
const GROQ_TYPES: &str = "groq-python, types/chat/chat_completion_assistant_message_param.py";
const CEREBRAS_FIELD: &str = "https://github.com/Kilo-Org/kilocode/issues/10375";
const MOONSHOT_LITELLM: &str =
    "https://github.com/BerriAI/litellm/blob/main/litellm/llms/moonshot/chat/transformation.py";
const OPENROUTER_REASONING: &str = "https://openrouter.ai/docs/use-cases/reasoning-tokens";
const OPENROUTER_LONG_ID: &str = "https://github.com/openclaw/openclaw/pull/875";
const OLLAMA_OPENAI: &str = "https://github.com/ollama/ollama/blob/main/openai/openai.go";
const LLAMA_SERVER: &str =
    "https://github.com/ggml-org/llama.cpp/blob/master/tools/server/server-common.cpp";
const VLLM_PARTS: &str =
    "https://github.com/vllm-project/vllm/blob/main/vllm/entrypoints/chat_utils.py";
const VLLM_ARGUMENTS: &str = "https://github.com/vllm-project/vllm/issues/43995";
const VERTEX_SIGNATURES: &str =
    "https://docs.cloud.google.com/vertex-ai/generative-ai/docs/thought-signatures";
const OPENAI_CHAT_SOURCES: &[(&str, &str)] = &[
    ("tool_names", OPENAI_CHAT_API),
    ("call_ids", OPENAI_LONG_ID),
    ("call_ids", OPENAI_SAME_ID),
    ("arguments", OPENAI_CHAT_API),
    ("tool_media", OPENAI_CHAT_TYPES),
    ("user_media", OPENAI_FILES),
    ("reasoning_fields", OPENAI_CHAT_ANSWER),
    ("empty_assistant", OPENAI_CHAT_API),
    ("refused_in_schemas", OPENAI_UNIONS),
    ("author_names", "https://github.com/microsoft/autogen/issues/4157"),
];
