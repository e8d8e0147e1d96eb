//! Stores the receipts of a terminal's commands and the versions of its state.
//!
//! One task per live terminal, so that versions rise by exactly one. A failed write is retried, because the
//! shell has already moved on. Only after the write may the host discard its copy.

mod receipt;
mod version;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::{mpsc, oneshot, watch};
use wire::{Event, Request};

use super::error::TerminalError;
use super::flight::Flights;
use super::limit::{self, LimitCounters};
use super::link::HostLink;
use super::state_sections;
use base::event::{EventKind, Events};
use base::metrics::ServerMetrics;
use model::{
    Cause, Command, CommandId, CommandStatus, Env, Exit, Limit, Source, TerminalEvent, TerminalId,
    TerminalState, ThreadId,
};
use store::{Store, StoreError};

/// How long to wait before a failed write is retried.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);

/// A change of the state that is requested through the API.
pub enum StateRequest {
    /// Run a script in the shell without output; the change is a version of its own.
    Apply { script: Vec<u8>, answer: oneshot::Sender<Result<u64, TerminalError>> },
    /// Return to an earlier version.
    Rollback { to: u64, answer: oneshot::Sender<Result<u64, TerminalError>> },
}

pub struct StateRecorder {
    thread: ThreadId,
    id: TerminalId,
    store: Store,
    link: HostLink,
    flights: Arc<Flights>,
    events: Events,
    metrics: ServerMetrics,
    limits: LimitCounters,
    records: mpsc::Receiver<Box<Event>>,
    state_requests: mpsc::Receiver<StateRequest>,
    resync: watch::Receiver<bool>,
    stored: watch::Sender<u64>,
    version: u64,
    cwd: String,
    env: Env,
    base: Env,
    origin: ShellOrigin,
    /// Why the last version was not stored.
    unstored: Option<StoreError>,
    /// The store accepts no writes until the server is restarted. Until then the host keeps what it has reported.
    store_closed: bool,
}

/// Whether the stored state of a terminal is that of its shell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShellOrigin {
    /// The shell was started from the stored state, or has been compared with it.
    Stored,
    /// The shell kept running without this recorder. Its host repeats the ends of commands that are not
    /// recorded, but not what they changed.
    Adopted,
}

/// The channels of a recorder.
pub struct RecorderChannels {
    /// The thread of the terminal, which its events name.
    pub thread: ThreadId,
    /// Events from the link.
    pub records: mpsc::Receiver<Box<Event>>,
    pub state_requests: mpsc::Receiver<StateRequest>,
    /// Set when a record was dropped.
    pub resync: watch::Receiver<bool>,
    /// The last stored version.
    pub stored: watch::Sender<u64>,
    /// Detects which limit a command reached.
    pub limits: LimitCounters,
    /// Counts the commands that ended.
    pub metrics: ServerMetrics,
    pub origin: ShellOrigin,
}

impl StateRecorder {
    pub fn new(
        id: TerminalId,
        store: Store,
        link: HostLink,
        flights: Arc<Flights>,
        events: Events,
        state: &TerminalState,
        channels: RecorderChannels,
    ) -> StateRecorder {
        let section =
            |name: &str| state.sections.get(name).map(|bytes| state_sections::environment(bytes));
        StateRecorder {
            thread: channels.thread,
            id,
            store,
            link,
            flights,
            events,
            metrics: channels.metrics,
            limits: channels.limits,
            records: channels.records,
            state_requests: channels.state_requests,
            resync: channels.resync,
            stored: channels.stored,
            version: state.version,
            cwd: state.cwd.clone(),
            env: section("env").unwrap_or_default(),
            base: section(state_sections::BASE).unwrap_or_default(),
            origin: channels.origin,
            unstored: None,
            store_closed: false,
        }
    }

    /// Runs until the link is closed. The futures are boxed, because every terminal has a recorder that mostly
    /// waits.
    pub async fn run(mut self) {
        loop {
            if self.origin == ShellOrigin::Adopted {
                Box::pin(self.resynchronize()).await;
            }
            tokio::select! {
                biased;
                record = self.records.recv() => match record {
                    Some(record) => Box::pin(self.record(*record, None)).await,
                    None => break,
                },
                Some(request) = self.state_requests.recv() => Box::pin(self.handle(request)).await,
                Ok(()) = self.resync.changed() => Box::pin(self.resynchronize()).await,
            }
        }
    }

