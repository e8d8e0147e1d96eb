//! The HTTP and WebSocket client of the command line.

use std::{error::Error, fmt, io, net::IpAddr, path::PathBuf, time::Duration};

use anyhow::{Context, bail};
use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use cloud::{UpgradeError, upgrade};
use futures_util::StreamExt;
use http::{
    HeaderMap, HeaderValue, Method, StatusCode,
    header::{ACCEPT, AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER},
    uri::Authority,
};
use reqwest::{Body, RequestBuilder, Response};
use serde_json::Value;
use tokio::io::AsyncRead;
use tokio_rustls::rustls;
use tokio_util::io::ReaderStream;

use super::{
    progress::with_spinner,
    trust::{self, CertificateTrust},
};
use config::{self, ConfigSources, Scheme, Settings};
use server::{certificate_path, read_address, read_token};

pub(super) use base::uri::escape;
pub(super) use cloud::WebSocket;

/// How long connecting to the server may take, with the TLS handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const UPLOAD_CHUNK_BYTES: usize = 64 << 10;
/// The maximum size of a page.
const MAX_PAGE_ITEMS: usize = 1000;

/// The options that select the server.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Server options")]
pub(super) struct ServerArgs {
    /// URL of the server (default: the server that runs in the home directory)
    #[arg(long, env = "STEAD_URL", value_name = "URL")]
    url: Option<String>,
    /// Home directory of the server, which holds its token
    #[arg(long, env = "STEAD_HOME", value_name = "DIR")]
    home: Option<PathBuf>,
    /// PEM file with the server's certificate or its certificate authority (default: the system's
    /// authorities)
    #[arg(long, env = "STEAD_CACERT", value_name = "FILE")]
    cacert: Option<PathBuf>,
}

/// The URL of a server, its token, and which certificate it must have.
#[derive(Debug)]
pub(super) struct ServerAddress {
    pub(super) url: String,
    pub(super) token: Option<String>,
    trust: CertificateTrust,
}

/// A client of one server.
#[derive(Debug, Clone)]
pub(super) struct ApiClient {
    scheme: Scheme,
    authority: String,
    token: Option<HeaderValue>,
    client: reqwest::Client,
}

/// Nothing accepts connections at the server's address.
#[derive(Debug, thiserror::Error)]
#[error("no server at {0}; start one with `stead serve`")]
pub(super) struct NoServer(String);

/// The server accepts connections, but the TLS handshake failed.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct NoTls(String);

/// An error response of the server.
#[derive(Debug)]
pub(super) struct ApiError {
    pub(super) status: StatusCode,
    pub(super) code: String,
    pub(super) detail: String,
    /// How long to wait before the request is repeated, if the server asks for that.
    pub(super) retry_after: Option<Duration>,
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}, {})", self.detail, self.code, self.status.as_u16())
    }
}

impl Error for ApiError {}

/// A successful response whose body has not been read.
pub(super) struct ApiResponse(Response);

impl ServerArgs {
    pub(super) fn client(&self) -> anyhow::Result<ApiClient> {
        let found = self.find()?;
        ApiClient::new(&found.url, found.token.as_deref(), &found.trust)
    }

    pub(super) fn cacert(&self) -> Option<&PathBuf> {
        self.cacert.as_ref()
    }

    /// Whether the server is one of this machine, which may be started.
    pub(super) fn is_local(&self) -> bool {
        self.url.is_none()
    }

    /// The options as arguments for another process, with absolute paths.
    pub(super) fn arguments(&self) -> anyhow::Result<Vec<String>> {
        let mut arguments = Vec::new();
        if let Some(url) = &self.url {
            arguments.extend(["--url".to_owned(), url.clone()]);
        }
        for (name, path) in [("--home", &self.home), ("--cacert", &self.cacert)] {
            if let Some(path) = path {
                let path = std::path::absolute(path)?.display().to_string();
                arguments.extend([name.to_owned(), path]);
            }
        }
        Ok(arguments)
    }

    /// The home directory of the server.
    pub(super) fn home(&self) -> anyhow::Result<PathBuf> {
        Ok(self.settings()?.home)
    }

    fn settings(&self) -> anyhow::Result<Settings> {
        let mut given = ConfigSources::environment();
        if let Some(home) = &self.home {
            given.flag("home", home.display().to_string(), "--home");
        }
        Ok(config::load(&given)?.settings)
    }

