//! Ends the programs of terminals, and disconnects from all of them when the server stops.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use jiff::Timestamp;
use tokio::sync::oneshot;
use wire::{ReplyCode, Request};

use super::error::TerminalError;
use super::link::LinkError;
use super::output_source;
use super::owner::OwnerRequest;
use super::terminals::{LinkSlot, LiveTerminal, SHELL_WAIT, Terminals, directory};
use model::{CommandId, TerminalId};

impl Terminals {
    /// Ends every process of a terminal and removes its files; safe to repeat. The caller deletes the row.
    /// Boxed, so that it is compiled once and not in each crate that awaits it.
    pub fn close<'a>(&'a self, id: &'a TerminalId) -> BoxFuture<'a, Result<(), TerminalError>> {
        Box::pin(async move {
            let live = self.0.live.lock().get(id).cloned();
            if let Some(live) = live {
                let _ = live.request(OwnerRequest::Lost("the terminal was deleted".into())).await;
                let mut runtime = live.runtime(SHELL_WAIT).await?;
                if let Some(connection) = &*runtime {
                    let terminal = id.to_string();
                    match connection.link.call(|seq| Request::Close { seq, terminal }).await {
                        Ok(_) | Err(LinkError::Refused { code: ReplyCode::NoSuchTerminal, .. }) => {
                        }
                        // The host is gone, or it is found again and the terminal without a row is ended then.
                        Err(LinkError::Closed) => {}
                        // Kept in the map until it is closed, so that the caller can retry.
                        Err(error) => return Err(error.into()),
                    }
                    connection.link.unlisten(id.as_str());
                }
                *runtime = None;
                self.0.live.lock().remove(id);
            }
            self.lose_commands(id).await;
            self.remove_directory(id).await
        })
    }

    /// Ends the programs of terminals that were unused for `idle`, have no watcher and run no command. Their
    /// state is kept.
    pub async fn end_unused(&self, idle: Duration) {
        let before = Timestamp::now() - idle;
        let unused: Vec<TerminalId> = {
            let live = self.0.live.lock();
            let unused = |live: &&Arc<LiveTerminal>| {
                let facts = live.shared.facts();
                facts.live && facts.attending == 0 && facts.last_activity_at < before
            };
            live.values().filter(unused).map(|live| live.id.clone()).collect()
        };
        for id in unused {
            if self.0.flights.open(|command| command.terminal_id == id) == 0
                && let Err(error) = self.end(&id).await
            {
                tracing::warn!(terminal = %id, %error, "cannot end an unused terminal");
            }
        }
    }

    /// Ends the program of a terminal; its state and output are kept.
    pub async fn end(&self, id: &TerminalId) -> Result<(), TerminalError> {
        let live = self.0.live.lock().get(id).cloned();
        let Some(live) = live else { return Ok(()) };
        let connection = live.runtime(SHELL_WAIT).await?.take();
        if let Some(connection) = connection {
            let terminal = id.to_string();
            connection.link.unlisten(id.as_str());
            match connection.link.call(|seq| Request::Close { seq, terminal }).await {
                Ok(_) | Err(LinkError::Refused { code: ReplyCode::NoSuchTerminal, .. }) => {}
                Err(error) => return Err(error.into()),
            }
            connection.end(id).await;
            self.lost(id).await;
            self.lose_commands(id).await;
        }
        Ok(())
    }

    /// Removes the output of commands whose rows were pruned.
    pub async fn forget_commands(&self, commands: Vec<(TerminalId, CommandId)>) {
        let home = self.0.settings.home.clone();
        let removed = base::task::blocking(move || {
            for (terminal, command) in commands {
                output_source::remove(&directory(&home, &terminal), &command);
            }
        });
        let _ = removed.await;
    }

    /// Writes pending checkpoints and disconnects from every host. The shells keep running.
    pub async fn stop(&self) {
        self.0.stopping.cancel();
        let all: Vec<Arc<LiveTerminal>> = {
            let live = self.0.live.lock();
            live.values().cloned().collect()
        };
        let mut stopping = Vec::new();
        for live in all {
            let (answer, stopped) = oneshot::channel();
            if live.request(OwnerRequest::Stop(answer)).await.is_ok() {
                stopping.push(stopped);
            }
        }
        for stopped in stopping {
            let _ = stopped.await;
        }
        let links: Vec<LinkSlot> = {
            let mut links = self.0.links.lock();
            links.drain().map(|(_, slot)| slot).collect()
        };
        for slot in links {
            // A connection that is being made is dropped with its task.
            if let Ok(slot) = slot.try_lock()
                && let Some(link) = &*slot
            {
                link.close();
            }
        }
        self.0.tasks.close();
        self.0.tasks.wait().await;
    }
}
