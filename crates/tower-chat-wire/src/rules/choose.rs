//! Chooses the rules of a service by its URL, its provider and the model.
//!
//! A native item contains a provider's own JSON fields of a message or part, which the common types
//! do not have. It belongs to one wire (a provider's JSON format), and is written only on this
//! wire. The issuer of a native item is the service that created the item.

use super::{
    known::{KNOWN, KnownService, UNIONS},
    service_rules::{ForeignRule, MediaRule, ServiceRules},
};
use crate::{body::BodyWire, gemini};

/// The providers whose clients are also used for other services with the same wire.
const GENERIC: [&str; 3] = ["anthropic", "openai", "openai-compatible"];

/// Ollama's default port, as a suffix of `host:port`.
const OLLAMA_PORT: &str = ":11434";

impl ServiceRules {
    /// Chooses the rules by the URL and the provider of a service. The first of these cases that
    /// applies determines the rules:
    ///
    /// - If the host of the URL belongs to a [known](KNOWN) service, the rules are those of this
    ///   service.
    /// - If `provider` is the name of a known service, the rules are those of this service. Some
    ///   clients, such as the one of OpenAI, are also used for other services. For these clients,
    ///   this case applies only if the URL is local, such as the URL of a proxy or a test. On Chat
    ///   Completions, port 11434 means that the provider is Ollama.
    /// - Otherwise the rules are those of an [unknown](Self::unknown) service. Native items of
    ///   other known issuers are not sent to this service.
    ///
    /// Some rules also depend on the model.
    ///
    /// ```
    /// use tower_chat_wire::{body::BodyWire, rules::ServiceRules};
    /// let chat = |url| ServiceRules::choose(BodyWire::OpenAiChat, "openai-compatible", url, None);
    /// assert_eq!(&*chat("https://api.mistral.ai/v1").issuer, "mistral");
    /// assert_eq!(&*chat("https://llm.example.com/v1").issuer, "llm.example.com");
    /// ```
    pub fn choose(wire: BodyWire, provider: &str, base_url: &str, model: Option<&str>) -> Self {
        let host = host_of(base_url);
        let name_of_host = host.rsplit_once(':').map_or(host.as_str(), |(name, _)| name);
        let of_wire = |known: &&KnownService| known.wire == wire;
        let by_host = KNOWN.iter().filter(of_wire).find(|known| {
            known.hosts.iter().any(|known| {
                let beneath = name_of_host.strip_suffix(known);
                beneath.is_some_and(|rest| rest.is_empty() || rest.ends_with(['.', '-']))
            })
        });
        let is_ollama = wire == BodyWire::OpenAiChat && host.ends_with(OLLAMA_PORT);
        let provider = if is_ollama { "ollama" } else { provider };
        let may_be_named = !GENERIC.contains(&provider) || is_local(name_of_host);
        let by_name = || KNOWN.iter().filter(of_wire).find(|known| known.name == provider);
        let known = by_host.or_else(|| by_name().filter(|_| may_be_named));
        // The issuer of a local server has no port, because the port may change whenever the server
        // is started.
        let issuer = if is_local(name_of_host) { name_of_host } else { &host };
        let mut rules = known.map_or_else(|| Self::unknown(wire, issuer), KnownService::rules);
        rules.adapt_to_model(known.map_or("", |known| known.name), model.unwrap_or_default());
        rules
    }

