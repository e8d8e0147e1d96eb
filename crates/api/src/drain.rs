//! Bodies that nobody read: what is left of a small one is read away behind the refusal.
//!
//! A connection whose request was not read to its end is closed with the answer. Clients that keep
//! connections for their next request do not always see that in time, and their next request fails for
//! nothing.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use axum::body::{Body, Bytes, HttpBody};
use http_body_util::BodyExt;

/// More than this is not read away.
const MOST: usize = 256 << 10;
/// Nor for longer than this.
const TIME: Duration = Duration::from_secs(2);

/// A body that is read to its end, by somebody.
struct Unread(Option<Body>);

/// The same body; what is not read of it when it is dropped is read away, within limits.
pub(super) fn on_drop(body: Body) -> Body {
    if body.is_end_stream() { body } else { Body::new(Unread(Some(body))) }
}

impl HttpBody for Unread {
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

impl Drop for Unread {
    fn drop(&mut self) {
        let Some(mut body) = self.0.take().filter(|body| !body.is_end_stream()) else { return };
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        runtime.spawn(tokio::time::timeout(TIME, async move {
            let mut read = 0;
            while let Some(Ok(frame)) = body.frame().await {
                read += frame.data_ref().map_or(0, Bytes::len);
                if read > MOST {
                    break;
                }
            }
        }));
    }
}
