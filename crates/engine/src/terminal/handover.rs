//! Commands whose host was lost: a command that had not started goes to the next host, the others are lost.
//!
//! ```text
//!  handed to a host ──▶ started ──▶ ended
//!        │                  └── host lost ──▶ lost
//!        └── host lost ──▶ handed to another
//! ```
//! A host records a command in a file before it passes it to the shell, so that no command runs twice. A host that
//! still runs lists the commands that it has: one that was lost on the way to it is handed to it again.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use wire::Request;

use super::error::TerminalError;
use super::link::{HostLink, LinkError, Progress};
use super::options::{BusyPolicy, ExecOptions, Resume};
use super::terminals::{LiveTerminal, Terminals};
use model::{
    Command, CommandEnd, CommandId, CommandStatus, Desired, ShellKind, Terminal, TerminalId,
};

/// How long a command waits for a host to run on.
const HOST_TIMEOUT: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

impl Terminals {
    /// Returns the host of a terminal like [`Terminals::ensure_shell`], and retries if the host is lost meanwhile.
    pub(super) async fn ensure_shell_retrying(
        &self,
        terminal: &Terminal,
        live: &Arc<LiveTerminal>,
        resume: Resume,
    ) -> Result<HostLink, TerminalError> {
        let deadline = Instant::now() + HOST_TIMEOUT;
        loop {
            match self.ensure_shell(terminal, live, resume).await {
                Err(error) if is_lost(&error) && Instant::now() < deadline => {
                    tracing::info!(terminal = %live.id, %error, "a host was lost; reconnecting");
                    tokio::time::sleep(POLL_INTERVAL).await;
                }
                other => return other,
            }
        }
    }

    /// Hands a command to a terminal's shell. If the shell has just ended and its owner does not know yet,
    /// waits for the next shell.
    pub(super) async fn hand_to_shell(
        &self,
        mut link: HostLink,
        terminal: &Terminal,
        live: &Arc<LiveTerminal>,
        id: &CommandId,
        options: &ExecOptions,
    ) -> Result<watch::Receiver<Progress>, TerminalError> {
        let deadline = Instant::now() + HOST_TIMEOUT;
        loop {
            let handed = self.hand_over(&link, terminal, id, options).await;
            if handed.is_err() && !matches!(handed, Err(TerminalError::Unreachable { .. })) {
                link.forget(id.as_str());
            }
            let has_next = match &handed {
                Err(TerminalError::NotDrivable) => terminal.shell != ShellKind::Plain,
                // The host has discarded the terminal with its last shell.
                Err(TerminalError::Exited) => !terminal.ends_with_program(),
                _ => false,
            };
            match handed {
                Err(_) if has_next && Instant::now() < deadline => {
                    tokio::time::sleep(POLL_INTERVAL).await;
                    link = self.ensure_shell_retrying(terminal, live, options.resume).await?;
                }
                handed => return handed,
            }
        }
    }

