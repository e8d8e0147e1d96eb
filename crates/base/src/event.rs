//! What happens, told to whoever listens.
//!
//! A bounded ring: a listener that falls behind misses the oldest and is told so. Nothing waits for a
//! listener, and nothing durable depends on one.

use std::{collections::VecDeque, sync::Arc};

use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::broadcast;

use crate::clock::Clock;
use model::{
    CommandId, Ended, InstanceId, LeaseId, MessageId, OnExpiry, ProjectId, SessionId, ShareId,
    TerminalId, ThreadId, Timestamp,
};

/// How many events are kept for those who come back, and for those who are slow.
const KEPT: usize = 1024;

/// Measurements that wait for a slow listener; it misses the oldest.
const MEASURED: usize = 64;

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Event {
    /// Its number; rises, over restarts too.
    pub id: u64,
    /// When.
    pub at: Timestamp,
    /// What.
    #[serde(flatten)]
    pub what: Happened,
}

/// What can happen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Happened {
    /// A thread came into being.
    ThreadCreated { thread_id: ThreadId },
    /// A thread was deleted.
    ThreadDeleted { thread_id: ThreadId },
    /// A session opened.
    SessionOpened { thread_id: ThreadId, session_id: SessionId, expires_at: Timestamp },
    /// A session has little time left.
    SessionExpiring { thread_id: ThreadId, session_id: SessionId, expires_at: Timestamp },
    /// A session's time was over.
    SessionExpired { thread_id: ThreadId, session_id: SessionId, ended: Ended, on_expiry: OnExpiry },
    /// Somebody closed a session.
    SessionClosed { thread_id: ThreadId, session_id: SessionId },
    /// A terminal was made.
    TerminalCreated { thread_id: ThreadId, terminal_id: TerminalId },
    /// A terminal's program ended.
    TerminalExited { terminal_id: TerminalId, code: Option<i32>, signal: Option<i32> },
    /// A terminal was started again from its state.
    TerminalRestored { terminal_id: TerminalId, version: u64 },
    /// A terminal was deleted.
    TerminalDeleted { terminal_id: TerminalId },
    /// A terminal's shell has another state.
    TerminalChanged { terminal_id: TerminalId, version: u64 },
    /// Somebody began or ceased to look at a terminal, or to drive it.
    TerminalWatched { thread_id: ThreadId, terminal_id: TerminalId },
    /// A link that shows a terminal was made.
    ShareCreated { terminal_id: TerminalId, share_id: ShareId },
    /// Such a link was taken back.
    ShareRevoked { terminal_id: TerminalId, share_id: ShareId },
    /// A command began to run.
    CommandStarted { terminal_id: TerminalId, command_id: CommandId },
    /// A command is over, and that is on record.
    CommandEnded { terminal_id: TerminalId, command_id: CommandId },
    /// Something was said in a thread.
    MessageAdded { thread_id: ThreadId, message_id: MessageId },
    /// An instance was made.
    InstanceCreated { lease_id: LeaseId, instance_id: InstanceId, generation: u64 },
    /// An instance was found gone.
    InstanceLost { lease_id: LeaseId, instance_id: InstanceId, reason: String },
    /// An instance was paused.
    InstancePaused { lease_id: LeaseId, instance_id: InstanceId },
    /// An instance was resumed.
    InstanceResumed { lease_id: LeaseId, instance_id: InstanceId },
    /// An instance was ended by us.
    InstanceEnded { lease_id: LeaseId, instance_id: InstanceId, reason: String },
    /// Something of ours that no lease knows was ended.
    OrphanEnded { lease_id: LeaseId, instance_id: InstanceId, reason: String },
    /// An image is being pulled or imported; bytes as far as they are known.
    ImageProgress { image: String, status: String, done_bytes: u64, total_bytes: u64 },
    /// The host of a lease stopped answering.
    LeaseUnreachable { lease_id: LeaseId },
    /// The host of a lease answers again.
    LeaseReachable { lease_id: LeaseId },
    /// A lease is over.
    LeaseDestroyed { lease_id: LeaseId },
    /// A project is about to be cleaned up.
    ProjectExpiring { project_id: ProjectId, deletes_at: Timestamp, reason: String },
    /// A project was cleaned up.
    ProjectDeleted { project_id: ProjectId, reason: String },
}

/// What an instance uses. Only the last one counts, so these have no number and are not kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename = "instance_measured")]
pub struct Measured {
    pub lease_id: LeaseId,
    pub instance_id: InstanceId,
    pub cpu_us: u64,
    pub memory_bytes: u64,
    pub processes: u64,
    pub disk_bytes: u64,
}

/// The handle to all that happens.
#[derive(Debug, Clone)]
pub struct Events {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    clock: Clock,
    sender: broadcast::Sender<Event>,
    measured: broadcast::Sender<Measured>,
    ring: Mutex<Ring>,
}

