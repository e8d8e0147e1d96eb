//! The one way the command line talks to the server: HTTP and WebSocket.

use std::{fmt, path::PathBuf};

use anyhow::{Context, bail};
use bytes::Bytes;
use futures_util::StreamExt;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::{
    Method, StatusCode,
    body::{Frame, Incoming},
    header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderMap, HeaderValue},
};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::{io::AsyncRead, net::TcpStream};
use tokio_tungstenite::{WebSocketStream, tungstenite};
use tokio_util::io::ReaderStream;

use crate::{
    config::{self, Said},
    server::{read_address, read_token},
};

/// Where the server is and how to get in.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct Target {
    /// Address of the server (default: the one running in the home directory)
    #[arg(long, env = "STEAD_URL", value_name = "URL")]
    url: Option<String>,
    /// Home directory of the server, where its token is
    #[arg(long, env = "STEAD_HOME", value_name = "DIR")]
    home: Option<PathBuf>,
}

/// A client of one server.
#[derive(Debug, Clone)]
pub(super) struct Client {
    authority: String,
    token: Option<HeaderValue>,
}

/// A refusal of the server, as it said it.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) status: StatusCode,
    pub(super) code: String,
    detail: String,
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
pub(super) type Socket = WebSocketStream<TcpStream>;

impl Target {
    /// Finds the server and its token.
    pub(super) fn client(&self) -> anyhow::Result<Client> {
        let mut said = Said::environment();
        if let Some(home) = &self.home {
            said.flag("home", home.display().to_string(), "--home");
        }
        let settings = config::load(&said)?.settings;
        let url = match &self.url {
            Some(url) => url.clone(),
            None => read_address(&settings.home)
                .unwrap_or_else(|| format!("http://{}", settings.listen)),
        };
        let token = match std::env::var("STEAD_TOKEN") {
            Ok(token) => Some(token),
            Err(_) => read_token(&settings.home).ok(),
        };
        Client::new(&url, token.as_deref())
    }
}

impl Client {
    fn new(url: &str, token: Option<&str>) -> anyhow::Result<Client> {
        let Some(rest) = url.strip_prefix("http://") else {
            bail!("{url:?}: expected http://HOST:PORT; reach a remote server through a tunnel");
        };
        let authority = rest.trim_end_matches('/').to_owned();
        if authority.contains('/') {
            bail!("{url:?}: expected http://HOST:PORT without a path");
        }
        let token = token.map(|token| HeaderValue::try_from(format!("Bearer {token}")));
        let mut token = token.transpose().context("the token is not fit for a header")?;
        if let Some(token) = &mut token {
            token.set_sensitive(true);
        }
        Ok(Client { authority, token })
    }

    /// The server's address, for messages.
    pub(super) fn authority(&self) -> &str {
        &self.authority
    }

    async fn connect(&self) -> anyhow::Result<TcpStream> {
        let address = match self.authority.rsplit_once(':') {
            Some((_, port)) if port.parse::<u16>().is_ok() => self.authority.clone(),
            _ => format!("{}:80", self.authority),
        };
        let stream = TcpStream::connect(&address).await.with_context(|| {
            format!("no server at {}; start one with `stead serve`", self.authority)
        })?;
        stream.set_nodelay(true)?;
        Ok(stream)
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
        Err(refusal(parts.status, &answer.bytes().await?).into())
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
                Err(refusal(answer.status(), &body).into())
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

fn refusal(status: StatusCode, body: &[u8]) -> Refusal {
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let text = |key: &str| body[key].as_str().map(str::to_owned);
    let code = text("code").unwrap_or_else(|| "unknown".into());
    let detail = text("detail").unwrap_or_else(|| format!("the server answered {status}"));
    Refusal { status, code, detail }
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
        assert_eq!(Client::new("http://a:1/", None).unwrap().authority, "a:1");
        for url in ["https://a:1", "a:1", "http://a:1/b"] {
            assert!(Client::new(url, None).is_err(), "{url}");
        }
        let shown = format!("{:?}", Client::new("http://a:1", Some("secret")).unwrap());
        assert!(!shown.contains("secret"), "{shown}");
    }

    #[test]
    fn names_are_escaped() {
        assert_eq!(escape("a b/é?"), "a%20b%2F%C3%A9%3F");
    }
}
