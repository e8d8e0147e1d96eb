//! Which server certificates the command line accepts.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::Context;
use tokio_rustls::rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_name,
    },
    crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject},
    server::ParsedCertificate,
};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CertificateTrust {
    /// A certificate for the host name from a certificate authority of this system.
    System,
    /// A certificate for the host name that is in this file, or from an authority in it.
    File(PathBuf),
    /// Exactly the certificate that the server stored in its home, whatever its host name: the home is
    /// private.
    Home(PathBuf),
}

impl CertificateTrust {
    pub(super) fn config(&self) -> anyhow::Result<ClientConfig> {
        let provider = Arc::new(ring::default_provider());
        let authorities = match self {
            CertificateTrust::System => Some(system_roots()?),
            CertificateTrust::File(path) => {
                let mut roots = RootCertStore::empty();
                let found = read(path)
                    .with_context(|| format!("cannot read certificates in {}", path.display()))?;
                roots.add_parsable_certificates(found);
                anyhow::ensure!(!roots.is_empty(), "no certificate in {}", path.display());
                Some(roots)
            }
            CertificateTrust::Home(_) => None,
        };
        let authorities = authorities.map(|roots| {
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build()
        });
        let authorities = authorities.transpose().context("cannot use the certificates")?;
        let verifier =
            CertificateVerifier { trust: self.clone(), authorities, provider: provider.clone() };
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .context("cannot set up TLS")?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_no_client_auth();
        Ok(config)
    }
}

/// TLS settings that accept no server, for a client of plain HTTP.
pub(super) fn no_authorities() -> anyhow::Result<ClientConfig> {
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .context("cannot set up TLS")?;
    Ok(config.with_root_certificates(RootCertStore::empty()).with_no_client_auth())
}

fn system_roots() -> anyhow::Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    roots.add_parsable_certificates(found.certs);
    anyhow::ensure!(
        !roots.is_empty(),
        "this system has no certificate authorities; install ca-certificates, or use --cacert FILE"
    );
    Ok(roots)
}

fn read(path: &Path) -> io::Result<Vec<CertificateDer<'static>>> {
    CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(io::Error::other)
}

/// Accepts a certificate that is itself in the file, which the usual rules refuse if it is self-signed and
/// marked as an authority; leaves every other certificate to the authorities.
#[derive(Debug)]
struct CertificateVerifier {
    trust: CertificateTrust,
    authorities: Option<Arc<WebPkiServerVerifier>>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for CertificateVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        // Read each time, because the server replaces the file when its certificate changes.
        let listed = |path: &Path| read(path).is_ok_and(|found| found.contains(end_entity));
        match &self.trust {
            CertificateTrust::Home(path) if listed(path) => {
                return Ok(ServerCertVerified::assertion());
            }
            CertificateTrust::File(path) if listed(path) => {
                verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
                return Ok(ServerCertVerified::assertion());
            }
            CertificateTrust::Home(_) | CertificateTrust::File(_) | CertificateTrust::System => {}
        }
        match &self.authorities {
            Some(authorities) => authorities.verify_server_cert(
                end_entity,
                intermediates,
                server_name,
                ocsp_response,
                now,
            ),
            None => Err(CertificateError::UnknownIssuer.into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a client with this trust accepts the certificate under this name.
    fn accepts(
        trust: &CertificateTrust,
        certificate: &CertificateDer<'_>,
        name: &'static str,
    ) -> bool {
        let provider = Arc::new(ring::default_provider());
        let authorities = match trust {
            CertificateTrust::File(path) => {
                let mut roots = RootCertStore::empty();
                roots.add_parsable_certificates(read(path).unwrap());
                let roots = Arc::new(roots);
                let built =
                    WebPkiServerVerifier::builder_with_provider(roots, provider.clone()).build();
                Some(built.unwrap())
            }
            CertificateTrust::Home(_) | CertificateTrust::System => None,
        };
        let verifier = CertificateVerifier { trust: trust.clone(), authorities, provider };
        let name = ServerName::try_from(name).unwrap();
        verifier.verify_server_cert(certificate, &[], &name, &[], UnixTime::now()).is_ok()
    }

    fn self_signed(names: &[&str], is_ca: rcgen::IsCa) -> rcgen::Certificate {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = rcgen::CertificateParams::new(names).unwrap();
        params.is_ca = is_ca;
        params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap()
    }

    #[test]
    fn a_self_signed_certificate_is_trusted_by_its_file_for_its_name_alone() {
        let path = std::env::temp_dir().join(format!("stead-trust-{}", std::process::id()));
        let authority = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        for is_ca in [rcgen::IsCa::NoCa, authority] {
            let (ours, other) = (self_signed(&["a.b"], is_ca), self_signed(&["a.b"], is_ca));
            std::fs::write(&path, ours.pem()).unwrap();
            let file = CertificateTrust::File(path.clone());
            assert!(accepts(&file, ours.der(), "a.b"));
            assert!(!accepts(&file, ours.der(), "b.a"));
            assert!(!accepts(&file, other.der(), "a.b"));
            // The certificate in the home is accepted under any name.
            let home = CertificateTrust::Home(path.clone());
            assert!(accepts(&home, ours.der(), "b.a") && !accepts(&home, other.der(), "a.b"));
        }
        std::fs::remove_file(&path).unwrap();
        assert!(CertificateTrust::File(path).config().is_err());
    }
}
