//! Reads a stream of server-sent events, as the native routes send them.

use axum::body::{Body, BodyDataStream};
use futures_util::StreamExt;
use serde_json::Value;

/// Largest event that is read; the routes send at most 64 KiB of output in one.
const MAX_EVENT_BYTES: usize = 4 << 20;

/// One event with its JSON data.
#[derive(Debug, PartialEq)]
pub(crate) struct NativeEvent {
    pub(crate) name: String,
    pub(crate) data: Value,
}

/// The events of a response.
pub(crate) struct NativeEvents {
    body: BodyDataStream,
    buffer: Vec<u8>,
}

impl NativeEvents {
    pub(crate) fn new(body: Body) -> NativeEvents {
        NativeEvents { body: body.into_data_stream(), buffer: Vec::new() }
    }

    /// Returns the next event; `None` at the end of the stream. Cancel safe.
    pub(crate) async fn next(&mut self) -> Option<NativeEvent> {
        loop {
            while let Some(end) = find(&self.buffer, b"\n\n") {
                let block: Vec<u8> = self.buffer.drain(..end + 2).collect();
                if let Some(event) = parse(&String::from_utf8_lossy(&block)) {
                    return Some(event);
                }
            }
            if self.buffer.len() > MAX_EVENT_BYTES {
                return None;
            }
            let chunk = self.body.next().await?.ok()?;
            self.buffer.extend_from_slice(&chunk);
        }
    }
}

fn find(bytes: &[u8], pattern: &[u8]) -> Option<usize> {
    bytes.windows(pattern.len()).position(|window| window == pattern)
}

/// Parses one block; `None` if it has no event, such as a comment that keeps the stream open.
fn parse(block: &str) -> Option<NativeEvent> {
    let (mut name, mut data) = (None, String::new());
    for line in block.lines() {
        if let Some(value) = line.strip_prefix("event:") {
            name = Some(value.trim().to_owned());
        } else if let Some(value) = line.strip_prefix("data:") {
            data.push_str(value.strip_prefix(' ').unwrap_or(value));
        }
    }
    Some(NativeEvent { name: name?, data: serde_json::from_str(&data).unwrap_or_default() })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn events_are_found_across_chunks() {
        let chunks =
            [": hi\n\nevent: sta", "rted\ndata: {\"a\"", ":1}\n\nevent: exit\ndata: {}\n\n"];
        let chunks = chunks.map(Ok::<_, std::convert::Infallible>);
        let mut events = NativeEvents::new(Body::from_stream(futures_util::stream::iter(chunks)));
        let event = |name: &str, data| Some(NativeEvent { name: name.into(), data });
        assert_eq!(events.next().await, event("started", json!({"a": 1})));
        assert_eq!(events.next().await, event("exit", json!({})));
        assert_eq!(events.next().await, None);
    }
}