    /// Hands a command to a host. If the host is lost meanwhile, [`Terminals::recover_commands`] handles the command.
    pub(super) async fn hand_over(
        &self,
        link: &HostLink,
        terminal: &Terminal,
        id: &CommandId,
        options: &ExecOptions,
    ) -> Result<watch::Receiver<Progress>, TerminalError> {
        let name = terminal.terminal_id.to_string();
        let progress = link.follow(id.as_str(), &name);
        self.0.flights.handed_to(id, link);
        match link.call(|seq| options.request(seq, name, id)).await {
            Ok(_) => Ok(progress),
            Err(LinkError::Closed) => {
                if self.0.lost_hosts.lock().contains(link.boot_id()) {
                    // The other commands of this host were handled already.
                    self.recover_commands(link.boot_id()).await;
                } else if let Ok(next) = self.link_of(terminal).await
                    && next.number() > link.number()
                    && next.progress(id.as_str()).is_none()
                {
                    // The next connection was made before the command was handed to this one.
                    self.hand_again(&next, |command| command.command_id == *id);
                }
                Ok(progress)
            }
            Err(error @ LinkError::Unreachable { .. }) => {
                // The request may be in the host's socket. The caller gets an error, so the command should
                // not start; if it does, its receipt shows that.
                self.0.flights.abandon(id);
                let command = id.to_string();
                link.post(|seq| Request::ExecCancel { seq, command });
                Err(error.into())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Hands the commands of a lost host that had not started to the next host, and records the others as lost.
    pub(super) async fn recover_commands(&self, host: &str) {
        self.0.lost_hosts.lock().add(host);
        for (command, options) in self.0.flights.take_back(host, u64::MAX, |_| true) {
            match options {
                Some(options) if !self.began(&command).await => {
                    self.0.tasks.spawn(self.clone().hand_on(command, options));
                }
                Some(_) | None => self.end_as(&command, CommandEnd::Lost).await,
            }
        }
    }

    /// Hands commands to a host again that were handed to it on an earlier connection and that it does not have: they
    /// were lost on the way. `of` selects them.
    pub(super) fn hand_again(&self, link: &HostLink, of: impl Fn(&Command) -> bool) {
        for (command, options) in self.0.flights.take_back(link.boot_id(), link.number(), of) {
            let this = self.clone();
            match options {
                Some(options) => self.0.tasks.spawn(this.hand_on(command, options)),
                // Its host had started it, and forgot it.
                None => self.0.tasks.spawn(async move {
                    this.end_as(&command, CommandEnd::Lost).await;
                }),
            };
        }
    }

    /// Returns whether a stored command never reached its host. It never will, because a host processes all
    /// requests of one server before it accepts the next. Such a command is recorded as not started.
    pub async fn never_began(
        &self,
        terminal: &Terminal,
        command: &Command,
    ) -> Result<bool, TerminalError> {
        if command.status != CommandStatus::Queued {
            return Ok(command.status == CommandStatus::NotStarted);
        }
        let live = self.live(terminal).await;
        self.ensure_shell_retrying(terminal, &live, Resume::Yes).await?;
        self.end_unreceived(command).await
    }

    /// Records a stored command as not started if its host never received it; returns whether it did not start. The host
    /// has been adopted, so that all its commands are known here.
    pub(super) async fn end_unreceived(&self, command: &Command) -> Result<bool, TerminalError> {
        let id = &command.command_id;
        if self.0.flights.command(id).is_some() || self.began(command).await {
            return Ok(false);
        }
        // The row decides: its host may report its end at any time, and a command that has ended does not change.
        if self.0.store.command(id).await?.is_some_and(|it| it.status == CommandStatus::Queued) {
            self.end_as(command, CommandEnd::NotStarted).await;
        }
        Ok(self.0.store.command(id).await?.is_some_and(|it| it.status == CommandStatus::NotStarted))
    }

    /// Boxed, because handing over a command may lose its host and begin again.
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
            let options = ExecOptions { if_busy: BusyPolicy::Wait, ..(*options).clone() };
            let handed = tokio::select! {
                handed = self.to_another_host(&command.terminal_id, id, &options) => handed,
                () = self.0.stopping.cancelled() => return,
            };
            if let Err(error) = handed {
                tracing::warn!(command = %id, %error, "no host is available for a command");
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
        // A host that was stopped on request stays stopped: a command that came too late does not start it.
        let lease = self.0.store.lease(&terminal.lease_id).await?;
        if lease.is_none_or(|lease| lease.desired == Desired::Stopped) {
            return Err(TerminalError::Gone);
        }
        let live = self.live(&terminal).await;
        let link = self.ensure_shell_retrying(&terminal, &live, options.resume).await?;
        tracing::info!(command = %id, "a command that had not started goes to another host");
        self.hand_over(&link, &terminal, id, options).await.map(drop)
    }
}

/// Returns whether the host was lost during the call.
fn is_lost(error: &TerminalError) -> bool {
    matches!(error, TerminalError::Host(LinkError::Closed))
}

#[cfg(test)]
mod tests {
    use base::{clock::Clock, event::Events};
    use model::{Source, Timestamp};
    use store::{FinishCommand, Store};
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::terminal::test_support;

    #[tokio::test]
    async fn only_a_command_that_is_still_queued_is_recorded_as_not_started() {
        let (home, clock) = (tempfile::tempdir().unwrap(), Clock::system());
        let store = Store::open(home.path()).unwrap();
        let events = Events::new(clock.clone());
        let leases =
            test_support::leases(home.path(), &store, &events, &clock, CancellationToken::new());
        let terminals = test_support::terminals(home.path(), &store, &events, leases);
        let first = test_support::first_use("a", clock.now());
        let terminal = store.open_chain(first).await.unwrap().thread.terminal_id;
        let directory = terminals.directory(&terminal);
        std::fs::create_dir_all(&directory).unwrap();
        // Its host has started another command since.
        std::fs::write(directory.join(shell::BEGAN), CommandId::fresh().as_str()).unwrap();
        let at = Timestamp::now();
        let queue = async || {
            let id = CommandId::fresh();
            let queued = Command::queued(id, terminal.clone(), "true".into(), Source::Agent, 0, at);
            store.save_command(&queued).await.unwrap();
            queued
        };
        let never_received = queue().await;
        assert!(terminals.end_unreceived(&never_received).await.unwrap());
        assert!(terminals.end_unreceived(&never_received).await.unwrap());

        // Its end is stored between the reading of its row and the check.
        let read = queue().await;
        let end = CommandEnd::Finished { exit_code: Some(0), signal: None };
        let command = read.start(at, 0).unwrap().end(end, at).unwrap();
        let finish = FinishCommand { command, state: None, output: None, touch: None };
        store.finish_command(finish).await.unwrap();
        assert!(!terminals.end_unreceived(&read).await.unwrap());
        let stored = store.command(&read.command_id).await.unwrap().unwrap();
        assert_eq!(stored.status, CommandStatus::Finished);
    }
}
