//! The cryptography of encrypted connections.

use rustls::crypto::{CryptoProvider, aws_lc_rs};

/// Installs a default cryptography provider, which the `redis` crate uses, unless the process has
/// installed one. The default is AWS-LC, as in the other crates.
pub(crate) fn prepare() {
    if CryptoProvider::get_default().is_none() {
        // Another thread may have installed one meanwhile, which is fine.
        drop(aws_lc_rs::default_provider().install_default());
    }
}
