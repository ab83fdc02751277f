//! Strings with secrets, which `Debug` does not print.

use std::{fmt, sync::Arc};

use zeroize::Zeroizing;

/// A string that `Debug` does not print, and that is overwritten in memory when its last clone is
/// dropped.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret(Arc<Zeroizing<String>>);

impl Secret {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self(Arc::new(Zeroizing::new(text.into())))
    }

    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// The extension of a response with the secrets of its request, which the service may repeat in the
/// text of an error.
#[derive(Debug, Clone, Default)]
pub(crate) struct SentSecrets(Vec<Secret>);

/// The minimum length of a secret that is replaced: a shorter one could be part of a word.
const MIN_SECRET_BYTES: usize = 6;

impl SentSecrets {
    pub(crate) fn push(&mut self, secret: Secret) {
        self.0.push(secret);
    }

    /// Adds the secret in the value of a header, without a scheme such as `Bearer`.
    pub(crate) fn push_header(&mut self, value: &str) {
        let secret = value.rsplit(' ').next().unwrap_or_default();
        self.push(Secret::new(secret));
    }

    /// Replaces the secrets in a text with `[redacted]`.
    pub(crate) fn redact(&self, text: &mut String) {
        for secret in &self.0 {
            let secret = secret.expose();
            if secret.len() >= MIN_SECRET_BYTES && text.contains(secret) {
                *text = text.replace(secret, "[redacted]");
            }
        }
    }
}
