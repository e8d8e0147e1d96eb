//! A small blocking HTTP/1.1 client over a plain socket that can disconnect at a chosen byte.

use std::{
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

use serde_json::Value;

/// How long a connection may take to open.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The address, the token and the timeout of requests; each request has its own connection.
#[derive(Debug, Clone)]
pub struct Http {
    /// The server's address.
    pub address: SocketAddr,
    /// The bearer token.
    pub token: String,
    /// How long a whole request may take before it counts as unanswered.
    pub timeout: Duration,
}

/// A request.
#[derive(Debug, Clone)]
pub struct HttpRequest {
    method: &'static str,
    target: String,
    key: Option<String>,
    body: Vec<u8>,
    json: bool,
}

/// A complete answer.
#[derive(Debug, Clone)]
pub struct HttpResponse {
    /// The status code.
    pub status: u16,
    headers: Vec<(String, String)>,
    /// The body without its framing.
    pub body: Vec<u8>,
}

/// Why there is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HttpFailure {
    /// The server cannot have received the whole request: it must have no effect.
    NotSent,
    /// The connection ended before the answer was complete.
    Broken,
    /// There was no answer within the timeout.
    Unanswered,
}

/// When a client disconnects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Vanish {
    /// After this many thousandths of the request's bytes.
    InRequest(u16),
    /// This long after the whole request was sent.
    InAnswer(Duration),
}

impl HttpRequest {
    /// Creates a request without a body.
    #[must_use]
    pub fn new(method: &'static str, target: impl Into<String>) -> HttpRequest {
        HttpRequest { method, target: target.into(), key: None, body: Vec::new(), json: false }
    }

    /// Sets a JSON body.
    #[must_use]
    pub fn json(mut self, body: &Value) -> HttpRequest {
        self.body = body.to_string().into_bytes();
        self.json = true;
        self
    }

    /// Sets a raw body.
    #[must_use]
    pub fn body(mut self, body: Vec<u8>) -> HttpRequest {
        self.body = body;
        self
    }

    /// Sets the `Idempotency-Key`.
    #[must_use]
    pub fn key(mut self, key: Option<String>) -> HttpRequest {
        self.key = key;
        self
    }

    /// Returns method and target, for a report.
    #[must_use]
    pub fn describe(&self) -> String {
        format!("{} {}", self.method, self.target)
    }

    fn bytes(&self, http: &Http) -> Vec<u8> {
        let mut head = format!(
            "{} {} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\nconnection: close\r\n",
            self.method, self.target, http.address, http.token
        );
        if let Some(key) = &self.key {
            head.push_str(&format!("idempotency-key: {key}\r\n"));
        }
        if self.json {
            head.push_str("content-type: application/json\r\n");
        }
        if self.method != "GET" {
            head.push_str(&format!("content-length: {}\r\n", self.body.len()));
        }
        head.push_str("\r\n");
        let mut bytes = head.into_bytes();
        bytes.extend_from_slice(&self.body);
        bytes
    }
}

impl Http {
    /// Sends a request and reads the whole answer.
    ///
    /// # Errors
    /// Why the request was not answered.
    pub fn send(
        &self,
        request: &HttpRequest,
        vanish: Option<Vanish>,
    ) -> Result<HttpResponse, HttpFailure> {
        let started = Instant::now();
        let mut stream = TcpStream::connect_timeout(&self.address, CONNECT_TIMEOUT)
            .map_err(|_| HttpFailure::NotSent)?;
        let _ = stream.set_nodelay(true);
        let bytes = request.bytes(self);
        let last = match vanish {
            Some(Vanish::InRequest(thousandths)) => bytes.len() * usize::from(thousandths) / 1000,
            Some(Vanish::InAnswer(_)) | None => bytes.len(),
        };
        if last < bytes.len() {
            let _ = stream.write_all(&bytes[..last]);
            return Err(HttpFailure::NotSent);
        }
        let _ = stream.set_write_timeout(Some(self.timeout));
        stream.write_all(&bytes).map_err(|_| HttpFailure::Broken)?;
        if let Some(Vanish::InAnswer(after)) = vanish {
            std::thread::sleep(after);
            return Err(HttpFailure::Broken);
        }
        let mut received = Vec::new();
        let mut buffer = vec![0; 64 << 10];
        loop {
            let left = self.timeout.saturating_sub(started.elapsed());
            if left.is_zero() {
                return Err(HttpFailure::Unanswered);
            }
            let _ = stream.set_read_timeout(Some(left));
            match stream.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => received.extend_from_slice(&buffer[..count]),
                Err(error) => match error.kind() {
                    ErrorKind::Interrupted => {}
                    ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                        return Err(HttpFailure::Unanswered);
                    }
                    _ => return Err(HttpFailure::Broken),
                },
            }
        }
        HttpResponse::parse(&received).ok_or(HttpFailure::Broken)
    }

    /// Sends a request without a body.
    ///
    /// # Errors
    /// As [`Http::send`].
    pub fn get(&self, target: impl Into<String>) -> Result<HttpResponse, HttpFailure> {
        self.send(&HttpRequest::new("GET", target), None)
    }
}

impl HttpResponse {
    /// Parses an answer; `None` if it was cut off.
    fn parse(bytes: &[u8]) -> Option<HttpResponse> {
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n")?;
        let head = std::str::from_utf8(&bytes[..end]).ok()?;
        let status = head.split(' ').nth(1)?.parse().ok()?;
        let headers: Vec<(String, String)> = head
            .lines()
            .skip(1)
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
            .collect();
        let mut answer = HttpResponse { status, headers, body: bytes[end + 4..].to_vec() };
        if answer.header("transfer-encoding") == Some("chunked") {
            answer.body = dechunk(&answer.body)?;
        } else if let Some(length) = answer.header("content-length") {
            if length.parse() != Ok(answer.body.len()) {
                return None;
            }
        } else if status != 204 {
            return None;
        }
        Some(answer)
    }

    /// Returns the value of a header, by its lower-case name.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// Returns the body as JSON, or null.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }

    /// Returns whether the status is 2xx.
    #[must_use]
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// Returns the status and the first bytes of the body, for a report.
    #[must_use]
    pub fn summary(&self) -> String {
        let body = String::from_utf8_lossy(&self.body[..self.body.len().min(300)]).into_owned();
        format!("{} {body}", self.status)
    }
}

/// Decodes a chunked body; returns `None` if the last chunk is missing.
fn dechunk(mut bytes: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let line = bytes.windows(2).position(|two| two == b"\r\n")?;
        let size = std::str::from_utf8(&bytes[..line]).ok()?;
        let size = usize::from_str_radix(size.split(';').next()?.trim(), 16).ok()?;
        bytes = &bytes[line + 2..];
        if size == 0 {
            return Some(body);
        }
        body.extend_from_slice(bytes.get(..size)?);
        bytes = bytes.get(size + 2..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_truncated_answer_is_not_an_answer() {
        let whole = b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabc";
        assert_eq!(HttpResponse::parse(whole).map(|answer| answer.body), Some(b"abc".to_vec()));
        for length in 0..whole.len() {
            assert!(HttpResponse::parse(&whole[..length]).is_none(), "{length} bytes");
        }
        let chunked =
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n";
        assert_eq!(HttpResponse::parse(chunked).map(|answer| answer.body), Some(b"abc".to_vec()));
        assert!(HttpResponse::parse(&chunked[..chunked.len() - 6]).is_none());
    }
}
