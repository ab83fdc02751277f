//! A client of Ollama's native chat API.

use tower_chat_core::ChatRequest;
use tower_chat_wire::{body::BodyWire, ollama::render_request, rules::ServiceRules};

#[cfg(feature = "reqwest")]
use crate::{ReqwestTransport, provider::env_variable};
use crate::{
    auth::AuthHeader,
    client::ProviderClient,
    error::ProviderError,
    frames::StreamFraming,
    provider::{Exchange, Provider, Settings, json_bytes},
};

/// A client of Ollama's native chat API (<https://docs.ollama.com/api/chat>), which streams
/// newline-delimited JSON.
///
/// ```no_run
/// # fn main() -> Result<(), tower_chat_providers::ProviderError> {
/// use tower_chat_providers::Ollama;
///
/// let client = Ollama::local()?.with_model("qwen3");
/// # Ok(())
/// # }
/// ```
pub type Ollama<T> = ProviderClient<OllamaApi, T>;

/// The [`Provider`](crate::Provider) of an [`Ollama`] client.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct OllamaApi;

impl<T> Ollama<T> {
    /// Creates a client of the Ollama server on this machine that sends its requests through
    /// `transport`. [`with_base_url`](ProviderClient::with_base_url) sets the URL of another
    /// server.
    pub fn new(transport: T) -> Self {
        Self::with_provider(OllamaApi, "http://localhost:11434", transport)
    }
}

#[cfg(feature = "reqwest")]
impl Ollama<ReqwestTransport> {
    /// Creates a client of the Ollama server on this machine, at its default port.
    ///
    /// # Errors
    ///
    /// If the TLS settings of this system cannot be used.
    pub fn local() -> Result<Self, ProviderError> {
        Ok(Ollama::new(ReqwestTransport::new()?))
    }

    /// Creates a client of an Ollama server. `host` is a host, a host and a port, or a URL: `gpu`,
    /// `gpu:11434` or `https://gpu.example.com/ollama`. If `host` has no scheme, the scheme is
    /// `http` and the default port is 11434.
    ///
    /// # Errors
    ///
    /// If `host` is neither a valid host nor a valid URL, or if the TLS settings of this system
    /// cannot be used.
    pub fn at(host: &str) -> Result<Self, ProviderError> {
        Self::local()?.with_checked_base_url(&address(host))
    }

    /// Creates a client of the Ollama server in `OLLAMA_HOST`, the environment variable that
    /// Ollama's own programs use. If the variable is not set, creates a client of the server on
    /// this machine.
    ///
    /// # Errors
    ///
    /// The errors of [`at`](Self::at).
    pub fn from_env() -> Result<Self, ProviderError> {
        match env_variable("OLLAMA_HOST") {
            Some(host) => Self::at(&host),
            None => Self::local(),
        }
    }
}

impl Provider for OllamaApi {
    fn name(&self) -> &'static str {
        "ollama"
    }

    fn auth_header(&self) -> AuthHeader {
        AuthHeader::Bearer
    }

    fn rules(&self, request: &ChatRequest, settings: &Settings) -> Option<ServiceRules> {
        Some(settings.rules(BodyWire::Ollama, request))
    }

    fn exchange(
        &self,
        request: &ChatRequest,
        settings: &Settings,
    ) -> Result<Exchange, ProviderError> {
        settings.refuse_stored(request)?;
        let model = settings.required_model(request)?;
        let body =
            render_request(request, model).map_err(|error| settings.errors.body_error(error))?;
        let post = settings.post("/api/chat", json_bytes(&body))?;
        let framing = request.options.stream.then_some(StreamFraming::Lines);
        Ok(Exchange::new(BodyWire::Ollama, post).with_framing(framing))
    }
}

/// Converts a value of `OLLAMA_HOST` to a URL.
#[cfg(feature = "reqwest")]
fn address(host: &str) -> String {
    let host = host.trim();
    if host.contains("://") {
        return host.to_owned();
    }
    let (host, path) = host.split_once('/').unwrap_or((host, ""));
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => (name, port),
        Some(_) | None => (host, ""),
    };
    let name = if name.is_empty() { "localhost" } else { name };
    let port = if port.is_empty() { "11434" } else { port };
    format!("http://{name}:{port}/{path}")
}

#[cfg(all(test, feature = "reqwest"))]
mod tests {
    use super::*;

    #[test]
    fn the_address_of_ollama_is_completed_from_its_host() {
        for (host, expected) in [
            ("gpu", "http://gpu:11434/"),
            ("gpu:80", "http://gpu:80/"),
            (":9000", "http://localhost:9000/"),
            ("10.0.0.1:9000/ollama", "http://10.0.0.1:9000/ollama"),
            ("[::1]:9000", "http://[::1]:9000/"),
            ("[::1]", "http://[::1]:11434/"),
            ("https://gpu.example.com", "https://gpu.example.com"),
        ] {
            assert_eq!(address(host), expected, "{host}");
            let client = Ollama::at(host).unwrap();
            assert!(format!("{client:?}").contains(expected.trim_end_matches('/')), "{client:?}");
        }
        assert!(Ollama::at("ftp://gpu").is_err());
    }
}
