//! Runs commands in a terminal's live shell.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;
use wire::{Request, Stream};

use super::error::TerminalError;
use super::execution::Execution;
use super::flight::CurrentCommand;
use super::link::{HostLink, Progress};
use super::options::{ExecOptions, IfAbandoned, MAX_OUTPUT, Naming, StdinAfterWrite};
use super::terminals::{LiveTerminal, Terminals};
use model::{Command, CommandEnd, CommandId, CommandStatus, Source, Terminal, ThreadId};

/// How long input waits for its command to start.
const START_TIMEOUT: Duration = Duration::from_secs(30);

impl Terminals {
    /// Hands a command to the terminal's shell. Once started it keeps running if the caller leaves; before
    /// that, `if_abandoned` decides. `name` gets the id of the command before it starts.
    pub async fn exec(
        &self,
        terminal: &Terminal,
        options: ExecOptions,
        name: Option<Naming>,
    ) -> Result<Execution, TerminalError> {
        // A task of its own, because a dropped request must not interrupt it between two writes.
        let caller = CancellationToken::new();
        let (terminals, terminal) = (self.clone(), terminal.clone());
        let left = caller.clone();
        let task = async move { terminals.begin_exec(&terminal, options, name, &left).await };
        let task = self.0.tasks.spawn(task.in_current_span());
        let _leaves = caller.drop_guard();
        task.await.unwrap_or(Err(TerminalError::Gone))
    }

    async fn begin_exec(
        &self,
        terminal: &Terminal,
        options: ExecOptions,
        name: Option<Naming>,
        left: &CancellationToken,
    ) -> Result<Execution, TerminalError> {
        let live = self.live(terminal).await;
        let link = self.ensure_shell_retrying(terminal, &live, options.resume).await?;
        let id = CommandId::fresh();
        let version = *live.version.borrow();
        let command = Command::queued(
            id.clone(),
            live.id.clone(),
            options.text.clone(),
            Source::Agent,
            version,
            Timestamp::now(),
        );
        if options.keyed {
            self.0.store.save_command(&command).await?;
        }
        if let Some(name) = name {
            name(id.clone()).await?;
        }
        if options.if_abandoned == IfAbandoned::Withdraw && left.is_cancelled() {
            let end = command.end(CommandEnd::NotStarted, Timestamp::now());
            if let Ok(withdrawn) = end {
                self.0.store.save_command(&withdrawn).await?;
            }
            return Err(TerminalError::Gone);
        }
        let if_abandoned = options.if_abandoned;
        let times_out = options.timeout.map(|timeout| Instant::now() + timeout);
        let (max_output, recorded) = (options.max_output.min(MAX_OUTPUT), options.keyed);
        let options = Arc::new(options);
        let stage = self.0.flights.begin(command, Some(options.clone()));
        let progress = match self.hand_to_shell(link, terminal, &live, &id, &options).await {
            Ok(progress) => progress,
            Err(error) => {
                match &error {
                    // It may run nevertheless; then its receipt must be found.
                    TerminalError::Unreachable { .. } => {
                        if let Some(command) = self.0.flights.command(&id) {
                            self.0.store.save_command(&command).await?;
                        }
                    }
                    _ => self.0.flights.forget(&id),
                }
                return Err(error);
            }
        };
        let (terminals, terminal) = (self.clone(), terminal.clone());
        Ok(Execution {
            terminals,
            terminal,
            id,
            stage,
            progress,
            max_output,
            recorded,
            if_abandoned,
            times_out,
        })
    }

    /// Withdraws a command that has not started; it ends as not started.
    pub(super) async fn withdraw(&self, terminal: &Terminal, id: &CommandId) {
        self.0.flights.abandon(id);
        let Ok(link) = self.link_of(terminal).await else { return };
        let command = id.to_string();
        match link.call(|seq| Request::ExecWithdraw { seq, command }).await {
            Ok(_) => {
                tracing::info!(command = %id, "withdrew a command whose caller left before it started")
            }
            // It has started meanwhile and runs to its end; or the host is lost, which is handled elsewhere.
            Err(error) => tracing::debug!(command = %id, %error, "a command was not withdrawn"),
        }
    }

    /// Follows a running command on behalf of another caller.
    pub async fn follow(&self, terminal: &Terminal, id: &CommandId) -> Option<Execution> {
        self.settled(&terminal.lease_id).await;
        let stage = self.0.flights.watch(id)?;
        let progress = self.link_of(terminal).await.ok()?.progress(id.as_str())?;
        let (terminals, terminal) = (self.clone(), terminal.clone());
        Some(Execution {
            terminals,
            terminal,
            id: id.clone(),
            stage,
            progress,
            max_output: MAX_OUTPUT,
            recorded: true,
            if_abandoned: IfAbandoned::Keep,
            times_out: None,
        })
    }

