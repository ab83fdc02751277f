//! Where a leaf's requests go, and with what key.

use std::{fmt, sync::Arc};

use async_openai::config::{AzureConfig, Config, OpenAIConfig};
use http::{
    HeaderMap, HeaderName, HeaderValue, Method,
    header::{AUTHORIZATION, CONTENT_TYPE},
};
use tower_chat_wire::stream::Limits;

use crate::{
    OpenAiError,
    object::{Object, raw},
    transport,
};

/// An address, a key and headers; a clone shares the HTTP connections.
#[derive(Clone)]
pub(crate) struct Connection {
    config: Arc<dyn Config>,
    http: reqwest::Client,
    /// Whether there is a key to send as `authorization`.
    has_key: bool,
    headers: HeaderMap,
    limits: Limits,
}

impl Connection {
    /// A service by what comes before the path of its methods.
    pub(crate) fn compatible(base_url: &str, key: Option<&str>) -> Result<Self, OpenAiError> {
        let config = OpenAIConfig::default() // reads the environment, all of which is replaced
            .with_api_base(base_url.trim_end_matches('/'))
            .with_api_key(header_text(key.unwrap_or_default())?)
            .with_org_id("")
            .with_project_id("");
        Self::with_config(Arc::new(config), key.is_some())
    }

    /// A deployment of Azure OpenAI.
    pub(crate) fn azure_deployment(
        endpoint: &str,
        deployment: &str,
        api_version: &str,
        key: &str,
    ) -> Result<Self, OpenAiError> {
        let config = AzureConfig::new()
            .with_api_base(endpoint.trim_end_matches('/'))
            .with_deployment_id(deployment)
            .with_api_version(api_version)
            .with_api_key(header_text(key)?);
        Self::with_config(Arc::new(config), true)
    }

    /// Azure OpenAI by its v1 API, which has no deployments in its paths and no versions.
    pub(crate) fn azure(endpoint: &str, key: &str) -> Result<Self, OpenAiError> {
        let base_url = format!("{}/openai/v1", endpoint.trim_end_matches('/'));
        let mut connection = Self::compatible(&base_url, None)?;
        let mut key =
            HeaderValue::from_str(key).map_err(|error| configuration("the key", error))?;
        key.set_sensitive(true);
        connection.headers.insert("api-key", key);
        Ok(connection)
    }

    /// Sends a header with every request, in place of one of the same name.
    pub(crate) fn with_header(mut self, name: &str, value: &str) -> Result<Self, OpenAiError> {
        let name: HeaderName = name.parse().map_err(|error: http::header::InvalidHeaderName| {
            configuration("the name of a header", error)
        })?;
        let value =
            HeaderValue::from_str(value).map_err(|error| configuration("a header", error))?;
        self.headers.insert(name, value);
        Ok(self)
    }

    /// Takes answers up to these limits.
    pub(crate) fn with_limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Asks for answers compressed with gzip.
    #[cfg(feature = "gzip")]
    pub(crate) fn with_gzip(mut self) -> Result<Self, OpenAiError> {
        self.http = http_client(|builder| builder.gzip(true))?;
        Ok(self)
    }

    /// How large an answer may be.
    pub(crate) fn limits(&self) -> Limits {
        self.limits
    }

    /// Posts a body to a method, once.
    pub(crate) async fn post(
        &self,
        path: &str,
        body: &Object,
    ) -> Result<reqwest::Response, OpenAiError> {
        self.send(Method::POST, path, Some(raw(body).get().to_owned())).await
    }

    /// Gets what is at an address, once.
    pub(crate) async fn get(&self, path: &str) -> Result<reqwest::Response, OpenAiError> {
        self.send(Method::GET, path, None).await
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<String>,
    ) -> Result<reqwest::Response, OpenAiError> {
        let mut headers = self.config.headers();
        if !self.has_key {
            headers.remove(AUTHORIZATION);
        }
        if body.is_some() {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        for (name, value) in &self.headers {
            headers.insert(name.clone(), value.clone());
        }
        let mut url = reqwest::Url::parse(&self.url(path))
            .map_err(|error| configuration("the address", error))?;
        for (name, value) in self.config.query() {
            url.query_pairs_mut().append_pair(name, value);
        }
        let mut request = self.http.request(method, url).headers(headers);
        if let Some(body) = body {
            request = request.body(body);
        }
        let response = request.send().await.map_err(OpenAiError::connection)?;
        transport::accepted(response, self.limits).await
    }

    /// The address of a method.
    pub(crate) fn url(&self, path: &str) -> String {
        self.config.url(path)
    }

    fn with_config(config: Arc<dyn Config>, has_key: bool) -> Result<Self, OpenAiError> {
        let http = http_client(|builder| builder)?;
        let (headers, limits) = (HeaderMap::new(), Limits::default());
        Ok(Self { config, http, has_key, headers, limits })
    }
}

/// An HTTP client that decompresses nothing unless it is told to: another crate of the program may
/// have turned on reqwest's decompression for every client.
fn http_client(
    change: impl FnOnce(reqwest::ClientBuilder) -> reqwest::ClientBuilder,
) -> Result<reqwest::Client, OpenAiError> {
    let plain = reqwest::Client::builder().no_gzip().no_brotli().no_deflate().no_zstd();
    change(plain).build().map_err(|error| configuration("the TLS settings of this system", error))
}

impl fmt::Debug for Connection {
    /// Shows no key and no header, which may hold one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("url", &self.url("")).finish_non_exhaustive()
    }
}

/// The text, if it can stand in a header; async-openai would panic otherwise.
fn header_text(key: &str) -> Result<&str, OpenAiError> {
    HeaderValue::from_str(key).map_err(|error| configuration("the key", error))?;
    Ok(key)
}

fn configuration(
    what: &'static str,
    source: impl std::error::Error + Send + Sync + 'static,
) -> OpenAiError {
    OpenAiError::Configuration { what, source: Some(source.into()) }
}
