//! Commands whose host is gone: one that never began there is handed to the next, one that did is lost.
//!
//! ```text
//!  handed to a host ──▶ began ──▶ ended
//!        │                └── the host is gone ──▶ lost
//!        └── the host is gone ──▶ handed to another
//! ```
//! What a host began it names in a file before the shell hears of it, so nothing is run twice.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use host::wire::Request;
use jiff::Timestamp;
use tokio::sync::watch;
use tokio::time::Instant;

use super::error::TerminalError;
use super::flight::Stage;
use super::link::{Link, LinkError, Progress};
use super::options::{ExecOptions, IfBusy, Resume};
use super::terminals::{Live, Terminals};
use model::{Command, CommandEnd, CommandId, CommandStatus, ShellKind, Terminal, TerminalId};

/// How long a host is waited for that a command can be handed to.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long to wait before looking again.
const AGAIN: Duration = Duration::from_millis(20);

impl Terminals {
    /// The host a terminal is on, as [`Terminals::alive`]; one that goes away meanwhile is waited for.
    pub(super) async fn alive_again(
        &self,
        terminal: &Terminal,
        live: &Arc<Live>,
        resume: Resume,
    ) -> Result<Link, TerminalError> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.alive(terminal, live, resume).await {
                Err(error) if is_away(&error) && Instant::now() < deadline => {
                    tracing::info!(terminal = %live.id, %error, "a host went away; looking again");
                    tokio::time::sleep(AGAIN).await;
                }
                other => return other,
            }
        }
    }

    /// Hands a command to a terminal's shell. One that has just ended for good, which its owner has yet
    /// to hear, is waited out: the next one takes the command.
    pub(super) async fn hand_to_shell(
        &self,
        mut link: Link,
        terminal: &Terminal,
        live: &Arc<Live>,
        id: &CommandId,
        options: &ExecOptions,
    ) -> Result<watch::Receiver<Progress>, TerminalError> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let handed = self.hand_over(&link, terminal, id, options).await;
            if handed.is_err() && !matches!(handed, Err(TerminalError::Unreachable { .. })) {
                link.forget(id.as_str());
            }
            match handed {
                Err(TerminalError::NotDrivable)
                    if terminal.shell != ShellKind::Plain && Instant::now() < deadline =>
                {
                    tokio::time::sleep(AGAIN).await;
                    link = self.alive_again(terminal, live, options.resume).await?;
                }
                handed => return handed,
            }
        }
    }

    /// Hands a command to a host. One that goes away over it leaves the command stranded, and that is
    /// seen to.
    pub(super) async fn hand_over(
        &self,
        link: &Link,
        terminal: &Terminal,
        id: &CommandId,
        options: &ExecOptions,
    ) -> Result<watch::Receiver<Progress>, TerminalError> {
        let name = terminal.terminal_id.to_string();
        let progress = link.follow(id.as_str(), &name);
        self.0.flights.handed_to(id, link.boot_id());
        match link.call(|seq| options.request(seq, name, id)).await {
            Ok(_) => Ok(progress),
            Err(LinkError::Closed) => {
                if self.0.gone.lock().contains(link.boot_id()) {
                    // Its other commands have been seen to already.
                    self.strand(link.boot_id()).await;
                }
                Ok(progress)
            }
            Err(error @ LinkError::Unreachable { .. }) => {
                // The request may be in the host's socket. Its caller is told that nobody knows, so it
                // should not start; if it does all the same, its receipt says so.
                self.0.flights.abandon(id);
                let command = id.to_string();
                link.post(|seq| Request::ExecCancel { seq, command });
                Err(error.into())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// A host is gone: sees to what was handed to it.
    pub(super) async fn strand(&self, host: &str) {
        self.0.gone.lock().add(host);
        for (command, options) in self.0.flights.on(host) {
            match options {
                Some(options) if !self.began(&command).await => {
                    self.0.flights.handed_to(&command.command_id, "");
                    self.0.tasks.spawn(self.clone().hand_on(command, options));
                }
                Some(_) | None => self.end_as(&command, CommandEnd::Lost).await,
            }
        }
    }

    /// Whether a command that is on record never reached its host, and so never will: a host hears out
    /// a server that is gone before it talks to the next. It is put on record as not started then.
    pub async fn never_began(
        &self,
        terminal: &Terminal,
        command: &Command,
    ) -> Result<bool, TerminalError> {
        if command.status != CommandStatus::Queued {
            return Ok(false);
        }
        // What its host holds is known here after this.
        let live = self.live(terminal).await;
        self.alive_again(terminal, &live, Resume::Yes).await?;
        if self.0.flights.command(&command.command_id).is_some() || self.began(command).await {
            return Ok(false);
        }
        self.end_as(command, CommandEnd::NotStarted).await;
        Ok(true)
    }

    /// Whether a host that is gone had begun a command; what cannot be told counts as begun.
    pub(super) async fn began(&self, command: &Command) -> bool {
        let path = self.directory(&command.terminal_id).join(host::shell::BEGAN);
        let id = command.command_id.clone();
        let read = tokio::task::spawn_blocking(move || std::fs::read(path)).await;
        !read.is_ok_and(|read| read.is_ok_and(|last| last != id.as_str().as_bytes()))
    }

    /// Boxed, for to hand a command to a host that is gone is to strand it.
    fn hand_on(
        self,
        command: Command,
        options: Arc<ExecOptions>,
    ) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(async move {
            let id = &command.command_id;
            if self.0.flights.is_abandoned(id) {
                self.end_as(&command, CommandEnd::NotStarted).await;
                return;
            }
            let options = ExecOptions { if_busy: IfBusy::Wait, ..(*options).clone() };
            let handed = tokio::select! {
                handed = self.to_another_host(&command.terminal_id, id, &options) => handed,
                () = self.0.stopping.cancelled() => return,
            };
            if let Err(error) = handed {
                tracing::warn!(command = %id, %error, "a command found no host to run on");
                self.end_as(&command, CommandEnd::NotStarted).await;
            }
        })
    }

    async fn to_another_host(
        &self,
        terminal: &TerminalId,
        id: &CommandId,
        options: &ExecOptions,
    ) -> Result<(), TerminalError> {
        let terminal = self.0.store.terminal(terminal).await?.ok_or(TerminalError::Gone)?;
        let live = self.live(&terminal).await;
        let link = self.alive_again(&terminal, &live, options.resume).await?;
        tracing::info!(command = %id, "a command that had not begun goes to another host");
        self.hand_over(&link, &terminal, id, options).await.map(drop)
    }

    /// Puts on record that a command ended without its host.
    async fn end_as(&self, command: &Command, end: CommandEnd) {
        let command = &self.with_lengths(command).await;
        if let Ok(ended) = command.end(end, Timestamp::now())
            && let Err(error) = self.0.store.save_command(&ended).await
        {
            tracing::warn!(command = %ended.command_id, %error, "cannot note how a command ended");
        }
        self.0.flights.stage(&command.command_id, Stage::Lost);
        self.0.flights.forget(&command.command_id);
    }
}

/// Whether the host went away while it was asked.
fn is_away(error: &TerminalError) -> bool {
    matches!(error, TerminalError::Host(LinkError::Closed))
}
