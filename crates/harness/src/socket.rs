//! A WebSocket client that reads frame by frame.

use std::{
    io::{ErrorKind, Write},
    net::TcpStream,
};

use serde_json::Value;
use tungstenite::{Message, client::IntoClientRequest, http::HeaderValue};

use crate::Client;

/// An open WebSocket.
pub struct Socket {
    inner: tungstenite::WebSocket<TcpStream>,
}

/// A message from the server.
#[derive(Debug, Clone, PartialEq)]
pub enum Frame {
    Bytes(Vec<u8>),
    Control(Value),
    Closed,
}

impl Client {
    /// Opens a WebSocket; returns the status if it was refused.
    pub fn socket(&self, target: &str, headers: &[(&str, &str)]) -> Result<Socket, u16> {
        let url = format!("ws://{}{target}", self.address);
        let mut request = url.into_client_request().unwrap();
        if let Some(token) = &self.token {
            let value = HeaderValue::try_from(format!("Bearer {token}")).unwrap();
            request.headers_mut().insert("authorization", value);
        }
        for (name, value) in headers {
            let name = tungstenite::http::HeaderName::try_from(*name).unwrap();
            request.headers_mut().insert(name, HeaderValue::from_str(value).unwrap());
        }
        match tungstenite::client(request, self.connect()) {
            Ok((inner, _)) => Ok(Socket { inner }),
            Err(tungstenite::HandshakeError::Failure(tungstenite::Error::Http(answer))) => {
                Err(answer.status().as_u16())
            }
            Err(error) => panic!("no WebSocket: {error}"),
        }
    }
}

impl Socket {
    /// Returns the next frame with a payload.
    pub fn next(&mut self) -> Frame {
        loop {
            match self.inner.read() {
                Ok(Message::Binary(bytes)) => return Frame::Bytes(bytes.to_vec()),
                Ok(Message::Text(text)) => {
                    return Frame::Control(serde_json::from_str(&text).unwrap());
                }
                Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_)) => {}
                // Interrupted by SIGCHLD of another test's child.
                Err(tungstenite::Error::Io(error)) if error.kind() == ErrorKind::Interrupted => {}
                Ok(Message::Close(_)) | Err(_) => return Frame::Closed,
            }
        }
    }

    /// Returns the next text of any kind; empty when the socket closes.
    pub fn next_text(&mut self) -> String {
        loop {
            match self.inner.read() {
                Ok(Message::Text(text)) => return text.to_string(),
                Ok(Message::Close(_)) => return String::new(),
                Err(tungstenite::Error::Io(error)) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return String::new(),
                Ok(_) => {}
            }
        }
    }

    pub fn send_text(&mut self, text: &str) {
        self.inner.send(Message::text(text)).unwrap();
    }

    pub fn send(&mut self, control: &Value) {
        self.inner.send(Message::text(control.to_string())).unwrap();
    }

    /// Sends bytes as they are, which need not be a frame.
    pub fn send_raw(&mut self, bytes: &[u8]) {
        self.inner.get_mut().write_all(bytes).unwrap();
    }

    /// Reads until the server closes the connection; returns its close code.
    pub fn close_code(&mut self) -> Option<u16> {
        loop {
            match self.inner.read() {
                Ok(Message::Close(frame)) => return frame.map(|frame| frame.code.into()),
                Ok(_) => {}
                Err(tungstenite::Error::Io(error)) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return None,
            }
        }
    }

    pub fn type_bytes(&mut self, bytes: &[u8]) {
        self.inner.send(Message::binary(bytes.to_vec())).unwrap();
    }
}
