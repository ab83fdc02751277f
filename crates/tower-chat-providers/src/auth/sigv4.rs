//! A layer that signs requests with AWS Signature Version 4.

use std::{
    fmt,
    sync::Arc,
    task::{Context, Poll},
    time::SystemTime,
};

use aws_sigv4::{
    http_request::{SignableBody, SignableRequest, SigningParams, SigningSettings, sign},
    sign::v4,
};
use aws_smithy_runtime_api::client::identity::Identity;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{HeaderName, HeaderValue, Request, Response, header::AUTHORIZATION};
use tower_chat_core::BoxError;
use tower_layer::Layer;
use tower_service::Service;

use super::{
    cache::{AuthError, Cache},
    credentials::{AwsCredentials, CredentialsSource},
    secret::SentSecrets,
};

/// A layer that signs every request, including its whole body, with AWS [Signature Version
/// 4](https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv.html).
///
/// The layer signs the URL, the body and the headers of the request that it receives. The layer
/// must therefore be below every layer that changes the URL, the body or a header. Below a retry
/// layer, the layer signs each attempt again.
///
/// ```
/// use tower_chat_providers::{
///     OpenAiChat, ReqwestTransport,
///     auth::{AwsCredentials, SigV4Layer},
/// };
/// let credentials = AwsCredentials::new("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY");
/// let signed = SigV4Layer::new("us-east-1", "bedrock", credentials);
/// let client = OpenAiChat::new(ReqwestTransport::new()?).with_layer(signed);
/// # Ok::<(), tower_chat_providers::ProviderError>(())
/// ```
#[derive(Clone)]
pub struct SigV4Layer {
    region: Arc<str>,
    service: Arc<str>,
    cache: Arc<Cache<AwsCredentials>>,
    /// The clock. Tests replace it.
    now: fn() -> SystemTime,
}

impl SigV4Layer {
    /// Creates a layer that signs requests with these credentials. `service` is the AWS name of the
    /// service, such as `bedrock`.
    pub fn new(region: &str, service: &str, credentials: AwsCredentials) -> Self {
        Self::from_source(region, service, move || std::future::ready(Ok(credentials.clone())))
    }

    /// Creates a layer that signs requests with credentials that it obtains from a source.
    pub fn from_source(region: &str, service: &str, source: impl CredentialsSource) -> Self {
        let source = Arc::new(source);
        let cache = Cache::new(move || {
            let source = source.clone();
            Box::pin(async move { source.credentials().await })
        });
        let (region, service) = (region.into(), service.into());
        Self { region, service, cache: Arc::new(cache), now: SystemTime::now }
    }

    /// Creates a layer that signs requests with the credentials in `AWS_ACCESS_KEY_ID`,
    /// `AWS_SECRET_ACCESS_KEY` and `AWS_SESSION_TOKEN`. The variables are read by this function,
    /// and not for each request.
    ///
    /// # Errors
    ///
    /// If `AWS_ACCESS_KEY_ID` or `AWS_SECRET_ACCESS_KEY` is not set or is empty.
    pub fn from_env(region: &str, service: &str) -> Result<Self, crate::ProviderError> {
        let required = |name: &str| {
            let missing = || {
                crate::error::Errors("sigv4")
                    .missing(format!("the variable {name} is not set, or empty: set it"))
            };
            crate::provider::env_variable(name).ok_or_else(missing)
        };
        let mut credentials =
            AwsCredentials::new(required("AWS_ACCESS_KEY_ID")?, required("AWS_SECRET_ACCESS_KEY")?);
        if let Some(token) = crate::provider::env_variable("AWS_SESSION_TOKEN") {
            credentials = credentials.with_session_token(token);
        }
        Ok(Self::new(region, service, credentials))
    }

    fn apply(
        &self,
        request: &mut Request<Bytes>,
        credentials: &AwsCredentials,
    ) -> Result<(), BoxError> {
        let identity = Identity::from(aws_credential_types::Credentials::new(
            &credentials.access_key_id,
            credentials.secret_access_key.expose(),
            credentials.session_token.as_ref().map(|token| token.expose().to_owned()),
            None,
            "tower-chat",
        ));
        let params: SigningParams<'_> = v4::SigningParams::builder()
            .identity(&identity)
            .region(&self.region)
            .name(&self.service)
            .time((self.now)())
            .settings(SigningSettings::default())
            .build()?
            .into();
        request.headers_mut().remove(AUTHORIZATION);
        let uri = request.uri().to_string();
        let headers = request.headers().iter();
        let headers =
            headers.filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?)));
        let body = SignableBody::Bytes(request.body());
        let signable = SignableRequest::new(request.method().as_str(), uri, headers, body)?;
        // aws-sigv4 traces the signed request, which contains the session token.
        let untraced = tracing::subscriber::NoSubscriber::new();
        let signed = tracing::subscriber::with_default(untraced, || sign(signable, &params))?;
        let (headers, _) = signed.into_parts().0.into_parts();
        for header in headers {
            let mut value = HeaderValue::from_str(header.value())?;
            value.set_sensitive(header.sensitive() || header.name() == AUTHORIZATION.as_str());
            request.headers_mut().insert(HeaderName::from_static(header.name()), value);
        }
        Ok(())
    }
}

