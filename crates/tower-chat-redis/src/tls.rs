//! What encrypts connections.

use rustls::crypto::{CryptoProvider, ring};

/// Sees to it that there is something that encrypts: the `redis` crate takes what the process has
/// chosen. Where it has chosen nothing, it is *ring*, as in the other stores.
pub(crate) fn prepare() {
    if CryptoProvider::get_default().is_none() {
        // Somebody else may have been faster, which is as good.
        drop(ring::default_provider().install_default());
    }
}
