//! Stores what happened in a terminal: receipts of commands and versions of its state.
//!
//! One task per live terminal, so that versions rise by exactly one. A failed write is retried, because the
//! shell has already moved on. Only after the write may the host discard its copy.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::{mpsc, oneshot, watch};
use wire::{Event, Outcome, Request, Sections, Stream};

use super::error::TerminalError;
use super::flight::{CommandStage, EndedCommand, Flights};
use super::limit::{self, LimitCounters};
use super::link::HostLink;
use super::output_source;
use base::event::{EventKind, Events};
use model::{
    Cause, Changes, Command, CommandEnd, CommandId, CommandStatus, CwdChange, Env, EnvChange, Exit,
    Limit, Source, TerminalEvent, TerminalId, TerminalState,
};
use store::{FinishCommand, Outputs, Section, StateChange, Store, StoreError};

/// The section with the environment of the first shell. It is not sent to shells.
pub const BASE: &str = "stead.base";
/// Output up to this size is stored with the receipt.
const MAX_STORED_OUTPUT_BYTES: u64 = 64 << 10;
/// How long to wait before a failed write is retried.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);

/// A change of the state that is requested through the API.
pub enum Order {
    /// Run a script in the shell without output; the change is a version of its own.
    Apply { script: Vec<u8>, answer: oneshot::Sender<Result<u64, TerminalError>> },
    /// Return to an earlier version.
    Rollback { to: u64, answer: oneshot::Sender<Result<u64, TerminalError>> },
}

pub struct Scribe {
    id: TerminalId,
    store: Store,
    link: HostLink,
    flights: Arc<Flights>,
    events: Events,
    limits: LimitCounters,
    records: mpsc::Receiver<Box<Event>>,
    orders: mpsc::Receiver<Order>,
    resync: watch::Receiver<bool>,
    stored: watch::Sender<u64>,
    version: u64,
    cwd: String,
    env: Env,
    base: Env,
    origin: ShellOrigin,
}

/// Whether the stored state of a terminal is that of its shell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShellOrigin {
    /// The shell was started from the stored state, or has been compared with it.
    Stored,
    /// The shell kept running without this scribe. Its host repeats the ends of commands that are not
    /// recorded, but not what they changed.
    Adopted,
}

/// The channels of a scribe.
pub struct ScribeChannels {
    /// Events from the link.
    pub records: mpsc::Receiver<Box<Event>>,
    pub orders: mpsc::Receiver<Order>,
    /// Set when a record was dropped.
    pub resync: watch::Receiver<bool>,
    /// The last stored version.
    pub stored: watch::Sender<u64>,
    /// Detects which limit a command reached.
    pub limits: LimitCounters,
    pub origin: ShellOrigin,
}

impl Scribe {
    pub fn new(
        id: TerminalId,
        store: Store,
        link: HostLink,
        flights: Arc<Flights>,
        events: Events,
        state: &TerminalState,
        channels: ScribeChannels,
    ) -> Scribe {
        let section = |name: &str| state.sections.get(name).map(|bytes| environment(bytes));
        Scribe {
            id,
            store,
            link,
            flights,
            events,
            limits: channels.limits,
            records: channels.records,
            orders: channels.orders,
            resync: channels.resync,
            stored: channels.stored,
            version: state.version,
            cwd: state.cwd.clone(),
            env: section("env").unwrap_or_default(),
            base: section(BASE).unwrap_or_default(),
            origin: channels.origin,
        }
    }