    /// Finds the URL and the token, without connecting.
    pub(super) fn find(&self) -> anyhow::Result<ServerAddress> {
        let settings = self.settings()?;
        let certificate = certificate_path(&settings.home);
        let own =
            read_address(&settings.home).unwrap_or_else(|| settings.local_url(settings.listen));
        let (url, trust) = match &self.url {
            Some(url) => (url, CertificateTrust::System),
            None if certificate.exists() => (&own, CertificateTrust::Home(certificate)),
            None => (&own, CertificateTrust::System),
        };
        let trust = self.cacert.clone().map_or(trust, CertificateTrust::File);
        let token = match std::env::var("STEAD_TOKEN") {
            Ok(token) => Some(token),
            Err(_) if may_receive_home_token(url, &own) => read_token(&settings.home).ok(),
            Err(_) => None,
        };
        let url = url.clone();
        Ok(ServerAddress { url, token, trust })
    }
}

impl ApiClient {
    fn new(url: &str, token: Option<&str>, trust: &CertificateTrust) -> anyhow::Result<ApiClient> {
        let (scheme, authority) = parse_url(url)?;
        let tls = match scheme {
            Scheme::Http => trust::no_authorities()?,
            Scheme::Https => trust.config()?,
        };
        let client = reqwest::Client::builder()
            .tls_backend_preconfigured(tls)
            .http1_only()
            .connect_timeout(CONNECT_TIMEOUT)
            // The server may be restarted between two requests, which breaks idle connections.
            .pool_max_idle_per_host(0)
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .build()
            .context("cannot set up the HTTP client")?;
        let token = token.map(|token| HeaderValue::try_from(format!("Bearer {token}")));
        let mut token = token.transpose().context("the token is not a valid header value")?;
        if let Some(token) = &mut token {
            token.set_sensitive(true);
        }
        Ok(ApiClient { scheme, authority: authority.to_string(), token, client })
    }

    /// The host and port of the server, for messages.
    pub(super) fn authority(&self) -> &str {
        &self.authority
    }

    fn request(&self, method: Method, path: &str) -> anyhow::Result<RequestBuilder> {
        // A URL parser would resolve these to another path.
        let segments = path.split('?').next().unwrap_or_default().split('/');
        if let Some(name) = segments.into_iter().find(|name| [".", ".."].contains(name)) {
            bail!("{name:?} is not a valid name");
        }
        let url = format!("{}://{}{path}", self.scheme.name(), self.authority);
        let request = self.client.request(method, url).header(ACCEPT, "application/json");
        Ok(match &self.token {
            Some(token) => request.header(AUTHORIZATION, token.clone()),
            None => request,
        })
    }

    /// Adds advice for the user to a transport error.
    fn explain(&self, error: reqwest::Error) -> anyhow::Error {
        let authority = &self.authority;
        if !error.is_connect() {
            return anyhow::Error::new(root_cause(&error))
                .context("the server closed the connection without a response");
        }
        let no_tls = |hint: String| anyhow::Error::new(root_cause(&error)).context(NoTls(hint));
        match tls_error(&error) {
            Some(rustls::Error::InvalidCertificate(_)) => no_tls(format!(
                "the certificate of {authority} is not trusted; --cacert FILE names one that is"
            )),
            Some(rustls::Error::InvalidMessage(_)) => {
                no_tls(format!("{authority} does not support TLS; try http://{authority}"))
            }
            Some(_) => no_tls(format!("no TLS connection to {authority}")),
            None => anyhow::Error::new(root_cause(&error)).context(NoServer(authority.clone())),
        }
    }

    /// Sends a request; an error status is an error.
    pub(super) async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        headers: &[(&'static str, &str)],
    ) -> anyhow::Result<ApiResponse> {
        let mut request = self.request(method, path)?;
        if let Some(body) = body {
            request = request.header(CONTENT_TYPE, "application/json").body(body.to_string());
        }
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(*name, HeaderValue::try_from(*value)?);
        }
        self.exchange(request.headers(map)).await
    }

    /// Sends a POST request with JSON, or a GET request, and returns the response whatever its status is.
    pub(super) async fn open(
        &self,
        path: &str,
        body: Option<String>,
        headers: HeaderMap,
    ) -> anyhow::Result<Response> {
        let request = match body {
            Some(body) => self
                .request(Method::POST, path)?
                .header(CONTENT_TYPE, "application/json")
                .body(body),
            None => self.request(Method::GET, path)?,
        };
        request.headers(headers).send().await.map_err(|error| self.explain(error))
    }

