//! TLS of outbound connections.

use std::{io, sync::Arc};

use tokio_rustls::rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
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

/// A certificate with its private key, both in PEM, by which a client proves who it is.
pub struct ClientIdentity<'a> {
    pub certificate: &'a [u8],
    pub key: &'a [u8],
}

/// Returns TLS settings for one server: it is trusted only with a certificate of these authorities, in PEM. Without
/// authorities, the well-known ones are trusted.
///
/// # Errors
/// If a certificate or the key cannot be parsed.
pub fn private_config(
    authorities: Option<&[u8]>,
    identity: Option<ClientIdentity<'_>>,
) -> io::Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    match authorities {
        Some(pem) => {
            for certificate in CertificateDer::pem_slice_iter(pem) {
                let certificate = certificate.map_err(io::Error::other)?;
                roots.add(certificate).map_err(io::Error::other)?;
            }
            if roots.is_empty() {
                return Err(io::Error::other("there is no certificate of an authority"));
            }
        }
        None => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_root_certificates(roots);
    let Some(identity) = identity else { return Ok(config.with_no_client_auth()) };
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(identity.certificate).collect();
    let chain = chain.map_err(io::Error::other)?;
    let key = PrivateKeyDer::from_pem_slice(identity.key).map_err(io::Error::other)?;
    config.with_client_auth_cert(chain, key).map_err(io::Error::other)
}