    /// Runs until the link is closed. The futures are boxed, because every terminal has a scribe that mostly
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
                Some(order) = self.orders.recv() => Box::pin(self.execute(order)).await,
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
                    let terminal_id = self.id.clone();
                    self.events.publish(EventKind::CommandStarted { terminal_id, command_id: id });
                }
            }
            Event::Waiting { command, waiting } => {
                if let Ok(command_id) = command.parse::<CommandId>() {
                    self.flights.set_waiting(&command_id, waiting);
                    let terminal_id = self.id.clone();
                    self.events.publish(EventKind::CommandWaiting {
                        terminal_id,
                        command_id,
                        waiting,
                    });
                }
            }
            done @ Event::Done { .. } => self.finish(done).await,
            Event::Sealed { command, stdout_bytes, stderr_bytes } => {
                // Stored first: a caller that finds the command no longer tracked reads its lengths from
                // the row.
                if let Ok(id) = command.parse::<CommandId>() {
                    self.note_late_output(&id, stdout_bytes, stderr_bytes).await;
                }
                self.link.forget(&command);
                self.link.post(|seq| Request::ExecForget { seq, command });
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

    async fn finish(&mut self, done: Event) {
        let Event::Done {
            command: id,
            outcome,
            exit_code,
            signal,
            duration_us,
            stdout_bytes,
            stderr_bytes,
            shell_restarted,
            offset,
            changed,
            removed,
            ..
        } = done
        else {
            return;
        };
        let Ok(id) = id.parse::<CommandId>() else { return };
        let Some(mut command) = self.requested(&id).await else { return };
        let now = Timestamp::now();
        // A command that was cancelled in the queue has no duration.
        let never_ran = match outcome {
            Outcome::NotStarted | Outcome::Lost => true,
            Outcome::Cancelled => duration_us == 0,
            Outcome::Finished | Outcome::TimedOut | Outcome::Other(_) => false,
        };
        // A command counts as started when it is handed to the shell, which may end before it reads it.
        if command.status == CommandStatus::Running && outcome == Outcome::NotStarted {
            (command.status, command.started_at) = (CommandStatus::Queued, None);
        }
        if command.status == CommandStatus::Queued && !never_ran {
            command.status = CommandStatus::Running;
            command.started_at.get_or_insert(now - Duration::from_micros(duration_us));
        }
        let end = match outcome {
            Outcome::Finished => CommandEnd::Finished { exit_code, signal },
            Outcome::TimedOut => CommandEnd::TimedOut,
            Outcome::Cancelled => CommandEnd::Cancelled,
            Outcome::NotStarted => CommandEnd::NotStarted,
            Outcome::Lost | Outcome::Other(_) => CommandEnd::Lost,
        };
        command = match command.end(end, now) {
            Ok(command) => command,
            // It has an end already: the event was repeated.
            Err(_) => return,
        };
        command.duration_us = Some(duration_us);
        command.stdout_bytes = stdout_bytes;
        command.stderr_bytes = stderr_bytes;
        command.shell_restarted = shell_restarted;
        command.offset_end = Some(offset);
        let output = self.small_output(&command).await;
        let reached = self.limits.note(&mut command, output.as_ref());
        self.show(reached);
        let cause = Cause::Exec { command_id: id };
        self.store_receipt(command, output, cause, changed, removed).await;
    }

    fn show(&self, reached: Option<Limit>) {
        if let Some(limit) = reached {
            limit::show(&self.link, &self.id, limit);
        }
    }

    /// Returns the whole output of a command, if it is small enough to be stored with the receipt.
    async fn small_output(&self, command: &Command) -> Option<Outputs> {
        if command.stdout_bytes + command.stderr_bytes > MAX_STORED_OUTPUT_BYTES {
            return None;
        }
        let read = async |stream, bytes| match bytes {
            0 => Some(Vec::new()),
            length => {
                output_source::head(&self.link, &command.command_id, stream, length).await.ok()
            }
        };
        let stdout = read(Stream::Stdout, command.stdout_bytes).await?;
        let stderr = read(Stream::Stderr, command.stderr_bytes).await?;
        Some(Outputs { stdout, stderr })
    }

    /// Returns the command as it was requested: from memory or, after a restart, from the store.
    async fn requested(&self, id: &CommandId) -> Option<Command> {
        if let Some(command) = self.flights.command(id) {
            return Some(command);
        }
        loop {
            match self.store.command(id).await {
                Ok(Some(command)) if command.status.is_end() => {
                    let command = id.to_string();
                    self.link.post(|seq| Request::ExecForget { seq, command });
                    return None;
                }
                Ok(Some(command)) => return Some(command),
                Ok(None) => {
                    return Some(Command::queued(
                        id.clone(),
                        self.id.clone(),
                        String::new(),
                        Source::Agent,
                        self.version,
                        Timestamp::now(),
                    ));
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot read a command; retrying");
                    tokio::time::sleep(RETRY_INTERVAL).await;
                }
            }
        }
    }

    /// Stores the receipt of a command, and the state after it if it finished.
    async fn store_receipt(
        &mut self,
        mut command: Command,
        output: Option<Outputs>,
        cause: Cause,
        changed: Sections,
        removed: Vec<String>,
    ) {
        let finished = command.status == CommandStatus::Finished;
        let (change, env, cwd) = self.change(cause, changed, removed);
        command.version_before = self.version;
        if finished {
            command.changes = self.changes(&env, &cwd);
        }
        command.cwd = Some(if finished { cwd.clone() } else { self.cwd.clone() });
        let id = command.command_id.clone();
        let ended = EndedCommand { command: command.clone(), output: output.clone() };
        self.flights.stage(&id, CommandStage::Ended(ended.into()));
        loop {
            let finish = FinishCommand {
                command: command.clone(),
                state: finished.then(|| StateChange { expected: self.version, ..change.clone() }),
                output: output.clone(),
                touch: self.flights.touch(&id),
            };
            match self.store.finish_command(finish).await {
                Ok(done) => {
                    if finished {
                        (self.env, self.cwd) = (env, cwd);
                        self.moved_to(done.version);
                    }
                    let recorded = EndedCommand { command: done.command, output };
                    self.flights.stage(&id, CommandStage::Recorded(recorded.into()));
                    let terminal_id = self.id.clone();
                    self.events.publish(EventKind::CommandEnded { terminal_id, command_id: id });
                    return;
                }
                Err(error) => {
                    if !self.wait_to_retry_receipt(&id, error).await {
                        return;
                    }
                }
            }
        }
    }

    async fn new_version(&mut self, cause: Cause, changed: Sections, removed: Vec<String>) {
        let (change, env, cwd) = self.change(cause, changed, removed);
        loop {
            let change = StateChange { expected: self.version, ..change.clone() };
            match self.store.add_version(&self.id, change).await {
                Ok(version) => {
                    (self.env, self.cwd) = (env, cwd);
                    self.moved_to(version);
                    return;
                }
                Err(error) => {
                    if !self.wait_to_retry(error).await {
                        return;
                    }
                }
            }
        }
    }

    /// Waits before the next attempt to store a receipt. Returns `false` to give up.
    async fn wait_to_retry_receipt(&mut self, id: &CommandId, error: StoreError) -> bool {
        self.flights.stage(id, CommandStage::Failed(error.to_string()));
        self.wait_to_retry(error).await
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
            // A retry would find the same rows, or a store that no longer accepts writes.
            StoreError::SyncFailed { .. }
            | StoreError::Exists { .. }
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

    async fn note_late_output(&self, id: &CommandId, stdout: u64, stderr: u64) {
        let known = self.flights.lengths(id);
        self.flights.forget(id);
        if known != Some((stdout, stderr))
            && let Err(error) = self.store.note_late_output(id, stdout, stderr).await
        {
            tracing::warn!(%error, command = %id, "cannot store the length of late output");
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
                let terminal_id = self.id.clone();
                self.events.publish(EventKind::TerminalExited { terminal_id, code, signal });
                let terminal = self.id.to_string();
                self.link.post(|seq| Request::AckExit { seq, terminal });
            }
            Err(error) => {
                tracing::error!(terminal = %self.id, %error, "cannot record that a program ended")
            }
        }
    }

    async fn execute(&mut self, order: Order) {
        match order {
            Order::Apply { script, answer } => {
                let result = self.apply(script).await;
                let _ = answer.send(result);
            }
            Order::Rollback { to, answer } => {
                let result = self.roll_back(to).await;
                let _ = answer.send(result);
            }
        }
    }

    async fn apply(&mut self, script: Vec<u8>) -> Result<u64, TerminalError> {
        let terminal = self.id.to_string();
        self.link.call(|seq| Request::Apply { seq, terminal, script }).await?;
        // The host sends the change before its reply.
        while let Ok(record) = self.records.try_recv() {
            self.record(*record, Some(Cause::Patch)).await;
        }
        Ok(self.version)
    }

    async fn roll_back(&mut self, to: u64) -> Result<u64, TerminalError> {
        let wanted = self.store.terminal_state(&self.id, Some(to)).await?;
        let env = wanted.sections.get("env").map(|bytes| environment(bytes)).unwrap_or_default();
        let delta = delta(&self.base, &env);
        let now = Timestamp::now();
        let version = self.store.rollback(&self.id, self.version, to, delta, now).await?;
        (self.env, self.cwd) = (env, wanted.cwd.clone());
        self.moved_to(version);
        let terminal = self.id.to_string();
        let state = sections(wanted);
        self.link.call(|seq| Request::Replace { seq, terminal, state }).await?;
        Ok(version)
    }

    /// Requests the whole state and compares it, because records were dropped or not received.
    async fn resynchronize(&mut self) {
        let terminal = self.id.to_string();
        let answer = self.link.call(|seq| Request::State { seq, terminal }).await;
        let Ok(Event::StateReply { sections, .. }) = answer else { return };
        let Ok(known) = self.store.terminal_state(&self.id, None).await else { return };
        self.origin = ShellOrigin::Stored;
        let changed: Sections = sections
            .iter()
            .filter(|(name, bytes)| known.sections.get(name) != Some(bytes))
            .cloned()
            .collect();
        let removed: Vec<String> = known
            .sections
            .into_keys()
            .filter(|name| name != BASE && !sections.iter().any(|(other, _)| other == name))
            .collect();
        if !changed.is_empty() || !removed.is_empty() {
            self.new_version(Cause::Typed, changed, removed).await;
        }
    }

    fn moved_to(&mut self, version: u64) {
        self.version = version;
        self.stored.send_replace(version);
        self.events.publish(EventKind::TerminalChanged { terminal_id: self.id.clone(), version });
    }

    /// Returns the next version as a change for the store, with the environment and directory after it.
    fn change(
        &mut self,
        cause: Cause,
        changed: Sections,
        removed: Vec<String>,
    ) -> (StateChange, Env, String) {
        let mut env = None;
        let mut cwd = self.cwd.clone();
        let mut first = None;
        for (name, bytes) in &changed {
            match name.as_str() {
                "env" => env = Some(environment(bytes)),
                "cwd" => cwd = String::from_utf8_lossy(bytes).into_owned(),
                _ => {}
            }
        }
        if let (true, Some(env)) = (self.version == 0 && self.base.is_empty(), &env) {
            self.base.clone_from(env);
            first = changed.iter().find(|(name, _)| name == "env");
        }
        let base = first.map(|(_, bytes)| (BASE.to_owned(), bytes.clone()));
        let change = StateChange {
            expected: self.version,
            cause,
            env_delta: env.as_ref().map(|env| delta(&self.base, env)),
            changed: Section::all(changed.into_iter().chain(base)),
            removed,
            cwd: cwd.clone(),
            at: Timestamp::now(),
        };
        (change, env.unwrap_or_else(|| self.env.clone()), cwd)
    }

    fn changes(&self, env: &Env, cwd: &str) -> Changes {
        let moved = cwd != self.cwd;
        let set = env
            .iter()
            .filter(|(name, value)| self.env.get(*name) != Some(value))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        let unset = self.env.keys().filter(|name| !env.contains_key(*name)).cloned().collect();
        Changes {
            cwd: moved.then(|| CwdChange { from: self.cwd.clone(), to: cwd.to_owned() }),
            env: EnvChange { set, unset },
        }
    }
}

