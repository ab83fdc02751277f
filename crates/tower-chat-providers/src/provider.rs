//! What a client has to know of an API.

use std::{fmt, sync::Arc};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, header::CONTENT_TYPE};
use tower_chat_core::ChatRequest;
use tower_chat_wire::{body::BodyWire, stream::Limits};

use crate::{
    auth::AuthHeader,
    error::{Errors, ProviderError},
};

/// An API of a provider: how a [`ChatRequest`] becomes an HTTP request.
///
/// A [`ProviderClient`](crate::ProviderClient) does the rest, in the same way for every provider.
pub trait Provider: Clone + fmt::Debug + Send + Sync + 'static {
    /// The name in errors, such as `anthropic`.
    fn name(&self) -> &'static str;

    /// The header in which the service expects its key.
    fn auth_header(&self) -> AuthHeader;

    /// The header of a response that holds the service's id of the request.
    fn request_id_header(&self) -> &'static str {
        "x-request-id"
    }

    /// Writes the request.
    ///
    /// # Errors
    ///
    /// If the API cannot express the request, or a setting is missing.
    fn exchange(
        &self,
        request: &ChatRequest,
        settings: &Settings,
    ) -> Result<Exchange, ProviderError>;
}

/// One HTTP request, and how its answer is to be read.
#[derive(Debug)]
pub struct Exchange {
    pub(crate) request: Request<Bytes>,
    pub(crate) wire: BodyWire,
}

impl Exchange {
    /// A request whose answer is a whole body of a wire.
    pub fn new(wire: BodyWire, request: Request<Bytes>) -> Self {
        Self { request, wire }
    }
}

/// The settings that clients of all providers have.
#[derive(Clone)]
pub struct Settings {
    pub(crate) errors: Errors,
    pub(crate) base_url: Arc<str>,
    pub(crate) model: Option<Arc<str>>,
    pub(crate) headers: HeaderMap,
    pub(crate) limits: Limits,
}

impl Settings {
    pub(crate) fn new(provider: &'static str, base_url: &str) -> Self {
        Self {
            errors: Errors(provider),
            base_url: base_url.trim_end_matches('/').into(),
            model: None,
            headers: HeaderMap::new(),
            limits: Limits::default(),
        }
    }

    /// The model to ask: that of the request, or else that of the client.
    pub fn model<'a>(&'a self, request: &'a ChatRequest) -> Option<&'a str> {
        request.options.model.as_deref().or(self.model.as_deref())
    }

    /// A request with a JSON body, to a path beneath the base address.
    ///
    /// # Errors
    ///
    /// If the base address and the path are not the address of an HTTP service.
    pub fn post(
        &self,
        path: &str,
        body: impl Into<Bytes>,
    ) -> Result<Request<Bytes>, ProviderError> {
        let mut request = Request::new(body.into());
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.uri(path)?;
        let json = HeaderValue::from_static("application/json");
        request.headers_mut().insert(CONTENT_TYPE, json);
        Ok(self.with_headers(request))
    }

    /// Adds the headers that the client was given, in place of others of the same name.
    fn with_headers(&self, mut request: Request<Bytes>) -> Request<Bytes> {
        for (name, value) in &self.headers {
            request.headers_mut().insert(name.clone(), value.clone());
        }
        request
    }

    fn uri(&self, path: &str) -> Result<Uri, ProviderError> {
        let configuration = |error: http::Error| {
            self.errors.configuration("its base address is not one of HTTP", error)
        };
        let uri: Uri = format!("{}{path}", self.base_url)
            .parse()
            .map_err(|error: http::uri::InvalidUri| configuration(error.into()))?;
        if matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some() {
            Ok(uri)
        } else {
            Err(self.errors.missing("its base address has no http:// or https:// with a host"))
        }
    }

    pub(crate) fn insert_header(&mut self, name: &str, value: &str) -> Result<(), ProviderError> {
        let errors = self.errors;
        let name: HeaderName = name.parse().map_err(|error: http::header::InvalidHeaderName| {
            errors.configuration("HTTP has no header of this name", error)
        })?;
        let mut value = HeaderValue::from_str(value).map_err(|error| {
            errors.configuration(format!("HTTP cannot carry the value of {name}"), error)
        })?;
        // It may hold a key.
        value.set_sensitive(true);
        self.headers.insert(name, value);
        Ok(())
    }
}

impl fmt::Debug for Settings {
    /// Shows of headers their names alone, and no user or query in the address: both may hold a key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let headers: Vec<&str> = self.headers.keys().map(HeaderName::as_str).collect();
        f.debug_struct("Settings")
            .field("base_url", &without_secrets(&self.base_url))
            .field("model", &self.model)
            .field("headers", &headers)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

/// The address without a user, a password and a query.
fn without_secrets(url: &str) -> String {
    let url = url.split(['?', '#']).next().unwrap_or_default();
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let host = authority.rsplit('@').next().unwrap_or_default();
    format!("{scheme}://{host}{path}")
}
