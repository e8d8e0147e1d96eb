//! Counts events for `GET /metrics`.

use std::collections::HashMap;

use tokio_util::sync::CancellationToken;

use base::{
    event::{Event, Events, Happened, Heard},
    metrics::Metrics,
};
use model::{SessionId, Timestamp};

/// Counts until `stop` is cancelled. The duration of sessions from before the start is not measured.
pub async fn run(events: Events, metrics: Metrics, stop: CancellationToken) {
    let mut listener = events.listen(None);
    let mut opened = HashMap::new();
    loop {
        let heard = tokio::select! {
            () = stop.cancelled() => break,
            heard = listener.next() => heard,
        };
        match heard {
            Some(Heard::Event(event)) => count(&event, &metrics, &mut opened),
            Some(Heard::Missed(missed)) => tracing::debug!(missed, "events were missed"),
            None => break,
        }
    }
}

fn count(event: &Event, metrics: &Metrics, opened: &mut HashMap<SessionId, Timestamp>) {
    match &event.what {
        Happened::SessionOpened { session_id, .. } => {
            metrics.sessions_opened.inc();
            opened.insert(session_id.clone(), event.at);
        }
        Happened::SessionExpired { session_id, .. }
        | Happened::SessionClosed { session_id, .. } => {
            metrics.sessions_closed.inc();
            if let Some(since) = opened.remove(session_id) {
                metrics.session_seconds.observe(event.at.duration_since(since).as_secs_f64());
            }
        }
        Happened::TerminalChanged { .. } => {
            metrics.versions_written.inc();
        }
        Happened::InstanceCreated { .. } => {
            metrics.instances_created.inc();
        }
        Happened::InstanceLost { .. } => {
            metrics.instances_failed.inc();
        }
        Happened::ThreadCreated { .. }
        | Happened::ThreadDeleted { .. }
        | Happened::SessionExpiring { .. }
        | Happened::TerminalCreated { .. }
        | Happened::TerminalExited { .. }
        | Happened::TerminalRestored { .. }
        | Happened::TerminalDeleted { .. }
        | Happened::TerminalWatched { .. }
        | Happened::ShareCreated { .. }
        | Happened::ShareRevoked { .. }
        | Happened::CommandStarted { .. }
        | Happened::CommandEnded { .. }
        | Happened::MessageAdded { .. }
        | Happened::InstancePaused { .. }
        | Happened::InstanceResumed { .. }
        | Happened::InstanceEnded { .. }
        | Happened::OrphanEnded { .. }
        | Happened::ImageProgress { .. }
        | Happened::LeaseUnreachable { .. }
        | Happened::LeaseReachable { .. }
        | Happened::LeaseDestroyed { .. }
        | Happened::ProjectExpiring { .. }
        | Happened::ProjectDeleted { .. } => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_counted_with_its_length() {
        let metrics = Metrics::new();
        let mut opened = HashMap::new();
        let (thread_id, session_id) = ("t".parse().unwrap(), SessionId::fresh());
        let at = |second| Timestamp::from_second(second).unwrap();
        let open = Happened::SessionOpened {
            thread_id,
            session_id: session_id.clone(),
            expires_at: at(1800),
        };
        count(&Event { id: 1, at: at(0), what: open }, &metrics, &mut opened);
        let close = Happened::SessionClosed { thread_id: "t".parse().unwrap(), session_id };
        count(&Event { id: 2, at: at(90), what: close }, &metrics, &mut opened);
        let text = metrics.text().unwrap();
        for line in [
            "stead_sessions_opened_total 1",
            "stead_sessions_closed_total 1",
            "stead_session_seconds_sum 90.0",
        ] {
            assert!(text.lines().any(|got| got == line), "{line} not in\n{text}");
        }
        assert!(opened.is_empty());
    }
}