impl<T> Layer<T> for SigV4Layer {
    type Service = SigV4<T>;

    fn layer(&self, inner: T) -> SigV4<T> {
        SigV4 { inner, layer: self.clone() }
    }
}

impl fmt::Debug for SigV4Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigV4Layer")
            .field("region", &self.region)
            .field("service", &self.service)
            .finish_non_exhaustive()
    }
}

/// The service of a [`SigV4Layer`].
#[derive(Debug, Clone)]
pub struct SigV4<T> {
    inner: T,
    layer: SigV4Layer,
}

impl<T> SigV4<T> {
    tower_chat_core::__inner_service_accessors!(T);
}

impl<T, B> Service<Request<Bytes>> for SigV4<T>
where
    T: Service<Request<Bytes>, Response = Response<B>> + Clone + Send + 'static,
    T::Error: Into<BoxError>,
    T::Future: Send,
{
    type Response = Response<B>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<B>, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, mut request: Request<Bytes>) -> Self::Future {
        let clone = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, clone);
        let layer = self.layer.clone();
        Box::pin(async move {
            let credentials = layer.cache.get().await?;
            layer.apply(&mut request, &credentials).map_err(AuthError::new)?;
            let mut response = inner.call(request).await.map_err(Into::into)?;
            // The error with which AWS refuses a signature contains the session token, which the
            // client removes.
            let secrets = response.extensions_mut().get_or_insert_default::<SentSecrets>();
            secrets.push(credentials.secret_access_key.clone());
            if let Some(token) = &credentials.session_token {
                secrets.push(token.clone());
            }
            Ok(response)
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Returns the time in AWS's test vectors, 2015-08-30T12:36:00Z.
    fn time_of_vectors() -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_440_938_160)
    }

    fn signed(request: http::request::Builder, body: &'static str, token: Option<&str>) -> String {
        let mut credentials =
            AwsCredentials::new("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY");
        if let Some(token) = token {
            credentials = credentials.with_session_token(token);
        }
        let mut layer = SigV4Layer::new("us-east-1", "service", credentials.clone());
        layer.now = time_of_vectors;
        let mut request = request.body(Bytes::from_static(body.as_bytes())).unwrap();
        layer.apply(&mut request, &credentials).unwrap();
        let value = &request.headers()[AUTHORIZATION];
        assert!(value.is_sensitive());
        value.to_str().unwrap().to_owned()
    }

    /// The vectors `get-vanilla`, `post-vanilla`, `post-x-www-form-urlencoded` and
    /// `post-sts-header-before` of AWS's Signature Version 4 test suite
    /// (<https://github.com/awslabs/aws-c-auth/tree/main/tests/aws-signing-test-suite/v4>).
    #[test]
    fn requests_of_the_aws_test_suite_get_the_published_signatures() {
        let scope =
            "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request";
        let get = Request::get("https://example.amazonaws.com/");
        assert_eq!(
            signed(get, "", None),
            format!(
                "{scope}, SignedHeaders=host;x-amz-date, \
                 Signature=5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"
            )
        );
        let post = Request::post("https://example.amazonaws.com/");
        assert_eq!(
            signed(post, "", None),
            format!(
                "{scope}, SignedHeaders=host;x-amz-date, \
                 Signature=5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"
            )
        );
        let form = Request::post("https://example.amazonaws.com/")
            .header("content-type", "application/x-www-form-urlencoded");
        assert_eq!(
            signed(form, "Param1=value1", None),
            format!(
                "{scope}, SignedHeaders=content-type;host;x-amz-date, \
                 Signature=ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a"
            )
        );
        let token = "AQoDYXdzEPT//////////wEXAMPLEtc764bNrC9SAPBSM22wDOk4x4HIZ8j4FZTwdQWLWsKWHGBuFqwAeM\
                     icRXmxfpSPfIeoIYRqTflfKD8YUuwthAx7mSEI/qkPpKPi/kMcGdQrmGdeehM4IC1NtBmUpp2wUE8phUZa\
                     mpKsburEDy0KPkyQDYwT7WZ0wq5VSXDvp75YU9HFvlRd8Tx6q6fE8YQcHNVXAkiY9q6d+xo0rKwT38xVqr\
                     7ZD0u0iPPkUL64lIZbqBAz+scqKmlzm8FDrypNC9Yjc8fPOLn9FX9KSYvKTr4rvx3iSIlTJabIQwj2ICCR\
                     /oLxBA==";
        let post = Request::post("https://example.amazonaws.com/");
        assert_eq!(
            signed(post, "", Some(token)),
            format!(
                "{scope}, SignedHeaders=host;x-amz-date;x-amz-security-token, \
                 Signature=85d96828115b5dc0cfc3bd16ad9e210dd772bbebba041836c64533a82be05ead"
            )
        );
    }
}
