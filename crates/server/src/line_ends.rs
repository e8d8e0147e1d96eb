//! Refuses requests whose head has a line that ends in LF without CR.
//!
//! hyper accepts both line ends, as RFC 9112 permits. A proxy in front of this server that only accepts CRLF sees
//! other headers than we do, or another number of requests. hyper does not pass on the bytes of a head, so this stream
//! remembers what hyper reads until hyper delivers the request, and derives from its headers where the next head begins.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use http::{HeaderMap, header};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Largest head of a request.
pub(super) const MAX_HEAD_BYTES: usize = 64 * 1024;
/// Bytes that hyper reads before it delivers a request, at most: a head, and what arrived behind it.
const MAX_HELD_BYTES: usize = 2 * MAX_HEAD_BYTES;

/// Where the requests of a connection begin and end; shared by the stream and the service.
#[derive(Clone)]
pub(super) struct Heads(Arc<Mutex<RequestPosition>>);

/// The part of the request that the next byte belongs to.
enum RequestPosition {
    Head(Vec<u8>),
    /// The body, with this many bytes left.
    Body(u64),
    Chunked(ChunkPosition),
    /// The beginning of the next head is unknown. An upgraded connection ends here, too.
    Unknown,
}

/// The part of a chunked body (RFC 9112, 7.1) that the next byte belongs to.
#[derive(Clone, Copy)]
enum ChunkPosition {
    Size(u64),
    /// After the digits of the size.
    Extension(u64),
    /// The data and its line end.
    Data(u64),
    /// A line after the last chunk, with this many bytes so far.
    Trailer(u64),
}

impl Heads {
    pub(super) fn new() -> Heads {
        Heads(Arc::new(Mutex::new(RequestPosition::Head(Vec::new()))))
    }

    /// Takes the head of a request that hyper delivers. Returns whether each of its lines ends in CRLF.
    pub(super) fn take(&self, headers: &HeaderMap) -> bool {
        let mut position = self.0.lock();
        let RequestPosition::Head(held) = &mut *position else { return false };
        let held = std::mem::take(held);
        let Some(end) = head_end(&held) else { return false };
        let length = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok());
        *position = match length.and_then(|length| length.parse().ok()) {
            _ if headers.contains_key(header::TRANSFER_ENCODING) => {
                RequestPosition::Chunked(ChunkPosition::Size(0))
            }
            Some(0) | None => RequestPosition::Head(Vec::new()),
            Some(length) => RequestPosition::Body(length),
        };
        position.read(&held[end..]);
        held[..end].iter().enumerate().all(|(at, &byte)| {
            byte != b'\n' || at.checked_sub(1).is_some_and(|before| held[before] == b'\r')
        })
    }
}

impl RequestPosition {
    fn read(&mut self, mut bytes: &[u8]) {
        while let Some((&first, rest)) = bytes.split_first() {
            match self {
                RequestPosition::Head(held) => {
                    held.extend_from_slice(bytes);
                    if held.len() > MAX_HELD_BYTES {
                        *self = RequestPosition::Unknown;
                    }
                    return;
                }
                RequestPosition::Body(left)
                | RequestPosition::Chunked(ChunkPosition::Data(left)) => {
                    let left = *left;
                    bytes = self.skip(left, bytes);
                }
                RequestPosition::Chunked(chunk) => {
                    *self = chunk.next(first);
                    bytes = rest;
                }
                RequestPosition::Unknown => return,
            }
        }
    }

    /// Skips data of a body, of which `left` bytes are to come.
    fn skip<'a>(&mut self, left: u64, bytes: &'a [u8]) -> &'a [u8] {
        let skipped = usize::try_from(left).map_or(bytes.len(), |left| left.min(bytes.len()));
        let left = left - skipped as u64;
        *self = match self {
            RequestPosition::Chunked(_) if left == 0 => {
                RequestPosition::Chunked(ChunkPosition::Size(0))
            }
            RequestPosition::Chunked(_) => RequestPosition::Chunked(ChunkPosition::Data(left)),
            _ if left == 0 => RequestPosition::Head(Vec::new()),
            _ => RequestPosition::Body(left),
        };
        &bytes[skipped..]
    }
}

