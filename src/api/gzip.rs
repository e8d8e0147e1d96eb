//! Pictures made small: five thousand coloured lines are 400 KB, and a twentieth of that squeezed.
//!
//! Output as it happens is never compressed; a keystroke's echo would only get larger and later.

use std::io::Write;

use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use tower_http::{CompressionLevel, compression::CompressionLayer};

/// Below this a picture fits a packet or two either way.
const WORTH_IT: usize = 1024;

/// A third smaller than the fastest, in a fifth more time; what is beyond costs twice as much.
const LEVEL: Compression = Compression::new(2);

/// How a client of a WebSocket takes its pictures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pictures {
    /// As they are.
    Plain,
    /// Compressed when that is worth it.
    Gzip,
}

/// Compresses answers for clients that say `Accept-Encoding: gzip`.
pub(super) fn for_those_who_ask() -> CompressionLayer {
    CompressionLayer::new().quality(CompressionLevel::Fastest)
}

/// The same bytes as gzip; `None` when it is not worth it.
pub(super) async fn squeeze(bytes: Bytes) -> Option<Bytes> {
    if bytes.len() < WORTH_IT {
        return None;
    }
    // Milliseconds for a long scrollback: not on a thread that others' keystrokes go through.
    tokio::task::spawn_blocking(move || {
        let small = Vec::with_capacity(bytes.len() / 8);
        let mut encoder = GzEncoder::new(small, LEVEL);
        encoder.write_all(&bytes).ok()?;
        encoder.finish().ok().map(Bytes::from)
    })
    .await
    .ok()?
}
