//! The tested model clients.

use tower::{ServiceExt, util::BoxCloneSyncService};
use tower_chat::{BoxError, ChatRequest, ChatResponse};
use tower_chat_providers::{
    Anthropic, Bedrock, Cohere, CompatibleService, Gemini, Mistral, Ollama, OpenAiChat,
    OpenAiResponses, Provider as Api, ProviderClient, ReqwestTransport, Vertex,
};
use tower_chat_testkit::{recordings::Exchange, validate::Wire};

pub(crate) type Model = BoxCloneSyncService<ChatRequest, ChatResponse, BoxError>;

/// A model client, and the recorded exchanges in its format.
pub(crate) struct Provider {
    pub(crate) name: &'static str,
    /// The JSON format whose rules the requests must satisfy.
    pub(crate) wire: Wire,
    /// Returns whether an exchange from a folder is in the format of this provider.
    pub(crate) speaks: fn(&str, &Exchange) -> bool,
    /// Creates the model client. It sends its requests to the server at `http://address:port`.
    pub(crate) model: fn(&str) -> Model,
}

impl Provider {
    /// Returns the media type of the provider's streamed answers.
    pub(crate) fn stream_type(&self) -> &'static str {
        match self.wire {
            Wire::BedrockConverse => "application/vnd.amazon.eventstream",
            Wire::Ollama => "application/x-ndjson",
            _ => "text/event-stream",
        }
    }
}

pub(crate) static PROVIDERS: [Provider; 15] = [
    Provider {
        name: "openai-chat",
        wire: Wire::OpenAiChat,
        speaks: |_, exchange| is_chat(exchange),
        model: |url| {
            let client = OpenAiChat::compatible(&format!("{url}/v1")).unwrap();
            BoxCloneSyncService::new(client.with_model("m").map_err(BoxError::from))
        },
    },
    Provider {
        name: "azure",
        wire: Wire::OpenAiChat,
        speaks: |folder, exchange| folder == "azure" && is_chat(exchange),
        model: |url| {
            let client = OpenAiChat::azure(url, "m", "2024-10-21", transport()).with_key("key");
            let client = client.unwrap().with_model("m");
            BoxCloneSyncService::new(client.map_err(BoxError::from))
        },
    },
    Provider {
        name: "openai-responses",
        wire: Wire::OpenAiResponses,
        speaks: |_, exchange| exchange.path().ends_with("/responses"),
        model: |url| {
            let client = OpenAiResponses::compatible(&format!("{url}/v1")).unwrap();
            BoxCloneSyncService::new(client.with_model("m").map_err(BoxError::from))
        },
    },
    Provider {
        name: "anthropic",
        wire: Wire::Anthropic,
        speaks: |_, exchange| exchange.path().ends_with("/messages"),
        model: |url| keyed(Anthropic::new(transport()), "claude-x", url),
    },
    Provider {
        name: "gemini",
        wire: Wire::Gemini,
        speaks: |folder, exchange| folder != "vertex" && is_gemini(exchange),
        model: |url| keyed(Gemini::new(transport()), "gemini-3-x", url),
    },
    Provider {
        name: "vertex, Gemini",
        wire: Wire::Gemini,
        speaks: |folder, exchange| folder == "vertex" && is_gemini(exchange),
        model: |url| keyed(Vertex::new("p", "global", transport()), "gemini-2.5-x", url),
    },
    Provider {
        name: "vertex, Claude",
        wire: Wire::Anthropic,
        speaks: |_, exchange| exchange.path().ends_with("awPredict"),
        model: |url| keyed(Vertex::new("p", "global", transport()), "claude-x", url),
    },
    Provider {
        name: "mistral",
        wire: Wire::OpenAiChat,
        speaks: |folder, exchange| folder == "mistral" && is_chat(exchange),
        model: |url| keyed(Mistral::new(transport()), "m", url),
    },
    Provider {
        name: "groq",
        wire: Wire::OpenAiChat,
        speaks: |folder, exchange| folder == "groq" && is_chat(exchange),
        model: |url| {
            keyed(OpenAiChat::service_over(CompatibleService::Groq, transport()), "m", url)
        },
    },
    Provider {
        name: "deepseek",
        wire: Wire::OpenAiChat,
        speaks: |folder, exchange| folder == "deepseek" && is_chat(exchange),
        model: |url| {
            keyed(OpenAiChat::service_over(CompatibleService::DeepSeek, transport()), "m", url)
        },
    },
    Provider {
        name: "xai",
        wire: Wire::OpenAiChat,
        speaks: |folder, exchange| folder == "xai" && is_chat(exchange),
        model: |url| keyed(OpenAiChat::service_over(CompatibleService::XAi, transport()), "m", url),
    },
    Provider {
        name: "openrouter",
        wire: Wire::OpenAiChat,
        speaks: |folder, exchange| folder == "openrouter" && is_chat(exchange),
        model: |url| {
            keyed(OpenAiChat::service_over(CompatibleService::OpenRouter, transport()), "m", url)
        },
    },
    Provider {
        name: "ollama",
        wire: Wire::Ollama,
        speaks: |_, exchange| exchange.path().ends_with("/api/chat"),
        model: |url| keyed(Ollama::new(transport()), "m", url),
    },
    Provider {
        name: "bedrock",
        wire: Wire::BedrockConverse,
        speaks: |_, exchange| {
            ["/converse", "/converse-stream"].iter().any(|end| exchange.path().ends_with(end))
        },
        model: |url| keyed(Bedrock::new("us-east-1", transport()), "m", url),
    },
    Provider {
        name: "cohere",
        wire: Wire::Cohere,
        speaks: |_, exchange| exchange.path().ends_with("/v2/chat"),
        model: |url| keyed(Cohere::new(transport()), "m", url),
    },
];

fn is_chat(exchange: &Exchange) -> bool {
    exchange.path().ends_with("/chat/completions")
}

fn is_gemini(exchange: &Exchange) -> bool {
    exchange.path().ends_with("enerateContent")
}

/// Sets the key, the model and the address of the server.
fn keyed<P: Api>(client: ProviderClient<P, ReqwestTransport>, model: &str, url: &str) -> Model {
    let client = client.with_model(model).with_base_url(&format!("{url}/v1"));
    BoxCloneSyncService::new(client.with_key("key").unwrap().map_err(BoxError::from))
}

fn transport() -> ReqwestTransport {
    ReqwestTransport::new().unwrap()
}
