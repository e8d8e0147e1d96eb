//! Counts events for `GET /metrics`.

use std::collections::HashMap;

use tokio_util::sync::CancellationToken;

use base::{
    event::{Delivery, EventKind, Events, PublishedEvent},
    metrics::ServerMetrics,
};
use model::{SessionId, Timestamp};

/// Counts until `stop` is cancelled. The duration of sessions from before the start is not measured.
pub async fn run(events: Events, metrics: ServerMetrics, stop: CancellationToken) {
    let mut listener = events.subscribe(None);
    let mut opened = HashMap::new();
    loop {
        let delivery = tokio::select! {
            () = stop.cancelled() => break,
            delivery = listener.next() => delivery,
        };
        match delivery {
            Some(Delivery::Event(event)) => count(&event, &metrics, &mut opened),
            Some(Delivery::Missed(missed)) => tracing::debug!(missed, "events were missed"),
            None => break,
        }
    }
}

fn count(
    event: &PublishedEvent,
    metrics: &ServerMetrics,
    opened: &mut HashMap<SessionId, Timestamp>,
) {
    match &event.kind {
        EventKind::SessionOpened { session_id, .. } => {
            metrics.sessions_opened.inc();
            opened.insert(session_id.clone(), event.at);
        }
        EventKind::SessionExpired { session_id, .. }
        | EventKind::SessionClosed { session_id, .. } => {
            metrics.sessions_closed.inc();
            if let Some(since) = opened.remove(session_id) {
                metrics.session_seconds.observe(event.at.duration_since(since).as_secs_f64());
            }
        }
        EventKind::TerminalChanged { .. } => {
            metrics.versions_written.inc();
        }
        EventKind::InstanceCreated { .. } => {
            metrics.instances_created.inc();
        }
        EventKind::InstanceLost { .. } => {
            metrics.instances_failed.inc();
        }
        EventKind::ThreadCreated { .. }
        | EventKind::ThreadDeleted { .. }
        | EventKind::SessionExpiring { .. }
        | EventKind::TerminalCreated { .. }
        | EventKind::TerminalExited { .. }
        | EventKind::TerminalRestored { .. }
        | EventKind::TerminalDeleted { .. }
        | EventKind::TerminalWatched { .. }
        | EventKind::ShareCreated { .. }
        | EventKind::ShareRevoked { .. }
        | EventKind::CommandStarted { .. }
        | EventKind::CommandWaiting { .. }
        | EventKind::CommandEnded { .. }
        | EventKind::MessageAdded { .. }
        | EventKind::HandoffOpened { .. }
        | EventKind::HandoffAnswered { .. }
        | EventKind::HandoffDeclined { .. }
        | EventKind::HandoffExpired { .. }
        | EventKind::InstancePaused { .. }
        | EventKind::InstanceResumed { .. }
        | EventKind::InstanceEnded { .. }
        | EventKind::OrphanEnded { .. }
        | EventKind::ImageProgress { .. }
        | EventKind::LeaseUnreachable { .. }
        | EventKind::LeaseReachable { .. }
        | EventKind::LeaseDestroyed { .. }
        | EventKind::ProjectExpiring { .. }
        | EventKind::ProjectDeleted { .. } => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_counted_with_its_length() {
        let metrics = ServerMetrics::new();
        let mut opened = HashMap::new();
        let (thread_id, session_id) = ("t".parse().unwrap(), SessionId::fresh());
        let at = |second| Timestamp::from_second(second).unwrap();
        let open = EventKind::SessionOpened {
            thread_id,
            session_id: session_id.clone(),
            expires_at: at(1800),
        };
        count(&PublishedEvent { id: 1, at: at(0), kind: open }, &metrics, &mut opened);
        let close = EventKind::SessionClosed { thread_id: "t".parse().unwrap(), session_id };
        count(&PublishedEvent { id: 2, at: at(90), kind: close }, &metrics, &mut opened);
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
