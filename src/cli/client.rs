//! The one way the command line talks to the server: HTTP and WebSocket.

use std::{fmt, path::PathBuf, sync::Arc, time::Duration};

use anyhow::{Context, bail};
use bytes::Bytes;
use futures_util::StreamExt;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::{
    Method, StatusCode,
    body::{Frame, Incoming},
    header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderMap, HeaderValue, RETRY_AFTER},
    http::uri::Authority,
};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::{
    TlsConnector,
    rustls::{self, ClientConfig, pki_types::ServerName},
};
use tokio_tungstenite::{WebSocketStream, tungstenite};
use tokio_util::io::ReaderStream;

use super::trust::Trust;
use crate::server::{certificate_path, read_address, read_token};
use config::{self, ConfigSources, Scheme};

/// How long the server may take to accept a connection, and again for the TLS handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Where the server is and how to get in.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct Target {
    /// Address of the server (default: the one running in the home directory)
    #[arg(long, env = "STEAD_URL", value_name = "URL")]
    url: Option<String>,
    /// Home directory of the server, where its token is
    #[arg(long, env = "STEAD_HOME", value_name = "DIR")]
    home: Option<PathBuf>,
    /// PEM file with the server's certificate or the authority that issued it (default: the system's
    /// authorities)
    #[arg(long, env = "STEAD_CACERT", value_name = "FILE")]
    cacert: Option<PathBuf>,
}

/// Where a server is, what opens it, and which certificate it must have.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) url: String,
    pub(super) token: Option<String>,
    trust: Trust,
}

/// A client of one server.
#[derive(Debug, Clone)]
pub(super) struct Client {
    authority: String,
    host: String,
    port: u16,
    token: Option<HeaderValue>,
    tls: Option<Arc<ClientConfig>>,
}

/// Nothing accepts connections at the server's address.
#[derive(Debug, thiserror::Error)]
#[error("no server at {0}; start one with `stead serve`")]
pub(super) struct NoServer(String);

/// The server is there, but no TLS connection to it could be made.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct NoTls(String);

/// A refusal of the server, as it said it.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) status: StatusCode,
    pub(super) code: String,
    pub(super) detail: String,
    /// The pause that the server asks for before the request is repeated.
    pub(super) retry_after: Option<Duration>,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}, {})", self.detail, self.code, self.status.as_u16())
    }
}

impl std::error::Error for Refusal {}

/// An answer whose body has not been read.
pub(super) struct Answer {
    pub(super) headers: HeaderMap,
    body: Incoming,
}

/// A WebSocket to the server.
pub(super) type Socket = WebSocketStream<Box<dyn Stream>>;

/// A connection, with or without TLS.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

impl Target {
    /// Returns a client of the server.
    pub(super) fn client(&self) -> anyhow::Result<Client> {
        let found = self.find()?;
        Client::new(&found.url, found.token.as_deref(), &found.trust)
    }

    /// The certificate file that the caller named.
    pub(super) fn cacert(&self) -> Option<&PathBuf> {
        self.cacert.as_ref()
    }

    /// Finds the server and its token; connects to nothing.
    pub(super) fn find(&self) -> anyhow::Result<Found> {
        let mut said = ConfigSources::environment();
        if let Some(home) = &self.home {
            said.flag("home", home.display().to_string(), "--home");
        }
        let settings = config::load(&said)?.settings;
        let certificate = certificate_path(&settings.home);
        let (url, trust) = match &self.url {
            Some(url) => (url.clone(), Trust::System),
            None => (
                read_address(&settings.home).unwrap_or_else(|| settings.local_url(settings.listen)),
                if certificate.exists() { Trust::Home(certificate) } else { Trust::System },
            ),
        };
        let trust = self.cacert.clone().map_or(trust, Trust::File);
        let token = match std::env::var("STEAD_TOKEN") {
            Ok(token) => Some(token),
            Err(_) => read_token(&settings.home).ok(),
        };
        Ok(Found { url, token, trust })
    }
}

