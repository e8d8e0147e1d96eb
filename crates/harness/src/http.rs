//! A small blocking HTTP/1.1 client over a plain socket, so that tests can also violate the protocol.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use serde_json::Value;

use crate::WAIT_TIMEOUT;

/// Sends each request over a connection of its own.
#[derive(Debug, Clone)]
pub struct Client {
    pub address: SocketAddr,
    pub(super) token: Option<String>,
    timeout: Duration,
    receive_bytes: Option<usize>,
}

/// A request under construction.
#[derive(Debug, Clone)]
pub struct Request {
    client: Client,
    method: String,
    target: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

/// A complete response.
#[derive(Debug, Clone)]
pub struct Answer {
    pub status: u16,
    pub headers: BTreeMap<String, String>,
    pub body: Vec<u8>,
}

impl Client {
    pub fn new(address: SocketAddr, token: Option<&str>) -> Client {
        Client {
            address,
            token: token.map(str::to_owned),
            timeout: WAIT_TIMEOUT,
            receive_bytes: None,
        }
    }

    /// Returns a client with a longer timeout.
    pub fn with_long_timeout(self) -> Client {
        Client { timeout: 5 * WAIT_TIMEOUT, ..self }
    }

    /// Returns a client whose connections are full after a few kilobytes that it has not read.
    pub fn with_little_room(self) -> Client {
        Client { receive_bytes: Some(4096), ..self }
    }

    pub fn request(&self, method: &str, target: &str) -> Request {
        let mut headers = vec![("host".to_owned(), self.address.to_string())];
        if let Some(token) = &self.token {
            headers.push(("authorization".to_owned(), format!("Bearer {token}")));
        }
        let (method, target) = (method.to_owned(), target.to_owned());
        Request { client: self.clone(), method, target, headers, body: Vec::new() }
    }

    pub fn get(&self, target: &str) -> Answer {
        self.request("GET", target).send()
    }

    pub fn delete(&self, target: &str) -> Answer {
        self.request("DELETE", target).send()
    }

    pub fn post(&self, target: &str, body: Value) -> Answer {
        self.request("POST", target).json(&body).send()
    }

    pub fn put(&self, target: &str, body: Value) -> Answer {
        self.request("PUT", target).json(&body).send()
    }

    pub fn patch(&self, target: &str, body: Value) -> Answer {
        self.request("PATCH", target).json(&body).send()
    }

    /// Opens a TCP connection.
    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        if let Some(bytes) = self.receive_bytes {
            rustix::net::sockopt::set_socket_recv_buffer_size(&stream, bytes).unwrap();
        }
        stream.set_read_timeout(Some(self.timeout)).unwrap();
        stream.set_nodelay(true).unwrap();
        stream
    }

    /// Sends raw bytes and reads the response.
    pub fn raw(&self, bytes: &[u8]) -> Answer {
        let mut stream = self.connect();
        stream.write_all(bytes).unwrap();
        Answer::read(&mut BufReader::new(stream))
    }
}

