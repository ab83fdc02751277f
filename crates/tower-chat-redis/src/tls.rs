//! What encrypts connections.

use rustls::crypto::{CryptoProvider, aws_lc_rs};

/// Sees to it that there is something that encrypts: the `redis` crate takes what the process has
/// chosen. Where it has chosen nothing, it is AWS-LC, as in the other crates.
pub(crate) fn prepare() {
    if CryptoProvider::get_default().is_none() {
        // Somebody else may have been faster, which is as good.
        drop(aws_lc_rs::default_provider().install_default());
    }
}
