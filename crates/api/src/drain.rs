//! Drains request bodies that a handler did not read.
//!
//! A connection is closed after a response to a request that was not read to its end. Clients that reuse
//! connections do not always notice in time, and their next request fails.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use axum::body::{Body, Bytes, HttpBody};
use http_body_util::BodyExt;

/// Most bytes that are drained.
const MAX_DRAINED_BYTES: usize = 256 << 10;
/// Longest time spent draining.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

/// A body that is drained on drop.
struct Drained(Option<Body>);

/// Drains the rest of the body on drop, up to a limit.
pub(super) fn on_drop(body: Body) -> Body {
    if body.is_end_stream() { body } else { Body::new(Drained(Some(body))) }
}

impl HttpBody for Drained {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, axum::Error>>> {
        let Some(body) = &mut self.0 else { return Poll::Ready(None) };
        let polled = Pin::new(body).poll_frame(context);
        if let Poll::Ready(None | Some(Err(_))) = &polled {
            self.0 = None;
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.0.as_ref().is_none_or(HttpBody::is_end_stream)
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.0.as_ref().map_or_else(http_body::SizeHint::default, HttpBody::size_hint)
    }
}

impl Drop for Drained {
    fn drop(&mut self) {
        let Some(mut body) = self.0.take().filter(|body| !body.is_end_stream()) else { return };
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        runtime.spawn(tokio::time::timeout(DRAIN_TIMEOUT, async move {
            let mut read = 0;
            while let Some(Ok(frame)) = body.frame().await {
                read += frame.data_ref().map_or(0, Bytes::len);
                if read > MAX_DRAINED_BYTES {
                    break;
                }
            }
        }));
    }
}
