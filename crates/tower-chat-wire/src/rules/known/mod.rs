//! The rules of the known services, and the sources of these rules.
//!
//! A wire is a provider's JSON format. A native item is JSON of a wire inside a stored message. Its
//! issuer is the service that created it.

mod chat;
mod messages;
mod others;
mod responses;

use super::service_rules::{ServiceRules, Unique};
use crate::body::BodyWire;

/// A service whose rules are known.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct KnownService {
    /// The name of the service, as the `provider` of [`choose`](ServiceRules::choose) and as its
    /// [issuer](ServiceRules::issuer). The exception is Claude at Vertex AI and Bedrock, whose
    /// issuer is `anthropic`.
    pub name: &'static str,
    /// The wire of these rules. A service with several wires has an entry for each wire.
    pub wire: BodyWire,
    /// The hosts of the service. A host whose name ends with one of these hosts, after a `.` or a
    /// `-`, also belongs to the service.
    pub hosts: &'static [&'static str],
    /// Changes the rules of an unknown service with the same wire to the rules of this service.
    change: fn(&mut ServiceRules),
    /// The sources of the rules: pairs of a field name of [`ServiceRules`] and the source of its
    /// value. The source is a URL, or a file in a package.
    pub sources: &'static [(&'static str, &'static str)],
}

impl KnownService {
    /// Returns the rules of the service before they are adapted to a model.
    pub fn rules(&self) -> ServiceRules {
        let mut rules = ServiceRules::unknown(self.wire, self.name);
        (self.change)(&mut rules);
        rules
    }
}

impl ServiceRules {
    /// Returns the rules of a [known](KNOWN) service on a wire, before they are adapted to a model.
    /// Returns `None` if [`KNOWN`] has no entry with this name and this wire.
    pub fn named(wire: BodyWire, name: &str) -> Option<Self> {
        let known = KNOWN.iter().find(|known| known.wire == wire && known.name == name);
        known.map(KnownService::rules)
    }
}

fn unique_ids(rules: &mut ServiceRules) {
    rules.call_ids.unique = Unique::Request;
}

fn no_change(_: &mut ServiceRules) {}

/// The keywords that Claude refuses at the top level of a tool's schema.
pub(super) const UNIONS: &[&str] = &["allOf", "anyOf", "oneOf"];

/// The keywords that OpenAI refuses at the top level of a tool's schema.
const UNIONS_AND_VALUES: &[&str] = &["allOf", "anyOf", "oneOf", "enum", "not"];

const CLAUDE_UNIONS: &str = "https://github.com/mobile-next/mobile-mcp/issues/344";
const OPENAI_UNIONS: &str = "https://github.com/langchain-ai/langchainjs/issues/9804";
const OPENAI_FILES: &str = "https://developers.openai.com/api/docs/guides/file-inputs";
const CLAUDE_SAME_ID: &str = "https://github.com/brainlid/langchain/pull/620";
const CLAUDE_THINKING: &str =
    "https://platform.claude.com/docs/en/build-with-claude/thinking-tool-workflows";
/// The source of the rule about thinking for Claude at Bedrock and at Vertex AI.
const CLAUDE_THINKING_ELSEWHERE: &str = "https://github.com/anomalyco/opencode/issues/3077";
const ANTHROPIC_TOOLS: &str =
    "https://docs.claude.com/en/docs/agents-and-tools/tool-use/implement-tool-use";
const GEMINI_FUNCTION: &str = "https://ai.google.dev/api/caching#FunctionDeclaration";
const GEMINI_SIGNATURES: &str = "https://ai.google.dev/gemini-api/docs/thought-signatures";
const DEEPSEEK_THINKING: &str = "https://api-docs.deepseek.com/guides/thinking_mode";
const XAI_API: &str = "https://docs.x.ai/docs/api-reference";

/// Creates the entry of a service on one wire.
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
    chat::OPENAI,
    chat::AZURE,
    chat::OPENROUTER,
    chat::DEEPSEEK,
    chat::MOONSHOT,
    chat::MISTRAL,
    chat::GROQ,
    chat::XAI,
    chat::FIREWORKS,
    chat::TOGETHER,
    chat::CEREBRAS,
    chat::GEMINI,
    chat::VERTEX,
    chat::VLLM,
    chat::LLAMA_CPP,
    chat::OLLAMA,
    responses::OPENAI,
    responses::AZURE,
    responses::XAI,
    responses::DEEPSEEK,
    messages::ANTHROPIC,
    messages::VERTEX,
    messages::BEDROCK,
    messages::DEEPSEEK,
    messages::MINIMAX,
    messages::ZAI,
    others::GEMINI,
    others::VERTEX,
    others::BEDROCK,
    others::COHERE,
    others::OLLAMA,
];