impl Request {
    /// Sets a header; replaces one of the same name.
    pub fn header(mut self, name: &str, value: &str) -> Request {
        self = self.without(name);
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sends it to another target.
    pub fn to(mut self, target: &str) -> Request {
        self.target = target.to_owned();
        self
    }

    pub fn without(mut self, name: &str) -> Request {
        self.headers.retain(|(key, _)| key != name);
        self
    }

    pub fn json(self, body: &Value) -> Request {
        self.header("content-type", "application/json").body(body.to_string().as_bytes())
    }

    pub fn body(mut self, body: &[u8]) -> Request {
        self.body = body.to_vec();
        self
    }

    /// Returns the request as it is sent.
    pub fn bytes(&self) -> Vec<u8> {
        let mut text = format!("{} {} HTTP/1.1\r\n", self.method, self.target);
        for (name, value) in &self.headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        if !self.headers.iter().any(|(name, _)| name == "content-length") && !self.body.is_empty() {
            text.push_str(&format!("content-length: {}\r\n", self.body.len()));
        }
        text.push_str("\r\n");
        let mut bytes = text.into_bytes();
        bytes.extend_from_slice(&self.body);
        bytes
    }

    /// Sends the request and returns the connection.
    pub fn start(&self) -> TcpStream {
        let mut stream = self.client.connect();
        // A server that already refused the request may have closed the connection.
        let _ = stream.write_all(&self.bytes());
        stream
    }

    pub fn send(&self) -> Answer {
        let stream = self.clone().header("connection", "close").start();
        let mut reader = BufReader::new(stream);
        // An unrelated signal may interrupt the read.
        let first = loop {
            match reader.fill_buf() {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                first => break first.map(drop),
            }
        };
        if let Err(error) = first {
            let body = String::from_utf8_lossy(&self.body[..self.body.len().min(200)]);
            panic!("no answer to {} {} {body}: {error}", self.method, self.target);
        }
        let mut answer = Answer::head(&mut reader);
        if self.method != "HEAD" {
            answer.read_body(&mut reader);
        }
        answer
    }

    /// Sends the request to a server that may be killed meanwhile; then there is no response.
    pub fn attempt(&self) -> Option<Answer> {
        let mut stream = TcpStream::connect(self.client.address).ok()?;
        stream.set_read_timeout(Some(WAIT_TIMEOUT)).ok()?;
        stream.write_all(&self.clone().header("connection", "close").bytes()).ok()?;
        let mut whole = Vec::new();
        stream.read_to_end(&mut whole).ok()?;
        Answer::parse(&whole)
    }

    /// Opens a stream of server-sent events.
    #[track_caller]
    pub fn events(&self) -> Events {
        self.clone().header("accept", "text/event-stream").stream()
    }

    /// Sends the request as it is; the response must be a stream of events.
    #[track_caller]
    pub fn stream(&self) -> Events {
        let mut reader = BufReader::new(self.start());
        let mut answer = Answer::head(&mut reader);
        if answer.status != 200 {
            answer.read_body(&mut reader);
            panic!("no event stream: {} {}", answer.status, answer.text());
        }
        assert_eq!(answer.header("content-type"), Some("text/event-stream"));
        Events { lines: BufReader::new(Chunked { reader, left: 0, ended: false }) }
    }
}

impl Answer {
    /// Reads a complete response.
    pub fn read(reader: &mut BufReader<TcpStream>) -> Answer {
        let mut answer = Answer::head(reader);
        answer.read_body(reader);
        answer
    }

    /// Reads a response; returns `None` if it is incomplete.
    fn parse(bytes: &[u8]) -> Option<Answer> {
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n")?;
        let head = std::str::from_utf8(&bytes[..end]).ok()?;
        let status = head.split(' ').nth(1)?.parse().ok()?;
        let lines = head.lines().skip(1).filter_map(|line| line.split_once(':'));
        let headers: BTreeMap<_, _> = lines
            .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
            .collect();
        let body = bytes[end + 4..].to_vec();
        let length = headers.get("content-length").map_or(Ok(0), |text| text.parse());
        (length == Ok(body.len())).then_some(Answer { status, headers, body })
    }

    #[track_caller]
    fn head(reader: &mut BufReader<TcpStream>) -> Answer {
        let mut line = String::new();
        let read = reader.read_line(&mut line);
        let status = line.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.unwrap_or_else(|| panic!("not an answer: {line:?} {read:?}"));
        let mut headers = BTreeMap::new();
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            let Some((name, value)) = line.trim_end().split_once(':') else { break };
            headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
        }
        Answer { status, headers, body: Vec::new() }
    }

    fn read_body(&mut self, reader: &mut BufReader<TcpStream>) {
        if matches!(self.status, 101 | 204 | 304) {
            return;
        }
        if self.header("transfer-encoding") == Some("chunked") {
            let mut chunked = Chunked { reader, left: 0, ended: false };
            chunked.read_to_end(&mut self.body).unwrap();
        } else if let Some(length) = self.header("content-length") {
            let mut body = vec![0; length.parse().unwrap()];
            reader.read_exact(&mut body).unwrap();
            self.body = body;
        } else {
            reader.read_to_end(&mut self.body).unwrap();
        }
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Returns the JSON of a response that must have this status.
    #[track_caller]
    pub fn expect(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.text());
        if self.body.is_empty() { Value::Null } else { self.json() }
    }