#[derive(Debug)]
struct Ring {
    next: u64,
    kept: VecDeque<Event>,
}

/// What a listener gets: first what it missed, then what comes.
#[derive(Debug)]
pub struct Listener {
    /// What was kept from after the number it gave.
    pub missed: Vec<Event>,
    /// Whether some of what it missed is no longer kept.
    pub gap: bool,
    receiver: broadcast::Receiver<Event>,
}

/// What comes to a listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Heard {
    /// The next event.
    Event(Event),
    /// It was too slow, and so many were left out.
    Missed(u64),
}

impl Events {
    /// A bus on which nothing has happened.
    #[must_use]
    pub fn new(clock: Clock) -> Self {
        // Numbers begin at the time of the start, so that they rise over restarts.
        let next = u64::try_from(clock.wall().as_microsecond()).unwrap_or(0);
        let ring = Mutex::new(Ring { next, kept: VecDeque::with_capacity(KEPT) });
        let (sender, measured) = (broadcast::Sender::new(KEPT), broadcast::Sender::new(MEASURED));
        Self { inner: Arc::new(Inner { clock, sender, measured, ring }) }
    }

    /// Tells everybody; never waits.
    pub fn tell(&self, what: Happened) {
        let at = self.inner.clock.wall();
        let mut ring = self.inner.ring.lock();
        let event = Event { id: ring.next, at, what };
        ring.next += 1;
        if ring.kept.len() == KEPT {
            ring.kept.pop_front();
        }
        ring.kept.push_back(event.clone());
        // Sent under the lock, so that a listener has each event either as missed or as heard.
        let _ = self.inner.sender.send(event);
    }

    /// Tells what an instance uses to those who listen to that.
    pub fn measured(&self, measured: Measured) {
        // Nobody listening is no error.
        let _ = self.inner.measured.send(measured);
    }

    /// Whether somebody listens to what instances use.
    #[must_use]
    pub fn is_measuring_heard(&self) -> bool {
        self.inner.measured.receiver_count() > 0
    }

    /// Listens to what instances use.
    #[must_use]
    pub fn measurements(&self) -> broadcast::Receiver<Measured> {
        self.inner.measured.subscribe()
    }

    /// Listens, from after the number of the last event heard, or from here on.
    #[must_use]
    pub fn listen(&self, after: Option<u64>) -> Listener {
        let ring = self.inner.ring.lock();
        let receiver = self.inner.sender.subscribe();
        let Some(after) = after else { return Listener { missed: vec![], gap: false, receiver } };
        let missed = ring.kept.iter().filter(|event| event.id > after).cloned().collect();
        let first = ring.kept.front().map_or(ring.next, |event| event.id);
        Listener { missed, gap: after.saturating_add(1) < first, receiver }
    }
}

impl Listener {
    /// Waits for what comes next; `None` when the bus is gone.
    pub async fn next(&mut self) -> Option<Heard> {
        match self.receiver.recv().await {
            Ok(event) => Some(Heard::Event(event)),
            Err(broadcast::error::RecvError::Lagged(count)) => Some(Heard::Missed(count)),
            Err(broadcast::error::RecvError::Closed) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thread(n: usize) -> Happened {
        Happened::ThreadCreated { thread_id: format!("t{n}").parse().unwrap() }
    }

    #[tokio::test]
    async fn who_comes_back_gets_what_was_missed_once() {
        let events = Events::new(Clock::system());
        let mut listener = events.listen(None);
        events.tell(thread(0));
        let Some(Heard::Event(first)) = listener.next().await else { panic!("nothing heard") };
        assert_eq!(first.what, thread(0));
        drop(listener);
        events.tell(thread(1));
        let mut again = events.listen(Some(first.id));
        events.tell(thread(2));
        let missed: Vec<_> = again.missed.iter().map(|event| event.what.clone()).collect();
        assert_eq!((missed, again.gap), (vec![thread(1)], false));
        let Some(Heard::Event(third)) = again.next().await else { panic!("nothing heard") };
        assert_eq!((third.what, third.id), (thread(2), first.id + 2));
    }

    #[tokio::test]
    async fn who_is_slow_is_told_how_much_is_gone() {
        let events = Events::new(Clock::system());
        let mut slow = events.listen(None);
        for n in 0..KEPT + 10 {
            events.tell(thread(n));
        }
        assert_eq!(slow.next().await, Some(Heard::Missed(10)));
        assert!(events.listen(Some(0)).gap);
    }

    #[test]
    fn an_event_is_one_flat_object() {
        let events =
            Events::new(Clock::from_fn(|| model::Moment::wall(Timestamp::from_second(1).unwrap())));
        events.tell(thread(7));
        let told = &events.listen(Some(0)).missed[0];
        assert_eq!(
            serde_json::to_string(told).unwrap(),
            r#"{"id":1000000,"at":"1970-01-01T00:00:01Z","type":"thread_created","thread_id":"t7"}"#
        );
    }
}
