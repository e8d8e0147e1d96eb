//! Running a command in a terminal's live shell, and following it.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use host::wire::{Request, StdinMode, Stream};
use jiff::Timestamp;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::flight::Stage;
use super::link::{Link, Progress};
use super::output::{self, Chunk};
use super::{Resume, TerminalError, Terminals};
use model::{
    Command, CommandEnd, CommandId, CommandStatus, Env, Moment, SessionId, Source, Terminal,
};
use store::{Outputs, StoreError};

/// A command that runs longer than this is put on record while it runs, so that even a kill of
/// the server leaves its text behind.
const RECORD_AFTER: Duration = Duration::from_millis(100);
/// How long input waits for its command to begin.
const START_WAIT: Duration = Duration::from_secs(30);
/// How long a command is waited for whose host does not answer. A host that writes the output of a flood
/// may be held up by the disk for seconds.
const UNREACHABLE_WAIT: Duration = Duration::from_secs(20);
/// How often it is looked whether a command has come to another host.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// Bytes kept at least from either end of each stream.
const KEEP: u64 = 8 << 20;
/// The most output one answer carries of each stream.
pub const MAX_OUTPUT: u64 = 64 << 20;

/// What a command reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stdin {
    /// Nothing.
    Null,
    /// These bytes, then the end.
    Given(Vec<u8>),
    /// What is sent later.
    Open,
}

/// What to do when something else runs in the shell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IfBusy {
    /// Wait in the queue.
    Wait,
    /// Say so.
    Fail,
}

/// A command and everything that holds for it alone.
#[derive(Debug, Clone)]
pub struct ExecOptions {
    /// What to run.
    pub text: String,
    /// When to end it.
    pub timeout: Option<Duration>,
    /// What it reads.
    pub stdin: Stdin,
    /// Variables for it alone.
    pub env: Env,
    /// A directory for it alone.
    pub cwd: Option<String>,
    /// How much of each stream the answer is to carry.
    pub max_output: u64,
    /// What to do when something else runs.
    pub if_busy: IfBusy,
    /// Whether a paused lease is resumed.
    pub resume: Resume,
    /// The session its end counts as activity of.
    pub touch: Option<(SessionId, Moment)>,
    /// Whether the caller may ask again and must then find this command.
    pub keyed: bool,
    /// What happens to it if the caller leaves before it has begun.
    pub if_abandoned: IfAbandoned,
}

/// What happens to a queued command whose caller has left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IfAbandoned {
    /// It never starts: nobody would learn that it ran.
    Withdraw,
    /// It stays queued, for the caller to come back to.
    Keep,
}

/// Records a command's id before anything runs.
pub type Naming = Box<
    dyn FnOnce(CommandId) -> Pin<Box<dyn Future<Output = Result<(), StoreError>> + Send>> + Send,
>;

/// A command with what it wrote.
#[derive(Debug, Clone)]
pub struct Receipt {
    /// The command.
    pub command: Command,
    /// The start of its standard output.
    pub stdout: Vec<u8>,
    /// The start of its standard error.
    pub stderr: Vec<u8>,
    /// Whether there is more of either than this.
    pub truncated: bool,
    /// Whether it waits for somebody to type.
    pub waiting_for_input: bool,
}

/// A command that was handed to the shell.
pub struct Execution {
    terminals: Terminals,
    terminal: Terminal,
    id: CommandId,
    stage: watch::Receiver<Stage>,
    progress: watch::Receiver<Progress>,
    max_output: u64,
    recorded: bool,
    if_abandoned: IfAbandoned,
}

