//! Tests of the changes that make requests comply with the rules of services.

mod compaction;
mod contents;
mod guide;
mod hosted;
mod refused;
mod request_models;
mod rows;
mod store;
mod thinking;
mod total;

use serde_json::Value;
use tower_chat_core::ChatRequest;
use tower_chat_wire::{
    anthropic, bedrock_converse,
    body::BodyWire,
    cohere, gemini, ollama, openai_chat,
    openai_responses::{self, HistoryLocation},
    rules::{Fitted, IdForm, ServiceRules, fit},
};

/// Fits a request to the rules, and returns the fitted request and its body.
fn written(request: &ChatRequest, rules: &ServiceRules) -> (Fitted, Value) {
    let fitted = fit(request, rules);
    let request = &fitted.request;
    let body = match rules.wire {
        BodyWire::OpenAiChat => {
            let mistral_ids = rules.call_ids.form == IdForm::Nine;
            let form = openai_chat::RequestForm {
                model: Some("m"),
                token_limit: "max_tokens",
                mistral_ids,
            };
            openai_chat::render_request(request, &form)
        }
        BodyWire::OpenAiResponses => {
            let form = openai_responses::RequestForm { model: Some("m"), ..Default::default() };
            openai_responses::render_request(request, &HistoryLocation::Request, &form)
        }
        BodyWire::Anthropic => {
            anthropic::render_request(request, anthropic::RequestForm::Anthropic { model: "m" })
        }
        BodyWire::Gemini => gemini::render_request(request, "m"),
        BodyWire::BedrockConverse => bedrock_converse::render_request(request).unwrap(),
        BodyWire::Cohere => cohere::render_request(request, "m"),
        BodyWire::Ollama => ollama::render_request(request, "m").unwrap(),
    };
    let body = serde_json::to_value(&body).unwrap();
    (fitted, body)
}

/// Returns the body of a request.
fn body(request: &ChatRequest, rules: &ServiceRules) -> Value {
    written(request, rules).1
}

/// Returns the rules of the known service with this name, before they are adapted to a model. If
/// there is no such service, returns the rules of an unknown service.
fn rules(wire: BodyWire, name: &str) -> ServiceRules {
    ServiceRules::named(wire, name).unwrap_or_else(|| ServiceRules::unknown(wire, name))
}

const WIRES: [BodyWire; 7] = [
    BodyWire::OpenAiChat,
    BodyWire::OpenAiResponses,
    BodyWire::Anthropic,
    BodyWire::Gemini,
    BodyWire::BedrockConverse,
    BodyWire::Cohere,
    BodyWire::Ollama,
];

/// Returns all rule sets with the name of their service: the rules of every known service, the
/// rules of an unknown service for every wire, and rules that are adapted to some models.
fn all_rules() -> Vec<(&'static str, ServiceRules)> {
    let known = tower_chat_wire::rules::KNOWN.iter().map(|known| (known.name, known.rules()));
    let unknown = WIRES.map(|wire| ("unknown", ServiceRules::unknown(wire, "llm.example.com")));
    let signed = [
        ("gemini", BodyWire::Gemini, "gemini-3-pro"),
        ("vertex", BodyWire::Gemini, "gemini-flash-latest"),
        ("gemini", BodyWire::OpenAiChat, "gemini-3-flash"),
        ("openrouter", BodyWire::OpenAiChat, "openai/gpt-5"),
        ("bedrock", BodyWire::BedrockConverse, "us.anthropic.claude-sonnet-4-5-20250929-v1:0"),
    ]
    .map(|(name, wire, model)| (name, ServiceRules::choose(wire, name, "", Some(model))));
    known.chain(unknown).chain(signed).collect()
}

fn wire_name(wire: BodyWire) -> &'static str {
    match wire {
        BodyWire::OpenAiChat => "openai-chat",
        BodyWire::OpenAiResponses => "openai-responses",
        BodyWire::Anthropic => "anthropic",
        BodyWire::Gemini => "gemini",
        BodyWire::BedrockConverse => "bedrock",
        BodyWire::Cohere => "cohere",
        BodyWire::Ollama => "ollama",
    }
}
