//! The rules of known services, and where each is documented.

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

impl ServiceRules {
    /// The rules of a [known](KNOWN) service on a wire, whatever the model is.
    pub fn named(wire: BodyWire, name: &str) -> Option<Self> {
        let known = KNOWN.iter().find(|known| known.wire == wire && known.name == name);
        known.map(KnownService::rules)
    }
}

fn unique_ids(rules: &mut ServiceRules) {
    rules.call_ids.unique = Unique::Request;
}

fn nothing(_: &mut ServiceRules) {}

const OPENAI_FILES: &str = "https://developers.openai.com/api/docs/guides/file-inputs";
const CLAUDE_SAME_ID: &str = "https://github.com/brainlid/langchain/pull/620";
const ANTHROPIC_TOOLS: &str =
    "https://docs.claude.com/en/docs/agents-and-tools/tool-use/implement-tool-use";
const GEMINI_FUNCTION: &str = "https://ai.google.dev/api/caching#FunctionDeclaration";
const GEMINI_SIGNATURES: &str = "https://ai.google.dev/gemini-api/docs/thought-signatures";
const DEEPSEEK_THINKING: &str = "https://api-docs.deepseek.com/guides/thinking_mode";
const XAI_API: &str = "https://docs.x.ai/docs/api-reference";

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