    /// Uploads a file as it is read; `progress` is called with the size of each chunk.
    pub(super) async fn upload(
        &self,
        method: Method,
        path: &str,
        content: impl AsyncRead + Send + Sync + Unpin + 'static,
        length: u64,
        mut progress: impl FnMut(usize) + Send + Sync + 'static,
    ) -> anyhow::Result<ApiResponse> {
        let chunks = ReaderStream::with_capacity(content, UPLOAD_CHUNK_BYTES);
        let chunks = chunks.inspect(move |chunk| {
            if let Ok(chunk) = chunk {
                progress(chunk.len());
            }
        });
        let request = self.request(method, path)?;
        let request = request
            .header(CONTENT_TYPE, "application/octet-stream")
            .header(CONTENT_LENGTH, length)
            .body(Body::wrap_stream(chunks));
        self.exchange(request).await
    }

    async fn exchange(&self, request: RequestBuilder) -> anyhow::Result<ApiResponse> {
        let response = request.send().await.map_err(|error| self.explain(error))?;
        match response.status().is_success() {
            true => Ok(ApiResponse(response)),
            false => Err(api_error(response).await?.into()),
        }
    }

    /// Sends a request and decodes the JSON response; an empty one is null.
    pub(super) async fn json(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> anyhow::Result<Value> {
        let request = async { self.send(method, path, body, &[]).await?.bytes().await };
        // A request that is meant to wait for something is not slow.
        let body =
            if path.contains("wait_ms=") { request.await } else { with_spinner(request).await }?;
        if body.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&body).context("the response of the server is not JSON")
    }

    pub(super) async fn get(&self, path: &str) -> anyhow::Result<Value> {
        self.json(Method::GET, path, None).await
    }

    pub(super) async fn post(&self, path: &str, body: &Value) -> anyhow::Result<Value> {
        self.json(Method::POST, path, Some(body)).await
    }

    /// Returns the items of a list, page by page, up to `limit`.
    pub(super) async fn list(&self, path: &str, limit: usize) -> anyhow::Result<Vec<Value>> {
        let (mut items, mut cursor) = (Vec::new(), None::<String>);
        loop {
            let separator = if path.contains('?') { '&' } else { '?' };
            let page_limit = (limit - items.len()).min(MAX_PAGE_ITEMS);
            let mut page = format!("{path}{separator}limit={page_limit}");
            if let Some(cursor) = &cursor {
                page.push_str(&format!("&cursor={}", escape(cursor)));
            }
            let mut response = self.get(&page).await?;
            if let Some(Value::Array(more)) = response.get_mut("items").map(Value::take) {
                items.extend(more);
            }
            cursor = response["next_cursor"].as_str().map(str::to_owned);
            if cursor.is_none() || items.len() >= limit {
                return Ok(items);
            }
        }
    }

    pub(super) async fn websocket(&self, path: &str) -> anyhow::Result<WebSocket> {
        match upgrade(self.request(Method::GET, path)?).await {
            Ok(socket) => Ok(socket),
            Err(UpgradeError::Refused(response)) => Err(api_error(*response).await?.into()),
            Err(UpgradeError::Failed(error)) => Err(self.explain(error)),
            Err(error @ UpgradeError::NoWebSocket) => Err(error.into()),
        }
    }
}

impl ApiResponse {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.0.headers().get(name).and_then(|value| value.to_str().ok())
    }

    pub(super) async fn bytes(self) -> anyhow::Result<Bytes> {
        self.0.bytes().await.context("the response was cut off")
    }

    /// Returns the next chunk of the body; `None` at its end.
    pub(super) async fn chunk(&mut self) -> anyhow::Result<Option<Bytes>> {
        self.0.chunk().await.context("the response was cut off")
    }
}

/// The rustls error in a chain of errors. `io::Error` hides the error it wraps from `source`.
fn tls_error<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
    let wrapped = |error: &'a (dyn Error + 'static)| {
        error.downcast_ref::<io::Error>()?.get_ref().map(|inner| inner as &(dyn Error + 'static))
    };
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        next = wrapped(error).or_else(|| error.source());
    }
    None
}

