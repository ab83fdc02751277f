//! The client of every provider.

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

/// A client of one provider, over a transport: the innermost service of a stack.
///
/// The transport is any service of HTTP requests that answers with streaming bodies, so layers of
/// HTTP stand between the client and the network: see [`with_layer`](Self::with_layer). A clone is
/// cheap, and shares the connections if the clones of the transport do.
///
/// It sends each request once. Dropping the future or the response of a call drops the body of the
/// HTTP response, which closes or resets its connection.
///
/// Of the [options](tower_chat_core::ChatOptions), `extra` is merged into the body and counts more
/// than the named ones; a `null` in it takes a field out. `instructions` stand before the system
/// messages.
#[derive(Clone)]
pub struct ProviderClient<P, T> {
    provider: P,
    settings: Settings,
    transport: T,
}

impl<P: Provider, T> ProviderClient<P, T> {
    /// A client of an API at this address.
    pub fn with_provider(provider: P, base_url: &str, transport: T) -> Self {
        let settings = Settings::new(provider.name(), base_url);
        Self { provider, settings, transport }
    }

    /// The model of requests that name none.
    #[must_use]
    pub fn with_model(mut self, model: &str) -> Self {
        self.settings.model = Some(model.into());
        self
    }

    /// The address of the service, up to and with the version of its API, such as
    /// `https://api.anthropic.com/v1`.
    #[must_use]
    pub fn with_base_url(mut self, url: &str) -> Self {
        self.settings.base_url = url.trim_end_matches('/').into();
        self
    }

    /// The same address, if it is one.
    ///
    /// # Errors
    ///
    /// If the address does not begin with `http://` or `https://` and a host.
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
                    "{shown:?} is no address of a service: write it with its scheme and host, such \
                     as `http://localhost:8000/v1`"
                );
                Err(self.settings.errors.missing(what))
            }
        }
    }

    /// Takes the address of the service from the first of these environment variables that is set, which the
    /// provider's own SDK reads. `version` is the path that the SDK adds to it.
    #[cfg(feature = "reqwest")]
    #[allow(dead_code, reason = "not every provider's SDK reads a variable")]
    pub(crate) fn with_base_url_from_env(
        self,
        variables: &[&str],
        version: &str,
    ) -> Result<Self, ProviderError> {
        match variables.iter().find_map(|name| crate::provider::variable(name)) {
            Some(url) => {
                self.with_checked_base_url(&format!("{}{version}", url.trim_end_matches('/')))
            }
            None => Ok(self),
        }
    }

    /// Sends a header with every request, instead of one of the same name.
    ///
    /// # Errors
    ///
    /// If HTTP has no such header.
    pub fn with_header(mut self, name: &str, value: &str) -> Result<Self, ProviderError> {
        self.settings.insert_header(name, value)?;
        Ok(self)
    }

    /// The rules of the service, instead of those that are
    /// [chosen](tower_chat_wire::rules::ServiceRules::choose) by the provider, the address and the model.
    #[must_use]
    pub fn with_rules(mut self, rules: ServiceRules) -> Self {
        self.settings.rules = Some(rules.into());
        self
    }

    /// How large an answer may be: see [`Limits`]. One that is larger is an error.
    #[must_use]
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.settings.limits = limits;
        self
    }

    /// Puts a layer between the client and its transport: a timeout, a trace, a limit, a signature.
    /// The layer that is added last is the outermost: it sees a request first.
    ///
    /// A layer that changes bodies has to be beneath one that signs them.
    pub fn with_layer<L: Layer<T>>(self, layer: L) -> ProviderClient<P, L::Service> {
        let Self { provider, settings, transport } = self;
        ProviderClient { provider, settings, transport: layer.layer(transport) }
    }

    /// Sends a key or a token with every request.
    pub fn with_auth(self, layer: AuthLayer) -> ProviderClient<P, Auth<T>> {
        self.with_layer(layer)
    }

    /// Sends this key with every request, in the header that the provider expects.
    ///
    /// # Errors
    ///
    /// If the key cannot be the value of a header.
    pub fn with_key(self, key: &str) -> Result<ProviderClient<P, Auth<T>>, ProviderError> {
        let layer = AuthLayer::new(self.provider.auth_header(), key)
            .map_err(|error| error.of_provider(self.provider.name()))?;
        Ok(self.with_auth(layer))
    }

    /// Sends the key that an environment variable holds now, in the header that the provider expects.
    ///
    /// # Errors
    ///
    /// If the variable is not set, or its value cannot be that of a header. The error names the provider
    /// and the variable.
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

    /// Ready when the transport is.
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ProviderError>> {
        let errors = self.settings.errors;
        self.transport.poll_ready(cx).map_err(|error| errors.transport(error))
    }

    fn call(&mut self, request: ChatRequest) -> Self::Future {
        let clone = self.transport.clone();
        // The transport that was polled to readiness, not a clone, which is not ready.
        let transport = std::mem::replace(&mut self.transport, clone);
        let (provider, settings) = (self.provider.clone(), self.settings.clone());
        Box::pin(exchange::answer(provider, settings, transport, request))
    }
}

impl<P: fmt::Debug, T> fmt::Debug for ProviderClient<P, T> {
    /// Shows no key and no header, which may hold one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProviderClient")
            .field("provider", &self.provider)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}