impl Drop for Execution {
    fn drop(&mut self) {
        let queued = matches!(&*self.stage.borrow(),
            Stage::Open(command) if command.status == CommandStatus::Queued);
        if self.if_abandoned == IfAbandoned::Withdraw && queued {
            let (terminals, terminal) = (self.terminals.clone(), self.terminal.clone());
            let id = self.id.clone();
            self.terminals.0.tasks.spawn(async move { terminals.withdraw(&terminal, &id).await });
        }
    }
}

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
    async fn withdraw(&self, terminal: &Terminal, id: &CommandId) {
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
    pub(super) async fn resume_flight(&self, live: &super::Live, link: &Link, command: &str) {
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

impl Execution {
    /// Its id.
    pub fn id(&self) -> &CommandId {
        &self.id
    }

    /// Waits until it has ended and its receipt is on stable storage, and reads what it wrote.
    /// Safe to drop while it waits; the command does not notice.
    pub async fn finished(&mut self) -> Result<Receipt, TerminalError> {
        self.ended().await?;
        let kept = match &*self.stage.borrow() {
            Stage::Ended(ended) | Stage::Recorded(ended) => ended.output.clone(),
            Stage::Open(_) | Stage::Failed(_) | Stage::Lost => None,
        };
        let Outputs { mut stdout, mut stderr } = match kept {
            Some(outputs) => outputs,
            None => self.heads().await?,
        };
        let most = usize::try_from(self.max_output).unwrap_or(usize::MAX);
        stdout.truncate(most);
        stderr.truncate(most);
        let command = self.recorded().await?;
        Ok(receipt(command, stdout, stderr, false))
    }

    /// Where it stands now, with what it wrote so far. It is on record after this.
    pub async fn so_far(&mut self) -> Result<Receipt, TerminalError> {
        self.put_on_record().await?;
        let Outputs { stdout, stderr } = self.heads().await?;
        let mut command = self.command_or_lost().await?;
        if command.status.is_end() {
            // What is told as ended is on stable storage, with the version of its state.
            command = self.recorded().await?;
        }
        let progress = *self.progress.borrow();
        if !command.status.is_end() {
            command.stdout_bytes = progress.stdout.max(stdout.len() as u64);
            command.stderr_bytes = progress.stderr.max(stderr.len() as u64);
        }
        Ok(receipt(command, stdout, stderr, progress.waiting))
    }

    /// Makes a command be on record, so that its id can be given out and found.
    pub async fn put_on_record(&mut self) -> Result<(), TerminalError> {
        self.note().await?;
        // The receipt of one that has ended may still be on its way.
        if self.is_over() { self.recorded().await.map(drop) } else { Ok(()) }
    }

    /// Puts a command that still runs on record.
    async fn note(&mut self) -> Result<(), TerminalError> {
        if !self.recorded && !self.is_over() {
            let command = self.command_or_lost().await?;
            if !command.status.is_end() {
                match self.terminals.0.store.save_command(&command).await {
                    // It ended in between; its receipt is on record or about to be.
                    Ok(()) | Err(StoreError::Refused(_)) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            self.recorded = true;
        }
        Ok(())
    }

    /// Asks the host to tell of output as it comes.
    pub async fn listen(&self) -> Result<(), TerminalError> {
        let command = self.id.to_string();
        let watch = |seq| Request::ExecWatch { seq, command, from_out: 0, from_err: 0 };
        self.terminals.link_of(&self.terminal).await?.call(watch).await?;
        Ok(())
    }

    /// What is known of its output; changes as it goes on.
    pub fn progress(&mut self) -> &mut watch::Receiver<Progress> {
        &mut self.progress
    }

    /// Whether it has ended.
    pub fn is_over(&self) -> bool {
        is_end(&self.stage.borrow())
    }

    /// Waits until it has written more or has ended.
    pub async fn more(&mut self) -> Result<(), TerminalError> {
        let more = tokio::select! {
            more = self.progress.changed() => more,
            over = self.stage.wait_for(is_end) => over.map(drop),
        };
        match more {
            Err(_) if !self.is_over() => self.rejoin().await,
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// The host it was handed to is gone: waits until another has it, or it has an end.
    async fn rejoin(&mut self) -> Result<(), TerminalError> {
        while !self.is_over() {
            let link = self.terminals.link_of(&self.terminal).await;
            if let Some(progress) = link.ok().and_then(|link| link.progress(self.id.as_str())) {
                self.progress = progress;
                return self.listen().await.or(Ok(()));
            }
            let over = self.stage.wait_for(is_end);
            if let Ok(Err(_)) = tokio::time::timeout(LOOK_AGAIN, over).await {
                return Err(TerminalError::Gone);
            }
        }
        Ok(())
    }

    /// Waits until it has ended, on record or not.
    pub async fn ended(&mut self) -> Result<(), TerminalError> {
        if !self.recorded {
            let soon = tokio::time::timeout(RECORD_AFTER, self.stage.wait_for(is_end)).await;
            if let Ok(ended) = soon {
                return ended.map(drop).map_err(|_| TerminalError::Gone);
            }
            drop(soon);
            self.note().await?;
        }
        let mut stage = self.stage.clone();
        tokio::select! {
            ended = stage.wait_for(is_end) => ended.map(drop).map_err(|_| TerminalError::Gone),
            () = self.unanswered() => {
                Err(TerminalError::Unreachable { lease: self.terminal.lease_id.clone() })
            }
        }
    }

    /// Waits until its host has been unreachable for too long. The command itself may run on, and its
    /// receipt is found by its id when the host is back.
    async fn unanswered(&self) {
        let lease = &self.terminal.lease_id;
        loop {
            self.terminals.is_unreachable(lease).await;
            tokio::time::sleep(UNREACHABLE_WAIT).await;
            if self.terminals.unreachable_since(lease).is_some() {
                return;
            }
        }
    }

    /// Bytes of one of its streams.
    pub async fn read(
        &self,
        stream: Stream,
        from: u64,
        limit: u32,
    ) -> Result<Chunk, TerminalError> {
        let link = self.terminals.link_of(&self.terminal).await?;
        output::from_host(&link, &self.id, stream, from, limit).await
    }

    /// The command as it is known here.
    pub fn command(&self) -> Result<Command, TerminalError> {
        match &*self.stage.borrow() {
            Stage::Open(command) => Ok((**command).clone()),
            Stage::Ended(ended) | Stage::Recorded(ended) => Ok(ended.command.clone()),
            Stage::Failed(reason) => Err(unrecorded(reason)),
            Stage::Lost => Err(TerminalError::Gone),
        }
    }

    async fn recorded(&mut self) -> Result<Command, TerminalError> {
        let stage = self
            .stage
            .wait_for(|stage| matches!(stage, Stage::Recorded(_) | Stage::Failed(_) | Stage::Lost))
            .await
            .map_err(|_| TerminalError::Gone)?
            .clone();
        match stage {
            Stage::Recorded(ended) => Ok(ended.command.clone()),
            Stage::Failed(reason) => Err(unrecorded(&reason)),
            Stage::Lost => {
                let command = self.terminals.0.store.command(&self.id).await?;
                command.ok_or(TerminalError::Gone)
            }
            Stage::Open(_) | Stage::Ended(_) => Err(TerminalError::Gone),
        }
    }

    /// What either stream begins with, as far as the answer carries it.
    async fn heads(&self) -> Result<Outputs, TerminalError> {
        let head = async |stream| -> Result<Vec<u8>, TerminalError> {
            let mut all = Vec::new();
            let command = self.command_or_lost().await?;
            loop {
                let from = all.len() as u64;
                let limit = (self.max_output - from).min(host::wire::MAX_DATA as u64) as u32;
                let read = self.terminals.output(&self.terminal, &command, stream, from, limit);
                let chunk = match read.await {
                    Ok(chunk) if limit > 0 => chunk,
                    // Forgotten without having written anything, or gone with its host.
                    Ok(_) | Err(TerminalError::NotKept) => return Ok(all),
                    Err(error) => return Err(error),
                };
                if chunk.bytes.is_empty() || chunk.offset != from {
                    return Ok(all);
                }
                all.extend_from_slice(&chunk.bytes);
            }
        };
        let (stdout, stderr) = tokio::join!(head(Stream::Stdout), head(Stream::Stderr));
        Ok(Outputs { stdout: stdout?, stderr: stderr? })
    }

    async fn command_or_lost(&self) -> Result<Command, TerminalError> {
        match self.command() {
            Err(TerminalError::Gone) => {
                let command = self.terminals.0.store.command(&self.id).await?;
                command.ok_or(TerminalError::Gone)
            }
            other => other,
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

fn is_end(stage: &Stage) -> bool {
    !matches!(stage, Stage::Open(_))
}

fn receipt(command: Command, stdout: Vec<u8>, stderr: Vec<u8>, waiting: bool) -> Receipt {
    let truncated = command.truncated
        || command.stdout_bytes > stdout.len() as u64
        || command.stderr_bytes > stderr.len() as u64;
    Receipt { command, stdout, stderr, truncated, waiting_for_input: waiting }
}

fn unrecorded(reason: &str) -> TerminalError {
    TerminalError::Store(StoreError::Unavailable { reason: reason.to_owned() })
}

pub(super) fn request(
    seq: u32,
    terminal: String,
    id: &CommandId,
    options: &ExecOptions,
) -> Request {
    let (stdin, stdin_data) = match &options.stdin {
        Stdin::Null => (StdinMode::Null, Vec::new()),
        Stdin::Given(bytes) => (StdinMode::Given, bytes.clone()),
        Stdin::Open => (StdinMode::Open, Vec::new()),
    };
    let millis = |wait: Duration| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX).max(1);
    Request::Exec {
        seq,
        terminal,
        command: id.to_string(),
        text: options.text.clone().into_bytes(),
        timeout_ms: options.timeout.map_or(0, millis),
        stdin,
        stdin_data,
        env: options
            .env
            .iter()
            .map(|(name, value)| (name.clone().into_bytes(), value.clone().into_bytes()))
            .collect(),
        cwd: options.cwd.clone().unwrap_or_default().into_bytes(),
        if_busy: match options.if_busy {
            IfBusy::Wait => host::wire::IfBusy::Wait,
            IfBusy::Fail => host::wire::IfBusy::Fail,
        },
        keep_head: options.max_output.clamp(KEEP, MAX_OUTPUT),
        keep_tail: KEEP,
    }
}
