//! The event bus: what happened to threads, terminals, leases and projects.
//!
//! A bounded ring buffer. A subscriber that falls behind loses the oldest events and learns how many.
//! Publishing never waits for a subscriber, and no durable state depends on one.

use std::{collections::VecDeque, sync::Arc};

use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::broadcast;

use crate::clock::Clock;
use model::{
    CommandId, EndReason, HandoffId, InstanceId, LeaseId, MessageId, OnExpiry, ProjectId,
    SessionId, ShareId, TerminalId, ThreadId, Timestamp,
};

/// How many events are kept for subscribers that reconnect or are slow.
const MAX_EVENTS: usize = 1024;

/// How many measurements wait for a slow subscriber; it loses the oldest.
const MAX_MEASUREMENTS: usize = 64;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PublishedEvent {
    /// Rises with every event, also across restarts of the server.
    pub id: u64,
    pub at: Timestamp,
    #[serde(flatten)]
    pub kind: EventKind,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum EventKind {
    ThreadCreated {
        thread_id: ThreadId,
    },
    ThreadDeleted {
        thread_id: ThreadId,
    },
    SessionOpened {
        thread_id: ThreadId,
        session_id: SessionId,
        expires_at: Timestamp,
    },
    /// The session expires soon.
    SessionExpiring {
        thread_id: ThreadId,
        session_id: SessionId,
        expires_at: Timestamp,
    },
    SessionExpired {
        thread_id: ThreadId,
        session_id: SessionId,
        ended: EndReason,
        on_expiry: OnExpiry,
    },
    SessionClosed {
        thread_id: ThreadId,
        session_id: SessionId,
    },
    TerminalCreated {
        thread_id: ThreadId,
        terminal_id: TerminalId,
    },
    /// The program of the terminal ended.
    TerminalExited {
        thread_id: ThreadId,
        terminal_id: TerminalId,
        code: Option<i32>,
        signal: Option<i32>,
    },
    /// The shell was started again from its last state.
    TerminalRestored {
        thread_id: ThreadId,
        terminal_id: TerminalId,
        version: u64,
    },
    TerminalDeleted {
        terminal_id: TerminalId,
    },
    /// The state of the shell has a new version.
    TerminalChanged {
        thread_id: ThreadId,
        terminal_id: TerminalId,
        version: u64,
    },
    /// The watchers of the terminal, or its driver, changed.
    TerminalWatched {
        thread_id: ThreadId,
        terminal_id: TerminalId,
    },
    ShareCreated {
        terminal_id: TerminalId,
        share_id: ShareId,
    },
    ShareRevoked {
        terminal_id: TerminalId,
        share_id: ShareId,
    },
    CommandStarted {
        thread_id: ThreadId,
        terminal_id: TerminalId,
        command_id: CommandId,
    },
    /// The command began to wait for input, or stopped waiting.
    CommandWaiting {
        thread_id: ThreadId,
        terminal_id: TerminalId,
        command_id: CommandId,
        waiting: bool,
    },
    /// The command ended, and its receipt is stored.
    CommandEnded {
        thread_id: ThreadId,
        terminal_id: TerminalId,
        command_id: CommandId,
    },
    MessageAdded {
        thread_id: ThreadId,
        message_id: MessageId,
    },
    /// An agent asks a person on a terminal.
    HandoffOpened {
        thread_id: ThreadId,
        terminal_id: TerminalId,
        handoff_id: HandoffId,
    },
    HandoffAnswered {
        thread_id: ThreadId,
        terminal_id: TerminalId,
        handoff_id: HandoffId,
    },
    HandoffDeclined {
        thread_id: ThreadId,
        terminal_id: TerminalId,
        handoff_id: HandoffId,
    },
    /// No person answered the hand-off in time.
    HandoffExpired {
        thread_id: ThreadId,
        terminal_id: TerminalId,
        handoff_id: HandoffId,
    },
    InstanceCreated {
        lease_id: LeaseId,
        instance_id: InstanceId,
        generation: u64,
    },
    /// The instance disappeared without a request of ours.
    InstanceLost {
        lease_id: LeaseId,
        instance_id: InstanceId,
        reason: String,
    },
    InstancePaused {
        lease_id: LeaseId,
        instance_id: InstanceId,
    },
    InstanceResumed {
        lease_id: LeaseId,
        instance_id: InstanceId,
    },
    /// We ended the instance.
    InstanceEnded {
        lease_id: LeaseId,
        instance_id: InstanceId,
        reason: String,
    },
    /// An instance without a lease was ended.
    OrphanEnded {
        lease_id: LeaseId,
        instance_id: InstanceId,
        reason: String,
    },
    /// An image is being pulled or imported.
    ImageProgress {
        image: String,
        status: String,
        done_bytes: u64,
        total_bytes: u64,
    },
    /// The host of a lease stopped answering.
    LeaseUnreachable {
        lease_id: LeaseId,
    },
    /// The host of a lease answers again.
    LeaseReachable {
        lease_id: LeaseId,
    },
    LeaseDestroyed {
        lease_id: LeaseId,
    },
    /// The project will be deleted because it is unused.
    ProjectExpiring {
        project_id: ProjectId,
        deletes_at: Timestamp,
        reason: String,
    },
    ProjectDeleted {
        project_id: ProjectId,
        reason: String,
    },
}

/// The resource usage of an instance. Only the latest matters, so measurements have no id and are not kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename = "instance_measured")]
pub struct InstanceMeasurement {
    pub lease_id: LeaseId,
    pub instance_id: InstanceId,
    pub cpu_us: u64,
    pub memory_bytes: u64,
    pub processes: u64,
    pub disk_bytes: u64,
}

/// The handle to the bus; cheap to clone.
#[derive(Debug, Clone)]
pub struct Events {
    inner: Arc<EventsInner>,
}

#[derive(Debug)]
struct EventsInner {
    clock: Clock,
    sender: broadcast::Sender<PublishedEvent>,
    measurements: broadcast::Sender<InstanceMeasurement>,
    ring: Mutex<Ring>,
}

#[derive(Debug)]
struct Ring {
    next: u64,
    kept: VecDeque<PublishedEvent>,
}

/// First the events that the subscriber missed, then those that follow.
#[derive(Debug)]
pub struct EventSubscription {
    /// The kept events after the id that the subscriber gave.
    pub missed: Vec<PublishedEvent>,
    /// Whether some missed events are no longer kept.
    pub gap: bool,
    receiver: broadcast::Receiver<PublishedEvent>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delivery {
    Event(PublishedEvent),
    /// The subscriber was too slow and lost this many events.
    Missed(u64),
}

impl Events {
    #[must_use]
    pub fn new(clock: Clock) -> Self {
        // Ids begin with the current time, so that they rise across restarts.
        let next = u64::try_from(clock.wall().as_microsecond()).unwrap_or(0);
        let ring = Mutex::new(Ring { next, kept: VecDeque::with_capacity(MAX_EVENTS) });
        let (sender, measurements) =
            (broadcast::Sender::new(MAX_EVENTS), broadcast::Sender::new(MAX_MEASUREMENTS));
        Self { inner: Arc::new(EventsInner { clock, sender, measurements, ring }) }
    }

    /// Delivers an event to all subscribers. Never waits.
    pub fn publish(&self, kind: EventKind) {
        let at = self.inner.clock.wall();
        let mut ring = self.inner.ring.lock();
        let event = PublishedEvent { id: ring.next, at, kind };
        ring.next += 1;
        if ring.kept.len() == MAX_EVENTS {
            ring.kept.pop_front();
        }
        ring.kept.push_back(event.clone());
        // Sent under the lock, so that a subscriber gets each event exactly once: missed or delivered.
        let _ = self.inner.sender.send(event);
    }

    pub fn publish_measurement(&self, measurement: InstanceMeasurement) {
        // Without subscribers `send` fails, which is fine.
        let _ = self.inner.measurements.send(measurement);
    }

    #[must_use]
    pub fn has_measurement_subscribers(&self) -> bool {
        self.inner.measurements.receiver_count() > 0
    }

    #[must_use]
    pub fn subscribe_measurements(&self) -> broadcast::Receiver<InstanceMeasurement> {
        self.inner.measurements.subscribe()
    }

    /// Subscribes to the events after the id of the last one received, or from now on.
    #[must_use]
    pub fn subscribe(&self, after: Option<u64>) -> EventSubscription {
        let ring = self.inner.ring.lock();
        let receiver = self.inner.sender.subscribe();
        let Some(after) = after else {
            return EventSubscription { missed: vec![], gap: false, receiver };
        };
        let missed = ring.kept.iter().filter(|event| event.id > after).cloned().collect();
        let first = ring.kept.front().map_or(ring.next, |event| event.id);
        EventSubscription { missed, gap: after.saturating_add(1) < first, receiver }
    }
}

impl EventSubscription {
    /// Waits for the next event; returns `None` when the bus is closed.
    pub async fn next(&mut self) -> Option<Delivery> {
        match self.receiver.recv().await {
            Ok(event) => Some(Delivery::Event(event)),
            Err(broadcast::error::RecvError::Lagged(count)) => Some(Delivery::Missed(count)),
            Err(broadcast::error::RecvError::Closed) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thread(n: usize) -> EventKind {
        EventKind::ThreadCreated { thread_id: format!("t{n}").parse().unwrap() }
    }

    #[tokio::test]
    async fn a_subscriber_that_reconnects_gets_missed_events_once() {
        let events = Events::new(Clock::system());
        let mut subscription = events.subscribe(None);
        events.publish(thread(0));
        let Some(Delivery::Event(first)) = subscription.next().await else { panic!("no event") };
        assert_eq!(first.kind, thread(0));
        drop(subscription);
        events.publish(thread(1));
        let mut again = events.subscribe(Some(first.id));
        events.publish(thread(2));
        let missed: Vec<_> = again.missed.iter().map(|event| event.kind.clone()).collect();
        assert_eq!((missed, again.gap), (vec![thread(1)], false));
        let Some(Delivery::Event(third)) = again.next().await else { panic!("no event") };
        assert_eq!((third.kind, third.id), (thread(2), first.id + 2));
    }

    #[tokio::test]
    async fn a_slow_subscriber_learns_how_many_events_it_lost() {
        let events = Events::new(Clock::system());
        let mut slow = events.subscribe(None);
        for n in 0..MAX_EVENTS + 10 {
            events.publish(thread(n));
        }
        assert_eq!(slow.next().await, Some(Delivery::Missed(10)));
        assert!(events.subscribe(Some(0)).gap);
    }

    #[test]
    fn an_event_is_one_flat_object() {
        let events =
            Events::new(Clock::from_fn(|| model::Moment::wall(Timestamp::from_second(1).unwrap())));
        events.publish(thread(7));
        let event = &events.subscribe(Some(0)).missed[0];
        assert_eq!(
            serde_json::to_string(event).unwrap(),
            r#"{"id":1000000,"at":"1970-01-01T00:00:01Z","type":"thread_created","thread_id":"t7"}"#
        );
    }
}
