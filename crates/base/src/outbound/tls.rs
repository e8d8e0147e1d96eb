//! TLS of outbound connections.

use std::{io, sync::Arc};

use tokio_rustls::rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, pem::PemObject},
};

/// Returns TLS settings with the well-known certificate authorities and those in `SSL_CERT_FILE`.
///
/// # Errors
/// If the cryptography of this build supports no version of TLS.
pub fn client_config() -> io::Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    if let Some(file) = std::env::var_os("SSL_CERT_FILE") {
        let certificates = CertificateDer::pem_file_iter(file).into_iter().flatten().flatten();
        roots.add_parsable_certificates(certificates);
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}
