//! The HTTP client of registries. It has no request and no read without a deadline.

use std::io;
use std::time::Duration;

use http::{HeaderMap, StatusCode};
use reqwest::Url;

use base::outbound::bounded;

/// How long a registry may take to begin an answer, or to send a small one.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const POOL_IDLE_TIMEOUT: Duration = Duration::from_secs(20);
/// How long a registry may pause within an answer.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// A client that follows no redirect and uses no proxy.
pub(crate) struct RegistryHttp(reqwest::Client);

/// The head of an answer, and the rest of its body.
pub(crate) struct RegistryResponse(reqwest::Response);

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RequestError {
    #[error("{0}")]
    Failed(String),
    #[error("an answer is larger than {0} bytes")]
    TooLarge(usize),
}

impl RegistryHttp {
    pub(crate) fn new() -> io::Result<Self> {
        let client = reqwest::Client::builder()
            .user_agent(concat!("stead/", env!("CARGO_PKG_VERSION")))
            .tls_backend_preconfigured(base::outbound::tls::client_config()?)
            .http1_only()
            .connect_timeout(CONNECT_TIMEOUT)
            .pool_idle_timeout(POOL_IDLE_TIMEOUT)
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .build();
        Ok(Self(client.map_err(io::Error::other)?))
    }

    pub(crate) async fn get(
        &self,
        url: Url,
        headers: HeaderMap,
    ) -> Result<RegistryResponse, RequestError> {
        let sent = self.0.get(url).headers(headers).send();
        match bounded("registry.request", REQUEST_TIMEOUT, sent).await {
            Ok(Ok(response)) => Ok(RegistryResponse(response)),
            Ok(Err(error)) => Err(failed(error)),
            Err(late) => Err(RequestError::Failed(late.to_string())),
        }
    }
}

impl RegistryResponse {
    pub(crate) fn status(&self) -> StatusCode {
        self.0.status()
    }

    pub(crate) fn headers(&self) -> &HeaderMap {
        self.0.headers()
    }

    /// Adds the next bytes of the body to a buffer. Returns their number, which is 0 at the end.
    pub(crate) async fn read(&mut self, to: &mut Vec<u8>) -> Result<usize, RequestError> {
        let chunk = match tokio::time::timeout(IDLE_TIMEOUT, self.0.chunk()).await {
            Ok(chunk) => chunk.map_err(failed)?,
            Err(_) => {
                let reason = format!("it sent nothing for {IDLE_TIMEOUT:?}");
                return Err(RequestError::Failed(reason));
            }
        };
        let chunk = chunk.unwrap_or_default();
        to.extend_from_slice(&chunk);
        Ok(chunk.len())
    }

    /// Reads a small body to its end.
    pub(crate) async fn document(mut self, max_bytes: usize) -> Result<Vec<u8>, RequestError> {
        let read = async {
            let mut bytes = Vec::new();
            while self.read(&mut bytes).await? > 0 {
                if bytes.len() > max_bytes {
                    return Err(RequestError::TooLarge(max_bytes));
                }
            }
            Ok(bytes)
        };
        match bounded("registry.document", REQUEST_TIMEOUT, read).await {
            Ok(read) => read,
            Err(late) => Err(RequestError::Failed(late.to_string())),
        }
    }
}

/// The last error of the chain names the cause.
fn failed(error: reqwest::Error) -> RequestError {
    let mut cause: &dyn std::error::Error = &error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    RequestError::Failed(cause.to_string())
}
