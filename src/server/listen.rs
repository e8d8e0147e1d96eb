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
use rustix::net::sockopt;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, Sleep},
};
use tokio_util::{sync::WaitForCancellationFutureOwned, task::TaskTracker};
use tower::ServiceExt;

use super::tls::Tls;
use api::{self, App, budget::Connection};

/// Largest request head.
const HEAD_BYTES: usize = 64 * 1024;
/// Pause after a failed accept: out of descriptors is not over at once.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// How often failed accepts are logged.
const LOG_INTERVAL: Duration = Duration::from_secs(10);
/// A connection without traffic for this long is probed.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
/// Probes without an answer after which the peer is gone.
const KEEPALIVE_PROBES: u32 = 3;

/// Serves until the server stops; ends when every connection has.
pub(super) async fn serve(listener: TcpListener, tls: Option<Arc<Tls>>, router: Router, app: App) {
    let connections = TaskTracker::new();
    let room = Arc::new(Semaphore::new(app.settings.limits.connections));
    let mut failures = Failures::default();
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
                    talk(stream, tls, peer, permit, router, &app).await;
                    app.metrics.connections.dec();
                });
            }
            Err(error) => {
                // Out of descriptors, mostly: an unauthenticated connection gives its own back.
                app.budgets.evict_connection();
                failures.log(&error);
                tokio::time::sleep(ACCEPT_PAUSE).await;
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
) -> io::Result<(TcpStream, Arc<Connection>, OwnedSemaphorePermit)> {
    let (stream, peer) = listener.accept().await?;
    // A newcomer that finds all permits taken makes one unauthenticated connection leave. Those behind it
    // wait in the kernel's queue.
    let permit = match room.clone().try_acquire_owned() {
        Ok(permit) => permit,
        Err(_) => {
            app.budgets.evict_connection();
            room.clone().acquire_owned().await.map_err(io::Error::other)?
        }
    };
    let local = stream.local_addr()?;
    // Keys and their echo are small and must not wait for more.
    stream.set_nodelay(true)?;
    // A peer that vanished without a word is found out, also where we only wait for it.
    sockopt::set_socket_keepalive(&stream, true)?;
    sockopt::set_tcp_keepidle(&stream, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(&stream, KEEPALIVE_INTERVAL)?;
    sockopt::set_tcp_keepcnt(&stream, KEEPALIVE_PROBES)?;
    Ok((stream, app.budgets.connected(peer, local), permit))
}

/// Logs failures to accept, but not each: out of descriptors every attempt fails.
#[derive(Debug, Default)]
struct Failures {
    logged_at: Option<Instant>,
    since: u64,
}

impl Failures {
    fn log(&mut self, error: &io::Error) {
        self.since += 1;
        if self.logged_at.is_some_and(|at| at.elapsed() < LOG_INTERVAL) {
            return;
        }
        tracing::warn!(%error, attempts = self.since, "cannot accept a connection");
        (self.logged_at, self.since) = (Some(Instant::now()), 0);
    }
}

async fn talk(
    stream: TcpStream,
    tls: Option<Arc<Tls>>,
    peer: Arc<Connection>,
    permit: OwnedSemaphorePermit,
    router: Router,
    app: &App,
) {
    // The permit goes with the stream, which an upgraded socket takes along.
    let stall_time = app.settings.limits.stall_time;
    let of_stream = peer.clone();
    let patient = move |stream| Patient::new(stream, stall_time, of_stream, permit);
    let Some(tls) = tls else {
        return answer(patient(stream), peer, router, app).await;
    };
    let shaken = tokio::select! {
        () = app.stopping.cancelled() => return,
        () = peer.cut().cancelled() => return,
        shaken = tls.handshake(stream, patient) => shaken,
    };
    match shaken {
        Ok(stream) => answer(stream, peer, router, app).await,
        Err(error) => tracing::debug!(%error, peer = %peer.peer, "no TLS handshake"),
    }
}

/// Answers requests on a stream until it ends.
async fn answer<S>(stream: S, peer: Arc<Connection>, router: Router, app: &App)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let stopping = app.stopping.clone();
    let limits = &app.settings.limits;
    let of_request = peer.clone();
    let service = hyper::service::service_fn(move |request: hyper::Request<Incoming>| {
        let (mut parts, body) = request.into_parts();
        parts.extensions.insert(of_request.clone());
        let request = Request::from_parts(parts, Body::new(body));
        router.clone().oneshot(request)
    });
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
        // Dropping the connection drops the request it is at.
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

/// A stream that is cut when the other side does not read for too long, or when its connection is
/// evicted.
struct Patient {
    stream: TcpStream,
    patience: Duration,
    stalled: Option<Pin<Box<Sleep>>>,
    cut: Pin<Box<WaitForCancellationFutureOwned>>,
    // Both for as long as the stream is there.
    _peer: Arc<Connection>,
    _permit: OwnedSemaphorePermit,
}

impl Patient {
    fn new(
        stream: TcpStream,
        patience: Duration,
        peer: Arc<Connection>,
        permit: OwnedSemaphorePermit,
    ) -> Patient {
        let cut = Box::pin(peer.cut().clone().cancelled_owned());
        Patient { stream, patience, stalled: None, cut, _peer: peer, _permit: permit }
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
        if self.cut.as_mut().poll(context).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
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
