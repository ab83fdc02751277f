//! The cryptography provider of encrypted connections.

use rustls::crypto::{CryptoProvider, aws_lc_rs};

/// Installs AWS-LC as the default cryptography provider of the process, unless the process has
/// already installed a provider. The `redis` crate uses the default provider. All other crates of
/// this workspace use AWS-LC too.
pub(crate) fn prepare() {
    if CryptoProvider::get_default().is_none() {
        // An error means that another thread has installed a provider meanwhile, and is ignored.
        drop(aws_lc_rs::default_provider().install_default());
    }
}