    /// Writes to a command that was started with [`Stdin::Open`](super::Stdin::Open), at most once.
    pub async fn feed(
        &self,
        terminal: &Terminal,
        id: &CommandId,
        write_id: String,
        data: Vec<u8>,
        after: StdinAfterWrite,
    ) -> Result<(), TerminalError> {
        let link = self.link_of(terminal).await?;
        // A queued command has no standard input yet.
        if self.0.flights.command(id).is_some_and(|it| it.status == CommandStatus::Queued)
            && let Some(mut progress) = link.progress(id.as_str())
        {
            let _ = tokio::time::timeout(START_TIMEOUT, progress.wait_for(|p| p.started)).await;
        }
        let pieces: Vec<&[u8]> =
            if data.is_empty() { vec![&data] } else { data.chunks(wire::MAX_DATA).collect() };
        let last = pieces.len() - 1;
        for (part, piece) in pieces.into_iter().enumerate() {
            let write_id = match (write_id.as_str(), part) {
                ("", _) => String::new(),
                (id, 0) => id.to_owned(),
                (id, part) => format!("{id}.{part}"),
            };
            let eof = after == StdinAfterWrite::Close && part == last;
            let (command, data) = (id.to_string(), piece.to_vec());
            let fed = link.call(|seq| Request::ExecStdin { seq, command, write_id, data, eof });
            fed.await.map_err(|error| of_ended(error.into()))?;
        }
        Ok(())
    }

    /// Sends a signal to the processes of a command.
    pub async fn signal_command(
        &self,
        terminal: &Terminal,
        id: &CommandId,
        signal: i32,
    ) -> Result<(), TerminalError> {
        let link = self.link_of(terminal).await?;
        let command = id.to_string();
        let sent = link.call(|seq| Request::ExecSignal { seq, command, signal });
        sent.await.map(drop).map_err(|error| of_ended(error.into()))
    }

    /// Ends a command like a timeout does, or removes it from the queue.
    pub async fn cancel(&self, terminal: &Terminal, id: &CommandId) -> Result<(), TerminalError> {
        let link = self.link_of(terminal).await?;
        let command = id.to_string();
        let ended = link.call(|seq| Request::ExecCancel { seq, command });
        ended.await.map(drop).map_err(|error| of_ended(error.into()))
    }

    /// Returns the host of a terminal, if it has one. Starts nothing.
    pub(super) async fn link_of(&self, terminal: &Terminal) -> Result<HostLink, TerminalError> {
        self.live(terminal).await.link().await?.ok_or(TerminalError::NoInput)
    }

    /// Returns a command that has not ended.
    pub fn running(&self, id: &CommandId) -> Option<Command> {
        self.0.flights.command(id).filter(|command| !command.status.is_end())
    }

    /// Returns the current commands of each thread's terminals, the most urgent first. Threads without one are left
    /// out.
    pub fn current_commands(&self) -> HashMap<ThreadId, Vec<CurrentCommand>> {
        let current = self.0.flights.current();
        let live = self.0.live.lock();
        let mut threads: HashMap<ThreadId, Vec<CurrentCommand>> = HashMap::new();
        for one in current {
            if let Some(terminal) = live.get(&one.command.terminal_id) {
                threads.entry(terminal.thread.clone()).or_default().push(one);
            }
        }
        threads
    }

    /// Returns whether a command waits for input.
    pub async fn waits(&self, command: &Command, terminal: &Terminal) -> bool {
        if command.status.is_end() {
            return false;
        }
        let Ok(link) = self.link_of(terminal).await else { return false };
        link.progress(command.command_id.as_str()).is_some_and(|progress| progress.borrow().waiting)
    }

    /// Waits until a stream of a command is longer than `from` or closed. Returns `false` at the deadline, or
    /// if no more output can follow.
    pub async fn more_output(
        &self,
        terminal: &Terminal,
        command: &Command,
        stream: Stream,
        from: u64,
        deadline: tokio::time::Instant,
    ) -> bool {
        let Ok(link) = self.link_of(terminal).await else { return false };
        let id = command.command_id.to_string();
        let Some(mut progress) = link.progress(&id) else { return false };
        let watch = |seq| Request::ExecWatch { seq, command: id, from_out: from, from_err: from };
        if link.call(watch).await.is_err() {
            return false;
        }
        let beyond = |progress: &Progress| {
            let written = match stream {
                Stream::Stderr => progress.stderr,
                Stream::Stdout | Stream::Other(_) => progress.stdout,
            };
            written > from || progress.sealed
        };
        let wait = progress.wait_for(beyond);
        tokio::time::timeout_at(deadline, wait).await.is_ok_and(|waited| waited.is_ok())
    }

    /// Makes a command that was found running after a restart available to callers.
    pub(super) async fn resume_flight(&self, live: &LiveTerminal, link: &HostLink, command: &str) {
        let Ok(id) = command.parse::<CommandId>() else { return };
        if self.0.flights.command(&id).is_some() {
            self.0.flights.handed_to(&id, link);
            return;
        }
        let row = self.0.store.command(&id).await.ok().flatten();
        let command = row.unwrap_or_else(|| {
            let version = *live.version.borrow();
            let now = Timestamp::now();
            let text = String::new();
            Command::queued(id.clone(), live.id.clone(), text, Source::Agent, version, now)
        });
        if !command.status.is_end() {
            self.0.flights.begin(command, None);
            self.0.flights.handed_to(&id, link);
        }
    }
}

/// A command that the host no longer knows has ended.
fn of_ended(error: TerminalError) -> TerminalError {
    match error {
        TerminalError::NotKept => TerminalError::NoInput,
        other => other,
    }
}
