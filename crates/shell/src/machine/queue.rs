//! What waits for the shell, in the order of its arrival.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::event::Action;
use crate::effect::Happened;
use crate::spec::Spec;
use crate::status::End;
use wire::Outcome;

/// How often the prompt is looked for while nothing waits for it.
const UNHURRIED_POLL_INTERVAL: Duration = Duration::from_secs(1);
/// How often the prompt is looked for while a command waits for it.
const MAX_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// What waits for the shell.
#[derive(Debug)]
pub enum Waiting {
    /// A client's command, dropped after `until`.
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

impl Waiting {
    /// Returns the id of a waiting command.
    pub fn command(&self) -> Option<&str> {
        match self {
            Self::Command { spec, .. } => Some(&spec.command),
            Self::Script { .. } => None,
        }
    }

    /// Returns the time after which a waiting command is dropped.
    pub fn until(&self) -> Option<Instant> {
        match self {
            Self::Command { until, .. } => *until,
            Self::Script { .. } => None,
        }
    }

    /// Returns the action that ends something which never starts.
    pub fn never_starts(self, outcome: Outcome) -> Action {
        match self {
            Self::Command { spec, .. } => {
                let (command, end) = (spec.command, End::of(outcome));
                Action::Finish { command, end, duration: Duration::ZERO }
            }
            Self::Script { token, .. } => {
                Action::Emit(Happened::Applied { token, exit_code: None })
            }
        }
    }
}

/// The queue of one shell.
#[derive(Debug, Default)]
pub struct Queue(VecDeque<Waiting>);

impl Queue {
    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Waiting> {
        self.0.iter()
    }

    pub fn push(&mut self, waiting: Waiting) {
        self.0.push_back(waiting);
    }

    /// Puts back what was taken out by [`pop`](Self::pop).
    pub fn push_front(&mut self, waiting: Waiting) {
        self.0.push_front(waiting);
    }

    pub fn pop(&mut self) -> Option<Waiting> {
        self.0.pop_front()
    }

    pub fn has_command(&self, command: &str) -> bool {
        self.0.iter().any(|waiting| waiting.command() == Some(command))
    }

    /// Takes a command out.
    pub fn remove(&mut self, command: &str) -> Option<Waiting> {
        let nth = self.0.iter().position(|waiting| waiting.command() == Some(command))?;
        self.0.remove(nth)
    }

    /// Takes out everything that has waited too long.
    pub fn take_expired(&mut self, now: Instant) -> Vec<Waiting> {
        let expired = |waiting: &Waiting| waiting.until().is_some_and(|until| until <= now);
        let mut taken = Vec::new();
        while let Some(nth) = self.0.iter().position(expired) {
            taken.extend(self.0.remove(nth));
        }
        taken
    }

    pub fn take_all(&mut self) -> impl Iterator<Item = Waiting> + use<> {
        std::mem::take(&mut self.0).into_iter()
    }

    /// Lets the time begin anew after which commands are dropped.
    pub fn restart_timeouts(&mut self, now: Instant) {
        for waiting in &mut self.0 {
            if let Waiting::Command { spec, until, .. } = waiting {
                *until = spec.timeout.map(|timeout| now + timeout);
            }
        }
    }

    /// Returns when the next command is dropped.
    pub fn next_expiry(&self) -> Option<Instant> {
        self.0.iter().filter_map(Waiting::until).min()
    }

    /// Returns how often the prompt is looked for at least.
    pub fn poll_interval(&self) -> Duration {
        if self.0.is_empty() { UNHURRIED_POLL_INTERVAL } else { MAX_POLL_INTERVAL }
    }
}

impl FromIterator<Waiting> for Queue {
    fn from_iter<I: IntoIterator<Item = Waiting>>(waiting: I) -> Self {
        Self(waiting.into_iter().collect())
    }
}
