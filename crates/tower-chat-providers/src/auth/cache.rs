//! A cache for one token or one set of credentials. The value is fetched again shortly before it
//! expires.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};

use futures_util::future::BoxFuture;
use tokio::sync::Mutex;
use tower_chat_core::BoxError;

/// The error of a source of tokens or credentials.
#[derive(Debug, Clone)]
pub struct AuthError {
    source: Arc<BoxError>,
}

impl fmt::Display for AuthError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the source of tokens or credentials failed: {}", self.source)
    }
}

impl std::error::Error for AuthError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&**self.source)
    }
}

impl AuthError {
    pub(super) fn new(source: impl Into<BoxError>) -> Self {
        Self { source: Arc::new(source.into()) }
    }
}

/// A value that may have an expiry time.
pub(super) trait Expiring {
    fn expires_at(&self) -> Option<SystemTime>;
}

impl Expiring for super::source::Token {
    fn expires_at(&self) -> Option<SystemTime> {
        self.expires_at
    }
}

type Fetch<V> = dyn Fn() -> BoxFuture<'static, Result<V, BoxError>> + Send + Sync;

/// A source of tokens or credentials, and the newest value that it returned.
pub(super) struct Cache<V> {
    fetch: Box<Fetch<V>>,
    /// The number of completed fetches.
    fetches: AtomicU64,
    /// The newest value or error. Each fetch holds the lock, so that only one fetch runs at a time.
    newest: Mutex<Option<Result<Fetched<V>, AuthError>>>,
}

struct Fetched<V> {
    value: Arc<V>,
    /// The time from which the value is no longer returned, and the source is called again.
    renew_at: Option<SystemTime>,
}

impl<V: Expiring> Cache<V> {
    pub(super) fn new(
        fetch: impl Fn() -> BoxFuture<'static, Result<V, BoxError>> + Send + Sync + 'static,
    ) -> Self {
        Self { fetch: Box::new(fetch), fetches: AtomicU64::new(0), newest: Mutex::new(None) }
    }

    /// Returns the cached value if it is valid. Otherwise fetches a new value.
    pub(super) async fn get(&self) -> Result<Arc<V>, AuthError> {
        self.valid_value_except(None).await
    }

    /// Returns another value than `refused`, the value that a service has refused.
    pub(super) async fn renew(&self, refused: &Arc<V>) -> Result<Arc<V>, AuthError> {
        self.valid_value_except(Some(refused)).await
    }

    async fn valid_value_except(&self, refused: Option<&Arc<V>>) -> Result<Arc<V>, AuthError> {
        let fetches = self.fetches.load(Ordering::Acquire);
        let mut newest = self.newest.lock().await;
        match &*newest {
            Some(Ok(fetched))
                if fetched.is_valid()
                    && refused.is_none_or(|refused| !Arc::ptr_eq(refused, &fetched.value)) =>
            {
                return Ok(fetched.value.clone());
            }
            // This request has waited for the fetch of another request, which failed. Its own fetch
            // would probably fail too.
            Some(Err(error)) if fetches != self.fetches.load(Ordering::Acquire) => {
                return Err(error.clone());
            }
            _ => {}
        }
        let fetched = (self.fetch)().await.map(Fetched::new).map_err(AuthError::new);
        let value = fetched.as_ref().map(|fetched| fetched.value.clone()).map_err(Clone::clone);
        *newest = Some(fetched);
        self.fetches.fetch_add(1, Ordering::Release);
        value
    }
}

impl<V: Expiring> Fetched<V> {
    fn new(value: V) -> Self {
        let renew_at = value.expires_at().map(|expiry| {
            let lifetime = expiry.duration_since(SystemTime::now()).unwrap_or_default();
            expiry.checked_sub(MAX_MARGIN.min(lifetime / 10)).unwrap_or(expiry)
        });
        Self { value: Arc::new(value), renew_at }
    }

    fn is_valid(&self) -> bool {
        self.renew_at.is_none_or(|renew_at| SystemTime::now() < renew_at)
    }
}

/// The maximum time before its expiry at which a value is fetched again.
const MAX_MARGIN: Duration = Duration::from_secs(60);