    async fn record(&mut self, record: Event, cause: Option<Cause>) {
        match record {
            Event::Started { command, offset, time_ms, .. } => {
                // Limits that were reached since the last command were not reached by this one.
                let reached = self.limits.reached();
                self.show(reached);
                if let Ok(id) = command.parse::<CommandId>() {
                    self.flights.started(&id, time(time_ms), offset);
                    let (thread_id, terminal_id) = self.names();
                    let command_id = id;
                    let started = EventKind::CommandStarted { thread_id, terminal_id, command_id };
                    self.events.publish(started);
                }
            }
            Event::Waiting { command, waiting } => {
                if let Ok(command_id) = command.parse::<CommandId>() {
                    match waiting {
                        true => self.flights.begin_waiting(&command_id),
                        false => self.flights.end_waiting(&command_id),
                    }
                    let (thread_id, terminal_id) = self.names();
                    self.events.publish(EventKind::CommandWaiting {
                        thread_id,
                        terminal_id,
                        command_id,
                        waiting,
                    });
                }
            }
            done @ Event::Done { .. } => self.finish(done).await,
            Event::Sealed { .. } if self.store_closed => {}
            Event::Sealed { command, stdout_bytes, stderr_bytes } => {
                // Stored first: a caller that finds the command no longer tracked reads its lengths from
                // the row.
                if let Ok(id) = command.parse::<CommandId>() {
                    self.note_late_output(&id, stdout_bytes, stderr_bytes).await;
                }
                self.link.forget(&command);
                self.forget(command).await;
            }
            Event::Typed {
                text,
                exit_code,
                duration_us,
                offset,
                time_ms,
                changed,
                removed,
                ..
            } => {
                let text = String::from_utf8_lossy(&text).into_owned();
                let at = time(time_ms);
                let began = at - Duration::from_micros(duration_us);
                let mut command = Command::queued(
                    CommandId::fresh(),
                    self.id.clone(),
                    text,
                    Source::Person,
                    self.version,
                    began,
                );
                command.status = CommandStatus::Finished;
                command.exit_code = exit_code;
                command.started_at = Some(began);
                command.finished_at = Some(at);
                command.duration_us = Some(duration_us);
                command.offset_end = Some(offset);
                let reached = self.limits.note(&mut command, None);
                self.show(reached);
                self.store_receipt(command, None, Cause::Typed, changed, removed).await;
            }
            Event::StateChanged { changed, removed, .. } => {
                let first = if self.version == 0 { Cause::Created } else { Cause::Typed };
                self.new_version(cause.unwrap_or(first), changed, removed).await;
            }
            Event::Restarted { .. } => {}
            Event::Exited { code, signal, .. } => self.exited(code, signal).await,
            other => tracing::warn!(terminal = %self.id, ?other, "not a record"),
        }
    }

    /// Returns the ids that the terminal's events carry.
    fn names(&self) -> (ThreadId, TerminalId) {
        (self.thread.clone(), self.id.clone())
    }

    /// Lets the host forget a command whose receipt is stored. A closed connection repeats its end on the next.
    async fn forget(&self, command: String) {
        let _ = self.link.queue(|seq| Request::ExecForget { seq, command }).await;
    }

    fn show(&self, reached: Option<Limit>) {
        if let Some(limit) = reached {
            limit::show(&self.link, &self.id, limit);
        }
    }

    /// Records that the program ended. Afterwards the host may discard the terminal.
    async fn exited(&self, code: i32, signal: i32) {
        let exit = Exit {
            code: (signal == 0).then_some(code),
            signal: (signal != 0).then_some(signal),
            at: Timestamp::now(),
        };
        match self.store.apply_terminal(&self.id, TerminalEvent::Exited(exit), exit.at).await {
            Ok(_) => {
                let (code, signal) = (exit.code, exit.signal);
                let (thread_id, terminal_id) = self.names();
                let exited = EventKind::TerminalExited { thread_id, terminal_id, code, signal };
                self.events.publish(exited);
                let terminal = self.id.to_string();
                self.link.post(|seq| Request::AckExit { seq, terminal });
            }
            Err(error) => {
                tracing::error!(terminal = %self.id, %error, "cannot record that a program ended")
            }
        }
    }

    async fn handle(&mut self, request: StateRequest) {
        match request {
            StateRequest::Apply { script, answer } => {
                let result = self.apply(script).await;
                let _ = answer.send(result);
            }
            StateRequest::Rollback { to, answer } => {
                let result = self.roll_back(to).await;
                let _ = answer.send(result);
            }
        }
    }

    async fn wait_to_retry(&mut self, error: StoreError) -> bool {
        match &error {
            StoreError::Missing { .. } => {
                // The terminal was deleted meanwhile.
                return false;
            }
            StoreError::Conflict { .. } => {
                if let Ok(Some(terminal)) = self.store.terminal(&self.id).await {
                    self.version = terminal.version;
                    return true;
                }
            }
            StoreError::Unavailable { .. } => {
                tracing::warn!(terminal = %self.id, %error, "cannot store a record yet; retrying");
            }
            StoreError::SyncFailed { .. } => {
                tracing::error!(terminal = %self.id, %error, "cannot store a record: the store is closed until the next start");
                self.store_closed = true;
                return false;
            }
            // A retry would find the same rows.
            StoreError::Exists { .. }
            | StoreError::BadId(_)
            | StoreError::Refused(_)
            | StoreError::Damaged { .. } => {
                tracing::error!(terminal = %self.id, %error, "cannot store a record; giving up");
                return false;
            }
        }
        tokio::time::sleep(RETRY_INTERVAL).await;
        !self.link.closed().is_cancelled()
    }
}

fn time(time_ms: u64) -> Timestamp {
    i64::try_from(time_ms)
        .ok()
        .and_then(|ms| Timestamp::from_millisecond(ms).ok())
        .unwrap_or_else(Timestamp::now)
}
