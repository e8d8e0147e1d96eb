//! Accepts connections, and limits their number and their timeouts.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use axum::{
    Router,
    body::Body,
    extract::Request,
    http::{HeaderValue, header},
    response::{IntoResponse, Response},
};
use hyper::body::Incoming;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustix::net::sockopt;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, Sleep},
};
use tokio_util::{sync::WaitForCancellationFutureOwned, task::TaskTracker};
use tower::ServiceExt;

use super::{
    line_ends::{HeadObserver, Heads, MAX_HEAD_BYTES},
    tls::Tls,
};
use api::{
    self, App,
    budget::ClientConnection,
    error::{Code, Problem},
};

/// How long `accept` pauses after a failure, usually for lack of descriptors.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(50);
/// Minimum time between two log lines about failed accepts.
const LOG_INTERVAL: Duration = Duration::from_secs(10);
/// Time without traffic after which a connection is probed.
const KEEPALIVE_IDLE_TIMEOUT: Duration = Duration::from_secs(30);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
/// Unanswered probes after which a connection is closed.
const MAX_KEEPALIVE_PROBES: u32 = 3;

/// Serves until the server stops and every connection has ended.
pub(super) async fn serve(listener: TcpListener, tls: Option<Arc<Tls>>, router: Router, app: App) {
    let connections = TaskTracker::new();
    let room = Arc::new(Semaphore::new(app.settings.limits.connections));
    let mut failures = AcceptFailures::default();
    loop {
        let accepted = tokio::select! {
            () = app.stopping.cancelled() => break,
            accepted = accept(&listener, &room, &app) => accepted,
        };
        match accepted {
            Ok((stream, peer, permit)) => {
                let (tls, router, app) = (tls.clone(), router.clone(), app.clone());
                connections.spawn(async move {
                    app.metrics.connections.inc();
                    serve_connection(stream, tls, peer, permit, router, &app).await;
                    app.metrics.connections.dec();
                });
            }
            Err(error) => {
                // Usually out of descriptors: dropping an unauthenticated connection frees one.
                app.budgets.evict_connection();
                failures.log(&error);
                tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
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
    app: &App,
) -> io::Result<(TcpStream, Arc<ClientConnection>, OwnedSemaphorePermit)> {
    let (stream, peer) = listener.accept().await?;
    // A connection that finds no permit evicts an unauthenticated one. Further connections wait in the
    // kernel's queue.
    let permit = match room.clone().try_acquire_owned() {
        Ok(permit) => permit,
        Err(_) => {
            app.budgets.evict_connection();
            room.clone().acquire_owned().await.map_err(io::Error::other)?
        }
    };
    let local = stream.local_addr()?;
    // Keystrokes and their echo are small and must not be delayed.
    stream.set_nodelay(true)?;
    // Detects peers that vanished, also on connections that only receive.
    sockopt::set_socket_keepalive(&stream, true)?;
    sockopt::set_tcp_keepidle(&stream, KEEPALIVE_IDLE_TIMEOUT)?;
    sockopt::set_tcp_keepintvl(&stream, KEEPALIVE_INTERVAL)?;
    sockopt::set_tcp_keepcnt(&stream, MAX_KEEPALIVE_PROBES)?;
    Ok((stream, app.budgets.connected(peer, local), permit))
}

/// Logs failed accepts, rate-limited: without descriptors every attempt fails.
#[derive(Debug, Default)]
struct AcceptFailures {
    logged_at: Option<Instant>,
    since: u64,
}

impl AcceptFailures {
    fn log(&mut self, error: &io::Error) {
        self.since += 1;
        if self.logged_at.is_some_and(|at| at.elapsed() < LOG_INTERVAL) {
            return;
        }
        tracing::warn!(%error, attempts = self.since, "cannot accept a connection");
        (self.logged_at, self.since) = (Some(Instant::now()), 0);
    }
}

async fn serve_connection(
    stream: TcpStream,
    tls: Option<Arc<Tls>>,
    peer: Arc<ClientConnection>,
    permit: OwnedSemaphorePermit,
    router: Router,
    app: &App,
) {
    // The stream holds the permit, also after an upgrade.
    let stall_time = app.settings.limits.stall_time;
    let of_stream = peer.clone();
    let bounded = move |stream| StallTimeout::new(stream, stall_time, of_stream, permit);
    let Some(tls) = tls else {
        return answer(bounded(stream), peer, router, app).await;
    };
    let handshake = tokio::select! {
        () = app.stopping.cancelled() => return,
        () = peer.cut().cancelled() => return,
        handshake = tls.handshake(stream, bounded) => handshake,
    };
    match handshake {
        Ok(stream) => answer(stream, peer, router, app).await,
        Err(error) => tracing::debug!(%error, peer = %peer.peer, "TLS handshake failed"),
    }
}

/// Serves the requests of a stream until it ends.
async fn answer<S>(stream: S, peer: Arc<ClientConnection>, router: Router, app: &App)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let stopping = app.stopping.clone();
    let limits = &app.settings.limits;
    let of_request = peer.clone();
    let heads = Heads::new();
    let of_heads = heads.clone();
    let service = hyper::service::service_fn(move |request: hyper::Request<Incoming>| {
        let (mut parts, body) = request.into_parts();
        let is_valid = of_heads.take(&parts.headers);
        parts.extensions.insert(of_request.clone());
        let request = Request::from_parts(parts, Body::new(body));
        let router = router.clone();
        async move { if is_valid { router.oneshot(request).await } else { Ok(bare_line_feed()) } }
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_time)
        .max_header_size(MAX_HEAD_BYTES)
        .max_buf_size(MAX_HEAD_BYTES)
        // Programs in sandboxes receive headers as they were sent.
        .preserve_header_case(true)
        .serve_connection(TokioIo::new(HeadObserver::new(stream, heads)), service)
        .with_upgrades();
    tokio::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        // Dropping the connection drops its current request.
        () = peer.cut().cancelled() => Ok(()),
        () = stopping.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, peer = %peer.peer, "connection ended");
    }
}

/// Refuses a request whose head has a bare LF, and closes the connection.
fn bare_line_feed() -> Response {
    let detail = "a line of the request's head does not end in CRLF";
    let mut response = Problem::new(Code::InvalidRequest, detail).into_response();
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

/// A stream that fails when the peer does not read for too long, or when its connection is evicted.
struct StallTimeout {
    stream: TcpStream,
    timeout: Duration,
    stalled: Option<Pin<Box<Sleep>>>,
    cut: Pin<Box<WaitForCancellationFutureOwned>>,
    // Held as long as the stream lives.
    _peer: Arc<ClientConnection>,
    _permit: OwnedSemaphorePermit,
}

impl StallTimeout {
    fn new(
        stream: TcpStream,
        timeout: Duration,
        peer: Arc<ClientConnection>,
        permit: OwnedSemaphorePermit,
    ) -> StallTimeout {
        let cut = Box::pin(peer.cut().clone().cancelled_owned());
        StallTimeout { stream, timeout, stalled: None, cut, _peer: peer, _permit: permit }
    }

    /// Resets the timer if a write made progress, otherwise starts or polls it.
    fn watch<T>(
        &mut self,
        wrote: Poll<io::Result<T>>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        if wrote.is_ready() {
            self.stalled = None;
            return wrote;
        }
        let timeout = self.timeout;
        let clock = self
            .stalled
            .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(Instant::now() + timeout)));
        match clock.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl AsyncRead for StallTimeout {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.cut.as_mut().poll(context).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for StallTimeout {
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
