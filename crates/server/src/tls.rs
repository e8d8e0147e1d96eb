//! TLS on the server's own port: rustls with `ring`, TLS 1.2 and 1.3.
//!
//! Certificate and key are read at start and again when either file changes. An invalid pair is logged once and
//! the current pair stays in use. Open connections keep the certificate they started with.
//! `HOME/certificate.pem` is a copy of the certificate, so that the command line on this machine trusts it
//! whatever its issuer and names are.

use std::{
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::Context;
use base64::{Engine, engine::general_purpose::STANDARD};
use parking_lot::RwLock;
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
    time::{MissedTickBehavior, interval, timeout},
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        ServerConfig,
        crypto::ring,
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    },
    server::TlsStream,
};
use tokio_util::sync::CancellationToken;

use super::home;

/// Deadline of a handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Time between two checks of the files.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// The response to a client that sends plain HTTP to this port.
const PLAIN_HTTP_RESPONSE: &str = "HTTP/1.1 400 Bad Request\r\n\
    content-type: application/problem+json\r\nconnection: close\r\ncontent-length: 161\r\n\r\n\
    {\"type\":\"about:blank\",\"title\":\"The request is not valid\",\"status\":400,\
    \"detail\":\"this port speaks TLS; the URL must begin with https://\",\"code\":\"invalid_request\"}";

/// The current certificate, and the files it is read from.
pub(super) struct Tls {
    cert: PathBuf,
    key: PathBuf,
    home: PathBuf,
    current: RwLock<Arc<Current>>,
}

struct Current {
    config: Arc<ServerConfig>,
    chain: Vec<CertificateDer<'static>>,
}

/// The outcome of a reload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reload {
    Replaced,
    Unchanged,
}

/// Identifies the content of a file; changes when the file is written or replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileStamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Tls {
    /// Reads certificate and key, and copies the certificate to `home`.
    pub(super) fn load((cert, key): (&Path, &Path), home: &Path) -> anyhow::Result<Tls> {
        let current = read(cert, key)?;
        home::write_certificate(home, &pem(&current.chain))
            .with_context(|| format!("cannot write the certificate to {}", home.display()))?;
        Ok(Tls {
            cert: cert.to_owned(),
            key: key.to_owned(),
            home: home.to_owned(),
            current: RwLock::new(Arc::new(current)),
        })
    }

    /// Performs the handshake on a new connection, within its deadline. `wrap` converts the TCP stream first.
    pub(super) async fn handshake<S>(
        &self,
        mut stream: TcpStream,
        wrap: impl FnOnce(TcpStream) -> S,
    ) -> io::Result<TlsStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let handshake = async {
            let mut first = [0];
            // A handshake starts with byte 22, a plain request with its method.
            if stream.peek(&mut first).await? == 1 && first[0].is_ascii_uppercase() {
                stream.write_all(PLAIN_HTTP_RESPONSE.as_bytes()).await?;
                return Err(io::Error::new(io::ErrorKind::InvalidData, "plain HTTP to a TLS port"));
            }
            TlsAcceptor::from(self.current().config.clone()).accept(wrap(stream)).await
        };
        timeout(HANDSHAKE_TIMEOUT, handshake).await.unwrap_or_else(|_| {
            Err(io::Error::new(io::ErrorKind::TimedOut, "the TLS handshake timed out"))
        })
    }

    /// Reads the files again whenever they change, until the server stops.
    pub(super) async fn reload_on_change(self: Arc<Tls>, stopping: CancellationToken) {
        let mut ticks = interval(POLL_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // Not the current state of the files: they may have changed since they were read.
        let mut seen = None;
        loop {
            tokio::select! {
                () = stopping.cancelled() => return,
                _ = ticks.tick() => {}
            }
            let tls = self.clone();
            let checked = base::task::blocking(move || tls.check(seen)).await;
            match checked {
                Ok(stamps) => seen = stamps,
                Err(error) => tracing::error!(%error, "cannot check the certificate"),
            }
        }
    }

    /// Reloads the files if they differ from `seen`; returns their stamps.
    fn check(&self, seen: Option<[FileStamp; 2]>) -> Option<[FileStamp; 2]> {
        let stamps = stamp(&self.cert).and_then(|cert| Ok([cert, stamp(&self.key)?]));
        let stamps = match stamps {
            Ok(stamps) if Some(stamps) == seen => return seen,
            Ok(stamps) => stamps,
            // A file is being replaced. If it stays missing, the next start reports it.
            Err(error) => {
                tracing::debug!(%error, "certificate or key is missing");
                return seen;
            }
        };
        match self.reload() {
            Ok(Reload::Replaced) => {
                tracing::info!(cert = %self.cert.display(), "certificate replaced")
            }
            Ok(Reload::Unchanged) => {}
            Err(error) => {
                let error = format!("{error:#}");
                tracing::warn!(error, "the new certificate is invalid; keeping the current one");
            }
        }
        Some(stamps)
    }

    /// Loads the pair from the files.
    fn reload(&self) -> anyhow::Result<Reload> {
        let next = read(&self.cert, &self.key)?;
        let previous = self.current();
        if previous.chain == next.chain {
            return Ok(Reload::Unchanged);
        }
        // Both, so that a command line that starts right now trusts either.
        let both = [next.chain.clone(), previous.chain[..1].to_vec()].concat();
        home::write_certificate(&self.home, &pem(&both)).context("cannot write the certificate")?;
        *self.current.write() = Arc::new(next);
        Ok(Reload::Replaced)
    }

    fn current(&self) -> Arc<Current> {
        self.current.read().clone()
    }
}

