//! The cryptography provider of encrypted connections.

use rustls::crypto::{CryptoProvider, aws_lc_rs};

/// Installs AWS-LC as the default cryptography provider of the process, which the `redis` crate
/// uses, unless the process has already installed a provider.
pub(crate) fn prepare() {
    if CryptoProvider::get_default().is_none() {
        // An error means that another thread has installed a provider meanwhile, and is ignored.
        drop(aws_lc_rs::default_provider().install_default());
    }
}
