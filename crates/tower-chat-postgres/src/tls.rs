//! TLS: verification of the server's certificate.

use std::sync::Arc;

use rustls::{
    ClientConfig, RootCertStore,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, pem::PemObject},
};
use tokio_postgres::config::{Config, SslMode};
use tokio_postgres_rustls::MakeRustlsConnect;
use tower_chat_core::{BoxError, Classified};

use crate::OpenError;

/// Returns a TLS connector, with the root certificates in `pem` or those of the operating system.
pub(crate) fn connect(config: &Config, pem: Option<&[u8]>) -> Result<MakeRustlsConnect, OpenError> {
    let failed = |cause: BoxError| OpenError::Certificates { source: Classified::permanent(cause) };
    let mut roots = RootCertStore::empty();
    match pem {
        Some(pem) => {
            for certificate in CertificateDer::pem_slice_iter(pem) {
                let certificate = certificate.map_err(|error| failed(error.into()))?;
                roots.add(certificate).map_err(|error| failed(error.into()))?;
            }
            if roots.is_empty() {
                return Err(failed("there is no certificate in the PEM text".into()));
            }
        }
        // Without TLS no root certificates are needed.
        None if config.get_ssl_mode() == SslMode::Disable => {}
        None => {
            let found = rustls_native_certs::load_native_certs();
            roots.add_parsable_certificates(found.certs);
        }
    }
    let client = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| failed(error.into()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(MakeRustlsConnect::new(client))
}
