//! Records shells and commands as lost.

use jiff::Timestamp;

use super::flight::CommandStage;
use super::owner::OwnerRequest;
use super::terminals::{SHELL_WAIT, Terminals};
use model::{Command, CommandEnd, CommandStatus, TerminalEvent, TerminalId};

impl Terminals {
    /// Marks the shell of a terminal as lost. State and output are kept.
    pub(super) async fn lost(&self, id: &TerminalId) {
        let live = self.0.live.lock().get(id).cloned();
        if let Some(live) = live {
            // While a request starts a shell, that is not the lost one.
            let Ok(mut runtime) = live.runtime(SHELL_WAIT).await else { return };
            if let Some(ended) = runtime.take() {
                ended.end(id).await;
            }
            drop(runtime);
            let why = "the shell is gone; the next command or key starts one from its last state";
            let _ = live.request(OwnerRequest::Lost(why.into())).await;
        }
        let now = Timestamp::now();
        if let Err(error) = self.0.store.apply_terminal(id, TerminalEvent::RuntimeLost, now).await {
            tracing::warn!(terminal = %id, %error, "cannot record that a shell is lost");
        }
        self.lose_rows(id, Vec::new()).await;
    }

    /// Records the commands of a deleted terminal as lost.
    pub(super) async fn lose_commands(&self, id: &TerminalId) {
        let open = self.0.flights.lose(|command| command.terminal_id == *id);
        self.lose_rows(id, open).await;
    }

    /// Records commands as lost: these, and stored ones that are not in flight.
    async fn lose_rows(&self, id: &TerminalId, mut open: Vec<Command>) {
        match self.0.store.unfinished_commands(id).await {
            Ok(rows) => open.extend(
                rows.into_iter().filter(|row| self.0.flights.command(&row.command_id).is_none()),
            ),
            Err(error) => tracing::warn!(terminal = %id, %error, "cannot list unfinished commands"),
        }
        for command in open {
            let queued = command.status == CommandStatus::Queued;
            let waited = queued && !self.began(&command).await;
            let end = if waited { CommandEnd::NotStarted } else { CommandEnd::Lost };
            let command = self.with_lengths(&command).await;
            if let Ok(lost) = command.end(end, Timestamp::now())
                && let Err(error) = self.0.store.save_command(&lost).await
            {
                tracing::warn!(command = %lost.command_id, %error, "cannot record a lost command");
            }
        }
    }

    /// Returns whether a lost host had started a command; `true` if that is unknown.
    pub(super) async fn began(&self, command: &Command) -> bool {
        let path = self.directory(&command.terminal_id).join(shell::BEGAN);
        let id = command.command_id.clone();
        let read = base::task::blocking(move || std::fs::read(path)).await;
        !read.is_ok_and(|read| read.is_ok_and(|last| last != id.as_str().as_bytes()))
    }

    /// Records the end of a command whose host is lost.
    pub(super) async fn end_as(&self, command: &Command, end: CommandEnd) {
        let known = self.0.flights.unread_end(&command.command_id);
        let command = &self.with_lengths(command).await;
        if let Ok(ended) = known.map_or_else(|| command.end(end, Timestamp::now()), Ok)
            && let Err(error) = self.0.store.save_command(&ended).await
        {
            tracing::warn!(command = %ended.command_id, %error, "cannot record how a command ended");
        }
        self.0.flights.stage(&command.command_id, CommandStage::Lost);
        self.0.flights.forget(&command.command_id);
    }
}