    /// Adapts the rules to the model. `name` is the name of a known service, or empty.
    fn adapt_to_model(&mut self, name: &str, model: &str) {
        match (self.wire, name) {
            (BodyWire::Gemini, _) if requires_signatures(model) => {
                self.foreign_calls = ForeignRule::Signature(gemini::STAND_IN);
            }
            // In recordings, mistral-small-latest accepts a user message directly after results.
            // According to bug reports, other models refuse such a message.
            (BodyWire::OpenAiChat, "mistral") if model.starts_with("mistral-small") => {
                self.answer_after_results = false;
            }
            (BodyWire::OpenAiChat, "gemini" | "vertex") if requires_signatures(model) => {
                self.foreign_calls = ForeignRule::Signature("skip_thought_signature_validator");
            }
            (BodyWire::OpenAiChat, "openrouter") => {
                let vendor = model.split_once('/').map_or("", |(vendor, _)| vendor);
                if vendor == "anthropic" {
                    let images = Self::named(BodyWire::OpenAiChat, "llama.cpp");
                    self.tool_media = images.map_or(MediaRule::NONE, |rules| rules.tool_media);
                }
                if !vendor.is_empty() {
                    self.issuer = format!("openrouter/{vendor}").into();
                }
            }
            (BodyWire::BedrockConverse, _) => match vendor_at_bedrock(model) {
                Some("anthropic") => {
                    self.issuer = "anthropic".into();
                    self.user_first = is_before_claude_4(model);
                    self.thinking_first = true;
                    self.refused_in_schemas = UNIONS;
                }
                Some(vendor) => self.issuer = format!("bedrock/{vendor}").into(),
                // The name may be the ARN of an inference profile, which does not name the vendor.
                // For other vendors, the rule has no effect, because only Claude has these options.
                None => self.thinking_first = true,
            },
            _ => {}
        }
    }
}

/// Returns whether the model refuses calls without a thought signature: Gemini 3 and later. A name
/// without a version is an alias of the newest model.
pub(crate) fn requires_signatures(model: &str) -> bool {
    let Some((_, version)) = model.rsplit_once("gemini-") else { return false };
    let major: String = version.chars().take_while(char::is_ascii_digit).collect();
    major.is_empty() || major.parse::<u32>().is_ok_and(|major| major >= 3)
}

/// Returns whether a model of Anthropic is older than Claude 4. According to bug reports, these
/// models refuse a conversation at Bedrock that begins with an assistant message. In their names,
/// the version precedes the family or is missing: `claude-3-5-sonnet`, `claude-v2`,
/// `claude-instant`.
fn is_before_claude_4(model: &str) -> bool {
    let Some((_, version)) = model.split_once("claude-") else { return true };
    ["1", "2", "3", "v", "instant"].iter().any(|old| version.starts_with(old))
}

/// Returns the vendor in a Bedrock model name or its ARN, such as `anthropic` in
/// `us.anthropic.claude-sonnet-4-5-20250929-v1:0`.
fn vendor_at_bedrock(model: &str) -> Option<&str> {
    const REGIONS: [&str; 10] =
        ["us", "eu", "apac", "ap", "jp", "au", "ca", "sa", "us-gov", "global"];
    let name = model.rsplit('/').next().unwrap_or(model);
    let (vendor, rest) = name.split_once('.')?;
    if REGIONS.contains(&vendor) {
        rest.split_once('.').map(|(vendor, _)| vendor)
    } else {
        Some(vendor)
    }
}

/// Returns the host and the port of a URL, in lower case and without the user.
fn host_of(url: &str) -> String {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    authority.rsplit('@').next().unwrap_or_default().to_ascii_lowercase()
}

