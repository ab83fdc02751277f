//! The generic client of all providers.

use std::{
    fmt,
    task::{Context, Poll},
};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{Request, Response};
use http_body::Body;
use tower_chat_core::{BoxError, ChatRequest, ChatResponse};
use tower_chat_wire::{rules::ServiceRules, stream::Limits};
use tower_layer::Layer;
use tower_service::Service;

use crate::{
    auth::{Auth, AuthLayer},
    error::ProviderError,
    exchange,
    provider::{Provider, Settings},
};

/// A client of one provider's API, which sends its requests through an HTTP transport. A client is
/// the innermost service of a stack.
///
/// The transport is a service of HTTP requests whose responses have streaming bodies. HTTP layers
/// can therefore be added between the client and the network: see [`with_layer`](Self::with_layer).
/// Cloning a client is cheap. Clones share their connections if clones of the transport share
/// theirs.
///
/// The client sends each request once. Dropping the future or the response of a call drops the body
/// of the HTTP response, which closes or resets its connection.
///
/// The fields of the option [`extra`](tower_chat_core::ChatOptions::extra) are added to the JSON
/// body. A field of `extra` replaces the field of a named option, and a `null` in `extra` removes
/// the field. The option `instructions` is sent before the system messages.
#[derive(Clone)]
pub struct ProviderClient<P, T> {
    provider: P,
    settings: Settings,
    transport: T,
}

impl<P: Provider, T> ProviderClient<P, T> {
    /// Creates a client of a provider's API at this base URL.
    pub fn with_provider(provider: P, base_url: &str, transport: T) -> Self {
        let settings = Settings::new(provider.name(), base_url);
        Self { provider, settings, transport }
    }

    /// Sets the model for requests that do not name one.
    #[must_use]
    pub fn with_model(mut self, model: &str) -> Self {
        self.settings.model = Some(model.into());
        self
    }

    /// Sets the base URL of the service. If the paths of the API begin with a version, the URL
    /// includes this version, such as `https://api.anthropic.com/v1`.
    #[must_use]
    pub fn with_base_url(mut self, url: &str) -> Self {
        self.settings.base_url = url.trim_end_matches('/').into();
        self
    }

    /// Sets the base URL of the service. Fails if the URL does not begin with `http://` or
    /// `https://` and a host.
    #[cfg(feature = "reqwest")]
    pub(crate) fn with_checked_base_url(self, url: &str) -> Result<Self, ProviderError> {
        let uri = url.parse::<http::Uri>().ok();
        let is_address = uri.is_some_and(|uri| {
            matches!(uri.scheme_str(), Some("http" | "https"))
                && uri.host().is_some_and(|host| !host.is_empty())
        });
        match is_address {
            true => Ok(self.with_base_url(url)),
            false => {
                let shown = crate::provider::without_secrets(url);
                let what = format!(
                    "{shown:?} is not the address of a service: write it with its scheme and \
                     host, such as `http://localhost:8000/v1`"
                );
                Err(self.settings.errors.missing(what))
            }
        }
    }

    /// Sets the base URL of the service to the value of the first of these environment variables
    /// that is set, if any, followed by `version`. `variables` are the variables that the
    /// provider's own SDK reads, and `version` is the path that the SDK appends to their values.
    #[cfg(feature = "reqwest")]
    #[allow(dead_code, reason = "not every provider's SDK reads a variable")]
    pub(crate) fn with_base_url_from_env(
        self,
        variables: &[&str],
        version: &str,
    ) -> Result<Self, ProviderError> {
        match variables.iter().find_map(|name| crate::provider::env_variable(name)) {
            Some(url) => {
                self.with_checked_base_url(&format!("{}{version}", url.trim_end_matches('/')))
            }
            None => Ok(self),
        }
    }