impl ChunkPosition {
    fn next(self, byte: u8) -> RequestPosition {
        let digit = char::from(byte).to_digit(16).map(u64::from);
        RequestPosition::Chunked(match (self, byte, digit) {
            (ChunkPosition::Size(size), _, Some(digit)) => {
                match size.checked_mul(16).and_then(|size| size.checked_add(digit)) {
                    Some(size) => ChunkPosition::Size(size),
                    None => return RequestPosition::Unknown,
                }
            }
            (ChunkPosition::Size(0) | ChunkPosition::Extension(0), b'\n', _) => {
                ChunkPosition::Trailer(0)
            }
            // The data ends in CRLF.
            (ChunkPosition::Size(size) | ChunkPosition::Extension(size), b'\n', _) => {
                ChunkPosition::Data(size.saturating_add(2))
            }
            (ChunkPosition::Size(size) | ChunkPosition::Extension(size), _, _) => {
                ChunkPosition::Extension(size)
            }
            (ChunkPosition::Trailer(0), b'\n', _) => return RequestPosition::Head(Vec::new()),
            (ChunkPosition::Trailer(_), b'\n', _) => ChunkPosition::Trailer(0),
            (ChunkPosition::Trailer(length), b'\r', _) => ChunkPosition::Trailer(length),
            (ChunkPosition::Trailer(length), _, _) => {
                ChunkPosition::Trailer(length.saturating_add(1))
            }
            (ChunkPosition::Data(_), _, _) => return RequestPosition::Unknown,
        })
    }
}

/// Returns the position after the first empty line that follows another line.
fn head_end(bytes: &[u8]) -> Option<usize> {
    let start = bytes.iter().position(|byte| !matches!(byte, b'\r' | b'\n'))?;
    (start..bytes.len()).find_map(|at| match &bytes[at..] {
        [b'\n', b'\n', ..] => Some(at + 2),
        [b'\n', b'\r', b'\n', ..] => Some(at + 3),
        _ => None,
    })
}

/// A stream that reports to [`Heads`] what is read from it.
pub(super) struct HeadObserver<S> {
    stream: S,
    heads: Heads,
}

impl<S> HeadObserver<S> {
    pub(super) fn new(stream: S, heads: Heads) -> HeadObserver<S> {
        HeadObserver { stream, heads }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for HeadObserver<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        self.heads.0.lock().read(&buffer.filled()[before..]);
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for HeadObserver<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, data)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, data)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    const MIXED: &str = "GET / HTTP/1.1\r\nHost: x\nA: b\r\n\r\n";

    fn headers(pair: Option<(&'static str, &'static str)>) -> HeaderMap {
        let mut headers = HeaderMap::new();
        if let Some((name, value)) = pair {
            headers.insert(name, value.parse().unwrap());
        }
        headers
    }

    /// Sends a request with a body and then a second head, in pieces of every size.
    fn check(body: Option<(&'static str, &'static str)>, first: &str, second: &str, ok: bool) {
        let head = HEAD.replace("\r\n\r\n", "\r\nX: y\r\n\r\n");
        let all = [head.as_str(), first, second].concat();
        for size in 1..all.len() {
            let heads = Heads::new();
            let mut taken = Vec::new();
            for piece in all.as_bytes().chunks(size) {
                heads.0.lock().read(piece);
                let complete = match &*heads.0.lock() {
                    RequestPosition::Head(held) => head_end(held).is_some(),
                    _ => false,
                };
                if complete {
                    taken.push(heads.take(&headers(if taken.is_empty() { body } else { None })));
                }
            }
            if taken.len() == 1 {
                taken.push(heads.take(&headers(None)));
            }
            assert_eq!(taken, [true, ok], "{all:?} in pieces of {size}");
        }
    }

    #[test]
    fn the_head_of_every_request_on_a_connection_is_checked() {
        let length = Some(("content-length", "5"));
        let chunked = Some(("transfer-encoding", "chunked"));
        for (second, ok) in [(HEAD, true), (MIXED, false)] {
            check(None, "", second, ok);
            check(None, "\r\n", second, ok);
            check(length, "a\nb\n\n", second, ok);
            check(chunked, "5\r\na\n\n\nb\r\n0\r\n\r\n", second, ok);
            check(chunked, "A;x=1\r\n0123456789\r\n1\r\n\n\r\n0\r\nT: 1\r\n\r\n", second, ok);
        }
        check(None, "", "\nGET / HTTP/1.1\r\n\r\n", false);
        check(None, "", "GET / HTTP/1.1\n\n", false);
    }

    #[test]
    fn an_upgraded_connection_is_parsed_up_to_a_limit() {
        let heads = Heads::new();
        heads.0.lock().read(HEAD.as_bytes());
        assert!(heads.take(&headers(Some(("upgrade", "websocket")))));
        for _ in 0..=MAX_HELD_BYTES {
            heads.0.lock().read(b"x");
        }
        assert!(matches!(&*heads.0.lock(), RequestPosition::Unknown));
        assert!(!heads.take(&headers(None)));
    }
}
