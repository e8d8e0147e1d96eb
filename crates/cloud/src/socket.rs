//! WebSockets to what a vendor has in its sandboxes.

use http::{HeaderName, HeaderValue, Uri};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_tungstenite::tungstenite::{Error, client::IntoClientRequest};
use tokio_tungstenite::{WebSocketStream, client_async};

use super::http::{ANSWER, Client, Fault};

/// A connection.
pub(super) type Socket = WebSocketStream<Box<dyn Wire>>;

/// What a socket stands on.
pub(super) trait Wire: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Wire for T {}

impl Client {
    /// Opens a socket at an address, which may be written as one of HTTP.
    pub(super) async fn socket(
        &self,
        url: &str,
        headers: Vec<(HeaderName, HeaderValue)>,
    ) -> Result<Socket, Fault> {
        let broken = |why: String| Fault::Broken { vendor: self.vendor(), why };
        let connect = async {
            let uri: Uri = url.parse().map_err(|error| broken(format!("{url}: {error}")))?;
            let secure = matches!(uri.scheme_str(), Some("https" | "wss"));
            let name = uri.host().ok_or_else(|| broken("a socket has no address".to_owned()))?;
            let port = uri.port_u16().unwrap_or(if secure { 443 } else { 80 });
            let said = |error: &dyn std::error::Error| broken(error.to_string());
            let tcp = TcpStream::connect((name, port)).await.map_err(|error| said(&error))?;
            tcp.set_nodelay(true).map_err(|error| said(&error))?;
            let wire: Box<dyn Wire> = if secure {
                let server = ServerName::try_from(name.to_owned()).map_err(|error| said(&error))?;
                let tls = TlsConnector::from(self.tls());
                Box::new(tls.connect(server, tcp).await.map_err(|error| said(&error))?)
            } else {
                Box::new(tcp)
            };
            let address = if url.starts_with("http") {
                url.replacen("http", "ws", 1)
            } else {
                url.to_owned()
            };
            let mut request = address.into_client_request().map_err(|error| said(&error))?;
            request.headers_mut().extend(headers);
            match client_async(request, wire).await {
                Ok((socket, _)) => Ok(socket),
                Err(Error::Http(answer)) => {
                    let (vendor, status) = (self.vendor(), answer.status());
                    let words = answer.body().as_deref().map(String::from_utf8_lossy);
                    let words = words.unwrap_or_default().chars().take(300).collect();
                    Err(Fault::Status { vendor, status, words })
                }
                Err(error) => Err(said(&error)),
            }
        };
        let late = |_| broken("no connection to a terminal in time".to_owned());
        timeout(ANSWER, connect).await.map_err(late)?
    }
}
