//! Parses server-sent events.

use serde_json::Value;

use super::client::ApiResponse;

#[derive(Debug, Clone, PartialEq)]
pub(super) struct ServerEvent {
    pub(super) id: Option<u64>,
    pub(super) name: String,
    pub(super) data: Value,
}

pub(super) struct EventStream {
    answer: ApiResponse,
    parser: SseParser,
}

impl EventStream {
    pub(super) fn new(answer: ApiResponse) -> EventStream {
        EventStream { answer, parser: SseParser::default() }
    }

    /// Returns the next event; `None` at the end of the stream.
    pub(super) async fn next(&mut self) -> anyhow::Result<Option<ServerEvent>> {
        loop {
            if let Some(event) = self.parser.next() {
                return Ok(Some(event));
            }
            match self.answer.chunk().await? {
                Some(bytes) => self.parser.push(&bytes),
                None => return Ok(None),
            }
        }
    }
}

#[derive(Default)]
struct SseParser {
    buffer: Vec<u8>,
    /// How many bytes of the buffer are known to contain no line end.
    scanned: usize,
    id: Option<u64>,
    name: String,
    data: String,
}

impl SseParser {
    fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    fn next(&mut self) -> Option<ServerEvent> {
        loop {
            let end = self.buffer[self.scanned..].iter().position(|byte| *byte == b'\n');
            let Some(end) = end.map(|end| end + self.scanned) else {
                self.scanned = self.buffer.len();
                return None;
            };
            let line: Vec<u8> = self.buffer.drain(..=end).collect();
            self.scanned = 0;
            let line = String::from_utf8_lossy(&line);
            let line = line.trim_end_matches(['\n', '\r']);
            if line.is_empty() {
                let (name, data) = (std::mem::take(&mut self.name), std::mem::take(&mut self.data));
                if data.is_empty() {
                    continue;
                }
                let data = serde_json::from_str(&data).unwrap_or(Value::Null);
                return Some(ServerEvent { id: self.id, name, data });
            }
            let (field, value) = line.split_once(':').unwrap_or((line, ""));
            let value = value.strip_prefix(' ').unwrap_or(value);
            match field {
                "event" => self.name = value.to_owned(),
                "id" => self.id = value.parse().ok().or(self.id),
                "data" => {
                    if !self.data.is_empty() {
                        self.data.push('\n');
                    }
                    self.data.push_str(value);
                }
                // Retry times and comments are not needed.
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn events_are_reassembled_from_pieces_of_any_size() {
        let text = ": hi\nretry: 500\n\nevent: stdout\nid: 4\ndata: {\"a\":\ndata: 1}\n\nevent: x\n\
                    data: 2\r\n\r\n";
        for size in 1..text.len() {
            let (mut parser, mut seen) = (SseParser::default(), Vec::new());
            for piece in text.as_bytes().chunks(size) {
                parser.push(piece);
                while let Some(event) = parser.next() {
                    seen.push((event.name, event.data));
                }
            }
            let expected = [("stdout".to_owned(), json!({"a": 1})), ("x".to_owned(), json!(2))];
            assert_eq!(seen, expected, "pieces of {size}");
        }
    }
}