    /// Sets a header of every request. An existing header of the same name is replaced.
    ///
    /// # Errors
    ///
    /// If the name or the value is not valid in HTTP.
    pub fn with_header(mut self, name: &str, value: &str) -> Result<Self, ProviderError> {
        self.settings.insert_header(name, value)?;
        Ok(self)
    }

    /// Sets the rules of the service: requirements beyond the JSON format, such as the length of
    /// tool names. By default, the provider, the base URL and the model
    /// [determine](tower_chat_wire::rules::ServiceRules::choose) the rules.
    #[must_use]
    pub fn with_rules(mut self, rules: ServiceRules) -> Self {
        self.settings.rules = Some(rules.into());
        self
    }

    /// Sets the limits on the size of an answer: see [`Limits`]. The call fails if its answer
    /// exceeds a limit.
    #[must_use]
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.settings.limits = limits;
        self
    }

    /// Adds a layer between the client and its transport, such as a timeout, a trace, a limit or a
    /// signature. The layer that is added last receives a request first.
    ///
    /// A layer that signs bodies must be added before all layers that change bodies, so that it
    /// receives a request after these layers.
    pub fn with_layer<L: Layer<T>>(self, layer: L) -> ProviderClient<P, L::Service> {
        let Self { provider, settings, transport } = self;
        ProviderClient { provider, settings, transport: layer.layer(transport) }
    }

    /// Adds a layer that sends a key or a token with every request.
    pub fn with_auth(self, layer: AuthLayer) -> ProviderClient<P, Auth<T>> {
        self.with_layer(layer)
    }

    /// Adds a layer that sends this key with every request, in the header that the provider
    /// expects.
    ///
    /// # Errors
    ///
    /// If the key is not a valid header value.
    pub fn with_key(self, key: &str) -> Result<ProviderClient<P, Auth<T>>, ProviderError> {
        let layer = AuthLayer::new(self.provider.auth_header(), key)
            .map_err(|error| error.of_provider(self.provider.name()))?;
        Ok(self.with_auth(layer))
    }

    /// Adds a layer that sends the key in an environment variable, in the header that the provider
    /// expects. The variable is read by this method, and not for each request.
    ///
    /// # Errors
    ///
    /// If the variable is not set, or if its value is not a valid header value. The error names the
    /// provider and the variable.
    pub fn with_key_from_env(
        self,
        variable: &str,
    ) -> Result<ProviderClient<P, Auth<T>>, ProviderError> {
        let layer = AuthLayer::from_env(self.provider.auth_header(), variable)
            .map_err(|error| error.of_provider(self.provider.name()))?;
        Ok(self.with_auth(layer))
    }

    #[cfg(feature = "openai")]
    pub(crate) fn map_provider(mut self, change: impl FnOnce(P) -> P) -> Self {
        self.provider = change(self.provider);
        self
    }
}

impl<P, T, B> Service<ChatRequest> for ProviderClient<P, T>
where
    P: Provider,
    T: Service<Request<Bytes>, Response = Response<B>> + Clone + Send + 'static,
    T::Error: Into<BoxError>,
    T::Future: Send,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = ChatResponse;
    type Error = ProviderError;
    type Future = BoxFuture<'static, Result<ChatResponse, ProviderError>>;

    /// Returns ready when the transport is ready.
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ProviderError>> {
        let errors = self.settings.errors;
        self.transport.poll_ready(cx).map_err(|error| errors.transport(error))
    }

    fn call(&mut self, request: ChatRequest) -> Self::Future {
        let clone = self.transport.clone();
        // The call must use the transport that was polled to readiness, because a clone of this
        // transport may not be ready.
        let transport = std::mem::replace(&mut self.transport, clone);
        let (provider, settings) = (self.provider.clone(), self.settings.clone());
        Box::pin(exchange::answer(provider, settings, transport, request))
    }
}

impl<P: fmt::Debug, T> fmt::Debug for ProviderClient<P, T> {
    /// Prints neither keys nor the values of headers, which may contain a key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProviderClient")
            .field("provider", &self.provider)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}
