//! Secret keys.

use std::fmt;

use zeroize::{Zeroize, Zeroizing};

use crate::EncryptionError;

/// A secret key of 32 bytes. The bytes are overwritten when the key is dropped, and are never
/// displayed.
///
/// Moving the key, for example with a map, does not copy the bytes. Each clone has its own bytes.
/// Other copies are not overwritten: bytes that a caller has passed or copied, and registers and
/// pages that the operating system has saved.
#[derive(Clone)]
pub struct SecretKey(Box<Zeroizing<[u8; 32]>>);

impl SecretKey {
    /// Creates a key from these bytes, which must be unpredictable. The bytes of a password are
    /// predictable.
    pub fn from_bytes(mut bytes: [u8; 32]) -> Self {
        let key = Self::filled_by(|secret| secret.copy_from_slice(&bytes));
        bytes.zeroize();
        key
    }

    /// Creates a random key.
    ///
    /// # Errors
    ///
    /// [`EncryptionError::NoRandomNumbers`].
    pub fn random() -> Result<Self, EncryptionError> {
        let mut key = Self::filled_by(|_| ());
        getrandom::fill(&mut **key.0).map_err(|_| EncryptionError::NoRandomNumbers)?;
        Ok(key)
    }

    /// Creates a key whose bytes are written at their final address.
    pub(crate) fn filled_by(fill: impl FnOnce(&mut [u8; 32])) -> Self {
        let mut bytes = Box::new(Zeroizing::new([0; 32]));
        fill(&mut bytes);
        Self(bytes)
    }

    /// Returns the bytes, for the caller to store them in a safe place.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretKey(..)")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn moving_a_key_does_not_copy_its_bytes() {
        let mut keys = HashMap::new();
        let mut addresses = Vec::new();
        for number in 0..1_000_u16 {
            let key = SecretKey::from_bytes([7; 32]);
            addresses.push(key.as_bytes().as_ptr());
            keys.insert(number, (number.to_string(), key));
        }
        for (number, address) in (0..1_000).zip(addresses) {
            let (_, key) = keys.remove(&number).unwrap();
            assert_eq!(key.as_bytes().as_ptr(), address, "key {number} was copied");
            assert_eq!(key.as_bytes(), &[7; 32]);
        }
    }

    #[test]
    fn a_clone_of_a_key_has_its_own_copy_of_the_bytes() {
        let key = SecretKey::from_bytes([9; 32]);
        let clone = key.clone();
        assert_ne!(key.as_bytes().as_ptr(), clone.as_bytes().as_ptr());
        drop(key);
        assert_eq!(clone.as_bytes(), &[9; 32]);
    }
}
