//! WebSockets over the HTTP client.

use http::StatusCode;
use http::header::{
    CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use reqwest::{RequestBuilder, Response, Upgraded};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::{client::generate_key, derive_accept_key};
use tokio_tungstenite::tungstenite::protocol::Role;

pub type WebSocket = WebSocketStream<Upgraded>;

/// Why a request did not become a WebSocket.
#[derive(Debug, thiserror::Error)]
pub enum UpgradeError {
    #[error("the server answered {}", .0.status())]
    Refused(Box<Response>),
    #[error("no response")]
    Failed(#[from] reqwest::Error),
    #[error("the response does not complete a WebSocket handshake")]
    NoWebSocket,
}

/// Sends a GET request with the headers of a WebSocket handshake and takes over its connection.
///
/// # Errors
/// The request fails, or the server answers anything but the end of the handshake.
pub async fn upgrade(request: RequestBuilder) -> Result<WebSocket, UpgradeError> {
    let key = generate_key();
    let request = request
        .header(CONNECTION, "Upgrade")
        .header(UPGRADE, "websocket")
        .header(SEC_WEBSOCKET_VERSION, "13")
        .header(SEC_WEBSOCKET_KEY, &key);
    let response = request.send().await?;
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        return Err(UpgradeError::Refused(Box::new(response)));
    }
    let accepted = response.headers().get(SEC_WEBSOCKET_ACCEPT);
    if accepted.is_none_or(|accepted| *accepted != derive_accept_key(key.as_bytes())) {
        return Err(UpgradeError::NoWebSocket);
    }
    let connection = response.upgrade().await?;
    Ok(WebSocketStream::from_raw_socket(connection, Role::Client, None).await)
}
