//! Running a command in a terminal's live shell.

use std::sync::Arc;
use std::time::Duration;

use host::wire::{Request, Stream};
use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use super::error::TerminalError;
use super::execution::Execution;
use super::link::{Link, Progress};
use super::options::{ExecOptions, IfAbandoned, MAX_OUTPUT, Naming};
use super::terminals::{Live, Terminals};
use model::{Command, CommandEnd, CommandId, CommandStatus, Source, Terminal};

/// How long input waits for its command to begin.
const START_WAIT: Duration = Duration::from_secs(30);

impl Terminals {
    /// Hands a command to the terminal's shell. Once it has begun it runs on whatever becomes of the
    /// caller; until then `if_abandoned` says what happens. Before anything runs, `name` is told its id.
    pub async fn exec(
        &self,
        terminal: &Terminal,
        options: ExecOptions,
        name: Option<Naming>,
    ) -> Result<Execution, TerminalError> {
        // In a task of its own: a caller that leaves would cut it short between two records.
        let caller = CancellationToken::new();
        let (terminals, terminal) = (self.clone(), terminal.clone());
        let left = caller.clone();
        let task = async move { terminals.begin_exec(&terminal, options, name, &left).await };
        let task = self.0.tasks.spawn(task);
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
        let link = self.alive_again(terminal, &live, options.resume).await?;
        let id = CommandId::fresh();
        let version = *live.version.borrow();
        let command = Command::asked(
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
        let (max_output, recorded) = (options.max_output.min(MAX_OUTPUT), options.keyed);
        let options = Arc::new(options);
        let stage = self.0.flights.begin(command, Some(options.clone()));
        let progress = match self.hand_to_shell(link, terminal, &live, &id, &options).await {
            Ok(progress) => progress,
            Err(error) => {
                match &error {
                    // It may run all the same; then its receipt is to be found.
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
        })
    }

    /// Drops a command that has not begun; it ends as not started.
    pub(super) async fn withdraw(&self, terminal: &Terminal, id: &CommandId) {
        self.0.flights.abandon(id);
        let Ok(link) = self.link_of(terminal).await else { return };
        let command = id.to_string();
        match link.call(|seq| Request::ExecWithdraw { seq, command }).await {
            Ok(_) => tracing::info!(command = %id, "withdrawn: its caller left before it began"),
            // It has begun meanwhile, and runs to its end as any command does; or the host is gone, and
            // what it held is seen to elsewhere.
            Err(error) => tracing::debug!(command = %id, %error, "a command was not withdrawn"),
        }
    }

    /// A command that still runs, to be followed by another caller.
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
        })
    }

    /// Feeds a command that was started with [`Stdin::Open`], at most once.
    pub async fn feed(
        &self,
        terminal: &Terminal,
        id: &CommandId,
        write_id: String,
        data: Vec<u8>,
        eof: bool,
    ) -> Result<(), TerminalError> {
        let link = self.link_of(terminal).await?;
        // One that waits for the shell has nothing to be fed through yet.
        if self.0.flights.command(id).is_some_and(|it| it.status == CommandStatus::Queued)
            && let Some(mut progress) = link.progress(id.as_str())
        {
            let _ = tokio::time::timeout(START_WAIT, progress.wait_for(|p| p.started)).await;
        }
        let pieces: Vec<&[u8]> =
            if data.is_empty() { vec![&data] } else { data.chunks(host::wire::MAX_DATA).collect() };
        let last = pieces.len() - 1;
        for (part, piece) in pieces.into_iter().enumerate() {
            let write_id = match (write_id.as_str(), part) {
                ("", _) => String::new(),
                (id, 0) => id.to_owned(),
                (id, part) => format!("{id}.{part}"),
            };
            let (command, data, eof) = (id.to_string(), piece.to_vec(), eof && part == last);
            let fed = link.call(|seq| Request::ExecStdin { seq, command, write_id, data, eof });
            fed.await.map_err(|error| of_ended(error.into()))?;
        }
        Ok(())
    }

    /// Signals the processes of a command.
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

    /// Ends a command as a time-out does, or drops it if it still waits.
    pub async fn cancel(&self, terminal: &Terminal, id: &CommandId) -> Result<(), TerminalError> {
        let link = self.link_of(terminal).await?;
        let command = id.to_string();
        let ended = link.call(|seq| Request::ExecCancel { seq, command });
        ended.await.map(drop).map_err(|error| of_ended(error.into()))
    }

    /// The host a terminal is on, if it is on one; starts nothing.
    pub(super) async fn link_of(&self, terminal: &Terminal) -> Result<Link, TerminalError> {
        let live = self.live(terminal).await;
        let alive = live.runtime.lock().await;
        alive.as_ref().map(|alive| alive.link.clone()).ok_or(TerminalError::NoInput)
    }

    /// A command that has not ended, as it is known here.
    pub fn running(&self, id: &CommandId) -> Option<Command> {
        self.0.flights.command(id).filter(|command| !command.status.is_end())
    }

    /// Whether a command waits for somebody to type.
    pub async fn waits(&self, command: &Command, terminal: &Terminal) -> bool {
        if command.status.is_end() {
            return false;
        }
        let Ok(link) = self.link_of(terminal).await else { return false };
        link.progress(command.command_id.as_str()).is_some_and(|progress| progress.borrow().waiting)
    }

    /// Waits until a stream of a command reaches beyond `from` or is closed; false when the
    /// deadline came first or nothing more can come.
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

    /// A command found running after a restart can be waited for again.
    pub(super) async fn resume_flight(&self, live: &Live, link: &Link, command: &str) {
        let Ok(id) = command.parse::<CommandId>() else { return };
        if self.0.flights.command(&id).is_some() {
            self.0.flights.handed_to(&id, link.boot_id());
            return;
        }
        let row = self.0.store.command(&id).await.ok().flatten();
        let command = row.unwrap_or_else(|| {
            let version = *live.version.borrow();
            let now = Timestamp::now();
            let text = String::new();
            Command::asked(id.clone(), live.id.clone(), text, Source::Agent, version, now)
        });
        if !command.status.is_end() {
            self.0.flights.begin(command, None);
            self.0.flights.handed_to(&id, link.boot_id());
        }
    }
}

/// A command the host has forgotten is one that has ended.
fn of_ended(error: TerminalError) -> TerminalError {
    match error {
        TerminalError::NotKept => TerminalError::NoInput,
        other => other,
    }
}
