//! A key.

use std::fmt;

use zeroize::Zeroizing;

use crate::EncryptionError;

/// 32 secret bytes. They are overwritten when it is dropped, and never shown.
#[derive(Clone)]
pub struct SecretKey(Zeroizing<[u8; 32]>);

impl SecretKey {
    /// A key of these bytes, which must not be guessable: no passwords.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// A new random key.
    ///
    /// # Errors
    ///
    /// [`EncryptionError::NoRandomNumbers`].
    pub fn random() -> Result<Self, EncryptionError> {
        let mut bytes = Zeroizing::new([0; 32]);
        getrandom::fill(&mut *bytes).map_err(|_| EncryptionError::NoRandomNumbers)?;
        Ok(Self(bytes))
    }

    /// The bytes, to keep them somewhere safe.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretKey(..)")
    }
}
