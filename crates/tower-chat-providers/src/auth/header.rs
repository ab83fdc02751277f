//! A layer that sends a key or a token in a header.

use std::{
    fmt,
    future::poll_fn,
    sync::Arc,
    task::{Context, Poll},
};

use futures_util::future::BoxFuture;
use http::{HeaderName, HeaderValue, Request, Response, StatusCode, header::AUTHORIZATION};
use tower_chat_core::BoxError;
use tower_layer::Layer;
use tower_service::Service;

use super::{
    cache::{AuthError, Cache},
    secret::{Secret, SentSecrets},
    source::{Token, TokenSource},
};
use crate::error::{Errors, ProviderError};

/// The header in which a key or a token is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum AuthHeader {
    /// `Authorization: Bearer <token>`.
    Bearer,
    /// The key without a scheme, in a header with this name, such as `x-api-key`, `x-goog-api-key`
    /// or `api-key`.
    Named(HeaderName),
}

/// A layer that adds a header with a key or a token to every request. An existing header of the
/// same name is replaced.
///
/// ```
/// use tower_chat_providers::auth::{AuthHeader, AuthLayer};
/// let layer = AuthLayer::new(AuthHeader::Bearer, "sk-very-secret")?;
/// assert!(!format!("{layer:?}").contains("secret"));
/// # Ok::<(), tower_chat_providers::ProviderError>(())
/// ```
#[derive(Clone)]
pub struct AuthLayer {
    header: AuthHeader,
    tokens: Tokens,
}

#[derive(Clone)]
enum Tokens {
    Fixed(Token),
    Source { cache: Arc<Cache<Token>>, renews_refused: bool },
}

impl AuthLayer {
    /// Creates a layer that sends this key.
    ///
    /// # Errors
    ///
    /// If the key is not a valid header value. The error does not contain the key.
    pub fn new(header: AuthHeader, key: &str) -> Result<Self, ProviderError> {
        let token = Token::new(key);
        header.value(&token.value).map_err(|error| {
            Errors("auth").configuration("the key is not valid in a header", error)
        })?;
        Ok(Self { header, tokens: Tokens::Fixed(token) })
    }

    /// Creates a layer that sends the key in an environment variable. The variable is read by this
    /// function, and not for each request.
    ///
    /// # Errors
    ///
    /// If the variable is not set, is empty, or does not contain a valid header value.
    pub fn from_env(header: AuthHeader, variable: &str) -> Result<Self, ProviderError> {
        let missing = || {
            Errors("auth")
                .missing(format!("the variable {variable} is not set, or empty: set it to the key"))
        };
        let key = std::env::var(variable).map_err(|_| missing())?;
        let key = key.trim();
        if key.is_empty() { Err(missing()) } else { Self::new(header, key) }
    }

    /// Creates a layer that obtains the tokens from a source.
    pub fn from_source(header: AuthHeader, source: impl TokenSource) -> Self {
        let renews_refused = source.renews_refused_tokens();
        let source = Arc::new(source);
        let cache = Cache::new(move || {
            let source = source.clone();
            Box::pin(async move { source.token().await })
        });
        Self { header, tokens: Tokens::Source { cache: Arc::new(cache), renews_refused } }
    }
}

impl AuthHeader {
    fn name(&self) -> HeaderName {
        match self {
            Self::Bearer => AUTHORIZATION,
            Self::Named(name) => name.clone(),
        }
    }

    fn value(&self, secret: &Secret) -> Result<HeaderValue, http::header::InvalidHeaderValue> {
        let mut value = match self {
            Self::Bearer => HeaderValue::try_from(format!("Bearer {}", secret.expose()))?,
            Self::Named(_) => HeaderValue::from_str(secret.expose())?,
        };
        value.set_sensitive(true);
        Ok(value)
    }

    fn apply<R>(&self, request: &mut Request<R>, token: &Token) -> Result<(), AuthError> {
        let value = self.value(&token.value).map_err(AuthError::new)?;
        request.headers_mut().insert(self.name(), value);
        Ok(())
    }
}

impl<T> Layer<T> for AuthLayer {
    type Service = Auth<T>;

    fn layer(&self, inner: T) -> Auth<T> {
        Auth { inner, layer: self.clone() }
    }
}

impl fmt::Debug for AuthLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuthLayer").field("header", &self.header).finish_non_exhaustive()
    }
}

/// The service of an [`AuthLayer`].
#[derive(Debug, Clone)]
pub struct Auth<T> {
    inner: T,
    layer: AuthLayer,
}

impl<T> Auth<T> {
    tower_chat_core::__inner_service_accessors!(T);
}

impl<T, R, B> Service<Request<R>> for Auth<T>
where
    T: Service<Request<R>, Response = Response<B>> + Clone + Send + 'static,
    T::Error: Into<BoxError>,
    T::Future: Send,
    R: Clone + Send + 'static,
    B: Send + 'static,
{
    type Response = Response<B>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<B>, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Request<R>) -> Self::Future {
        let clone = self.inner.clone();
        let inner = std::mem::replace(&mut self.inner, clone);
        Box::pin(self.layer.clone().send(inner, request))
    }
}

impl AuthLayer {
    async fn send<T, R, B>(
        self,
        mut inner: T,
        mut request: Request<R>,
    ) -> Result<Response<B>, BoxError>
    where
        T: Service<Request<R>, Response = Response<B>>,
        T::Error: Into<BoxError>,
        R: Clone,
    {
        let (cache, renews_refused) = match &self.tokens {
            Tokens::Fixed(token) => {
                self.header.apply(&mut request, token)?;
                let response = inner.call(request).await.map_err(Into::into)?;
                return Ok(with_secret(response, token));
            }
            Tokens::Source { cache, renews_refused } => (cache, *renews_refused),
        };
        let token = cache.get().await?;
        self.header.apply(&mut request, &token)?;
        let mut again = renews_refused.then(|| request.clone());
        let response = inner.call(request).await.map_err(Into::into)?;
        let again = again.take().filter(|_| response.status() == StatusCode::UNAUTHORIZED);
        let Some(mut request) = again else { return Ok(with_secret(response, &token)) };
        drop(response);
        let token = cache.renew(&token).await?;
        self.header.apply(&mut request, &token)?;
        poll_fn(|cx| inner.poll_ready(cx)).await.map_err(Into::into)?;
        let response = inner.call(request).await.map_err(Into::into)?;
        Ok(with_secret(response, &token))
    }
}

/// Adds the token to the secrets that the client removes from the texts of errors.
fn with_secret<B>(mut response: Response<B>, token: &Token) -> Response<B> {
    let secrets = response.extensions_mut().get_or_insert_default::<SentSecrets>();
    secrets.push(token.value.clone());
    response
}
