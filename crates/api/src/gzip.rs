//! Compression: a screen of 5,000 coloured lines is 400 KB, and a twentieth of that as gzip.
//!
//! Server-sent events are compressed for clients that accept gzip, each flushed separately so that none waits
//! for the next. Output on a WebSocket is not compressed: the echo of a keystroke would get larger and later.

use std::io::Write;

use axum::{
    body::Body,
    extract::Request,
    http::{HeaderMap, HeaderValue, header},
    middleware::Next,
    response::Response,
};
use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use futures_util::{StreamExt, stream};
use tower_http::{CompressionLevel, compression::CompressionLayer};

/// Smaller snapshots are sent uncompressed: they fit one or two packets either way.
const MIN_COMPRESSED_BYTES: usize = 1024;

/// A third smaller than level 1 in a fifth more time; level 3 costs twice as much.
const LEVEL: Compression = Compression::new(2);

/// The encoding of snapshots on a WebSocket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SnapshotEncoding {
    Plain,
    /// Compressed if the snapshot is large enough.
    Gzip,
}

/// Compresses responses to clients that send `Accept-Encoding: gzip`.
pub(super) fn responses() -> CompressionLayer {
    CompressionLayer::new().quality(CompressionLevel::Fastest)
}

/// Compresses a snapshot; returns `None` if it is too small.
pub(super) async fn compress_snapshot(bytes: Bytes) -> Option<Bytes> {
    if bytes.len() < MIN_COMPRESSED_BYTES {
        return None;
    }
    // Takes milliseconds for a long scrollback, which must not delay keystrokes on this thread.
    base::task::blocking(move || {
        let small = Vec::with_capacity(bytes.len() / 8);
        let mut encoder = GzEncoder::new(small, LEVEL);
        encoder.write_all(&bytes).ok()?;
        encoder.finish().ok().map(Bytes::from)
    })
    .await
    .ok()?
}

/// Compresses server-sent events for clients that send `Accept-Encoding: gzip`.
pub(super) async fn events(request: Request, next: Next) -> Response {
    let accepted = accepts_gzip(request.headers());
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    let is_stream = headers
        .get(header::CONTENT_TYPE)
        .is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
    if !is_stream || headers.contains_key(header::CONTENT_ENCODING) {
        return response;
    }
    headers.append(header::VARY, HeaderValue::from_static("accept-encoding"));
    if !accepted {
        return response;
    }
    headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    headers.remove(header::CONTENT_LENGTH);
    response.map(compressed)
}

/// Compresses a body; every chunk can be decoded as soon as it arrives.
fn compressed(body: Body) -> Body {
    let encoder = GzEncoder::new(Vec::new(), LEVEL);
    let pieces = body.into_data_stream().map(Some).chain(stream::once(async { None }));
    let compressed = pieces.scan(encoder, |encoder, piece| {
        let piece = match piece {
            Some(Ok(bytes)) => encoder.write_all(&bytes).and_then(|()| encoder.flush()),
            Some(Err(error)) => Err(std::io::Error::other(error)),
            None => encoder.try_finish(),
        };
        let piece = piece.map(|()| Bytes::from(std::mem::take(encoder.get_mut())));
        std::future::ready(Some(piece))
    });
    Body::from_stream(compressed)
}

/// Whether `Accept-Encoding` lists gzip or `*` with a weight above 0.
fn accepts_gzip(headers: &HeaderMap) -> bool {
    let lines = headers.get_all(header::ACCEPT_ENCODING).iter();
    let mut codings = lines.filter_map(|line| line.to_str().ok()).flat_map(|line| line.split(','));
    codings.any(|coding| {
        let mut parts = coding.split(';').map(str::trim);
        let name = parts.next().unwrap_or_default();
        let refused = parts
            .filter_map(|part| part.strip_prefix("q="))
            .any(|weight| weight.parse::<f32>().is_ok_and(|weight| weight == 0.0));
        (name.eq_ignore_ascii_case("gzip") || name == "*") && !refused
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gzip_must_be_accepted_explicitly() {
        let check = |line: &'static str, expected: bool| {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static(line));
            assert_eq!(accepts_gzip(&headers), expected, "{line}");
        };
        check("gzip", true);
        check("br, GZIP;q=0.5", true);
        check("*", true);
        check("gzip;q=0", false);
        check("gzip; q=0.0, br", false);
        check("identity", false);
        check("", false);
    }

    #[tokio::test]
    async fn each_event_can_be_decoded_before_the_next_arrives() {
        let (sender, receiver) = tokio::sync::mpsc::channel::<Bytes>(1);
        let body = stream::unfold(receiver, |mut receiver| async {
            let piece = receiver.recv().await?;
            Some((Ok::<_, std::convert::Infallible>(piece), receiver))
        });
        let mut pieces = compressed(Body::from_stream(body)).into_data_stream();
        let mut decoder = flate2::write::GzDecoder::new(Vec::new());
        for text in ["event: data\n\n", "event: more\n\n"] {
            sender.send(Bytes::from_static(text.as_bytes())).await.unwrap();
            decoder.write_all(&pieces.next().await.unwrap().unwrap()).unwrap();
            decoder.flush().unwrap();
            assert_eq!(std::mem::take(decoder.get_mut()), text.as_bytes());
        }
        drop(sender);
        decoder.write_all(&pieces.next().await.unwrap().unwrap()).unwrap();
        assert_eq!(decoder.finish().unwrap(), b"");
        assert!(pieces.next().await.is_none());
    }
}
