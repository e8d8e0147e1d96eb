//! What clients do with a terminal: type, resize, signal, take pictures and watch.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use jiff::Timestamp;
use tokio::sync::{mpsc, oneshot};
use wire::{ReplyCode, Request};

use super::drive::{ClientId, ClientMode};
use super::error::TerminalError;
use super::history::{self, Offsets};
use super::link::{HostLink, LinkError};
use super::options::Resume;
use super::owner::{Format, OwnerRequest, Picture};
use super::terminals::{LiveTerminal, Terminals};
use super::watch::{AtExit, WatchFrom, Watcher};
use model::{Desired, Terminal};

impl Terminals {
    /// Types into a terminal, at most once: a repeated `write_id` has no effect.
    pub async fn input(
        &self,
        terminal: &Terminal,
        write_id: &str,
        data: Bytes,
    ) -> Result<(), TerminalError> {
        let (live, link) = self.interactive(terminal).await?;
        // A large paste is split into frames, each with its own id.
        for (part, piece) in data.chunks(wire::MAX_DATA).enumerate() {
            let write_id = match (write_id, part) {
                ("", _) => String::new(),
                (id, 0) => id.to_owned(),
                (id, part) => format!("{id}.{part}"),
            };
            let terminal = live.id.to_string();
            let data = piece.to_vec();
            link.call(|seq| Request::Input { seq, terminal, write_id, data }).await?;
        }
        live.shared.note(|facts| facts.last_activity_at = Timestamp::now());
        Ok(())
    }

    /// Types a secret and a newline into the program that reads the terminal, at most once per `write_id`. Refused
    /// unless a program waits for a line that the terminal does not echo.
    pub async fn type_secret(
        &self,
        terminal: &Terminal,
        write_id: &str,
        secret: &str,
    ) -> Result<(), TerminalError> {
        let (live, link) = self.interactive(terminal).await?;
        let (terminal, write_id) = (live.id.to_string(), write_id.to_owned());
        let data = format!("{secret}\n").into_bytes();
        match link.call(|seq| Request::TypeSecret { seq, terminal, write_id, data }).await {
            Ok(_) => {}
            Err(LinkError::Refused { code: ReplyCode::Unsupported, .. }) => {
                return Err(TerminalError::NoSecrets);
            }
            Err(error) => return Err(error.into()),
        }
        live.shared.note(|facts| facts.last_activity_at = Timestamp::now());
        Ok(())
    }

    pub async fn resize(
        &self,
        terminal: &Terminal,
        cols: u16,
        rows: u16,
    ) -> Result<(), TerminalError> {
        let (live, link) = self.interactive(terminal).await?;
        let terminal = live.id.to_string();
        link.call(|seq| Request::Resize { seq, terminal, cols, rows }).await?;
        Ok(())
    }

    /// Sends a signal to the foreground program.
    pub async fn signal(&self, terminal: &Terminal, signal: i32) -> Result<(), TerminalError> {
        let (live, link) = self.interactive(terminal).await?;
        let terminal = live.id.to_string();
        link.call(|seq| Request::Signal { seq, terminal, signal }).await?;
        Ok(())
    }

    /// Returns a picture of a terminal, whether or not it is live.
    pub async fn picture(
        &self,
        terminal: &Terminal,
        format: Format,
        scrollback: Option<usize>,
    ) -> Result<Picture, TerminalError> {
        let live = self.live(terminal).await;
        let (answer, picture) = oneshot::channel();
        live.request(OwnerRequest::Picture { format, scrollback, answer }).await?;
        picture.await.map_err(|_| TerminalError::Gone)
    }

    /// Attaches a watcher. A lost shell is started again, unless its program had ended.
    pub async fn watch(
        &self,
        terminal: &Terminal,
        name: String,
        mode: ClientMode,
        from: WatchFrom,
        resume: Resume,
    ) -> Result<Watcher, TerminalError> {
        let live = self.live(terminal).await;
        let starts = match resume {
            Resume::Yes | Resume::No => true,
            Resume::UnlessStopped => {
                let lease = self.0.store.lease(&terminal.lease_id).await?;
                lease.is_none_or(|lease| lease.desired != Desired::Stopped)
            }
        };
        if starts && live.shared.facts().exit.is_none() {
            match self.ensure_shell(terminal, &live, resume).await {
                // A program that has just ended still has its last picture.
                Ok(_) | Err(TerminalError::Exited) => {}
                Err(error) => return Err(error),
            }
        }
        self.enter(terminal, &live, name, mode, from).await
    }

    /// Attaches a guest. Starts and resumes nothing, and does not keep the terminal in use.
    pub async fn watch_as_guest(
        &self,
        terminal: &Terminal,
        name: String,
        from: WatchFrom,
    ) -> Result<Watcher, TerminalError> {
        let live = self.live(terminal).await;
        self.enter(terminal, &live, name, ClientMode::Guest, from).await
    }

    async fn enter(
        &self,
        terminal: &Terminal,
        live: &LiveTerminal,
        name: String,
        mode: ClientMode,
        from: WatchFrom,
    ) -> Result<Watcher, TerminalError> {
        let client = self.0.clients.fetch_add(1, Ordering::Relaxed);
        live.request(OwnerRequest::Enter { client, name, mode }).await?;
        let (shared, requests) = (live.shared.clone(), live.requests.clone());
        let directory = self.directory(&live.id);
        let at_exit = if terminal.ends_with_program() { AtExit::Ends } else { AtExit::Restarts };
        Ok(Watcher::enter(shared, requests, client, from, directory, at_exit).await?)
    }

    /// Types on behalf of a connected client. Refused unless it is the driver.
    pub async fn type_as(
        &self,
        terminal: &Terminal,
        client: ClientId,
        write_id: &str,
        data: Bytes,
    ) -> Result<(), TerminalError> {
        let facts = self.facts(terminal).await;
        if facts.driving != Some(client) {
            return Err(TerminalError::NotDriver { driver: facts.driver });
        }
        self.input(terminal, write_id, data).await
    }

    /// Returns the kept output of a terminal as asciicast v2.
    pub fn recording(&self, terminal: &Terminal, offsets: Offsets) -> mpsc::Receiver<Bytes> {
        let size = (terminal.cols, terminal.rows);
        let title = terminal.title.clone();
        history::recording(self.directory(&terminal.terminal_id), size, title, offsets)
    }

    /// Returns a terminal that accepts input. A lost shell is started again.
    async fn interactive(
        &self,
        terminal: &Terminal,
    ) -> Result<(Arc<LiveTerminal>, HostLink), TerminalError> {
        let live = self.live(terminal).await;
        if live.shared.facts().exit.is_some() {
            return Err(TerminalError::Exited);
        }
        let connection = self.ensure_shell(terminal, &live, Resume::Yes).await?;
        Ok((live, connection))
    }
}
