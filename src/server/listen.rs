//! Accepts connections and bounds what each may cost: how many, how slow, how stuck.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use axum::{Router, body::Body, extract::Request};
use hyper::body::Incoming;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, Sleep},
};
use tokio_util::task::TaskTracker;
use tower::ServiceExt;

use crate::api::{self, App, guard::Ends};

/// Largest request head.
const HEAD_BYTES: usize = 64 * 1024;
/// Wait after a failed accept: out of descriptors is not over at once.
const BREATHE: Duration = Duration::from_millis(50);

/// Serves until the server stops; ends when every connection has.
pub(super) async fn serve(listener: TcpListener, app: App) {
    let router = api::router(app.clone());
    let connections = TaskTracker::new();
    let room = Arc::new(Semaphore::new(app.settings.limits.connections));
    loop {
        // Room first: those that find none wait in the kernel's queue.
        let accepted = tokio::select! {
            () = app.stopping.cancelled() => break,
            accepted = accept(&listener, &room) => accepted,
        };
        match accepted {
            Ok((stream, ends, permit)) => {
                connections.spawn(talk(stream, ends, permit, router.clone(), app.clone()));
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(BREATHE).await;
            }
        }
    }
    drop(listener);
    connections.close();
    connections.wait().await;
}

async fn accept(
    listener: &TcpListener,
    room: &Arc<Semaphore>,
) -> io::Result<(TcpStream, Ends, OwnedSemaphorePermit)> {
    let permit = room.clone().acquire_owned().await.map_err(io::Error::other)?;
    let (stream, peer) = listener.accept().await?;
    let local = stream.local_addr()?;
    // Keys and their echo are small and must not wait for more.
    stream.set_nodelay(true)?;
    Ok((stream, Ends { peer, local }, permit))
}

async fn talk(
    stream: TcpStream,
    ends: Ends,
    permit: OwnedSemaphorePermit,
    router: Router,
    app: App,
) {
    app.metrics.connections.inc();
    let stopping = app.stopping.clone();
    let limits = &app.settings.limits;
    let service = hyper::service::service_fn(move |request: hyper::Request<Incoming>| {
        let (mut parts, body) = request.into_parts();
        parts.extensions.insert(ends);
        let request = Request::from_parts(parts, Body::new(body));
        router.clone().oneshot(request)
    });
    // The permit goes with the stream, which an upgraded socket takes along.
    let stream = Patient::new(stream, limits.stall_time, permit);
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_time)
        .max_header_size(HEAD_BYTES)
        .max_buf_size(HEAD_BYTES)
        // For programs behind a port, whose headers are passed on as they were written.
        .preserve_header_case(true)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    tokio::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stopping.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, peer = %ends.peer, "connection ended");
    }
    app.metrics.connections.dec();
}

/// A stream that is cut when the other side does not read for too long.
struct Patient {
    stream: TcpStream,
    patience: Duration,
    stalled: Option<Pin<Box<Sleep>>>,
    _permit: OwnedSemaphorePermit,
}

impl Patient {
    fn new(stream: TcpStream, patience: Duration, permit: OwnedSemaphorePermit) -> Patient {
        Patient { stream, patience, stalled: None, _permit: permit }
    }

    /// Starts, stops or runs the clock, by whether a write got anywhere.
    fn watch<T>(
        &mut self,
        wrote: Poll<io::Result<T>>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        if wrote.is_ready() {
            self.stalled = None;
            return wrote;
        }
        let patience = self.patience;
        let clock = self
            .stalled
            .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(Instant::now() + patience)));
        match clock.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl AsyncRead for Patient {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Patient {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.stream).poll_write(context, data);
        self.watch(wrote, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.stream).poll_write_vectored(context, data);
        self.watch(wrote, context)
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