    /// Returns the response, which must have this status.
    #[track_caller]
    pub fn expect_status(&self, status: u16) -> &Answer {
        assert_eq!(self.status, status, "{}", self.text());
        self
    }

    /// Returns the response, which must be a success.
    #[track_caller]
    pub fn expect_success(&self) -> &Answer {
        assert!((200..300).contains(&self.status), "{} {}", self.status, self.text());
        self
    }

    /// Returns the `code` of a problem that must have this status and all fields.
    #[track_caller]
    pub fn problem(&self, status: u16) -> String {
        assert_eq!(self.status, status, "{}", self.text());
        assert_eq!(self.header("content-type"), Some("application/problem+json"));
        let body = self.json();
        for key in ["type", "title", "detail", "code"] {
            assert!(body[key].is_string(), "no {key} in {body}");
        }
        assert_eq!(body["status"], status);
        body["code"].as_str().unwrap().to_owned()
    }
}

/// Decodes a chunked body.
#[derive(Debug)]
struct Chunked<R> {
    reader: R,
    left: usize,
    ended: bool,
}

impl<R: BufRead> Read for Chunked<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if self.left == 0 && !self.ended {
            let mut line = String::new();
            self.reader.read_line(&mut line)?;
            let size = usize::from_str_radix(line.trim(), 16);
            self.left = size.map_err(|_| std::io::Error::other(format!("bad chunk {line:?}")))?;
            self.ended = self.left == 0;
            if self.ended {
                self.reader.read_line(&mut line)?;
            }
        }
        let count = buffer.len().min(self.left);
        let count = self.reader.read(&mut buffer[..count])?;
        self.left -= count;
        if count > 0 && self.left == 0 {
            self.reader.read_line(&mut String::new())?;
        }
        Ok(count)
    }
}

/// A stream of server-sent events.
#[derive(Debug)]
pub struct Events {
    lines: BufReader<Chunked<BufReader<TcpStream>>>,
}

/// A server-sent event.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Event {
    pub name: String,
    pub id: Option<String>,
    pub data: String,
}

impl Event {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.data).unwrap()
    }
}

impl Events {
    /// Returns the next event; `None` if the stream ended or broke.
    pub fn next(&mut self) -> Option<Event> {
        let mut event = Event::default();
        loop {
            let mut line = String::new();
            match self.lines.read_line(&mut line) {
                Ok(1..) => {}
                Ok(0) | Err(_) => return None,
            }
            let line = line.trim_end_matches('\n');
            let (field, value) = line.split_once(':').unwrap_or((line, ""));
            let value = value.strip_prefix(' ').unwrap_or(value);
            match field {
                "event" => event.name = value.to_owned(),
                "id" => event.id = Some(value.to_owned()),
                "data" => event.data.push_str(value),
                "" if line.is_empty() && !event.name.is_empty() => return Some(event),
                _ => {}
            }
        }
    }

    /// Returns the data of the next event that has any; events of MCP have no names.
    #[track_caller]
    pub fn next_data(&mut self) -> String {
        let mut data = String::new();
        loop {
            let mut line = String::new();
            match self.lines.read_line(&mut line) {
                Ok(1..) => {}
                Ok(0) | Err(_) => panic!("the stream ended"),
            }
            match line.trim_end().strip_prefix("data:") {
                Some(part) => data.push_str(part.trim()),
                None if line == "\n" && !data.is_empty() => return data,
                None => {}
            }
        }
    }

    /// Skips to the next event of a name.
    #[track_caller]
    pub fn until(&mut self, name: &str) -> Event {
        let mut seen = Vec::new();
        while let Some(event) = self.next() {
            if event.name == name {
                return event;
            }
            seen.push(event);
        }
        panic!("no {name} among {seen:?}")
    }
}