/// The last error of the chain, as text: the errors above it only repeat that a request failed.
fn root_cause(error: &reqwest::Error) -> io::Error {
    let mut cause: &dyn Error = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    io::Error::other(cause.to_string())
}

/// Whether the token of a home may be sent to a URL: to the home's own server and to this machine, no other.
fn may_receive_home_token(url: &str, own: &str) -> bool {
    let Ok(server) = parse_url(url) else { return false };
    let host = server.1.host().trim_start_matches('[').trim_end_matches(']');
    let is_loopback = host.eq_ignore_ascii_case("localhost")
        || host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback());
    is_loopback || parse_url(own).is_ok_and(|own| own == server)
}

fn parse_url(url: &str) -> anyhow::Result<(Scheme, Authority)> {
    let expected = || format!("{url:?}: expected http://HOST:PORT or https://HOST:PORT");
    let (scheme, rest) = [Scheme::Http, Scheme::Https]
        .into_iter()
        .find_map(|scheme| Some((scheme, url.strip_prefix(scheme.name())?.strip_prefix("://")?)))
        .with_context(expected)?;
    let authority: Authority = rest.trim_end_matches('/').parse().with_context(expected)?;
    if authority.as_str().contains('@') {
        bail!("{}, without a user", expected());
    }
    Ok((scheme, authority))
}

async fn api_error(response: Response) -> anyhow::Result<ApiError> {
    let status = response.status();
    let retry_after = response.headers().get(RETRY_AFTER);
    let retry_after = retry_after.and_then(|value| value.to_str().ok()?.trim().parse().ok());
    let retry_after = retry_after.map(Duration::from_secs);
    let body = response.bytes().await.context("the response was cut off")?;
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let text = |key: &str| body[key].as_str().map(str::to_owned);
    let code = text("code").unwrap_or_else(|| "unknown".into());
    let detail = text("detail").unwrap_or_else(|| format!("the server answered {status}"));
    Ok(ApiError { status, code, detail, retry_after })
}

/// Decodes the bytes in a message, which are text or base64.
pub(super) fn data(value: &Value) -> anyhow::Result<Vec<u8>> {
    if let Some(text) = value["data"].as_str() {
        return Ok(text.as_bytes().to_vec());
    }
    match value["data_base64"].as_str() {
        Some(text) => STANDARD.decode(text).context("the server sent invalid base64"),
        None => Ok(Vec::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_has_only_a_scheme_a_host_and_a_port() {
        let check = |url: &str, scheme, authority: &str| {
            let (seen, parsed) = parse_url(url).unwrap();
            assert_eq!((seen, parsed.as_str()), (scheme, authority), "{url}");
        };
        check("http://a:1/", Scheme::Http, "a:1");
        check("https://a.b", Scheme::Https, "a.b");
        check("https://[::1]:7832", Scheme::Https, "[::1]:7832");
        for url in ["ftp://a:1", "a:1", "http://a:1/b", "https://u@a", "http://", "httpx://a"] {
            assert!(parse_url(url).is_err(), "{url}");
        }
        let client = ApiClient::new("http://a:1", Some("secret"), &CertificateTrust::System);
        let shown = format!("{:?}", client.unwrap());
        assert!(!shown.contains("secret"), "{shown}");
    }

    #[test]
    fn the_token_of_a_home_is_only_for_its_own_server_and_this_machine() {
        let own = "https://10.0.0.1:7832";
        let may =
            ["https://10.0.0.1:7832/", "http://127.0.0.2", "http://[::1]:1", "https://LOCALHOST"];
        for url in may {
            assert!(may_receive_home_token(url, own), "{url}");
        }
        let may_not = [
            "http://10.0.0.1:7832",
            "https://10.0.0.1",
            "https://stead.example.com",
            "http://127.0.0.1.example.com",
            "http://localhost@example.com",
            "http://localhost.example.com",
        ];
        for url in may_not {
            assert!(!may_receive_home_token(url, own), "{url}");
        }
    }

    #[test]
    fn a_name_that_resolves_to_another_path_is_refused() {
        let client = ApiClient::new("http://a:1", None, &CertificateTrust::System).unwrap();
        assert!(client.request(Method::GET, "/api/threads/../leases").is_err());
        assert!(client.request(Method::GET, "/api/threads/..a?q=/../").is_ok());
    }
}
