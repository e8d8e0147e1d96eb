//! Request bodies with a deadline: a client that stalls or sends too slowly is disconnected.
//!
//! Only the time spent waiting for the client counts, not the time a handler spends on the data.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use axum::body::{Body, Bytes, HttpBody};
use tokio::time::{Instant, Sleep};

/// The minimum rate of a body.
#[derive(Debug, Clone, Copy)]
pub struct Rate {
    /// Longest time without data; also the time that a body has regardless of its size.
    pub time: Duration,
    /// Average bytes per second that a body which takes longer must reach; `None` allows none to take longer.
    pub bytes_per_second: Option<u64>,
}

/// A body arrived too slowly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the body arrived too slowly: no data for {} s, or less than the minimum rate", .0.as_secs_f32())]
pub struct TooSlow(Duration);

/// Counts the received bytes of a body.
#[derive(Debug, Clone, Default)]
pub struct ReceivedBytes(Arc<AtomicU64>);

impl ReceivedBytes {
    pub fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

struct Timed {
    body: Body,
    rate: Rate,
    received: ReceivedBytes,
    /// Time spent waiting, without the current wait.
    waited: Duration,
    waiting: Option<Waiting>,
}

struct Waiting {
    since: Instant,
    over: Pin<Box<Sleep>>,
}

/// Wraps a body so that it fails with [`TooSlow`].
pub fn timed(body: Body, rate: Rate) -> (Body, ReceivedBytes) {
    let received = ReceivedBytes::default();
    if body.is_end_stream() {
        return (body, received);
    }
    let timed =
        Timed { body, rate, received: received.clone(), waited: Duration::ZERO, waiting: None };
    (Body::new(timed), received)
}

/// Whether an error was caused by [`TooSlow`].
pub fn is_too_slow(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if error.is::<TooSlow>() {
            return true;
        }
        cause = error.source();
    }
    false
}

impl Timed {
    /// Returns the time to wait for the next chunk.
    fn timeout(&self) -> Duration {
        let earned = match self.rate.bytes_per_second {
            None => Duration::ZERO,
            Some(rate) => Duration::from_secs(self.received.bytes() / rate.max(1)),
        };
        let left = (self.rate.time + earned).saturating_sub(self.waited);
        left.min(self.rate.time)
    }
}

impl HttpBody for Timed {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, axum::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        let Poll::Ready(frame) = polled else {
            let timeout = self.timeout();
            let waiting = self.waiting.get_or_insert_with(|| {
                let since = Instant::now();
                Waiting { since, over: Box::pin(tokio::time::sleep_until(since + timeout)) }
            });
            if waiting.over.as_mut().poll(context).is_ready() {
                let slow = axum::Error::new(TooSlow(self.rate.time));
                return Poll::Ready(Some(Err(slow)));
            }
            return Poll::Pending;
        };
        if let Some(waiting) = self.waiting.take() {
            self.waited += waiting.since.elapsed();
        }
        if let Some(Ok(frame)) = &frame {
            let bytes = frame.data_ref().map_or(0, Bytes::len) as u64;
            self.received.0.fetch_add(bytes, Ordering::Relaxed);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::stream;
    use http_body_util::BodyExt;

    use super::*;

    /// A body of chunks, each after a delay.
    fn body(pieces: usize, bytes: usize, pause: Duration) -> Body {
        Body::from_stream(stream::unfold(0, move |sent| async move {
            if sent == pieces {
                return None;
            }
            // The paused clock of these tests advances when all tasks wait.
            tokio::time::sleep_until(tokio::time::Instant::now() + pause).await;
            Some((Ok::<_, std::io::Error>(vec![b'x'; bytes]), sent + 1))
        }))
    }

    async fn check(body: Body, bytes_per_second: Option<u64>, expected: Option<usize>) {
        let rate = Rate { time: Duration::from_secs(10), bytes_per_second };
        let (body, progress) = timed(body, rate);
        match (body.collect().await, expected) {
            (Ok(whole), Some(expected)) => {
                assert_eq!(whole.to_bytes().len(), expected);
                assert_eq!(progress.bytes(), expected as u64);
            }
            (Err(error), None) => assert!(is_too_slow(&error), "{error}"),
            (found, expected) => panic!("{found:?}, expected {expected:?}"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_may_be_slow_but_must_not_stall_or_trickle() {
        let second = Duration::from_secs(1);
        check(body(1, 100, 9 * second), Some(1000), Some(100)).await;
        check(body(1, 100, 11 * second), Some(1000), None).await;
        // One byte a second.
        check(body(100, 1, second), Some(1000), None).await;
        // Above the minimum for as long as it takes.
        check(body(100, 2000, second), Some(1000), Some(200_000)).await;
        // Stalls after a fast start.
        let fast = body(1, 1 << 20, second).into_data_stream();
        let silent = Body::from_stream(stream::StreamExt::chain(
            fast,
            body(1, 1, 11 * second).into_data_stream(),
        ));
        check(silent, Some(1000), None).await;
        // Without a rate, the whole body must arrive in time.
        check(body(5, 2000, 3 * second), None, None).await;
        check(body(3, 2000, 3 * second), None, Some(6000)).await;
    }
}