impl Client {
    fn new(url: &str, token: Option<&str>, trust: &Trust) -> anyhow::Result<Client> {
        let (scheme, authority) = parse_url(url)?;
        let host = authority.host().trim_matches(['[', ']']).to_owned();
        let port = authority.port_u16().unwrap_or(scheme.default_port());
        let tls = match scheme {
            Scheme::Http => None,
            Scheme::Https => Some(trust.config()?),
        };
        let authority = authority.to_string();
        let token = token.map(|token| HeaderValue::try_from(format!("Bearer {token}")));
        let mut token = token.transpose().context("the token is not fit for a header")?;
        if let Some(token) = &mut token {
            token.set_sensitive(true);
        }
        Ok(Client { authority, host, port, token, tls })
    }

    /// The server's address, for messages.
    pub(super) fn authority(&self) -> &str {
        &self.authority
    }

    async fn connect(&self) -> anyhow::Result<Box<dyn Stream>> {
        let no_server = || NoServer(self.authority.clone());
        let connected = TcpStream::connect((self.host.as_str(), self.port));
        let connected = timeout(CONNECT_TIMEOUT, connected).await.with_context(no_server)?;
        let stream = connected.with_context(no_server)?;
        stream.set_nodelay(true)?;
        let Some(tls) = &self.tls else { return Ok(Box::new(stream)) };
        let name = ServerName::try_from(self.host.clone())
            .with_context(|| format!("{:?} is not the name of a server", self.host))?;
        let handshake = TlsConnector::from(tls.clone()).connect(name, stream);
        let shaken = timeout(CONNECT_TIMEOUT, handshake)
            .await
            .with_context(|| format!("{} does not complete the TLS handshake", self.authority))?;
        Ok(Box::new(shaken.map_err(|error| self.no_handshake(error))?))
    }

    fn no_handshake(&self, error: std::io::Error) -> anyhow::Error {
        let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
        let authority = &self.authority;
        let hint = match cause {
            Some(rustls::Error::InvalidCertificate(_)) => format!(
                "the certificate of {authority} is not trusted; --cacert FILE names one that is"
            ),
            Some(rustls::Error::InvalidMessage(_)) => {
                format!("{authority} does not speak TLS; try http://{authority}")
            }
            _ => format!("no TLS connection to {authority}"),
        };
        anyhow::Error::new(error).context(NoTls(hint))
    }