fn read(cert: &Path, key: &Path) -> anyhow::Result<Current> {
    let chain = CertificateDer::pem_file_iter(cert)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .with_context(|| format!("cannot read the certificate {}", cert.display()))?;
    anyhow::ensure!(!chain.is_empty(), "there is no certificate in {}", cert.display());
    let secret = PrivateKeyDer::from_pem_file(key)
        .with_context(|| format!("cannot read the private key {}", key.display()))?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .context("cannot set up TLS")?
        .with_no_client_auth()
        .with_single_cert(chain.clone(), secret)
        .with_context(|| format!("cannot use {} with {}", cert.display(), key.display()))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Current { config: Arc::new(config), chain })
}

fn stamp(path: &Path) -> io::Result<FileStamp> {
    let file = std::fs::metadata(path)?;
    Ok(FileStamp {
        device: file.dev(),
        inode: file.ino(),
        size: file.size(),
        modified: (file.mtime(), file.mtime_nsec()),
        changed: (file.ctime(), file.ctime_nsec()),
    })
}

fn pem(chain: &[CertificateDer<'_>]) -> String {
    let mut text = String::new();
    for certificate in chain {
        text.push_str("-----BEGIN CERTIFICATE-----\n");
        let encoded = STANDARD.encode(certificate);
        for line in encoded.as_bytes().chunks(64) {
            text.push_str(std::str::from_utf8(line).expect("base64 is ASCII"));
            text.push('\n');
        }
        text.push_str("-----END CERTIFICATE-----\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    struct Files(PathBuf);

    impl Files {
        fn new(name: &str) -> Files {
            let name = format!("stead-tls-{name}-{}", std::process::id());
            let path = std::env::temp_dir().join(name);
            fs::create_dir_all(&path).unwrap();
            Files(path)
        }

        fn cert(&self) -> PathBuf {
            self.0.join("cert")
        }

        fn key(&self) -> PathBuf {
            self.0.join("key")
        }

        fn load(&self) -> anyhow::Result<Tls> {
            Tls::load((&self.cert(), &self.key()), &self.0)
        }

        /// The certificates in the home directory.
        fn copied(&self) -> Vec<Vec<u8>> {
            let chain = CertificateDer::pem_file_iter(home::certificate_path(&self.0)).unwrap();
            chain.map(|certificate| certificate.unwrap().to_vec()).collect()
        }
    }

    impl Drop for Files {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// Returns certificate and key as PEM, and the certificate as DER.
    fn pair() -> (String, String, Vec<u8>) {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        (made.cert.pem(), made.signing_key.serialize_pem(), made.cert.der().to_vec())
    }

    #[test]
    fn a_new_pair_is_used_once_both_files_match() {
        let files = Files::new("reload");
        let (cert, key, first) = pair();
        fs::write(files.cert(), cert).unwrap();
        fs::write(files.key(), key).unwrap();
        let tls = files.load().unwrap();
        assert_eq!(files.copied(), std::slice::from_ref(&first));
        let seen = tls.check(None);
        assert!(seen.is_some() && tls.check(seen) == seen);

        let (cert, key, second) = pair();
        fs::write(files.cert(), cert).unwrap();
        let half = tls.check(seen);
        assert_ne!(half, seen);
        assert_eq!(tls.current().chain[0].as_ref(), first, "a key that does not match is not used");
        fs::write(files.key(), key).unwrap();
        let whole = tls.check(half);
        assert_eq!(tls.current().chain[0].as_ref(), second);
        assert_eq!(files.copied(), [second.clone(), first]);

        fs::remove_file(files.key()).unwrap();
        assert_eq!(tls.check(whole), whole);
        assert_eq!(tls.current().chain[0].as_ref(), second);
    }

    #[test]
    fn an_error_names_the_file() {
        let files = Files::new("mistakes");
        let refused = || format!("{:#}", files.load().err().unwrap());
        assert!(refused().contains("/cert"), "{}", refused());
        let (cert, key, _) = pair();
        fs::write(files.cert(), &key).unwrap();
        fs::write(files.key(), &cert).unwrap();
        assert!(refused().starts_with("there is no certificate in "), "{}", refused());
        fs::write(files.cert(), &cert).unwrap();
        assert!(refused().starts_with("cannot read the private key "), "{}", refused());
        fs::write(files.key(), pair().1).unwrap();
        assert!(refused().starts_with("cannot use "), "{}", refused());
    }

    #[test]
    fn the_response_to_plain_http_has_its_declared_length() {
        let (head, body) = PLAIN_HTTP_RESPONSE.split_once("\r\n\r\n").unwrap();
        let length: usize = head.rsplit_once(": ").unwrap().1.parse().unwrap();
        assert_eq!(body.len(), length);
    }
}
