//! SHA-256 in hexadecimal digits.

use sha2::{Digest, Sha256};

/// The digest of all bytes that were added.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sum(Sha256);

impl Sum {
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(crate) fn hex(&self) -> String {
        let digits = self.0.clone().finalize();
        digits.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}
