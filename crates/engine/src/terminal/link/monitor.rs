//! Notices when a host stops answering.

use std::sync::Arc;
use std::time::Instant;

use wire::Request;

use super::shared::LinkShared;
use super::silence::SilenceLimits;

/// Pings a silent host while a reply is awaited, and marks it unreachable if it stays silent. The reader
/// marks it reachable again with the next byte; the pings are queued in the host's socket.
pub(super) async fn monitor(inner: Arc<LinkShared>) {
    let SilenceLimits { ping_after, limit, busy_limit } = inner.silence;
    let mut awaited = inner.awaited.subscribe();
    loop {
        tokio::select! {
            () = inner.closed.cancelled() => return,
            waits = awaited.wait_for(|count| *count > 0) => if waits.is_err() { return },
        }
        let began = Instant::now();
        let mut pinged = None;
        loop {
            let since = inner.last_received().max(began);
            let silent = since.elapsed();
            let next = if silent < ping_after {
                ping_after
            } else if silent < limit || silent < busy_limit && !inner.pid.is_some_and(is_stopped) {
                if pinged != Some(since) {
                    pinged = Some(since);
                    inner.post(|seq| Request::Ping { seq });
                }
                if silent < limit { limit } else { silent + ping_after }
            } else {
                inner.reachable.send_if_modified(|reachable| std::mem::replace(reachable, false));
                break;
            };
            tokio::select! {
                () = inner.closed.cancelled() => return,
                () = tokio::time::sleep(next.saturating_sub(silent)) => {}
                _ = awaited.wait_for(|count| *count == 0) => break,
            }
        }
        // The reader notices when the host answers again.
        let mut reachable = inner.reachable.subscribe();
        tokio::select! {
            () = inner.closed.cancelled() => return,
            _ = reachable.wait_for(|it| *it) => {}
        }
    }
}

fn is_stopped(pid: i32) -> bool {
    shell::Process::read(pid).is_some_and(|process| process.stopped())
}
