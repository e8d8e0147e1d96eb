//! The jobs that wait for the shell, in the order of their arrival.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::event::Action;
use crate::effect::DriverEvent;
use crate::spec::Spec;
use crate::status::End;
use wire::Outcome;

/// The maximum interval between two probes of the prompt while no job is queued.
const IDLE_POLL_INTERVAL: Duration = Duration::from_secs(1);
/// The maximum interval between two probes of the prompt while a job is queued.
const BUSY_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A job that waits for the shell.
#[derive(Debug)]
pub enum QueuedJob {
    /// A client's command, dropped at `until`.
    Command {
        spec: Box<Spec>,
        until: Option<Instant>,
        attempts: u32,
    },
    Script {
        token: u64,
        script: Vec<u8>,
    },
}

impl QueuedJob {
    /// Returns the id of the command, if the job is one.
    pub fn command(&self) -> Option<&str> {
        match self {
            Self::Command { spec, .. } => Some(&spec.command),
            Self::Script { .. } => None,
        }
    }

    /// Returns the time at which the command is dropped.
    pub fn until(&self) -> Option<Instant> {
        match self {
            Self::Command { until, .. } => *until,
            Self::Script { .. } => None,
        }
    }

    /// Returns the action that reports a job which never starts.
    pub fn never_starts(self, outcome: Outcome) -> Action {
        match self {
            Self::Command { spec, .. } => {
                let (command, end) = (spec.command, End::of(outcome));
                Action::Finish { command, end, duration: Duration::ZERO }
            }
            Self::Script { token, .. } => {
                Action::Emit(DriverEvent::Applied { token, exit_code: None })
            }
        }
    }
}

/// The queue of one shell.
#[derive(Debug, Default)]
pub struct Queue(VecDeque<QueuedJob>);

impl Queue {
    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = &QueuedJob> {
        self.0.iter()
    }

    pub fn push(&mut self, queued: QueuedJob) {
        self.0.push_back(queued);
    }

    /// Returns a job of [`pop`](Self::pop) to the front of the queue.
    pub fn push_front(&mut self, queued: QueuedJob) {
        self.0.push_front(queued);
    }

    pub fn pop(&mut self) -> Option<QueuedJob> {
        self.0.pop_front()
    }

    pub fn has_command(&self, command: &str) -> bool {
        self.0.iter().any(|queued| queued.command() == Some(command))
    }

    /// Removes a command from the queue.
    pub fn remove(&mut self, command: &str) -> Option<QueuedJob> {
        let nth = self.0.iter().position(|queued| queued.command() == Some(command))?;
        self.0.remove(nth)
    }

    /// Removes the jobs that have waited too long.
    pub fn take_expired(&mut self, now: Instant) -> Vec<QueuedJob> {
        let expired = |queued: &QueuedJob| queued.until().is_some_and(|until| until <= now);
        let mut taken = Vec::new();
        while let Some(nth) = self.0.iter().position(expired) {
            taken.extend(self.0.remove(nth));
        }
        taken
    }

    pub fn take_all(&mut self) -> impl Iterator<Item = QueuedJob> + use<> {
        std::mem::take(&mut self.0).into_iter()
    }

    /// Restarts the timeouts of all queued commands.
    pub fn restart_timeouts(&mut self, now: Instant) {
        for queued in &mut self.0 {
            if let QueuedJob::Command { spec, until, .. } = queued {
                *until = spec.timeout.map(|timeout| now + timeout);
            }
        }
    }

    /// Returns when the next command is dropped.
    pub fn next_expiry(&self) -> Option<Instant> {
        self.0.iter().filter_map(QueuedJob::until).min()
    }

    /// Returns the maximum interval between two probes of the prompt.
    pub fn poll_interval(&self) -> Duration {
        if self.0.is_empty() { IDLE_POLL_INTERVAL } else { BUSY_POLL_INTERVAL }
    }
}

impl FromIterator<QueuedJob> for Queue {
    fn from_iter<I: IntoIterator<Item = QueuedJob>>(queued: I) -> Self {
        Self(queued.into_iter().collect())
    }
}