/// Returns the sections that are sent to a host: all except [`BASE`].
pub fn sections(state: TerminalState) -> Sections {
    state.sections.into_iter().filter(|(name, _)| name != BASE).collect()
}

/// Returns the difference from `base` to `env`; a removed name maps to `None`.
pub fn delta(base: &Env, env: &Env) -> BTreeMap<String, Option<String>> {
    let set = env
        .iter()
        .filter(|(name, value)| base.get(*name) != Some(value))
        .map(|(name, value)| (name.clone(), Some(value.clone())));
    let gone = base.keys().filter(|name| !env.contains_key(*name)).map(|name| (name.clone(), None));
    set.chain(gone).collect()
}

/// Parses an `env` section: `NAME=value` strings, each terminated by a zero byte.
pub fn environment(bytes: &[u8]) -> Env {
    bytes
        .split(|byte| *byte == 0)
        .filter_map(|entry| {
            let at = entry.iter().position(|byte| *byte == b'=')?;
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            Some((text(&entry[..at]), text(&entry[at + 1..])))
        })
        .collect()
}

fn time(time_ms: u64) -> Timestamp {
    i64::try_from(time_ms)
        .ok()
        .and_then(|ms| Timestamp::from_millisecond(ms).ok())
        .unwrap_or_else(Timestamp::now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delta_names_what_was_set_and_what_is_gone() {
        let env = |text: &str| environment(text.as_bytes());
        let base = env("HOME=/root\0PATH=/bin\0LANG=C\0");
        let now = env("HOME=/root\0PATH=/v/bin:/bin\0A=a=b\nc\0");
        let delta = delta(&base, &now);
        let expected: BTreeMap<String, Option<String>> =
            [("A", Some("a=b\nc")), ("LANG", None), ("PATH", Some("/v/bin:/bin"))]
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value.map(str::to_owned)))
                .collect();
        assert_eq!(delta, expected);
    }
}