fn is_local(host: &str) -> bool {
    host.is_empty() || host == "localhost" || host == "[::1]" || host.starts_with("127.")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn issuer(wire: BodyWire, provider: &str, url: &str, model: &str) -> String {
        ServiceRules::choose(wire, provider, url, Some(model)).issuer.to_string()
    }

    #[test]
    fn mistral_small_accepts_a_user_message_after_tool_results() {
        for (model, expected) in
            [("mistral-small-latest", false), ("devstral-medium-latest", true), ("", true)]
        {
            let url = "https://api.mistral.ai/v1";
            let rules = ServiceRules::choose(BodyWire::OpenAiChat, "mistral", url, Some(model));
            assert_eq!(rules.answer_after_results, expected, "{model}");
        }
    }

    #[test]
    fn claude_4_and_later_at_bedrock_accept_an_assistant_message_first() {
        for (model, expected) in [
            ("us.anthropic.claude-sonnet-4-5-20250929-v1:0", false),
            ("anthropic.claude-opus-4-20250514-v1:0", false),
            ("anthropic.claude-3-5-sonnet-20240620-v1:0", true),
            ("eu.anthropic.claude-instant-v1", true),
            ("anthropic.claude-v2:1", true),
            ("amazon.nova-pro-v1:0", true),
            ("", true),
        ] {
            let url = "https://bedrock-runtime.us-east-1.amazonaws.com";
            let rules =
                ServiceRules::choose(BodyWire::BedrockConverse, "bedrock", url, Some(model));
            assert_eq!(rules.user_first, expected, "{model}");
        }
    }

    #[test]
    fn gemini_3_and_later_and_gemini_names_without_a_version_require_signatures() {
        for model in [
            "gemini-3-flash-preview",
            "models/gemini-3.1-pro",
            "gemini-10-pro",
            "gemini-flash-latest",
            "models/gemini-pro-latest",
        ] {
            assert!(requires_signatures(model), "{model}");
        }
        for model in ["gemini-2.5-flash", "gemini-1.5-pro", "gemma-3", ""] {
            assert!(!requires_signatures(model), "{model}");
        }
    }

    #[test]
    fn the_host_determines_the_issuer_before_the_provider_and_the_model() {
        use BodyWire::{Anthropic, BedrockConverse, Gemini, OpenAiChat, OpenAiResponses};
        let table = [
            (OpenAiChat, "openai", "https://api.openai.com/v1", "", "openai"),
            (OpenAiChat, "openai", "https://eu.api.openai.com/v1", "", "openai"),
            (OpenAiChat, "openai", "https://API.Mistral.ai/v1", "", "mistral"),
            (OpenAiChat, "openai-compatible", "https://codestral.mistral.ai/v1", "", "mistral"),
            (OpenAiChat, "azure", "https://mine.openai.azure.com/openai", "", "azure"),
            (OpenAiChat, "deepseek", "https://proxy.example.com", "", "deepseek"),
            (OpenAiChat, "openai", "https://proxy.example.com:444/v1", "", "proxy.example.com:444"),
            (OpenAiChat, "openai", "https://notmistral.ai/v1", "", "notmistral.ai"),
            (OpenAiChat, "openai", "http://user:key@127.0.0.1:81/v1", "", "openai"),
            (OpenAiChat, "openai-compatible", "http://127.0.0.1:81/v1", "", "127.0.0.1"),
            (OpenAiChat, "openai-compatible", "http://localhost:11434/v1", "", "ollama"),
            (
                OpenAiChat,
                "openrouter",
                "https://openrouter.ai/api/v1",
                "x-ai/grok",
                "openrouter/x-ai",
            ),
            (OpenAiResponses, "openai", "https://api.x.ai/v1", "", "xai"),
            (Anthropic, "anthropic", "https://api.anthropic.com/v1", "", "anthropic"),
            (Anthropic, "vertex", "https://us-east5-aiplatform.googleapis.com/v1", "", "anthropic"),
            (Anthropic, "anthropic", "https://api.minimax.io/anthropic/v1", "", "minimax"),
            (Anthropic, "anthropic", "https://claude.example.com/v1", "", "claude.example.com"),
            (Gemini, "vertex", "https://aiplatform.googleapis.com/v1", "gemini-3-pro", "vertex"),
            (
                BedrockConverse,
                "bedrock",
                "https://bedrock-runtime.us-east-1.amazonaws.com",
                "us.anthropic.claude-sonnet-4-5-20250929-v1:0",
                "anthropic",
            ),
            (
                BedrockConverse,
                "bedrock",
                "http://127.0.0.1:1",
                "amazon.nova-pro-v1:0",
                "bedrock/amazon",
            ),
            (BedrockConverse, "bedrock", "http://127.0.0.1:1", "mine", "bedrock"),
        ];
        for (wire, provider, url, model, expected) in table {
            assert_eq!(issuer(wire, provider, url, model), expected, "{provider} {url} {model}");
        }
    }

    #[test]
    fn claude_through_openrouter_receives_images_inside_results() {
        let reads = |model| {
            let url = "https://openrouter.ai/api/v1";
            let rules = ServiceRules::choose(BodyWire::OpenAiChat, "openrouter", url, Some(model));
            !rules.tool_media.kinds.is_empty()
        };
        assert!(reads("anthropic/claude-sonnet-4.5"));
        assert!(!reads("openai/gpt-5"));
    }
}