    /// Sends a request; a refusal is an error.
    pub(super) async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        headers: &[(&'static str, &str)],
    ) -> anyhow::Result<Answer> {
        let kind = body.is_some().then_some("application/json");
        let body = Full::new(Bytes::from(body.map(Value::to_string).unwrap_or_default()));
        self.exchange(method, path, kind, headers, body).await
    }

    /// Sends a file as it is read; `progress` is told of each piece.
    pub(super) async fn upload(
        &self,
        method: Method,
        path: &str,
        content: impl AsyncRead + Send + Sync + Unpin + 'static,
        length: u64,
        mut progress: impl FnMut(usize) + Send + Sync + 'static,
    ) -> anyhow::Result<Answer> {
        let pieces = ReaderStream::with_capacity(content, 64 << 10).map(move |piece| {
            let piece = piece?;
            progress(piece.len());
            Ok::<_, std::io::Error>(Frame::data(piece))
        });
        let length = length.to_string();
        let headers = [("content-length", length.as_str())];
        let kind = Some("application/octet-stream");
        self.exchange(method, path, kind, &headers, StreamBody::new(pieces)).await
    }

    async fn exchange<B>(
        &self,
        method: Method,
        path: &str,
        kind: Option<&'static str>,
        headers: &[(&'static str, &str)],
        body: B,
    ) -> anyhow::Result<Answer>
    where
        B: hyper::body::Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let stream = self.connect().await?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        let mut request = hyper::Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, &self.authority)
            .header(ACCEPT, "application/json");
        if let Some(map) = request.headers_mut() {
            if let Some(token) = &self.token {
                map.insert(AUTHORIZATION, token.clone());
            }
            if let Some(kind) = kind {
                map.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
            }
            for (name, value) in headers {
                map.insert(*name, HeaderValue::try_from(*value)?);
            }
        }
        let request = request.body(body)?;
        let response = sender.send_request(request).await.context("the server hung up")?;
        let (parts, body) = response.into_parts();
        let answer = Answer { headers: parts.headers, body };
        if parts.status.is_success() {
            return Ok(answer);
        }
        let retry_after = retry_after(&answer.headers);
        Err(refusal(parts.status, retry_after, &answer.bytes().await?).into())
    }

    /// Asks for JSON; an empty answer is null.
    pub(super) async fn json(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> anyhow::Result<Value> {
        let answer = self.send(method, path, body, &[]).await?.bytes().await?;
        if answer.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&answer).context("the server's answer is not JSON")
    }

    pub(super) async fn get(&self, path: &str) -> anyhow::Result<Value> {
        self.json(Method::GET, path, None).await
    }

    pub(super) async fn post(&self, path: &str, body: &Value) -> anyhow::Result<Value> {
        self.json(Method::POST, path, Some(body)).await
    }

    /// Every item of a list, page by page, up to `most`.
    pub(super) async fn list(&self, path: &str, most: usize) -> anyhow::Result<Vec<Value>> {
        let (mut items, mut cursor) = (Vec::new(), None::<String>);
        loop {
            let mark = if path.contains('?') { '&' } else { '?' };
            let limit = (most - items.len()).min(1000);
            let mut page = format!("{path}{mark}limit={limit}");
            if let Some(cursor) = &cursor {
                page.push_str(&format!("&cursor={}", escape(cursor)));
            }
            let mut answer = self.get(&page).await?;
            if let Some(Value::Array(more)) = answer.get_mut("items").map(Value::take) {
                items.extend(more);
            }
            cursor = answer["next_cursor"].as_str().map(str::to_owned);
            if cursor.is_none() || items.len() >= most {
                return Ok(items);
            }
        }
    }

    /// Opens a WebSocket.
    pub(super) async fn socket(&self, path: &str) -> anyhow::Result<Socket> {
        use tungstenite::client::IntoClientRequest;
        let stream = self.connect().await?;
        let mut request = format!("ws://{}{path}", self.authority).into_client_request()?;
        if let Some(token) = &self.token {
            request.headers_mut().insert(AUTHORIZATION, token.clone());
        }
        match tokio_tungstenite::client_async(request, stream).await {
            Ok((socket, _)) => Ok(socket),
            Err(tungstenite::Error::Http(answer)) => {
                let body = answer.body().clone().unwrap_or_default();
                Err(refusal(answer.status(), retry_after(answer.headers()), &body).into())
            }
            Err(error) => Err(error).context("the server hung up"),
        }
    }
}

impl Answer {
    /// The whole body.
    pub(super) async fn bytes(self) -> anyhow::Result<Bytes> {
        Ok(self.body.collect().await.context("the answer was cut off")?.to_bytes())
    }

    /// The next piece of the body; none at its end.
    pub(super) async fn chunk(&mut self) -> anyhow::Result<Option<Bytes>> {
        while let Some(frame) = self.body.frame().await {
            if let Ok(data) = frame.context("the answer was cut off")?.into_data() {
                return Ok(Some(data));
            }
        }
        Ok(None)
    }
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

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds: u64 = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds))
}

fn refusal(status: StatusCode, retry_after: Option<Duration>, body: &[u8]) -> Refusal {
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let text = |key: &str| body[key].as_str().map(str::to_owned);
    let code = text("code").unwrap_or_else(|| "unknown".into());
    let detail = text("detail").unwrap_or_else(|| format!("the server answered {status}"));
    Refusal { status, code, detail, retry_after }
}

/// A path segment or query value, percent-encoded.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                escaped.push(char::from(byte));
            }
            _ => escaped.push_str(&format!("%{byte:02X}")),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_plain_address_is_taken() {
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
        let client = Client::new("http://a:1", Some("secret"), &Trust::System);
        let shown = format!("{:?}", client.unwrap());
        assert!(!shown.contains("secret"), "{shown}");
    }

    #[test]
    fn names_are_escaped() {
        assert_eq!(escape("a b/é?"), "a%20b%2F%C3%A9%3F");
    }
}
